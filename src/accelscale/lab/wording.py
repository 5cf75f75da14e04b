"""Numbers, shares and durations as people read them."""

from __future__ import annotations

NOTHING = "-"
"""Stands where there is no number."""


def number(value: float) -> str:
    """Three significant digits without an exponent: ``0.04``, ``7.25``, ``1980``."""
    text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:.3f}" if "e" in text else text


def percent(share: float | None) -> str:
    """A fraction as a percentage."""
    if share is None:
        return NOTHING
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{number(round(100 * share, 1))} %"


def quantity(value: float | None, unit: str) -> str:
    """A number with its unit."""
    return NOTHING if value is None else f"{number(value)} {unit}"


def spell(seconds: float) -> str:
    """``45 s``, ``12 min``, ``1 h 30 min``, ``2 d 3 h``."""
    if seconds < 120:
        return f"{number(seconds)} s"
    days, minutes = divmod(round(seconds / 60), 1440)
    hours, minutes = divmod(minutes, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count)
