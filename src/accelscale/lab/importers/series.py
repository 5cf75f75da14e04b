"""Labelled series, gathered to a recording: the common ground of the Prometheus formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from accelscale.lab.gathering import Gathering
from accelscale.lab.importers.units import parsed
from accelscale.lab.importers.vendors import device_of, exported, holder_of, is_counter
from accelscale.lab.recording import Holder, Recording, broken
from accelscale.metrics import METRICS, max_age
from accelscale.model import Reason


@frozen(eq=False)
class LabelledSeries:
    """One series: its name, labels, and (time, text, place) of each point, in order of time."""

    name: str
    labels: Mapping[str, str]
    points: Sequence[tuple[float, str, str]]
    where: str


def gather(
    series: Sequence[LabelledSeries],
    name: str,
    *,
    metrics: frozenset[str] | None,
    repair: bool,
    metric: str | None,
) -> Recording:
    """The recording of these series; ``metric`` is what a series without a name holds.

    Raises:
        ConfigurationError: none of them is of a known metric and device, or a point is broken.
    """
    gathering = Gathering(name, repair=repair, metrics=metrics)
    taken: dict[tuple[str, str], str] = {}
    unknown: dict[str, None] = {}
    held: list[tuple[tuple[str, str, str, str], Sequence[tuple[float, str, str]]]] = []
    first = None
    for one in sorted(series, key=lambda s: s.points[0][0] if s.points else 0.0):
        found = exported(one.name or metric or "")
        device = device_of(one.labels, found.vendor if found else "")
        if found is None or device is None or not one.points:
            unknown[_unusable(one, found is not None)] = None
            continue
        key = (device.id, found.metric)
        if taken.setdefault(key, one.name) != one.name:
            gathering.notes.append(f"{one.where}: {one.name} left out, {taken[key]} says the same")
            continue
        gathering.device(device)
        unit = METRICS[found.metric].unit
        _take(gathering, one, key, unit, found.unit)
        first = one.points[0][0] if first is None else min(first, one.points[0][0])
        holder = holder_of(one.labels)
        if holder is not None:
            held.append(((device.id, *holder), one.points))
    if first is None:
        known = "; ".join(unknown) or "it holds no series"
        raise broken(name, f"holds no series that can be used: {known}")
    if unknown:
        gathering.notes.append(f"{name}: left out {'; '.join(unknown)}")
    gathering.present_from_first_sample()
    _hold(gathering, held)
    return gathering.finish(first, origin=name)


def _take(
    gathering: Gathering, one: LabelledSeries, key: tuple[str, str], unit: str, assumed: str
) -> None:
    for time, text, where in one.points:
        if text.strip().lower() in {"nan", "+inf", "-inf", "inf", ""}:
            gathering.absent(key, time, Reason.ERROR, f"{text or 'nothing'} in the export")
            continue
        try:
            value = parsed(text, unit, assumed)
        except ValueError as error:
            gathering.leave_out(where, "number", str(error))
            continue
        if is_counter(key[1]) and value < 0:
            gathering.leave_out(where, "number", f"{text!r} is negative, which no total is")
            continue
        gathering.sample(key, time, value, where)


def _hold(
    gathering: Gathering,
    held: Sequence[tuple[tuple[str, str, str, str], Sequence[tuple[float, str, str]]]],
) -> None:
    """A pod held the device for as long as its series runs, and until the next pod's begins."""
    bounds: dict[tuple[str, str, str, str], tuple[float, float]] = {}
    for who, points in held:
        start, end = bounds.get(who, (points[0][0], points[-1][0]))
        bounds[who] = (min(start, points[0][0]), max(end, points[-1][0]))
    slack = max_age(gathering.step())
    for who, (start, end) in bounds.items():
        later = (s for other, (s, _) in bounds.items() if other[0] == who[0] and s > start)
        gathering.holder(Holder(*who, start, min([end + slack, *later])))


def _unusable(one: LabelledSeries, known: bool) -> str:
    if not one.points:
        return f"{one.name or 'a series'} without a point"
    if known:
        return f"{one.name}: no label names the device (UUID, gpu, ...)"
    if not one.name:
        return "a series without a name: say what it holds by --metric-of"
    return f"{one.name}: no metric that is known here"
