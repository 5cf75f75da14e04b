"""Temporary trees of ``/sys`` that look as amdgpu makes them, links included."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from amd import tables

GIBIBYTE = 2**30

FILES: Mapping[str, object] = {
    "vendor": "0x1002",
    "device": "0x74a1",
    "revision": "0x00",
    "class": "0x038000",
    "power/runtime_status": "active",
    "product_name": "AMD Instinct MI300X OAM",
    "current_compute_partition": "SPX",
    "current_memory_partition": "NPS1",
    "gpu_busy_percent": 50,
    "mem_busy_percent": 20,
    "mem_info_vram_total": 192 * GIBIBYTE,
    "mem_info_vram_used": 40 * GIBIBYTE,
    "mem_info_gtt_total": 256 * GIBIBYTE,
    "mem_info_gtt_used": GIBIBYTE,
    "ras/umc_err_count": "ue: 0\nce: 3",
}
HWMON: Mapping[str, object] = {
    "name": "amdgpu",
    "temp1_label": "edge",
    "temp1_input": 50_000,
    "temp2_label": "junction",
    "temp2_input": 60_000,
    "temp2_crit": 100_000,
    "temp3_label": "mem",
    "temp3_input": 45_000,
    "power1_average": 300_000_000,
    "power1_cap": 750_000_000,
    "freq1_input": 2_100_000_000,
    "freq2_input": 1_300_000_000,
    "fan1_input": 0,
}
TABLE: Mapping[str, object] = {
    "energy_accumulator": 65536,
    "accumulation_counter": 1000,
    "ppt_residency_acc": 100,
    "prochot_residency_acc": 0,
    "socket_thm_residency_acc": 0,
    "vr_thm_residency_acc": 0,
    "hbm_thm_residency_acc": 0,
    "xgmi_link_width": 16,
    "xgmi_read_data_acc": [10, 20],
    "xgmi_write_data_acc": [1, 2],
    "xcp_stats": [{"gfx_busy_inst": [50] * 8, "vcn_busy": [0, 4]}],
}
"""What the table of a healthy MI300X says: revision 1.6."""


class Tree:
    """A root folder; `Card` objects of it write files below ``sys``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys/class/drm").mkdir(parents=True)
        self._nodes = 0
        self._generation = 0
        self._xcps = 0

    def card(
        self,
        address: str,
        *,
        unique_id: str | None = None,
        hwmon: Mapping[str, object] | None = HWMON,
        table: bytes | str | None = "default",
        **files: object,
    ) -> TreeCard:
        """Add a card in one piece. In ``files``, ``__`` stands for ``/`` and None removes."""
        number = len(list((self.root / "sys/class/drm").glob("card*")))
        folder = self.root / f"sys/devices/pci0000:00/{address}"
        card = TreeCard(self, address, folder, number)
        given = {name.replace("__", "/"): value for name, value in files.items()}
        for name, value in {**FILES, "unique_id": unique_id, **given}.items():
            card.write(name, value)
        for name, value in (hwmon or {}).items():
            card.write(f"hwmon/hwmon{number}/{name}", value)
        if table == "default":
            card.table(**TABLE)
        elif isinstance(table, bytes):
            card.write_bytes("gpu_metrics", table)
        (folder / f"drm/card{number}").mkdir(parents=True)
        self._link(folder / "driver", self.root / "sys/bus/pci/drivers/amdgpu")
        self._link(self.root / f"sys/bus/pci/devices/{address}", folder)
        self._link(self.root / f"sys/class/drm/card{number}", folder / f"drm/card{number}")
        self._link(folder / f"drm/card{number}/device", folder)
        (self.root / f"sys/class/drm/card{number}-DP-1").mkdir()
        self.render_node(128 + number, folder)
        self.node(address, render_minor=128 + number)
        return card

    def render_node(self, minor: int, folder: Path) -> None:
        """A DRM render node of the device in that folder."""
        (folder / f"drm/renderD{minor}").mkdir(parents=True, exist_ok=True)
        self._link(folder / f"drm/renderD{minor}/device", folder)
        self._link(self.root / f"sys/class/drm/renderD{minor}", folder / f"drm/renderD{minor}")

    def node(self, address: str, *, render_minor: int, partition: int = 0, shift: int = 28) -> int:
        """A node of the compute driver; gives its GPU id."""
        self._nodes += 1
        gpu_id = 1000 + self._nodes
        domain, bus, rest = address.split(":")
        slot, function = rest.split(".")
        location = int(bus, 16) << 8 | int(slot, 16) << 3 | int(function, 16) | partition << shift
        folder = self.root / f"sys/class/kfd/kfd/topology/nodes/{self._nodes}"
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(f"{gpu_id}\n")
        (folder / "properties").write_text(
            f"cpu_cores_count 0\nsimd_count 304\nvendor_id 4098\nlocation_id {location}\n"
            f"domain {int(domain, 16)}\ndrm_render_minor {render_minor}\n"
        )
        self._changed()
        return gpu_id

    def split(
        self, card: TreeCard, mode: str, count: int, *, shift: int = 28, numbered: bool = True
    ) -> None:
        """Split a card into so many partitions, as the compute driver then shows them."""
        self.join(card)
        card.write("current_compute_partition", mode)
        for number in range(1, count):
            folder = self.root / f"sys/devices/platform/amdgpu_xcp_{self._xcps}"
            self._xcps += 1
            minor = 200 + self._xcps
            self.render_node(minor, folder)
            card.partitions.append(folder)
            partition = number if numbered else 0
            self.node(card.address, render_minor=minor, partition=partition, shift=shift)
            card.nodes.append(self.root / f"sys/class/kfd/kfd/topology/nodes/{self._nodes}")

    def join(self, card: TreeCard) -> None:
        """Undo `split`."""
        card.write("current_compute_partition", "SPX")
        card.partitions.clear()
        while card.nodes:
            shutil.rmtree(card.nodes.pop())
        self._changed()

    def process(
        self, pid: int, *, vram: Mapping[int, int] | None = None, queues: Sequence[int] = ()
    ) -> None:
        """A process of the compute driver: memory by GPU id, and the GPU ids of its queues."""
        folder = self.root / f"sys/class/kfd/kfd/proc/{pid}"
        folder.mkdir(parents=True)
        for gpu_id, count in (vram or {}).items():
            (folder / f"vram_{gpu_id}").write_text(f"{count}\n")
        for number, gpu_id in enumerate(queues):
            (folder / f"queues/{number}").mkdir(parents=True)
            (folder / f"queues/{number}/gpuid").write_text(f"{gpu_id}\n")

    def _changed(self) -> None:
        self._generation += 1
        path = self.root / "sys/class/kfd/kfd/topology/generation_id"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{self._generation}\n")

    def _link(self, link: Path, target: Path) -> None:
        link.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(target, link.parent))


