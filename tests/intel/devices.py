"""Devices of the fake Level Zero."""

from __future__ import annotations

import copy
from typing import Any

from drivers.levelzero.state import growing

GIB = 1 << 30

PERMISSION = 0x70010000
LOST = 0x70000001
RESET = 0x70000006
LOW_POWER = 0x70000007
UNSUPPORTED = 0x78000003

ALL, COMPUTE, COPY = 0, 4, 8  # engine groups
SENSOR_GLOBAL, SENSOR_GPU, SENSOR_MEMORY = 0, 1, 2
POWER_UNKNOWN, POWER_CARD, POWER_PACKAGE, POWER_MEMORY = 0, 1, 2, 4
CLOCK_GPU, CLOCK_MEMORY, CLOCK_MEDIA = 0, 1, 2


def device(address: str = "0000:03:00.0", **changes: Any) -> dict[str, Any]:
    """A discrete card that tells everything, with some keys changed; None leaves one out."""
    clock = growing(0, 1e6)
    whole: dict[str, Any] = {
        "address": address,
        "name": "Intel(R) Arc(TM) B580 Graphics",
        "uuid": 0x86,
        "engines": [
            {"type": ALL, "active": growing(500, 0.40e6), "timestamp": clock},
            {"type": COMPUTE, "active": growing(500, 0.35e6), "timestamp": clock},
            {"type": COPY, "active": growing(500, 0.05e6), "timestamp": clock},
        ],
        "memories": [{"size": 12 * GIB, "free": 10 * GIB}],
        "temperatures": [
            {"type": SENSOR_GLOBAL, "celsius": 55.5},
            {"type": SENSOR_GPU, "celsius": 48.25},
            {"type": SENSOR_MEMORY, "celsius": 61.0},
        ],
        "powers": [
            {"domain": POWER_MEMORY, "energy": growing(10**9, 20e6), "limit": 40_000},
            {"domain": POWER_PACKAGE, "energy": growing(4 * 10**9, 60e6), "limit": 150_000},
            {"domain": POWER_CARD, "energy": growing(5 * 10**9, 90e6), "limit": 190_000},
        ],
        "clocks": [
            {"type": CLOCK_MEDIA, "actual": 3000.0},
            {"type": CLOCK_GPU, "actual": 2400.0, "throttled": growing(10**6, 2e5)},
            {"type": CLOCK_MEMORY, "actual": 1188.0},
        ],
        "pci": {"receive": growing(10**6, 1e6), "transmit": growing(10**5, 1e5)},
    }
    for key, value in changes.items():
        if value is None:
            del whole[key]
        else:
            whole[key] = value
    return copy.deepcopy(whole)
