"""Which files a recording may hold: those of the kernel that tell of devices, and few others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType

LARGEST_FILE = 256 * 1024
LARGEST_TREE = 16 * 1024 * 1024
MOST_ENTRIES = 20_000

_HELD = re.compile(
    r"(?:"
    r"sys(?:/.*)?"
    r"|proc(?:/(?:\d+|self|stat|meminfo|cpuinfo|loadavg|uptime|devices|driver(?:/.*)?))?"
    r"|proc/(?:\d+|self)/(?:fd|fdinfo|ns|task)(?:/.*)?"
    r"|dev(?:/(?!(?:disk|mapper|shm|mqueue|hugepages|pts|block|fd|input|snd)(?:/|$)).*)?"
    r"|etc|etc/machine-id"
    r"|usr|usr/share|usr/share/libdrm(?:/.*)?"  # the names of AMD's products
    r")"
)
_REFUSED: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "not about accelerators, and full of what identifies a machine": re.compile(
            r"sys/(?:firmware|fs|block|power|hypervisor|kernel|class/(?:net|block|dmi)"
            r"|devices/virtual/(?:net|block|dmi))(?:/.*)?|sys/.*/(?:net|infiniband)(?:/.*)?"
        ),
        "may hold serial numbers in binary form": re.compile(
            r".*/(?:config|rom|vpd|edid|nvmem|eeprom|resource\d*(?:_wc)?)"
        ),
    }
)
_ABOUT_A_MACHINE = re.compile(
    r"serial|unique_?id|uuid|guid|machine.?id|asset_?tag|mac_?addr|node_?desc|hostname",
    re.IGNORECASE,
)


def is_held(path: str) -> bool:
    """Whether what is at this path below the root may be recorded at all."""
    if path == f"proc/{os.getpid()}/status":  # which capabilities this process has
        return True
    return _HELD.fullmatch(path) is not None and why_refused(path) is None


def why_refused(path: str) -> str | None:
    """Why nothing below ``/sys`` at this path is recorded, or None."""
    for reason, pattern in _REFUSED.items():
        if pattern.fullmatch(path):
            return reason
    return None


def names_an_identity(name: str) -> bool:
    """Whether what goes by this name, of a file or of a line, identifies a machine or device."""
    return _ABOUT_A_MACHINE.search(name) is not None
