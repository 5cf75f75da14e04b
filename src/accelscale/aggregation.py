"""Many values to one number: pure functions, chosen by name.

Percentiles are by nearest rank, so the result is always one of the values: no interpolation makes
up a reading that no device gave. None of the functions depends on the order of the values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

Aggregation = Callable[[Sequence[float]], float]

PERCENTILE = re.compile(r"p([1-9][0-9]?)")


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, summed exactly and kept within the least and the greatest value."""
    result = math.fsum(values) / len(values)
    return min(max(result, min(values)), max(values))


def percentile(rank: int) -> Aggregation:
    """The smallest value that at least ``rank`` percent of the values do not exceed."""

    def nearest_rank(values: Sequence[float]) -> float:
        ordered = sorted(values)
        return ordered[math.ceil(rank * len(ordered) / 100) - 1]

    return nearest_rank


_BY_NAME: dict[str, Aggregation] = {"mean": mean, "max": max, "min": min, "sum": math.fsum}


def aggregation(name: str) -> Aggregation:
    """The function of that name: mean, max, min, sum or p1 to p99.

    Each takes a non-empty sequence of finite numbers.

    Raises:
        KeyError: there is none of that name.
    """
    match = PERCENTILE.fullmatch(name)
    return percentile(int(match[1])) if match else _BY_NAME[name]


def statistic(name: str) -> Aggregation:
    """The function of a window: mean, max, min, pNN, or the newest value with ``last``.

    Values are given oldest first.

    Raises:
        KeyError: there is none of that name.
    """
    return (lambda values: values[-1]) if name == "last" else aggregation(name)
