"""A result as one JSON line, with the budget it is held against."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any


def line(benchmark: str, *, budget: dict[str, float] | None = None, **figures: Any) -> None:
    """Print a result. ``budget`` holds upper bounds of figures, or lower ones with ``min_``."""
    held = {}
    for name, bound in (budget or {}).items():
        lower = name.startswith("min_")
        value = figures[name.removeprefix("min_")]
        held[name] = value >= bound if lower else value <= bound
    record = {"benchmark": benchmark, **{key: rounded(value) for key, value in figures.items()}}
    if budget:
        record |= {"budget": budget, "within": all(held.values())}
    print(json.dumps(record), flush=True)


def rounded(value: Any) -> Any:
    """Four significant digits for floats."""
    if not isinstance(value, float) or value == 0 or not math.isfinite(value):
        return value
    return round(value, 3 - math.floor(math.log10(abs(value))))


def percentile(values: Sequence[float], rank: float) -> float:
    """By nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(rank * len(ordered) / 100) - 1)]