class TreeCard:
    """The files of one card."""

    def __init__(self, tree: Tree, address: str, folder: Path, number: int) -> None:
        self.tree = tree
        self.address = address
        self.folder = folder
        self.number = number
        self.partitions: list[Path] = []
        self.nodes: list[Path] = []

    @property
    def hwmon(self) -> str:
        """The folder of the sensors, below the card's."""
        return f"hwmon/hwmon{self.number}"

    def write(self, name: str, value: object) -> None:
        """Write a file below the card's folder; None removes it."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if value is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(f"{value}\n")

    def sensor(self, name: str, value: object) -> None:
        """Write a file of the sensors."""
        self.write(f"{self.hwmon}/{name}", value)

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a binary file, in one step."""
        unfinished = self.folder / f".{name}"
        unfinished.write_bytes(data)
        unfinished.replace(self.folder / name)

    def table(self, revision: tuple[int, int] = (1, 6), **values: object) -> None:
        """Write ``gpu_metrics``; what is not given is absent."""
        self.write_bytes("gpu_metrics", tables.gpu_metrics(revision, **values))

    def vanish(self) -> None:
        """Take the card off the bus."""
        (self.tree.root / f"sys/class/drm/card{self.number}").unlink()

    def come_back(self) -> None:
        """Undo `vanish`."""
        link = self.tree.root / f"sys/class/drm/card{self.number}"
        link.symlink_to(os.path.relpath(self.folder / f"drm/card{self.number}", link.parent))
