"""Which AMD GPUs there are, and how each is split: from ``/sys`` alone, without waking a card.

A card is found as a DRM device of the driver amdgpu, by its PCI address. Its id is what
``rocminfo`` shows as its UUID (``GPU-`` and the ``unique_id`` of the kernel), because that stays
with the card and differs between nodes; the UUID of amdsmi is another one, and its form changed
with ROCm 7.13. A card without such an id, or with one that another shows too, as virtual functions
may, goes by its address.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from attrs import define, field, frozen

from accelscale.model import Device, Reason, normal_pci_address
from accelscale_amd.files import UnreadableError, read_text, text_or_none
from accelscale_amd.names import marketing_name
from accelscale_amd.presence import amdgpu_cards
from accelscale_amd.throttling import ThrottledTime
from accelscale_amd.topology import KfdNode, Topology

logger = logging.getLogger("accelscale.amd")

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_ASLEEP = frozenset({"suspended", "suspending"})


@frozen
class Partition:
    """One compute partition (XCP) of a card, which programs see as a GPU of its own.

    ``folder`` is that of its own DRM device, and ``kubelet_id`` the name of that: the first is the
    card's PCI device, each other one a platform device such as ``amdgpu_xcp_3``.
    """

    id: str
    number: int
    node: KfdNode
    folder: Path | None
    kubelet_id: str


@define(eq=False)
class Card:
    """One physical GPU, or one die of a card with two.

    ``mode`` is how it is split (``SPX`` is not), as far as the driver says; ``partitions`` holds
    none for a card in one piece. ``nodes`` are its entries in the topology of the compute driver.
    """

    id: str
    address: str
    folder: Path
    device_id: str = ""
    name: str = "AMD GPU"
    unique_id: str | None = None
    mode: str | None = None
    memory_mode: str | None = None
    nodes: tuple[KfdNode, ...] = ()
    partitions: tuple[Partition, ...] = ()
    problem: Reason | None = None
    problem_detail: str = ""
    attributes: dict[str, str] = field(factory=dict)
    throttled: ThrottledTime = field(factory=ThrottledTime)

    @property
    def is_split(self) -> bool:
        """Whether its partitions, seen or unseen, are the GPUs that programs use."""
        return bool(self.partitions) or self.mode not in {None, "SPX"}

    def require_awake(self) -> None:
        """Refuse to read a card that sleeps: a read would wake it, and keep it awake.

        Raises:
            UnreadableError: it is suspended at run time.
        """
        status = text_or_none(self.folder / "power/runtime_status")
        if status in _ASLEEP:
            self.throttled.interrupt()
            detail = f"the card is asleep ({status}), and reading it would wake it"
            raise UnreadableError(Reason.STALE, detail)

    def hwmon(self) -> Path:
        """The folder of its sensors.

        Raises:
            UnreadableError: there is none.
        """
        found = sorted((self.folder / "hwmon").glob("hwmon*"))
        if not found:
            detail = f"there is no {self.folder / 'hwmon'}: amdgpu shows no sensors of this card"
            driven = (self.folder / "drm").is_dir()
            raise UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=driven)
        return found[0]

    def is_ill(self, detail: str) -> None:
        """Note that it is lost, and log that if it is news."""
        if self.problem is None:
            logger.warning("%s (%s): lost: %s", self.id, self.name, detail)
        self.problem, self.problem_detail = Reason.LOST, detail

    def is_well(self) -> None:
        """Note that it is there."""
        if self.problem is not None:
            logger.info("%s (%s): is there again", self.id, self.name)
        self.problem, self.problem_detail = None, ""


class Cards:
    """Every card that was seen, by address; `look` brings them up to date.

    A card that vanishes stays listed, as lost. Only another card at its address takes its place.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names = root / "usr/share/libdrm/amdgpu.ids"
        self._topology = Topology(root)
        self._cards: dict[str, Card] = {}

    def all(self) -> list[Card]:
        """All cards in the order of their addresses, lost ones included."""
        return sorted(self._cards.values(), key=lambda card: card.address)

    def look(self) -> None:
        """Look which cards there are now, and how they are split."""
        found = dict(self._found())
        shown = Counter(unique_id for _, unique_id in found.values() if unique_id)
        nodes = self._topology.nodes()
        cards = dict(self._cards)
        for address, (folder, unique_id) in found.items():
            own = unique_id if unique_id and shown[unique_id] == 1 else None
            card = cards.get(address)
            if card is None or (own and card.unique_id and card.unique_id != own):
                card = Card(f"GPU-{own}" if own else address, address, folder, unique_id=own)
                self._identify(card)
            card.folder = folder
            card.is_well()
            self._see_split(card, nodes, found)
            cards[address] = card
        for address, card in cards.items():
            if address not in found:
                card.is_ill(f"amdgpu no longer has a card at {address}")
        self._cards = cards  # readers in other threads see the old or the new

    def _found(self) -> Iterator[tuple[str, tuple[Path, str | None]]]:
        for folder in amdgpu_cards(self._root):
            unique_id = (text_or_none(folder / "unique_id") or "").lower().removeprefix("0x")
            usable = bool(unique_id.strip("0")) and set(unique_id) != {"f"}
            yield _address(folder), (folder, unique_id.zfill(16) if usable else None)

    def _identify(self, card: Card) -> None:
        card.device_id = text_or_none(card.folder / "device") or ""
        revision = text_or_none(card.folder / "revision") or ""
        card.name = (
            text_or_none(card.folder / "product_name")
            or marketing_name(self._names, card.device_id, revision)
            or f"AMD GPU {card.device_id.removeprefix('0x')}".strip()
        )
        card.attributes["device_id"] = card.device_id

    def _see_split(
        self, card: Card, nodes: tuple[KfdNode, ...], addresses: Collection[str]
    ) -> None:
        card.nodes = _nodes_of(card, nodes, addresses)
        try:
            card.require_awake()
        except UnreadableError:
            return  # it cannot be split anew while it sleeps
        card.mode = text_or_none(card.folder / "current_compute_partition")
        card.memory_mode = text_or_none(card.folder / "current_memory_partition")
        split = card.nodes if len(card.nodes) > 1 else ()
        card.partitions = tuple(self._partition(card, node) for node in split)

    def _partition(self, card: Card, node: KfdNode) -> Partition:
        folder = (self._root / f"sys/class/drm/renderD{node.render_minor}/device").resolve()
        return Partition(
            id=f"{card.id}/xcp{node.partition}",
            number=node.partition,
            node=node,
            folder=folder if folder.is_dir() else None,
            kubelet_id=card.address if folder == card.folder else folder.name,
        )


