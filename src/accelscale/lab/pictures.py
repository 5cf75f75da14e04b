"""What the pictures of a replay show, before anything is drawn: panels of lines over time.

A day of samples has more points than a screen has columns. A line is therefore thinned to its least
and greatest value per stretch, so that no peak is lost; work is shown as the mean of each stretch,
and changes of replicas are kept as they are. Where nothing is known the line is broken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice, pairwise

import numpy as np
from attrs import evolve, frozen

from accelscale.lab.course import Course, carried
from accelscale.lab.recording import Floats
from accelscale.lab.replay import Replay
from accelscale.lab.summary import timeline
from accelscale.lab.sweep import Outcome
from accelscale.metrics import METRICS

MOST_POINTS = 1600


class Role(StrEnum):
    """What a line stands for; each way to draw gives it a colour and a style of its own."""

    LOAD = "load"
    LIMIT = "limit"
    WANTED = "wanted"
    SERVING = "serving"
    RECORDED = "recorded"
    ARRIVING = "arriving"
    SERVED = "served"
    QUEUE = "queue"
    OTHER = "other"


@frozen(eq=False)
class Line:
    """One line; values are None where nothing is known. ``steps`` holds a value until the next."""

    name: str
    role: Role
    times: tuple[float, ...]
    values: tuple[float | None, ...]
    steps: bool = False


@frozen(eq=False)
class Panel:
    """One set of axes: the title says what it shows, the unit in what."""

    title: str
    unit: str
    lines: tuple[Line, ...]


@frozen(eq=False)
class Picture:
    """Panels over one axis of time: seconds since ``start``, a Unix time.

    ``unknown`` are the stretches without an answer of the scaler.
    """

    title: str
    start: float
    seconds: float
    panels: tuple[Panel, ...]
    unknown: tuple[tuple[float, float], ...] = ()


def picture_of(replay: Replay) -> Picture:
    """The load of a replica, the replicas, and the work."""
    loads = load_panels(replay, replay.recording.units)
    panels = [*loads, _replicas_panel(replay), *_work_panels(replay)]
    unknown = unanswered(replay)
    name = f"{replay.policy.namespace}/{replay.policy.name}"
    return Picture(name, replay.recording.start, replay.seconds, tuple(panels), unknown)


def comparison_of(outcomes: Sequence[Outcome]) -> Picture | None:
    """The replicas of the best candidates whose replays were kept, cheapest first."""
    kept = [(o.candidate.name, o.replay) for o in outcomes if o.replay is not None]
    if not kept:
        return None
    replay = kept[0][1]
    lines = tuple(steps(name, Role.OTHER, one.changes(), one.seconds) for name, one in kept)
    work = islice(_work_panels(replay), 1)
    panels = [
        Panel("Replicas, cheapest policies", "replicas", lines),
        *(evolve(panel, title=f"{panel.title} under {kept[0][0]}") for panel in work),
    ]
    start = replay.recording.start
    return Picture("Comparison", start, replay.seconds, tuple(panels))


def load_panels(course: Course, units: Mapping[str, str]) -> Iterator[Panel]:
    """For each trigger what one replica carries, as the HPA divides it, against its threshold.

    ``units`` are those of metrics that the metrics table does not have.
    """
    found = {turn.time: turn.found.status for turn in course.turns}
    times = np.array([one.time for one in course.answered])
    for number, trigger in enumerate(course.policy.triggers):
        shares = [
            carried(trigger, one.values[number], found.get(one.time, 0)) for one in course.answered
        ]
        values = np.array([math.nan if share is None else share for share in shares])
        row = METRICS.get(trigger.metric)
        unit = row.unit if row is not None else units.get(trigger.metric, "")
        load = thinned("per replica", Role.LOAD, times, values)
        limit = level("threshold", trigger.threshold, course.seconds)
        yield Panel(f"{trigger.metric} per replica", unit, (load, limit))


def _replicas_panel(replay: Replay) -> Panel:
    line = timeline(replay)
    recorded = [(one.time, one.recorded) for one in replay.answered if one.recorded is not None]
    lines = [steps("wanted", Role.WANTED, replay.changes(), replay.seconds)]
    serving = changes_of(line.times, line.serving)
    lines.append(steps("past loading", Role.SERVING, serving, replay.seconds))
    if recorded and replay.fleet is None:
        times, counts = zip(*recorded, strict=True)
        changes = changes_of(np.array(times), np.array(counts, dtype=np.float64))
        lines.append(steps("recorded", Role.RECORDED, changes, replay.seconds))
    return Panel("Replicas", "replicas", tuple(lines))


def _work_panels(replay: Replay) -> Iterator[Panel]:
    line, work = timeline(replay), replay.work
    if work is None or line.arriving is None or line.served is None:
        return
    room = line.serving * replay.devices_per_replica
    lines = [averaged("work that comes", Role.ARRIVING, line.times, line.arriving)]
    if replay.fleet is not None:
        lines.append(averaged("work done", Role.SERVED, line.times, line.served))
    lines.append(steps("room", Role.LIMIT, changes_of(line.times, room), replay.seconds))
    yield Panel(f"Work ({work.metric})", "busy devices", tuple(lines))
    if line.queue is not None:
        queue = thinned("waiting", Role.QUEUE, line.times, line.queue)
        yield Panel("Work that waits", "device seconds", (queue,))


def thinned(name: str, role: Role, times: Floats, values: Floats, most: int = MOST_POINTS) -> Line:
    """The line, or the least and the greatest value of each stretch where it has too many points.

    A stretch in which nothing is known breaks the line.
    """
    if len(times) <= most:
        return Line(name, role, tuple(times.tolist()), _numbers(values))
    bounds = np.linspace(0, len(times), most // 2 + 1).astype(int)
    kept_times: list[float] = []
    kept: list[float | None] = []
    for start, end in pairwise(bounds.tolist()):
        part = values[start:end]
        known = np.flatnonzero(~np.isnan(part))
        if len(known) < len(part):
            kept_times.append(float(times[start + int(np.flatnonzero(np.isnan(part))[0])]))
            kept.append(None)
        if not len(known):
            continue
        ends = {known[np.argmin(part[known])], known[np.argmax(part[known])]}
        for at in sorted(int(one) for one in ends):
            kept_times.append(float(times[start + at]))
            kept.append(float(part[at]))
    return Line(name, role, tuple(kept_times), tuple(kept))


def averaged(name: str, role: Role, times: Floats, values: Floats, most: int = 600) -> Line:
    """The line, or the mean of each stretch where it has too many points."""
    if len(times) <= most:
        return Line(name, role, tuple(times.tolist()), _numbers(values))
    bounds = np.linspace(0, len(times), most + 1).astype(int).tolist()
    means = [
        float(part.mean()) if not np.isnan(part := values[start:end]).any() else None
        for start, end in pairwise(bounds)
    ]
    return Line(name, role, tuple(times[bounds[:-1]].tolist()), tuple(means))


def _numbers(values: Floats) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else value for value in values.tolist())


def changes_of(times: Floats, values: Floats) -> list[tuple[float, float]]:
    """When a series of values changes, as (time, value from then on)."""
    at = np.flatnonzero(np.diff(values, prepend=math.nan) != 0)
    return list(zip(times[at].tolist(), values[at].tolist(), strict=True))


def steps(name: str, role: Role, changes: Sequence[tuple[float, float]], seconds: float) -> Line:
    """A line of (time, value from then on)."""
    times = (*(time for time, _ in changes), seconds)
    values = (*(value for _, value in changes), changes[-1][1])
    return Line(name, role, times, values, steps=True)


def level(name: str, value: float, seconds: float) -> Line:
    """A limit that stays the same all the time."""
    return Line(name, Role.LIMIT, (0.0, seconds), (value, value))


def unanswered(course: Course) -> tuple[tuple[float, float], ...]:
    """The stretches in which a trigger had no answer."""
    return tuple(_unanswered(course))


def _unanswered(course: Course) -> Iterator[tuple[float, float]]:
    since: float | None = None
    for one in course.answered:
        if one.errors and since is None:
            since = one.time
        elif not one.errors and since is not None:
            yield since, one.time
            since = None
    if since is not None:
        yield since, course.seconds
