"""What a window says of a column, at many moments at once.

The answer is that of `accelscale.history.Ring`, number for number: the same samples in the window,
the same functions over them, the same rule for when the past is whole. Only the cost differs: it
does not grow with the length of the window, except for percentiles.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import numpy.typing as npt
from attrs import frozen

from accelscale.aggregation import PERCENTILE, percentile
from accelscale.history import margins
from accelscale.lab.recording import Column, Floats
from accelscale.model import Series


@frozen(eq=False)
class WindowValues:
    """A series of one device at many moments.

    Where ``counts`` is 0 no sample had been taken yet, and the other arrays say nothing there.
    ``newest`` is the time of the newest sample.
    """

    values: Floats
    newest: Floats
    covered: npt.NDArray[np.bool_]
    counts: npt.NDArray[np.intp]


def window_values(
    column: Column, series: Series, moments: Floats, *, gap: float, interval: float
) -> WindowValues:
    """The series at each of the moments, which must not fall.

    ``gap`` is the most seconds between two samples without a break, ``interval`` the usual ones,
    both as in `accelscale.history`.
    """
    times = column.times
    ends = np.searchsorted(times, moments, side="right")
    since = moments - series.window_seconds
    starts = np.searchsorted(times, since, side="left")
    # A window without a sample takes the newest, as a ring does.
    starts = np.minimum(starts, np.maximum(ends - 1, 0))
    known = ends > 0
    values = np.full(len(moments), np.nan)
    if known.any():
        values[known] = _statistics(column.values, starts[known], ends[known], series.statistic)
    last = np.maximum(ends - 1, 0)
    empty = len(times) == 0
    newest = np.full(len(moments), np.nan) if empty else times[last]
    if empty:
        covered = known
    else:
        whole_since = _whole_since(times, gap)[last]
        far, near = margins(series.window_seconds, interval)
        covered = known & (whole_since <= newest - series.window_seconds + far)
        covered &= newest >= moments - near
    return WindowValues(values, newest, covered, ends)


def _whole_since(times: Floats, gap: float) -> Floats:
    """For each sample, the time since when the samples follow each other without a break."""
    breaks = np.flatnonzero(np.diff(times, prepend=-np.inf) > gap)
    firsts = np.zeros(len(times), dtype=np.intp)
    firsts[breaks] = breaks
    whole: Floats = times[np.maximum.accumulate(firsts)]
    return whole


def _statistics(
    values: Floats, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp], name: str
) -> Floats:
    """The statistic of each slice; none of them is empty."""
    result: Floats
    if name == "last":
        result = values[ends - 1]
    elif name == "max":
        result = _reduced(np.maximum, values, starts, ends)
    elif name == "min":
        result = _reduced(np.minimum, values, starts, ends)
    elif name == "mean":
        low = _reduced(np.minimum, values, starts, ends)
        high = _reduced(np.maximum, values, starts, ends)
        means = _exact_sums(values, starts, ends) / (ends - starts)
        result = np.minimum(np.maximum(means, low), high)
    else:
        match = PERCENTILE.fullmatch(name)
        if match is None:
            raise KeyError(name)
        rank = percentile(int(match[1]))
        parts = zip(starts.tolist(), ends.tolist(), strict=True)
        result = np.array([rank(values[start:end].tolist()) for start, end in parts])
    return result


def _reduced(
    function: np.ufunc, values: Floats, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]
) -> Floats:
    """The function over each slice; `reduceat` wants starts and ends in turn, and a last stop."""
    bounds = np.column_stack((starts, ends)).ravel()
    reduced: Floats = function.reduceat(np.append(values, values[-1]), bounds)[::2]
    return reduced


def _exact_sums(values: Floats, starts: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> Floats:
    """The sum of each slice, rounded once, as `math.fsum` does it.

    Every double is a whole number over a power of two. With one power for all of them the running
    totals are whole numbers, which Python adds without an error, and its division of two whole
    numbers rounds once.
    """
    ratios = [value.as_integer_ratio() for value in values.tolist()]
    power = max(denominator.bit_length() for _, denominator in ratios)
    whole = (n << (power - denominator.bit_length()) for n, denominator in ratios)
    totals = list(accumulate(whole, initial=0))
    scale = 1 << (power - 1)
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.array([(totals[end] - totals[start]) / scale for start, end in bounds])
