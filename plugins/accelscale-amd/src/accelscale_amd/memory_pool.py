"""Which memory of a card counts: its own, or that of the machine which it shares.

A discrete card has its own (VRAM), however much of the machine's memory it may use besides (GTT).
An APU has none; firmware carves a piece out of the machine's, which amdgpu calls VRAM and fills
first, so that it is always nearly full. What counts there is the larger of the two pools by itself,
never their sum, which exceeds the memory that there is.
"""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from accelscale_amd.files import text_or_none

_GIBI = 2**30
MOST_CARVED_OUT = 4 * _GIBI
"""Of a card that does not show what it is: VRAM up to this size is taken for a piece carved out."""


@frozen
class MemoryPool:
    """The pool that counts: ``vram`` or ``gtt``, as amdgpu names its files."""

    name: str
    total_bytes: int


def pool_of(table_format: int | None, hwmon: Path, vram_total: int, gtt_total: int) -> MemoryPool:
    """The pool that counts, by what is known of the card.

    ``table_format`` is that of its ``gpu_metrics``, if it has one; ``hwmon`` the folder above that
    of its sensors.
    """
    integrated = _is_integrated(table_format, hwmon)
    if integrated is None:
        integrated = vram_total <= MOST_CARVED_OUT
    if integrated and gtt_total > vram_total:
        return MemoryPool("gtt", gtt_total)
    return MemoryPool("vram", vram_total)


def _is_integrated(table_format: int | None, hwmon: Path) -> bool | None:
    """Whether the card is an APU; None where it does not show.

    The formats 2 and 3 of ``gpu_metrics`` are those of APUs. Only an APU has the voltage of a
    northbridge (``vddnb``) among its sensors, and only a discrete card a fan.
    """
    if table_format is not None:
        return table_format != 1
    if any(text_or_none(label) == "vddnb" for label in hwmon.glob("hwmon*/in*_label")):
        return True
    return False if any(hwmon.glob("hwmon*/fan1_input")) else None
