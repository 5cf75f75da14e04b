"""The GPUs as the compute driver (KFD) counts them: each partition of a card is one node of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attrs import evolve, frozen

from accelscale.model import Reason
from accelscale_amd.files import UnreadableError, read_integer, read_text, text_or_none

_AMD = 0x1002


@frozen
class KfdNode:
    """One node: ``slot`` is its PCI address without the function.

    ``gpu_id`` is the number under which processes are accounted.
    """

    slot: str
    function: int
    partition: int
    render_minor: int
    gpu_id: int | None

    @property
    def address(self) -> str:
        """The PCI address; the driver may have put the partition in the place of the function."""
        return f"{self.slot}.{self.function:x}"

    def numbered(self, partition: int) -> KfdNode:
        """The same node as the partition of that number."""
        return evolve(self, partition=partition)


class Topology:
    """Reads the nodes, again only when the driver says that they changed."""

    def __init__(self, root: Path) -> None:
        self._kfd = root / "sys/class/kfd/kfd"
        self._generation: str | None = None
        self._nodes: tuple[KfdNode, ...] = ()

    def nodes(self) -> tuple[KfdNode, ...]:
        """All nodes that are GPUs of AMD and may be seen; none where KFD is not there."""
        generation = text_or_none(self._kfd / "topology/generation_id")
        if generation is None or generation != self._generation:
            self._nodes = tuple(self._read())
            self._generation = generation
        return self._nodes

    def _read(self) -> Iterator[KfdNode]:
        for folder in sorted((self._kfd / "topology/nodes").glob("*")):
            try:
                lines = read_text(folder / "properties").splitlines()
                words = (line.split() for line in lines)
                properties = {line[0]: int(line[1]) for line in words if len(line) == 2}
            except (UnreadableError, ValueError):
                continue  # a node of another container, whose devices are not ours
            if properties.get("vendor_id") == _AMD and properties.get("simd_count", 0) > 0:
                yield _node(folder, properties)


def _node(folder: Path, properties: dict[str, int]) -> KfdNode:
    """The node; its location holds the partition in bits 28 to 31, or in place of the function."""
    location = properties.get("location_id", 0)
    bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 0x7
    try:
        gpu_id = read_integer(folder / "gpu_id")
    except UnreadableError:
        gpu_id = None
    return KfdNode(
        slot=f"{properties.get('domain', 0):04x}:{bus:02x}:{device:02x}",
        function=function,
        partition=location >> 28 & 0xF or function,
        render_minor=properties.get("drm_render_minor", 0),
        gpu_id=gpu_id,
    )


def processes_on(root: Path, gpu_ids: frozenset[int]) -> int:
    """How many compute processes hold memory or a queue on one of these GPUs.

    Raises:
        UnreadableError: KFD does not show its processes.
    """
    folder = root / "sys/class/kfd/kfd/proc"
    if not folder.is_dir():
        raise UnreadableError(
            Reason.NOT_SUPPORTED, f"there is no {folder}: this kernel does not show processes"
        )
    return sum(_holds(process, gpu_ids) for process in folder.glob("*"))


def _holds(process: Path, gpu_ids: frozenset[int]) -> bool:
    """Whether a process holds one of these; one that ends meanwhile holds nothing."""
    memory = (text_or_none(process / f"vram_{gpu_id}") for gpu_id in gpu_ids)
    if any(text is not None and text != "0" for text in memory):
        return True
    queues = (text_or_none(queue / "gpuid") for queue in process.glob("queues/*"))
    return any(text in {str(gpu_id) for gpu_id in gpu_ids} for text in queues)
