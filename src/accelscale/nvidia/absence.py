"""Why a reading of a card is missing, in words that say what would help."""

from __future__ import annotations

import re

from accelscale.model import Reason
from accelscale.nvidia.call_error import TOO_OLD, CallError
from accelscale.nvidia.card import Card
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.instances import Instance
from accelscale.nvidia.outcome import Absent, Outcome

MEMORY_METRICS = ("memory_used_bytes", "memory_total_bytes")

_UNIFIED_MEMORY = re.compile(r"\b(GB10|DGX Spark|Orin|Thor|Xavier|Tegra)\b", re.IGNORECASE)
"""Names of products whose GPU has no memory of its own (wookayin/gpustat#179)."""

_ZERO_FOR_ABSENT = re.compile(r"\bnvgpu\b|\b(Orin|Xavier|Tegra)\b", re.IGNORECASE)
"""Names of products whose driver answers calls that it does not implement with success and zero."""


def absent(driver: Driver, card: Card, metric: str, error: CallError) -> Absent:
    """The error of a call for a whole card, as the reason why a metric is missing.

    What MIG takes away comes back without it, so it is not permanent; what the hardware lacks is.

    Raises:
        CallError: the error itself, if it concerns the driver as a whole.
    """
    if error.is_driver_wide:
        raise error
    if error.name in TOO_OLD:
        driver.note_missing(error)
        return Absent(error.reason, str(error), error.code, permanent=True)
    if error.reason is Reason.PERMISSION and card.mig:
        detail = f"MIG is enabled, and the card as a whole may be for privileged processes: {error}"
        return Absent(error.reason, detail, error.code)
    if error.reason is not Reason.NOT_SUPPORTED:
        return Absent(error.reason, str(error), error.code)
    if card.mig:
        detail = f"MIG is enabled on this card, so it has none as a whole: {error}"
        return Absent(error.reason, detail, error.code)
    detail = f"{card.name}{card.surroundings} does not give it: {error}"
    if metric in MEMORY_METRICS and _UNIFIED_MEMORY.search(card.name):
        detail = (
            f"{card.name} has unified memory, shared with the system and without figures of its"
            f" own: {error}"
        )
    mig_may_be_why = card.has_mig and card.mig is None
    return Absent(error.reason, detail, error.code, permanent=not mig_may_be_why)


def absent_of_instance(driver: Driver, instance: Instance, metric: str, error: CallError) -> Absent:
    """The error of a call for a MIG instance, as the reason why a metric is missing.

    Some drivers answer INVALID_ARGUMENT where they do not take the handle of an instance.

    Raises:
        CallError: the error itself, if it concerns the driver as a whole.
    """
    if error.is_driver_wide:
        raise error
    if error.name in TOO_OLD:
        driver.note_missing(error)
    if error.reason is Reason.NOT_SUPPORTED or error.name == "INVALID_ARGUMENT":
        detail = f"the driver gives no {metric} of MIG instances: {error}"
        return Absent(Reason.NOT_SUPPORTED, detail, error.code, permanent=True)
    return Absent(error.reason, str(error), error.code)


def belongs_to_card(instance: Instance) -> Absent:
    """Why an instance lacks what only a whole card has; it is never copied from there."""
    detail = f"a MIG instance has none of its own; see the card, {instance.card.id}"
    return Absent(Reason.NOT_SUPPORTED, detail, permanent=True)


def believed(card: Card, outcome: Outcome) -> Outcome:
    """The outcome, unless it is a zero of a driver whose zeros mean nothing."""
    if outcome == 0.0 and _ZERO_FOR_ABSENT.search(card.name):
        detail = f"the driver of {card.name} gives 0 also for what it does not measure"
        return Absent(Reason.NOT_SUPPORTED, detail)
    return outcome
