"""What every backend promises, kept by this one over the fake driver."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from accelscale.backend import Backend
from accelscale.nvidia.backend import NvidiaBackend
from accelscale.testing import BackendConformance
from drivers.nvml.state import FakeNvml


class TestNvidiaBackend(BackendConformance):
    vendor_modules: ClassVar[tuple[str, ...]] = ("pynvml",)

    @pytest.fixture(autouse=True)
    def driver(self, fake_nvml: FakeNvml, tmp_path: Path) -> None:
        self.fake = fake_nvml.device("GPU-aaaa").device("GPU-bbbb", mig_mode=1)
        self.fake.device("GPU-cccc", name="NVIDIA GB10", memory_total=None).write()
        self.kernel = tmp_path / "no-pci"

    def make_backend(self) -> Backend:
        return NvidiaBackend(pci_devices=self.kernel)

    def break_device(self, backend: Backend, device_id: str) -> None:
        self.fake.lose(device_id).write()


class TestNvidiaBackendWithALostCard(TestNvidiaBackend):
    @pytest.fixture(autouse=True)
    def lost(self, driver: None) -> None:
        self.fake.device("GPU-dddd").lose("GPU-dddd").write()
