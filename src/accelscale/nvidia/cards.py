"""Which cards there are, lost ones included.

Handles and indices come and go; a card keeps its id for as long as this process lives. The id is
the UUID, or the PCI address of a card whose UUID is unreadable or shared with another. A card that
NVML counts but never let us identify is listed by its PCI address where NVML knows one for it, else
as ``nvidia-unidentified-1`` and so on: an ugly name is better than a card that nobody misses.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from attrs import frozen

from accelscale.model import Reason
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.card import Card, gives_sign_of_life, note_mig_mode, note_surroundings
from accelscale.nvidia.driver import Driver, address
from accelscale.nvidia.health import ask_for_action
from accelscale.nvidia.identity import (
    PCI_DEVICES,
    Identity,
    identify,
    nvidia_pci_addresses,
)
from accelscale.nvidia.instances import Instance, look_at_instances

_HIDDEN = frozenset({"NO_PERMISSION", "INVALID_ARGUMENT", "NOT_FOUND"})
"""Errors of a look-up by index that tell of no card of ours: one that this container may not use,
or a list that became shorter meanwhile."""

_WSL_DEVICE = Path("/dev/dxg")
"""The device file by which Linux under Windows reaches its graphics cards."""

_UNIDENTIFIED = "unidentified NVIDIA device"


@frozen
class Sighting:
    """A handle that NVML gave out, and who it is."""

    identity: Identity
    handle: Any
    life: tuple[int, int]


class Cards:
    """Every card that this process has seen, by id; `look` brings them up to date.

    A card stays listed, as lost, when NVML no longer lists it. Only another card that turns up at
    its PCI address takes its place.
    """

    def __init__(self, pci_devices: Path = PCI_DEVICES) -> None:
        self._pci_devices = pci_devices
        self._cards: dict[str, Card] = {}  # replaced, never changed: other threads read it
        self._nameless: tuple[Card, ...] = ()
        self._identities: dict[tuple[int, int], Identity] = {}

    def card(self, device_id: str) -> Card | None:
        """The card of that id, or None."""
        known = self._cards.get(device_id)
        return known or next((card for card in self._nameless if card.id == device_id), None)

    def instance(self, device_id: str) -> Instance | None:
        """The MIG instance of that id, or None."""
        return next(
            (
                instance
                for card in self._cards.values()
                for instance in card.instances
                if instance.id == device_id
            ),
            None,
        )

    def all(self) -> list[Card]:
        """All cards, in an order that outlives changes of the index: by PCI address."""
        known = sorted(self._cards.values(), key=lambda card: (card.pci_address or "~", card.id))
        return [*known, *self._nameless]

    def look(self, driver: Driver) -> None:
        """Ask NVML which cards there are now, and look for each one that is missing.

        Raises:
            CallError: the driver as a whole does not answer, or lets us reach no card at all.
        """
        known_before = len(self._cards)
        sightings, errors = self._enumerate(driver)
        if errors and not sightings:
            _raise_if_shut_out(errors)
        present = self._assign(driver, sightings, errors)
        self._drop_replaced(present)
        explained = len(self._cards.keys() - present)  # each known card that no index led to
        self._seek_missing(driver, present)
        self._examine(driver, present)
        strangers = [error for error in errors if error.name not in _HIDDEN][explained:]
        self._list_strangers(driver, strangers, newcomers=len(self._cards) - known_before)

    def _enumerate(self, driver: Driver) -> tuple[list[Sighting], list[CallError]]:
        self._identities = {
            life: identity
            for life, identity in self._identities.items()
            if life[0] == driver.generation
        }
        sightings: list[Sighting] = []
        errors: list[CallError] = []
        for index in range(int(driver.call("nvmlDeviceGetCount"))):
            try:
                handle = driver.call("nvmlDeviceGetHandleByIndex", index)
                sightings.append(self._recognise(driver, handle))
            except CallError as error:
                if error.is_driver_wide:
                    raise
                errors.append(error)
        return sightings, errors

    def _recognise(self, driver: Driver, handle: Any) -> Sighting:
        """Who that is. A handle means one card until NVML shuts down: one full answer will do."""
        life = (driver.generation, address(handle))
        identity = self._identities.get(life) or identify(driver, handle)
        if identity.uuid is not None and identity.name is not None:
            self._identities[life] = identity
        return Sighting(identity, handle, life)

    def _assign(
        self, driver: Driver, sightings: list[Sighting], errors: list[CallError]
    ) -> set[str]:
        """Give each sighting its card; the ids of the cards that are present."""
        holders = Counter(sighting.identity.uuid for sighting in sightings)
        present: set[str] = set()
        for sighting in sightings:
            identity = sighting.identity
            if identity.uuid is not None and holders[identity.uuid] == 1:
                card = self._cards.get(identity.uuid) or Card(identity.uuid)
            elif identity.pci_address is not None:
                card = self._at(identity.pci_address) or Card(identity.pci_address)
            else:
                detail = f"several devices give the UUID {identity.uuid}, and no PCI address"
                errors.append(CallError("nvmlDeviceGetUUID", None, "an ambiguous UUID", detail))
                continue
            self._cards = {**self._cards, card.id: card}
            present.add(card.id)
            _meet(driver, card, sighting)
        return present

    def _at(self, pci_address: str) -> Card | None:
        return next(
            (card for card in self._cards.values() if card.pci_address == pci_address), None
        )

    def _seek_missing(self, driver: Driver, present: set[str]) -> None:
        """Look for the cards that no index led to, by their addresses and ids."""
        for card in [card for card in self._cards.values() if card.id not in present]:
            if card.is_busy:
                continue  # another thread is inside a call for it
            outcome = self._seek(driver, card)
            if isinstance(outcome, Sighting):
                present.add(card.id)
                _meet(driver, card, outcome)
            elif outcome is None or outcome.reason is not Reason.TIMEOUT:
                _note_missing(card, outcome)

    def _examine(self, driver: Driver, present: set[str]) -> None:
        """Look what the cards that are present are cut into, and whether they are fit for use."""
        for card in (self._cards[card_id] for card_id in present):
            if card.is_within_reach:
                look_at_instances(driver, card)
                ask_for_action(driver, card.handle, card.health)

    def _seek(self, driver: Driver, card: Card) -> Sighting | CallError | None:
        error: CallError | None = None
        for call, key in (
            ("nvmlDeviceGetHandleByPciBusId", card.pci_address),
            ("nvmlDeviceGetHandleByUUID", card.id if card.id != card.pci_address else None),
        ):
            if key is None:
                continue
            try:
                sighting = self._recognise(driver, driver.call(call, key))
            except CallError as failed:
                if failed.is_driver_wide:
                    raise
                error = error or failed
                continue
            if card.id in {sighting.identity.uuid, sighting.identity.pci_address}:
                return sighting
        return error

    def _drop_replaced(self, present: set[str]) -> None:
        """Forget a missing card whose slot now holds another one, or the same with a better id."""
        taken = {self._cards[card_id].pci_address for card_id in present} - {None}
        self._cards = {
            card_id: card
            for card_id, card in self._cards.items()
            if card_id in present or card.pci_address not in taken
        }

    def _list_strangers(self, driver: Driver, errors: list[CallError], *, newcomers: int) -> None:
        """List the cards that NVML counts but never let us identify."""
        unexplained = list(errors)
        for place in self._unaccounted_addresses() if unexplained else ():
            error = _error_at(driver, place)
            if error is not None and unexplained:
                unexplained.pop()
                card = Card(place, _UNIDENTIFIED, pci_address=place, is_identified=False)
                card.is_ill(_problem(error), str(error))
                self._cards = {**self._cards, place: card}
        count = max(len(unexplained), len(self._nameless) - newcomers, 0)
        nameless = list(self._nameless[:count])
        for number in range(len(nameless), count):
            card = Card(f"nvidia-unidentified-{number + 1}", _UNIDENTIFIED, is_identified=False)
            card.is_ill(_problem(unexplained[-1]), str(unexplained[-1]))
            nameless.append(card)
        self._nameless = tuple(nameless)

    def _unaccounted_addresses(self) -> list[str]:
        known = {card.pci_address for card in self._cards.values()}
        return [place for place in nvidia_pci_addresses(self._pci_devices) if place not in known]


def _meet(driver: Driver, card: Card, sighting: Sighting) -> None:
    """Bring a card that is present up to date."""
    if card.is_busy:
        return  # another thread is inside a call for it; the next look will do
    card.learn(sighting.identity)
    if card.life != sighting.life:
        card.meet(sighting.handle, sighting.life)
        note_surroundings(driver, card, in_wsl=_WSL_DEVICE.exists())
    note_mig_mode(driver, card)
    if card.problem is Reason.LOST:
        error = gives_sign_of_life(driver, card)
        if error is None:
            card.is_well()
        else:
            card.is_ill(_problem(error), str(error))


def _note_missing(card: Card, error: CallError | None) -> None:
    if error is None or error.name in {"NOT_FOUND", "INVALID_ARGUMENT"}:
        card.is_ill(Reason.LOST, "the driver no longer lists this card")
    else:
        card.is_ill(_problem(error), str(error))


def _problem(error: CallError) -> Reason:
    is_reset = error.reason is Reason.RESET_REQUIRED
    return Reason.RESET_REQUIRED if is_reset else Reason.LOST


def _raise_if_shut_out(errors: list[CallError]) -> None:
    """If no card at all can be reached, and not because all are lost, say so as a whole."""
    ill = {Reason.LOST, Reason.RESET_REQUIRED}
    names = {error.name for error in errors}
    if len(names) == 1 and errors[0].reason not in ill:
        raise errors[0]


def _error_at(driver: Driver, pci_address: str) -> CallError | None:
    """The error by which NVML shows that it has a card at this address; None without one."""
    try:
        driver.call("nvmlDeviceGetHandleByPciBusId", pci_address)
    except CallError as error:
        if error.is_driver_wide:
            raise
        return None if error.name in _HIDDEN else error
    return None
