"""The cards in use: what devices they are, and their readings from whichever source gives them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from attrs import evolve

from accelscale.metrics import METRICS, Metric
from accelscale.model import Device, Failure, Reading, Reason, Sample
from accelscale_intel import kernel, rows
from accelscale_intel.cards import Card, intel_cards
from accelscale_intel.files import UnreadableError, unreadable
from accelscale_intel.level_zero import Sysman
from accelscale_intel.sleep import Sleep
from accelscale_intel.sources import KERNEL, LEVEL_ZERO, Sources, Way
from accelscale_intel.usage import ProcessUsage, UsagePass

_ILL = frozenset({Reason.LOST, Reason.RESET_REQUIRED})
_TABLE: Mapping[str, Metric] = {**METRICS, **{row.name: row for row in rows.EXTRA_METRICS}}
_VANISHED = "it is no longer among the DRM cards: unplugged, or its driver was unbound"


class Session:
    """What the backend does between `begin` and `end`, which may follow each other again.

    A thread that hangs with one card keeps nothing that another one needs: what is kept is kept
    per card, and a look through the processes belongs to the pass that took it.
    """

    def __init__(self, root: Path, backend: str, vendor: str) -> None:
        self._root = root
        self._backend = backend
        self._vendor = vendor
        self._cards: dict[str, Card] = {}
        self._known: dict[str, Device] = {}
        self._problems: dict[str, tuple[Reason, str]] = {}
        self._sysman = Sysman(root)
        self._usage = ProcessUsage(root)
        self._sleep = Sleep()
        self._sources = Sources()

    def begin(self, cards: Sequence[Card]) -> None:
        """Take these cards, and start Level Zero if it works here. Never raises."""
        self._sysman.start()
        self._cards = {card.address: card for card in cards}

    def end(self) -> None:
        """Let go of all that was read, but not of what was learnt about the drivers."""
        self._cards = {}
        self._known = {}
        self._problems = {}
        self._sysman.forget()
        self._usage.forget()
        self._sources.forget()

    def devices(self) -> tuple[Device, ...]:
        """The cards there are now, and as lost those that were there since `begin`."""
        self._cards = {card.address: card for card in intel_cards(self._root)}
        self._sysman.refresh()
        for address, device in self._known.items():
            if address not in self._cards:
                self._known[address] = evolve(device, problem=Reason.LOST, problem_detail=_VANISHED)
        for card in self._cards.values():
            before = self._known.get(card.address)
            if before is not None and before.problem_detail == _VANISHED:
                self._sysman.outlive(card.address)
                self._sources.forget(card.address)
            self._known[card.address] = self._device(card)
        return tuple(self._known[address] for address in sorted(self._known))

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        """One reading per device, in this order."""
        awake: dict[str, Card] = {}
        asleep: dict[str, Card] = {}
        for card in self._cards.values():
            if card.is_present:
                (asleep if card.is_suspended else awake)[card.address] = card
        usage = self._usage.begin(awake.values())
        for device in devices:
            value_of: Callable[[str], float] = _gone
            if device.id in awake:
                value_of = partial(self._value, awake[device.id], usage)
            elif device.id in asleep:
                value_of = partial(self._asleep, asleep[device.id])
            yield self._reading(device.id, metrics, value_of)

    def _device(self, card: Card) -> Device:
        attributes = {"drm_card": str(card.number), "driver": card.driver}
        if card.pci_id:
            attributes["pci_id"] = card.pci_id
        known = self._sysman.card(card.address)
        name = known.name if known is not None else ""
        if known is not None and known.uuid:
            attributes["uuid"] = known.uuid
        problem, detail = self._problems.get(card.address, (None, ""))
        return Device(
            id=card.address,
            name=name or f"Intel GPU {card.pci_id}".strip(),
            vendor=self._vendor,
            backend=self._backend,
            parent=card.physical_function,
            pci_address=card.address,
            problem=problem,
            problem_detail=detail,
            attributes=attributes,
        )

    def _reading(
        self, address: str, metrics: Collection[str], value_of: Callable[[str], float]
    ) -> Reading:
        answers = [_answer(address, metric, value_of) for metric in metrics]
        failures = tuple(answer for answer in answers if isinstance(answer, Failure))
        samples = tuple(answer for answer in answers if isinstance(answer, Sample))
        ill = next((failure for failure in failures if failure.reason in _ILL), None)
        if ill is not None:
            self._problems[address] = (ill.reason, ill.detail)
        elif samples:
            self._problems.pop(address, None)
        return Reading(address, samples, failures)

    def _value(self, card: Card, usage: UsagePass, metric: str) -> float:
        self._sleep.forget(card)
        if metric == "utilization_percent" and card.virtual_functions:
            text = (
                f"the card is split into {card.virtual_functions} virtual functions, whose work is"
                " not in its own counters"
            )
            raise UnreadableError(Reason.NOT_SUPPORTED, text)
        ways: list[Way] = [
            (LEVEL_ZERO, partial(self._sysman.reader, card, metric)),
            (KERNEL, partial(_kernel_reader, card, usage, metric)),
        ]
        if metric in rows.KERNEL_FIRST:
            ways.reverse()
        return self._sources.value(card.address, metric, ways)

    def _asleep(self, card: Card, metric: str) -> float:
        known = self._sysman.card(card.address)
        if known is not None:
            known.forget()
        return self._sleep.value(card, metric)


def _kernel_reader(card: Card, usage: UsagePass, metric: str) -> Callable[[], float] | None:
    read = kernel.READERS.get(metric) or usage.readers.get(metric)
    return None if read is None else partial(read, card)


def _answer(address: str, metric: str, value_of: Callable[[str], float]) -> Sample | Failure:
    now = time.monotonic()
    try:
        value = value_of(metric)
    except OSError as error:
        return _failure(address, metric, unreadable(error), now)
    except UnreadableError as error:
        return _failure(address, metric, error, now)
    except Exception as error:  # noqa: BLE001 - one metric of one card must spoil no other
        text = f"{type(error).__name__}: {error}"
        return Failure(address, metric, Reason.ERROR, text, now)
    row = _TABLE[metric]
    if not row.minimum <= value <= row.maximum:
        text = f"{value:g} is outside {row.minimum:g} to {row.maximum:g} {row.unit}"
        return Failure(address, metric, Reason.OUT_OF_RANGE, text, now)
    return Sample(address, metric, value, now)


def _failure(address: str, metric: str, error: UnreadableError, now: float) -> Failure:
    return Failure(
        address, metric, error.reason, error.detail, now, error.code, permanent=error.permanent
    )


def _gone(metric: str) -> float:
    raise UnreadableError(Reason.LOST, "there is no such card among the DRM cards")