def as_devices(card: Card, backend: str, vendor: str) -> Iterator[Device]:
    """The records of a card and of its partitions for the world outside."""
    attributes = {**card.attributes, **_split_attributes(card)}
    yield Device(
        id=card.id,
        name=card.name,
        vendor=vendor,
        backend=backend,
        pci_address=card.address,
        problem=card.problem,
        problem_detail=card.problem_detail,
        attributes=attributes,
    )
    for partition in card.partitions:
        yield Device(
            id=partition.id,
            name=f"{card.name} partition {partition.number}",
            vendor=vendor,
            backend=backend,
            parent=card.id,
            pci_address=card.address,
            problem=card.problem,
            problem_detail=card.problem_detail,
            attributes={
                "partition": str(partition.number),
                "kubelet_id": partition.kubelet_id,
                "render_node": f"renderD{partition.node.render_minor}",
                **_split_attributes(card),
            },
        )


def _split_attributes(card: Card) -> dict[str, str]:
    modes = {"compute_partition": card.mode, "memory_partition": card.memory_mode}
    return {name: mode for name, mode in modes.items() if mode}


def _address(folder: Path) -> str:
    """The PCI address of a device, by the name of its folder or what the kernel says of it."""
    if _PCI_ADDRESS.fullmatch(folder.name):
        return normal_pci_address(folder.name)
    try:
        pairs = (line.partition("=") for line in read_text(folder / "uevent").splitlines())
        return normal_pci_address({name: value for name, _, value in pairs}["PCI_SLOT_NAME"])
    except (UnreadableError, KeyError):
        return folder.name


def _nodes_of(
    card: Card, nodes: tuple[KfdNode, ...], addresses: Collection[str]
) -> tuple[KfdNode, ...]:
    """The topology's entries of a card, in the order of its partitions."""
    slot = card.address.rpartition(".")[0]
    own = [
        node
        for node in nodes
        if node.slot == slot and (node.address == card.address or node.address not in addresses)
    ]
    if len({node.partition for node in own}) == len(own):
        return tuple(sorted(own, key=lambda node: node.partition))
    # A driver that does not number the partitions; they come in the order of their DRM nodes.
    in_order = sorted(own, key=lambda node: node.render_minor)
    return tuple(node.numbered(number) for number, node in enumerate(in_order))
