"""The promises of every backend, kept on a machine with all kinds of FPGA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from accelscale_fpga import FpgaBackend
from accelscale_fpga.watch import FRESH_SECONDS
from drivers.dated import DatedConformance
from drivers.xrt.tool import bank, compute_unit, host_entry, memory, regions, thermals
from fpga.trees import PCI

if TYPE_CHECKING:
    from accelscale.backend import Backend
    from drivers.xrt.tool import FakeXrt
    from fpga.trees import SysTree

ALVEO = ("0000:65:00.1", "0000:b3:00.1")


class TestFpga(DatedConformance):
    oldest_seconds = FRESH_SECONDS
    vendor_modules = ("pyxrt", "subprocess")

    @pytest.fixture(autouse=True)
    def _machine(self, tree: SysTree, xrt: FakeXrt) -> None:
        self.tree, self.xrt = tree, xrt
        tree.intel("0000:3b:00.0")
        tree.manager("fpga1", "sys/devices/soc0/f8007000.devcfg", "Zynq FPGA", "operating")
        for address in ALVEO:
            tree.alveo(address)
            xrt.card(
                address,
                electrical={"power_consumption_watts": "22.47"},
                thermals=thermals(FPGA=("46", "true")),
                mem_topology=memory([bank("HBM[0]", "0x0", "0x10000000", "4096")]),
                dynamic_regions=regions(compute_unit("vadd:vadd_1", "7")),
            )
        xrt.host(*(host_entry(address) for address in ALVEO))

    def make_backend(self) -> FpgaBackend:
        backend = FpgaBackend(self.tree.root, tool=self.xrt.path, period=60.0)
        opened = backend.open

        def open_and_wait() -> None:  # until XRT has spoken, the readings of a card are absent
            opened()
            assert backend._watch is not None
            assert backend._watch.wait(8.0)

        backend.open = open_and_wait  # type: ignore[method-assign]
        return backend

    def break_device(self, backend: Backend, device_id: str) -> None:
        assert device_id == "0000:3b:00.0"
        engine = f"{PCI}/{device_id}/fpga_region/region0/dfl-fme.0"
        self.tree.write(f"{engine}/hwmon/hwmon0/temp1_input", "N/A")
