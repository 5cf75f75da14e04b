"""Which Intel GPUs there are: the DRM cards whose kernel driver is i915 or xe.

Both ways of reading start from this list, so a card has the same id whichever of them works: its
PCI address. Level Zero has a UUID too, but makes it from the PCI address and the model, and where
Level Zero is missing so would be the id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from accelscale.model import normal_pci_address
from accelscale_intel.files import UnreadableError, text_of, whole_number_of

DRIVERS = frozenset({"i915", "xe"})

_CARD = re.compile(r"card([0-9]+)")  # and not card0-DP-1, which is a connector
_NODE = re.compile(r"(?:card|renderD)[0-9]+")
_INTEGRATED = "0000:00:02.0"  # where Intel's chipsets have had it for twenty years


@frozen
class Card:
    """One DRM card.

    ``address`` is its PCI address, ``number`` that of ``/dev/dri/cardN``, ``nodes`` the names and
    the numbers (``226:128``) of its device files. ``physical_function`` is the address of the card
    that this one is a virtual function of.
    """

    address: str
    number: int
    driver: str
    pci_id: str
    folder: Path
    nodes: frozenset[str]
    physical_function: str | None = None

    @property
    def device(self) -> Path:
        """The folder of the PCI device."""
        return self.folder / "device"

    @property
    def is_integrated(self) -> bool:
        """Whether it is part of the processor, and so has no memory of its own.

        In a virtual machine any card may be at that address, but only a discrete one has sensors.
        """
        return self.address == _INTEGRATED and not (self.device / "hwmon").exists()

    @property
    def is_present(self) -> bool:
        """Whether this card is still the one under its number."""
        address = _uevent(self.device).get("PCI_SLOT_NAME")
        return address is not None and normal_pci_address(address) == self.address

    @property
    def is_suspended(self) -> bool:
        """Whether the kernel has put it to sleep. Whatever reads it then wakes it up."""
        try:
            return text_of(self.device / "power/runtime_status") == "suspended"
        except UnreadableError:
            return False  # a kernel without runtime power management

    @property
    def active_milliseconds(self) -> int:
        """Time that it has been awake. Raises UnreadableError."""
        return whole_number_of(self.device / "power/runtime_active_time")

    @property
    def virtual_functions(self) -> int:
        """How many virtual functions it is split into."""
        try:
            return whole_number_of(self.device / "sriov_numvfs")
        except UnreadableError:
            return 0  # it cannot be split


def intel_cards(root: Path) -> list[Card]:
    """The cards there are now, by PCI address."""
    cards = []
    for folder in (root / "sys/class/drm").glob("card*"):
        match = _CARD.fullmatch(folder.name)
        card = _card(folder, int(match[1])) if match else None
        if card is not None:
            cards.append(card)
    return sorted(cards, key=lambda card: card.address)


def _card(folder: Path, number: int) -> Card | None:
    facts = _uevent(folder / "device")
    address, driver = facts.get("PCI_SLOT_NAME"), facts.get("DRIVER")
    if address is None or driver not in DRIVERS:
        return None
    parent = _uevent(folder / "device/physfn").get("PCI_SLOT_NAME")
    return Card(
        address=normal_pci_address(address),
        number=number,
        driver=driver,
        pci_id=facts.get("PCI_ID", "").lower(),
        folder=folder,
        nodes=frozenset({folder.name, *_nodes(folder / "device/drm")}),
        physical_function=None if parent is None else normal_pci_address(parent),
    )


def _nodes(folder: Path) -> Iterator[str]:
    for path in folder.glob("*"):
        if _NODE.fullmatch(path.name):
            yield path.name
            try:
                yield text_of(path / "dev")
            except UnreadableError:
                continue  # gone meanwhile


def _uevent(folder: Path) -> dict[str, str]:
    """What the kernel tells of a device; nothing if it is gone."""
    try:
        lines = text_of(folder / "uevent").splitlines()
    except UnreadableError:
        return {}
    return {name: value for name, _, value in (line.partition("=") for line in lines)}
