"""Temporary trees that look like the parts of ``/sys`` that the FPGA backend reads."""

from __future__ import annotations

import os
from pathlib import Path

PCI = "sys/devices/pci0000:00/0000:00:01.0"


class SysTree:
    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: object) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        return file

    def link(self, path: str, target: str) -> None:
        """A relative link, as all of sysfs's are."""
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        (self.root / target).mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self.root / target, link.parent))

    def pci(
        self, address: str, vendor: str, device: str, kind: str = "0x120000", driver: str = ""
    ) -> str:
        folder = f"{PCI}/{address}"
        self.write(f"{folder}/vendor", vendor)
        self.write(f"{folder}/device", device)
        self.write(f"{folder}/class", kind)
        if driver:
            self.link(f"{folder}/driver", f"sys/bus/pci/drivers/{driver}")
        self.link(f"sys/bus/pci/devices/{address}", folder)
        return folder

    def alveo(self, address: str) -> str:
        """A card with a management and a user function; gives the folder of the latter."""
        stem = address.rpartition(".")[0]
        self.pci(f"{stem}.0", "0x10ee", "0x505c", driver="xclmgmt")
        return self.pci(address, "0x10ee", "0x505d", driver="xocl")

    def intel(self, address: str) -> str:
        """A DFL card; gives the folder of its management engine."""
        card = self.pci(address, "0x8086", "0x0b30", driver="dfl-pci")
        engine = f"{card}/fpga_region/region0/dfl-fme.0"
        self.write(f"{engine}/ports_num", 1)
        self.write(f"{card}/fpga_region/region0/dfl-port.0/id", 0)
        self.link("sys/class/fpga_region/region0", f"{card}/fpga_region/region0")
        self.manager("fpga0", f"{engine}/dfl-fme-mgr.1", "dfl-fme-mgr", "operating")
        self.hwmon(0, engine, "dfl_fme_thermal", temp1_input=54_000, temp1_max=95_000)
        self.hwmon(1, engine, "dfl_fme_power", power1_input=35_500_000)
        return engine

    def manager(self, entry: str, parent: str, name: str, state: str) -> str:
        folder = f"{parent}/fpga_manager/{entry}"
        self.write(f"{folder}/name", name)
        self.write(f"{folder}/state", state)
        self.link(f"sys/class/fpga_manager/{entry}", folder)
        return folder

    def hwmon(self, number: int, parent: str, driver: str, **files: object) -> str:
        folder = f"{parent}/hwmon/hwmon{number}"
        self.write(f"{folder}/name", driver)
        for name, value in files.items():
            self.write(f"{folder}/{name}", value)
        self.link(f"sys/class/hwmon/hwmon{number}", folder)
        return folder
