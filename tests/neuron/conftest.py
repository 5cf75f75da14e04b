"""Machines with Neuron devices, and a stand-in for neuron-monitor."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.neuron.tool import FakeNeuronMonitor


class NeuronTree:
    """Neuron devices as the driver shows them below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, index: int, *, serial: str | None = None, cores: int = 2, ecc: int = 0) -> Path:
        folder = self.root / f"sys/devices/virtual/neuron_device/neuron{index}"
        self.write(folder / "core_count", cores)
        self.write(folder / "info/architecture/device_name", "Inferentia2")
        self.write(folder / "stats/hardware/mem_ecc_uncorrected", ecc)
        self.write(folder / "stats/hardware/sram_ecc_uncorrected", 0)
        if serial is not None:
            self.write(folder / "info/serial_number", serial)
        return folder

    def write(self, path: Path, text: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


@pytest.fixture
def tree(tmp_path: Path) -> NeuronTree:
    return NeuronTree(tmp_path / "root")


@pytest.fixture
def tool(tmp_path: Path) -> FakeNeuronMonitor:
    return FakeNeuronMonitor(tmp_path / "tool")
