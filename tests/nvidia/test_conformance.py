"""What every backend promises, kept by this one over the fake driver."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from accelscale.backend import Backend
from accelscale.nvidia.backend import NvidiaBackend
from accelscale.testing import BackendConformance
from drivers.nvml.state import GPM, FakeNvml

SLICE = {
    "memory_total": 10 * 2**30,
    "memory_used": 4 * 2**30,
    "compute_instance_id": 0,
    "processes_compute": "10:1024",
}


class TestNvidiaBackend(BackendConformance):
    vendor_modules: ClassVar[tuple[str, ...]] = ("pynvml",)

    @pytest.fixture(autouse=True)
    def driver(self, fake_nvml: FakeNvml, tmp_path: Path) -> None:
        self.fake = fake_nvml
        self.kernel = tmp_path / "no-pci"
        self.plug_in()
        self.fake.write()

    def plug_in(self) -> None:
        """Add the devices of the machine to ``self.fake``."""
        self.fake.device("GPU-aaaa").device("GPU-bbbb", mig_mode=1)
        self.fake.device("GPU-cccc", name="NVIDIA GB10", memory_total=None)

    def make_backend(self) -> Backend:
        return NvidiaBackend(pci_devices=self.kernel)

    def break_device(self, backend: Backend, device_id: str) -> None:
        self.fake.lose(device_id).write()


class TestNvidiaBackendWithALostCard(TestNvidiaBackend):
    @pytest.fixture(autouse=True)
    def lost(self, driver: None) -> None:
        self.fake.device("GPU-dddd").lose("GPU-dddd").write()


class TestHopper(TestNvidiaBackend):
    def plug_in(self) -> None:
        self.fake.device("GPU-aaaa", **GPM).device("GPU-bbbb", **GPM)


class TestMigOnHopper(TestNvidiaBackend):
    def plug_in(self) -> None:
        self.fake.device("GPU-aaaa", **GPM).device("GPU-bbbb", mig_mode=1, gpm=1)
        self.fake.repartition("GPU-bbbb", "MIG-1", "MIG-2", "MIG-3", **GPM, **SLICE)
        self.fake.set("MIG-3", gpu_instance_id=2, compute_instance_id=1)


class TestMigOnAmpere(TestNvidiaBackend):
    def plug_in(self) -> None:
        self.fake.device("GPU-aaaa", name="NVIDIA A100-SXM4-40GB")
        self.fake.device("GPU-bbbb", name="NVIDIA A100-SXM4-40GB", mig_mode=1)
        self.fake.repartition("GPU-bbbb", "MIG-1", "MIG-2", **SLICE)
