"""Numbers and reasons as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from accelscale.metrics import Metric
from accelscale.model import Reason

SHORT_REASONS: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.NOT_SUPPORTED: "unsupp",
        Reason.PERMISSION: "denied",
        Reason.LOST: "lost",
        Reason.RESET_REQUIRED: "reset!",
        Reason.TIMEOUT: "timeout",
        Reason.OUT_OF_RANGE: "absurd",
        Reason.COUNTER_RESET: "waiting",
        Reason.NO_PROGRESS: "stuck",
        Reason.STALE: "stale",
        Reason.ERROR: "error",
    }
)
"""What stands in a narrow column where there is no number; at most seven letters."""

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
_SYMBOLS = MappingProxyType(
    {"percent": "%", "watts": "W", "celsius": "°C", "seconds": "s", "megahertz": "MHz"}
)


def number(value: float) -> str:
    """Three significant digits without an exponent: ``0.04``, ``7.25``, ``37.2``, ``1980``."""
    size = abs(value)
    decimals = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    text = f"{value:.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    if text in {"0", "-0"}:
        return f"{value:.1g}" if value else "0"
    return text


def figure(value: float, metric: Metric | None) -> str:
    """The value with its unit: ``37.2 %``, ``11.4 GiB``, ``54 °C``, ``1.2 MJ``."""
    unit = metric.unit if metric is not None else ""
    if unit in {"bytes", "bytes per second"}:
        return _scaled(value, 1024.0, _BINARY, "B" if unit == "bytes" else "B/s")
    if unit == "joules":
        return _scaled(value, 1000.0, _DECIMAL, "J")
    return f"{number(value)} {_SYMBOLS.get(unit, unit)}".rstrip()


def _scaled(value: float, step: float, prefixes: tuple[str, ...], unit: str) -> str:
    power = 0
    while abs(value) >= step and power + 1 < len(prefixes):
        value /= step
        power += 1
    return f"{number(value)} {prefixes[power]}{unit}"


def duration(seconds: float) -> str:
    """``0.3 ms``, ``12 ms``, ``1.2 s``."""
    if seconds < 1:
        return f"{number(seconds * 1000)} ms"
    return f"{number(seconds)} s"
