"""Which cards there are, and how each is split.

``/sys/class/example_accelerator/cardN`` is a link to the folder of a PCI device. ``N`` counts anew
at every boot and moves when a card is lost, so it is no id: the PCI address is. A split card has a
folder ``partitions`` with a folder for each partition, numbered by their place on the card.
"""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from accelscale.model import Reason, normal_pci_address
from accelscale_example.files import UnreadableError, read_text, text_or_none

CLASS = "sys/class/example_accelerator"


@frozen
class Unit:
    """A card, or a partition of the card with the address ``parent``.

    ``folder`` holds its own files; ``card`` is that of the whole card.
    """

    id: str
    folder: Path
    card: Path
    parent: str | None = None

    @property
    def address(self) -> str:
        """The PCI address of the card."""
        return self.parent or self.id

    @property
    def name(self) -> str:
        """The product, and of a partition which one."""
        product = text_or_none(self.card / "product_name") or "Example accelerator"
        return product if self.parent is None else f"{product}, partition {self.folder.name}"

    @property
    def problem(self) -> tuple[Reason | None, str]:
        """What ails the card as a whole, by its file ``state``: ``ready``, ``hung``, or else."""
        try:
            state = read_text(self.card / "state")
        except UnreadableError as error:
            gone = error.reason is Reason.NOT_SUPPORTED  # every card has that file
            return Reason.LOST if gone else error.reason, error.detail
        if state == "ready":
            return None, ""
        reason = Reason.RESET_REQUIRED if state == "hung" else Reason.ERROR
        return reason, f"{self.card / 'state'} says {state!r}"

    @property
    def is_asleep(self) -> bool:
        """Whether the kernel has suspended the card; reading any other file would wake it."""
        return text_or_none(self.card / "power/runtime_status") == "suspended"


def find_units(root: Path) -> tuple[Unit, ...]:
    """Every card by address, each followed by its partitions."""
    cards = [link.resolve() for link in (root / CLASS).glob("card*")]
    units: list[Unit] = []
    for folder in sorted(cards, key=lambda folder: folder.name):
        address = normal_pci_address(folder.name)
        units.append(Unit(address, folder, folder))
        units += (
            Unit(f"{address}/{part.name}", part, folder, parent=address)
            for part in sorted((folder / "partitions").glob("[0-9]*"))
        )
    return tuple(units)
