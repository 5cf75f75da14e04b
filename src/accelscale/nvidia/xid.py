"""What XIDs mean: the numbers by which the driver tells of errors of a card.

Sources: NVIDIA's Xid catalog (https://docs.nvidia.com/deploy/xid-errors/), whose "immediate action"
decides what makes a card unusable, and the numbers that NVIDIA's own device plugin for Kubernetes
ignores as faults of programs (``internal/rm/health.go``). Where these two disagree (109), and where
another device may be the cause (74, 144 to 150), an XID is counted but not taken for the end of the
card: on drivers that tell a recovery action, that decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FATAL: Mapping[int, str] = MappingProxyType(
    {
        46: "the GPU stopped processing",
        48: "a memory error that could not be corrected",
        62: "a micro-controller of the GPU halted",
        64: "bad memory could not be remapped",
        79: "the GPU has fallen off the bus",
        95: "a memory error that was not contained",
        110: "a security fault",
        119: "the GPU's system processor does not answer",
        120: "an error of the GPU's system processor",
        136: "training of an NVLink failed",
        140: "a memory error escaped recovery",
        143: "the GPU failed to initialise",
        158: "a fatal timeout of the GPU",
    }
)
"""XIDs after which a card is to be reset, or the machine restarted, before it is used again."""

LOST = 79

OF_PROGRAMS: Mapping[int, str] = MappingProxyType(
    {
        11: "invalid command stream",
        13: "graphics engine exception, such as an access out of bounds",
        25: "illegal command stream",
        31: "memory page fault",
        43: "a program was stopped",
        45: "clean-up after a program ended early, or after another error",
        68: "video decoder exception",
        69: "graphics engine class error",
        80: "corrupted data sent to the GPU",
        137: "illegal access over NVLink",
    }
)
"""XIDs that programs cause: the card is as well as before. They are logged, not counted."""

FOR_INFORMATION: Mapping[int, str] = MappingProxyType(
    {
        14: "injected for a test",
        63: "bad memory was remapped",
        92: "many corrected memory errors",
        106: "test message",
        107: "test message",
        121: "corrected errors of the link to the processor",
        154: "the recovery action changed",
        160: "a memory channel was retired",
        162: "power smoothing was engaged",
        163: "power smoothing was disengaged",
        164: "power smoothing nears the end of its life",
    }
)
"""XIDs that tell of no error of their own. They are logged, not counted."""


def is_critical(xid: int) -> bool:
    """Whether it counts as an error of the card; an unknown number does."""
    return xid not in OF_PROGRAMS and xid not in FOR_INFORMATION


def in_words(xid: int) -> str:
    """The number, and what it means where that is known."""
    for table in (FATAL, OF_PROGRAMS, FOR_INFORMATION):
        if xid in table:
            return f"XID {xid}, {table[xid]}"
    return f"XID {xid}"
