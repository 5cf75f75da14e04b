"""Which Neuron devices this machine has, from what the Neuron driver shows in ``/sys``.

A Neuron device is a chip; it has several NeuronCores. The driver numbers chips, and so do its tools
and the device plugin of Kubernetes; an id is made of the serial number where the driver shows it.
"""

from __future__ import annotations

import re
from pathlib import Path

from attrs import frozen

from accelscale.model import Reason

_FOLDERS = ("sys/devices/virtual/neuron_device", "sys/class/neuron_device")
_ECC_FILES = ("mem_ecc_uncorrected", "sram_ecc_uncorrected")


@frozen
class Absent:
    """Why there is no value, as a `Failure` says it."""

    reason: Reason
    detail: str
    permanent: bool = False


@frozen
class Chip:
    """One Neuron device. ``cores`` is the number of its physical cores, None if it is not shown."""

    id: str
    name: str
    index: int
    cores: int | None
    folder: Path

    def uncorrected_errors(self) -> float | Absent:
        """ECC errors of DRAM and SRAM that could not be corrected, as the driver counts them."""
        total = 0
        for name in _ECC_FILES:
            path = self.folder / "stats/hardware" / name
            if not self.folder.exists():
                return Absent(Reason.LOST, f"{self.folder} is gone")
            try:
                total += int(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                return Absent(Reason.NOT_SUPPORTED, f"this driver does not show {path}", True)
            except PermissionError:
                return Absent(Reason.PERMISSION, f"{path} may not be read: run as root")
            except (OSError, ValueError) as error:
                return Absent(Reason.ERROR, f"{path}: {error}")
        return float(total)


def find_chips(root: Path) -> tuple[Chip, ...]:
    """All Neuron devices below ``root``, in the order of their numbers."""
    for folder in _FOLDERS:
        found = [
            _chip(entry, int(match[1]))
            for entry in _entries(root / folder)
            if (match := re.fullmatch(r"neuron(\d+)", entry.name))
        ]
        if found:
            return tuple(sorted(found, key=lambda chip: chip.index))
    return ()


def _chip(folder: Path, index: int) -> Chip:
    serial = _text(folder / "info/serial_number")
    cores = _text(folder / "core_count")
    return Chip(
        id=f"neuron-{serial}" if serial.strip("0") else folder.name,
        name=_text(folder / "info/architecture/device_name") or "Neuron device",
        index=index,
        cores=int(cores) if re.fullmatch(r"[0-9]+", cores) else None,
        folder=folder,
    )


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
