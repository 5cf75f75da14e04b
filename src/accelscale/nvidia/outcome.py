"""What a reading ends as: a number in our unit, or the reason why there is none.

What NVML answers is passed on raw; whether it lies in the range of its metric is checked elsewhere.
"""

from __future__ import annotations

import math

from attrs import frozen

from accelscale.model import Reason


@frozen
class Absent:
    """Why there is no value; the fields are those of `accelscale.model.Failure`."""

    reason: Reason
    detail: str
    code: int | None = None
    permanent: bool = False


Outcome = float | Absent

Result = tuple[str, Outcome, float]
"""A metric, what its reading ended as, and when, in monotonic seconds."""


def number(raw: float, *, bits: int = 32, divisor: float = 1) -> Outcome:
    """A raw value in our unit, unless it is NVML's mark for "not available": all bits set.

    Signed types have -1 for it, so a card at exactly -1 degree has no temperature.
    """
    if not math.isfinite(raw):
        return Absent(Reason.OUT_OF_RANGE, f"the driver gave {raw}")
    if raw in {2**bits - 1, -1}:
        return Absent(Reason.OUT_OF_RANGE, f"the driver gave {raw}, which stands for no value")
    return raw / divisor
