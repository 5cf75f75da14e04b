"""Writes what the fake AMD SMI library answers, and reads what it was asked.

::

    fake = FakeAmdSmi(tmp_path / "amdsmi.state")
    fake.device("first", bdf="0000:03:00.0", gfx_activity=37)
    fake.write()

Nothing reaches the library before `FakeAmdSmi.write`. ``README.md`` beside this file lists the
keys.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from drivers.build import compile_library

STATE_VARIABLE = "ACCELSCALE_FAKE_AMDSMI_STATE"
SONAME = "libamd_smi.so"
GIBIBYTE = 2**30

Value = int | float | str | None
"""What stands behind a key; None takes the key away."""

_SLOT = struct.Struct("120sQ")

HEALTHY: Mapping[str, Value] = {
    "gfx_activity": 50,
    "umc_activity": 20,
    "mm_activity": 0,
    "vram_total": 192 * GIBIBYTE,
    "vram_used": 40 * GIBIBYTE,
    "gtt_total": 256 * GIBIBYTE,
    "gtt_used": GIBIBYTE,
    "temperature_edge_0": 50,
    "temperature_hotspot_0": 60,
    "temperature_hotspot_5": 100,
    "temperature_vram_0": 45,
    "socket_power": 300,
    "current_power": 300,
    "power_cap": 750_000_000,
    "clock_gfx": 2100,
    "clock_mem": 1300,
    "ecc_uncorrected": 0,
}
"""A card in good health under half load; its energy comes from `FakeAmdSmi.device`."""


def build(folder: Path, *, without: Sequence[str] = ()) -> Path:
    """Compile the fake library into this folder; ``without`` leaves out functions."""
    return compile_library(Path(__file__).parent, folder, SONAME, without=without)


class FakeAmdSmi:
    """The state of the fake library; every change returns it, so that ``write`` can follow."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sections: dict[str, dict[str, Value]] = {"[library]": {}}

    def write(self) -> Self:
        """Put all changes into force at once."""
        lines: list[str] = []
        for title, values in self._sections.items():
            lines += [
                title,
                *(f"{key} = {value}" for key, value in values.items() if value is not None),
            ]
        unfinished = self.path.with_name(f"{self.path.name}.unfinished")
        unfinished.write_text("\n".join(lines) + "\n")
        unfinished.replace(self.path)
        return self

    def device(self, name: str, bdf: str, *, bare: bool = False, **values: Value) -> Self:
        """Add a device, healthy but for ``values``; a ``bare`` one has these values alone."""
        energy = f"1000000+{300 / 15.259e-6:g}/s@{time.monotonic():.9f}"
        healthy = {} if bare else {**HEALTHY, "energy_count": energy}
        self._sections[f"[device {name}]"] = {"bdf": bdf, **healthy, **values}
        return self

    def set(self, name: str | None, values: Mapping[str, Value]) -> Self:
        """Change keys of a device, or with None of the library."""
        self._sections["[library]" if name is None else f"[device {name}]"].update(values)
        return self

    def calls(self) -> dict[str, int]:
        """How often each function was called: keys are ``"function"`` and ``"function NAME"``."""
        counts: dict[str, int] = {}
        for file in self.path.parent.glob(f"{self.path.name}.calls.*"):
            for name, count in _SLOT.iter_unpack(file.read_bytes()):
                text = name.rstrip(b"\0").decode().strip()
                if text:
                    counts[text] = counts.get(text, 0) + count
        return counts

    @property
    def users(self) -> int:
        """Inits that succeeded, less shutdowns that did."""
        calls = self.calls()
        return calls.get("initialised", 0) - calls.get("shut down", 0)
