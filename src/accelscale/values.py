"""Texts of a trigger to values: numbers, quantities, durations, names.

Every reader takes the text and raises ValueError with what is allowed. Metadata is text that
people typed, so Python's own leniency (``1_000``, ``nan``, ``٣``) is a fault here, not a number.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

LARGEST = 9.2e15
"""KEDA carries values as thousandths in 64 bits: from here on they overflow."""

LEAST_THRESHOLD = 0.001
"""KEDA keeps three decimals; a smaller threshold would reach the HPA as 0."""

LONGEST_WINDOW = 6 * 3600.0
"""Seconds of history that a trigger may ask a device to keep."""

LONGEST_STAY = 366 * 86400.0
"""Seconds that a command may take, or that a recording or a simulation may cover."""

_DECIMAL = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,30})?")
_QUANTITY = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)([KMGTPE]i|[kMGTPE])?")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smh]?)")
_HPA_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")

_QUANTITY_FACTORS: Mapping[str, float] = MappingProxyType(
    {suffix: 1000.0**power for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))}
    | {f"{suffix}i": 1024.0**power for power, suffix in enumerate(("", *"KMGTPE")) if suffix}
)
_SECONDS = MappingProxyType({"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0})


def decimal(text: str) -> float:
    """A plain ASCII decimal: ``70``, ``0.5``; no sign, exponent or percent sign."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError("must be a plain decimal number such as 70 or 0.5")
    return float(text)


def byte_quantity(text: str) -> float:
    """Bytes as a plain decimal or a Kubernetes quantity: ``64Gi``, ``1.5T``."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError("must be a number of bytes or a Kubernetes quantity such as 64Gi or 500M")
    return float(match[1]) * _QUANTITY_FACTORS[match[2] or ""]


def duration(text: str, longest: float = LONGEST_WINDOW) -> float:
    """Seconds: ``15``, ``15s``, ``10m``, ``1h``, at most ``longest``."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("must be a duration such as 15, 15s, 10m or 1h")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > longest:
        raise ValueError(f"must be at most {longest / 3600:g}h")
    return seconds


def hpa_metric_name(text: str) -> str:
    """A metric name that an HPA takes, in lower case: letters, digits, ``-``, ``_``, ``.``."""
    name = text.lower()
    if len(name) > 63 or not _HPA_NAME.fullmatch(name):
        raise ValueError(
            "must be at most 63 letters, digits, '-', '_' and '.', with a letter or a digit at"
            " both ends (the HPA puts it into a URL)"
        )
    return name


def one_of(names: Iterable[str], percentiles: bool = False) -> Callable[[str], str]:
    """A reader that takes one of the names in any case, and p1 to p99 where wanted."""
    by_lower = {name.lower(): name for name in names}

    def read(text: str) -> str:
        lower = text.lower()
        if lower in by_lower:
            return by_lower[lower]
        if percentiles and re.fullmatch(r"p[1-9][0-9]?", lower):
            return lower
        allowed = ", ".join(by_lower.values()) + (", p1 to p99" if percentiles else "")
        raise ValueError(f"must be one of {allowed}{did_you_mean(text, by_lower.values())}")

    return read


_OTHER_WORDS = MappingProxyType(
    {
        "avg": "mean",
        "average": "mean",
        "targetvalue": "threshold",
        "target": "threshold",
        "value": "threshold",
        "activationtargetvalue": "activationThreshold",
        "activationvalue": "activationThreshold",
        "gpuindex": "devices",
        "gpu": "devices",
        "uuid": "devices",
        "targetgpuutilization": "threshold",
        "targetmemoryutilization": "threshold",
        "gpu_utilization": "utilization_percent",
        "memory_utilization": "memory_used_percent",
        "power_draw": "power_watts",
        "temperature": "temperature_celsius",
    }
)


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """`` (did you mean …?)`` with the nearest of the names, or nothing."""
    by_lower = {name.lower(): name for name in names}
    lower = text.lower()
    other = _OTHER_WORDS.get(lower, "").lower()
    near = [other] if other in by_lower else difflib.get_close_matches(lower, by_lower, n=1)
    return f" (did you mean {by_lower[near[0]]}?)" if near else ""
