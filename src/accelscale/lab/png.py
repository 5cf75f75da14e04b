"""A picture as PNG, drawn by matplotlib without a screen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from accelscale.lab.pictures import Line, Panel, Picture, Role

WIDTH_INCHES = 11.0
PANEL_INCHES = 2.7
LETTERS_ABREAST = 130

COLOURS = {
    Role.LOAD: "#1f6fb2",
    Role.LIMIT: "#b3261e",
    Role.WANTED: "#1f6fb2",
    Role.SERVING: "#2e7d32",
    Role.RECORDED: "#6b6b6b",
    Role.ARRIVING: "#6a4fb0",
    Role.SERVED: "#2e7d32",
    Role.QUEUE: "#b25a00",
}
COMPARED = ("#1f6fb2", "#b25a00", "#2e7d32", "#6a4fb0", "#b3261e", "#6b6b6b")
_dates: Any = matplotlib.dates  # it has no types
STYLES = {Role.LIMIT: "--", Role.RECORDED: ":"}


def write_png(picture: Picture, path: Path) -> None:
    """Draw the picture into a file."""
    count = len(picture.panels)
    with mpl.rc_context({"font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold"}):
        figure = Figure(figsize=(WIDTH_INCHES, PANEL_INCHES * count + 0.6), layout="constrained")
        figure.suptitle(picture.title, fontsize=13, fontweight="bold")
        axes = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
        for panel, axis in zip(picture.panels, axes, strict=True):
            _draw(panel, axis, picture)
        locator = _dates.AutoDateLocator(tz=UTC)
        axes[-1].xaxis.set_major_locator(locator)
        axes[-1].xaxis.set_major_formatter(_dates.ConciseDateFormatter(locator, tz=UTC))
        axes[-1].set_xlabel("time (UTC)")
        figure.savefig(path, dpi=120, format="png")


def _draw(panel: Panel, axis: Axes, picture: Picture) -> None:
    for number, line in enumerate(panel.lines):
        _plot(line, axis, picture.start, number)
    for number, (start, end) in enumerate(picture.unknown):
        label = "no answer" if number == 0 else None
        axis.axvspan(
            *_as_dates([start, end], picture.start), color="#888888", alpha=0.25, lw=0, label=label
        )
    axis.set_ylabel(panel.unit)
    axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
    axis.set_xlim(*_as_dates([0.0, picture.seconds], picture.start))
    axis.grid(visible=True, color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    if panel.unit == "replicas":
        axis.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    _explain(panel, axis)


def _explain(panel: Panel, axis: Axes) -> None:
    """The legend in lines that fit over the axes, and the title over the legend."""
    handles, names = axis.get_legend_handles_labels()
    columns = max(1, min(len(names), LETTERS_ABREAST // (max(map(len, names)) + 6)))
    lines = math.ceil(len(names) / columns)
    axis.legend(
        handles,
        names,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=9,
        borderaxespad=0.2,
    )
    axis.set_title(panel.title, loc="left", pad=8 + 16 * lines)


def _plot(line: Line, axis: Axes, start: float, number: int) -> None:
    values = [float("nan") if value is None else value for value in line.values]
    colour = COMPARED[number % len(COMPARED)] if line.role is Role.OTHER else COLOURS[line.role]
    if line.role is Role.SERVING:
        axis.fill_between(
            _as_dates(line.times, start),
            values,
            step="post",
            color=colour,
            alpha=0.2,
            lw=0,
            label=line.name,
        )
        return
    axis.plot(
        _as_dates(line.times, start),
        values,
        color=colour,
        linestyle=STYLES.get(line.role, "-"),
        linewidth=1.2,
        drawstyle="steps-post" if line.steps else "default",
        label=line.name,
    )


def _as_dates(times: Sequence[float], start: float) -> Any:
    return _dates.date2num([datetime.fromtimestamp(start + time, UTC) for time in times])
