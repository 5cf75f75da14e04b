"""What a reading ends as: a number in our unit, or the reason why there is none.

What NVML answers is passed on raw; whether it lies in the range of its metric is checked elsewhere.
"""

from __future__ import annotations

import math
import re

from attrs import frozen

from accelscale.model import Reason
from accelscale.nvidia.call_error import TOO_OLD, CallError
from accelscale.nvidia.card import Card
from accelscale.nvidia.driver import Driver

MEMORY_METRICS = ("memory_used_bytes", "memory_total_bytes")

_UNIFIED_MEMORY = re.compile(r"\b(GB10|DGX Spark|Orin|Thor|Xavier|Tegra)\b", re.IGNORECASE)
"""Names of products whose GPU has no memory of its own (wookayin/gpustat#179)."""


@frozen
class Absent:
    """Why there is no value; the fields are those of `accelscale.model.Failure`."""

    reason: Reason
    detail: str
    code: int | None = None
    permanent: bool = False


Outcome = float | Absent


def number(raw: float, *, bits: int = 32, divisor: float = 1) -> Outcome:
    """A raw value in our unit, unless it is NVML's mark for "not available": all bits set.

    Signed types have -1 for it, so a card at exactly -1 degree has no temperature.
    """
    if not math.isfinite(raw):
        return Absent(Reason.OUT_OF_RANGE, f"the driver gave {raw}")
    if raw in {2**bits - 1, -1}:
        return Absent(Reason.OUT_OF_RANGE, f"the driver gave {raw}, which stands for no value")
    return raw / divisor


def absent(driver: Driver, card: Card, metric: str, error: CallError) -> Absent:
    """The error of a call, as the reason why a metric is missing.

    What MIG takes away comes back without it, so it is not permanent; what the hardware lacks is.

    Raises:
        CallError: the error itself, if it concerns the driver as a whole.
    """
    if error.is_driver_wide:
        raise error
    if error.name in TOO_OLD:
        driver.note_missing(error)
        return Absent(error.reason, str(error), error.code, permanent=True)
    if error.reason is not Reason.NOT_SUPPORTED:
        return Absent(error.reason, str(error), error.code)
    if card.mig:
        detail = f"MIG is enabled on this card, so it has none as a whole: {error}"
        return Absent(error.reason, detail, error.code)
    detail = f"{card.name} does not give it: {error}"
    if metric in MEMORY_METRICS and _UNIFIED_MEMORY.search(card.name):
        detail = (
            f"{card.name} has unified memory, shared with the system and without figures of its"
            f" own: {error}"
        )
    mig_may_be_why = card.has_mig and card.mig is None
    return Absent(error.reason, detail, error.code, permanent=not mig_may_be_why)
