"""Whether there are AMD GPUs at all, at the price of a look into one folder.

Most nodes have none; there, nothing else of this package is even imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from accelscale_amd.files import text_or_none

_VENDOR_ID = "0x1002"
_DRM_CARD = re.compile(r"card\d+")  # the others are connectors
_GPU_CLASSES = ("0x03", "0x12")  # displays, and accelerators without one


def amdgpu_cards(root: Path) -> Iterator[Path]:
    """The device folder of each DRM card that the driver amdgpu has."""
    for entry in sorted((root / "sys/class/drm").glob("card*")):
        if _DRM_CARD.fullmatch(entry.name):
            folder = (entry / "device").resolve()
            if text_or_none(folder / "vendor") == _VENDOR_ID and _driven_by_amdgpu(folder):
                yield folder


def has_card(root: Path) -> bool:
    """Whether `amdgpu_cards` finds any."""
    return next(amdgpu_cards(root), None) is not None


def absence(root: Path) -> str:
    """Why there is no card, for people."""
    idle = sorted(
        folder.name
        for folder in (root / "sys/bus/pci/devices").glob("*")
        if text_or_none(folder / "vendor") == _VENDOR_ID
        and (text_or_none(folder / "class") or "").startswith(_GPU_CLASSES)
    )
    if not idle:
        return f"no AMD GPU: none in {root / 'sys/class/drm'} or on the PCI bus"
    if not (root / "sys/bus/pci/drivers/amdgpu").exists():
        return f"AMD GPU at {', '.join(idle)}, but the driver amdgpu is not loaded (yet)"
    return f"AMD GPU at {', '.join(idle)}, but the driver amdgpu does not have it (yet)"


def _driven_by_amdgpu(folder: Path) -> bool:
    driver = folder / "driver"
    return driver.resolve().name == "amdgpu" if driver.exists() else True
