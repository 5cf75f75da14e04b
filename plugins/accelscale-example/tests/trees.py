"""A folder of files that looks like ``/sys`` on a machine with example cards."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from accelscale.model import Failure

Results = Mapping[tuple[str, str], float | Failure]
"""What came of each metric of each device."""

HEALTHY = {
    "product_name": "Example 4000",
    "serial_number": "EX4K-0017-3391",
    "state": "ready",
    "power/runtime_status": "active",
    "busy_percent": 40,
    "memory_total_bytes": 32 * 2**30,
    "memory_used_bytes": 4 * 2**30,
    "temperature_millicelsius": 61_500,
    "power_microwatts": 120_000_000,
    "energy_microjoules": 987_654_321,
    "ecc_uncorrected": 0,
    "queue_length": 3,
}


@frozen
class Tree:
    """The root folder; paths of files are relative to it."""

    root: Path

    def write(self, path: str, value: object) -> Path:
        """Write a file; None removes it."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if value is None:
            place.unlink(missing_ok=True)
        else:
            place.write_text(f"{value}\n")
        return place

    def card(self, number: int, address: str, **files: object) -> str:
        """A card, linked from its class as sysfs does it; gives its folder."""
        folder = f"sys/devices/pci0000:00/{address}"
        for name, value in {**HEALTHY, **files}.items():
            self.write(f"{folder}/{name}", value)
        link = self.root / f"sys/class/example_accelerator/card{number}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self.root / folder, link.parent))
        return folder

    def partition(self, folder: str, number: int, **files: object) -> str:
        """A partition of a card; gives its folder."""
        part = f"{folder}/partitions/{number}"
        values = {
            "busy_percent": 10 * number,
            "memory_total_bytes": 16 * 2**30,
            "memory_used_bytes": number * 2**30,
            "queue_length": 0,
            **files,
        }
        for name, value in values.items():
            self.write(f"{part}/{name}", value)
        return part

    def take_off_the_bus(self, number: int, folder: str) -> None:
        """What a card that falls off the bus leaves: no link, and no files."""
        (self.root / f"sys/class/example_accelerator/card{number}").unlink()
        self.write(f"{folder}/state", None)
