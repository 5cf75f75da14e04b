"""A picture as text, for a terminal: each panel an area of block characters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np

from accelscale.lab.pictures import Line, Panel, Picture, Role
from accelscale.lab.recording import Floats
from accelscale.lab.wording import number

ROWS = 8
LEAST_COLUMNS = 20
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_MARGIN = 9


def lines_of(picture: Picture, width: int) -> Iterator[str]:
    """The picture in lines of at most ``width`` characters."""
    columns = max(LEAST_COLUMNS, width - _MARGIN - 2)
    for panel in picture.panels:
        yield from _panel(panel, picture, columns)
        yield ""


def _panel(panel: Panel, picture: Picture, columns: int) -> Iterator[str]:
    main = panel.lines[0]
    highs = _per_column(main, picture.seconds, columns)
    limit = next((line for line in panel.lines if line.role is Role.LIMIT and not line.steps), None)
    level = limit.values[0] if limit is not None else None
    known = highs[~np.isnan(highs)]
    top = max([*known.tolist(), level or 0.0, 1e-9])
    top = math.ceil(top) if panel.unit == "replicas" else top
    note = f", threshold {number(level)} as ┄" if level is not None else ""
    yield f"{panel.title}: {main.name} ({panel.unit}{note})"
    for row in reversed(range(ROWS)):
        low, high = top * row / ROWS, top * (row + 1) / ROWS
        label = number(high) if row in {ROWS - 1, ROWS // 2 - 1} else ""
        marks = level is not None and low < level <= high
        cells = (_cell(value, low, high, marks=marks) for value in highs.tolist())
        yield f"{label:>{_MARGIN - 1}} ┤{''.join(cells)}".rstrip()
    yield f"{'0':>{_MARGIN - 1}} ┼{'─' * columns}"
    first, last = _clock(picture, 0.0), _clock(picture, picture.seconds)
    yield f"{'':>{_MARGIN}} {first}{last:>{columns - len(first)}}"


def _cell(value: float, low: float, high: float, *, marks: bool) -> str:
    """One character: how far the value fills this row, ``·`` where nothing is known."""
    if math.isnan(value):
        return "·" if low == 0 else ("┄" if marks else " ")
    eighths = round(8 * (value - low) / (high - low))
    if eighths <= 0:
        return "┄" if marks else ("▁" if low == 0 and value > 0 else " ")
    return _EIGHTHS[min(eighths, 8)]


def _per_column(line: Line, seconds: float, columns: int) -> Floats:
    """The greatest value within each column of the screen; NaN where nothing is known."""
    result = np.full(columns, math.nan)
    width = seconds / columns
    times = [*line.times, seconds]
    for at, value in enumerate(line.values):
        if value is None:
            continue
        first = min(int(times[at] / width), columns - 1)
        until = times[at + 1] if line.steps else times[at]
        last = min(max(int(until / width - 1e-9), first), columns - 1)
        part = result[first : last + 1]
        result[first : last + 1] = np.fmax(part, value)
    return result if line.steps else _bridged(result, len(line.times), columns)


def _bridged(values: Floats, points: int, columns: int) -> Floats:
    """With fewer points than columns, each holds until the next."""
    if points >= columns:
        return values
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return values
    at = np.searchsorted(known, np.arange(columns), side="right") - 1
    bridged: Floats = np.where(at >= 0, values[known[np.maximum(at, 0)]], math.nan)
    return bridged


def _clock(picture: Picture, time: float) -> str:
    moment = datetime.fromtimestamp(picture.start + time, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}" if picture.seconds > 86400 else f"{moment:%H:%M:%S}"
