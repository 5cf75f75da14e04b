"""Which TPU chips this machine has, from the kernel's PCI list."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

_GOOGLE = "0x1ae0"  # PCI vendor; Google's virtual network and disk devices have it too
_TYPES: Mapping[str, tuple[str, int]] = {
    # By PCI device, or device and subsystem: the name, and how many devices libtpu makes of a chip
    # (the table of google/cloud-accelerator-diagnostics, tpu_info/device.py).
    "0x0027 0x004e": ("v2", 2),
    "0x0027 0x004f": ("v3", 2),
    "0x005e": ("v4", 1),
    "0x0063": ("v5e", 1),
    "0x0062": ("v5p", 1),
    "0x006f": ("v6e", 1),
    "0x0076": ("TPU7x", 2),
}


@frozen
class Chip:
    """One chip; ``address`` is the PCI address of its first function.

    ``device_file`` is the file by which a workload opens it, as far as the kernel shows it.
    """

    address: str
    type_name: str
    cores: int
    device_file: str

    @property
    def name(self) -> str:
        return self.type_name if self.type_name.startswith("TPU") else f"TPU {self.type_name}"


def find_chips(root: Path) -> tuple[Chip, ...]:
    """All chips below ``root``, in the order of the numbers of their device files.

    That is the order in which the runtime counts them; a number that is missing sorts by address.
    """
    chips: dict[str, Chip] = {}
    for folder in _entries(root / "sys/bus/pci/devices"):
        slot = folder.name.rpartition(".")[0]
        if slot not in chips:  # the functions of a chip share a slot
            chips.update((slot, chip) for chip in _chip(folder))
    return tuple(sorted(chips.values(), key=_order))


def _chip(folder: Path) -> Iterator[Chip]:
    if _text(folder / "vendor") != _GOOGLE:
        return
    device = _text(folder / "device")
    both = f"{device} {_text(folder / 'subsystem_device')}"
    known = _TYPES.get(device) or _TYPES.get(both)
    if known is not None:
        yield Chip(folder.name, *known, _device_file(folder))


def _device_file(folder: Path) -> str:
    for entry in _entries(folder / "accel"):
        return f"/dev/{entry.name}"
    try:
        return f"/dev/vfio/{(folder / 'iommu_group').readlink().name}"
    except OSError:
        return ""


def _order(chip: Chip) -> tuple[int, str]:
    number = re.search(r"\d+$", chip.device_file)
    return int(number[0]) if number else -1, chip.address


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
