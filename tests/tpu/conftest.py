"""Machines with TPU chips, and a workload that serves metrics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from drivers.libtpu.server import BANDWIDTH, DUTY, TOTAL, USED, FakeLibtpu

if TYPE_CHECKING:
    from collections.abc import Iterator


class PciTree:
    """PCI devices below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(
        self,
        address: str,
        device: str,
        *,
        group: int | None = None,
        accel: int | None = None,
        vendor: str = "0x1ae0",
        subsystem: str = "0x0000",
    ) -> None:
        folder = self.root / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text(f"{device}\n")
        (folder / "subsystem_device").write_text(f"{subsystem}\n")
        if group is not None:
            (folder / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{group}")
        if accel is not None:
            (folder / f"accel/accel{accel}").mkdir(parents=True)


@pytest.fixture
def tree(tmp_path: Path) -> PciTree:
    return PciTree(tmp_path / "root")


@pytest.fixture
def libtpu() -> Iterator[FakeLibtpu]:
    """A workload on two chips of one core each."""
    fake = FakeLibtpu()
    fake.say(DUTY, {0: 100.0, 1: 12.5})
    fake.say(USED, {0: 5 * 2**30, 1: 2**30})
    fake.say(TOTAL, {0: 32 * 2**30, 1: 32 * 2**30})
    fake.say(BANDWIDTH, {0: 40.0, 1: 0.0})
    fake.start()
    yield fake
    fake.stop()
