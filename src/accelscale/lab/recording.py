"""What the hardware did over a stretch of time, in memory: columns of numbers, and why some lack.

A column holds the samples of one metric of one device. Where a reading failed there is an
`Absence` with its reason, and where nothing was recorded there is nothing: a gap is never filled.
Times are seconds since the start of the recording, on a clock that does not go back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen

from accelscale.errors import ConfigurationError, Fault, NoDataError
from accelscale.metrics import METRICS, Metric
from accelscale.model import Device, Reason

Floats: TypeAlias = npt.NDArray[np.float64]
Key: TypeAlias = tuple[str, str]
"""A device id and the name of a metric."""


@frozen(eq=False)
class Column:
    """Samples of one metric of one device: times strictly rising, values finite.

    ``shared`` marks figures of a whole device that several pods share.
    """

    times: Floats
    values: Floats
    shared: bool = False

    def __len__(self) -> int:
        return len(self.times)


@frozen
class Span:
    """From ``start`` to before ``end``, in seconds."""

    start: float
    end: float


@frozen
class Absence:
    """Why one metric of one device has no reading from ``start`` to before ``end``."""

    device_id: str
    metric: str
    start: float
    end: float
    reason: Reason
    detail: str = ""
    permanent: bool = False


@frozen
class Holder:
    """The fact that a container of a pod held a device from ``start`` to before ``end``."""

    device_id: str
    namespace: str
    pod: str
    container: str
    start: float
    end: float


@frozen(eq=False)
class Recording:
    """One recording.

    ``start`` is the wall-clock time (Unix seconds) of time 0, ``end`` the time of the last pass.
    ``interval`` is the seconds between passes, ``intervals`` holds it for metrics that were read
    more rarely. ``presence`` says when each device was there, ``holders`` who held it, where that
    is known. ``notes`` are sentences about what was repaired or left out while reading.
    """

    start: float
    end: float
    interval: float
    devices: tuple[Device, ...]
    columns: Mapping[Key, Column]
    absences: Mapping[Key, tuple[Absence, ...]] = field(factory=dict)
    presence: Mapping[str, tuple[Span, ...]] = field(factory=dict)
    holders: tuple[Holder, ...] = ()
    intervals: Mapping[str, float] = field(factory=dict)
    units: Mapping[str, str] = field(factory=dict)
    origin: str = ""
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that have at least one sample, in the order of the metrics table."""
        found = {metric for _, metric in self.columns}
        known = [name for name in METRICS if name in found]
        return (*known, *sorted(found.difference(known)))

    @property
    def samples(self) -> int:
        """The number of samples."""
        return sum(len(column) for column in self.columns.values())

    def interval_of(self, metric: str) -> float:
        """Seconds between two readings of this metric."""
        return self.intervals.get(metric, self.interval)

    def metrics_table(self) -> Mapping[str, Metric]:
        """The metrics table, with rows for recorded metrics of plugins that it does not have."""
        foreign = {
            name: Metric(name, self.units.get(name, ""), "As recorded.", minimum=float("-inf"))
            for name in self.metrics
            if name not in METRICS
        }
        return {**METRICS, **foreign}

    def spans_of(self, device_id: str) -> tuple[Span, ...]:
        """When the device was there; all the time where nothing says otherwise."""
        return self.presence.get(device_id, (Span(0.0, float("inf")),))


def broken(where: str, problem: str) -> ConfigurationError:
    """The error of a file that cannot be taken as it is; ``where`` names the place in it."""
    return ConfigurationError([Fault(where, None, problem)], subject="recording")


def joined(recordings: Sequence[Recording]) -> Recording:
    """One recording of several, laid side by side on the wall clock; time 0 is the earliest start.

    The files of a rotation follow each other; those of several nodes lie beside each other.

    Raises:
        ConfigurationError: two of them have samples of one metric of one device for the same time.
        NoDataError: there is none.
    """
    if not recordings:
        raise NoDataError("no recording was given")
    if len(recordings) == 1:
        return recordings[0]
    first, *_ = ordered = sorted(recordings, key=lambda recording: recording.start)
    moved = [_later(recording, recording.start - first.start) for recording in ordered]
    columns: dict[Key, list[Column]] = {}
    absences: dict[Key, list[Absence]] = {}
    presence: dict[str, list[Span]] = {}
    for recording in moved:
        for key, column in recording.columns.items():
            columns.setdefault(key, []).append(column)
        for key, found in recording.absences.items():
            absences.setdefault(key, []).extend(found)
        for device_id, spans in recording.presence.items():
            presence.setdefault(device_id, []).extend(spans)
    interval = max(recording.interval for recording in moved)
    return Recording(
        start=first.start,
        end=max(recording.end for recording in moved),
        interval=interval,
        devices=tuple({d.id: d for recording in moved for d in recording.devices}.values()),
        columns={key: _chained(key, parts) for key, parts in columns.items()},
        absences={key: merged_absences(found, 2 * interval) for key, found in absences.items()},
        presence={key: merged_spans(spans, 2 * interval) for key, spans in presence.items()},
        holders=tuple(holder for recording in moved for holder in recording.holders),
        intervals={k: v for recording in moved for k, v in recording.intervals.items()},
        units={k: v for recording in moved for k, v in recording.units.items()},
        origin=f"{first.origin} and {len(moved) - 1} more",
        notes=tuple(note for recording in moved for note in recording.notes),
    )


def merged_spans(spans: Sequence[Span], slack: float) -> tuple[Span, ...]:
    """The spans in order, those that lie at most ``slack`` seconds apart as one."""
    result: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if result and span.start <= result[-1].end + slack:
            result[-1] = Span(result[-1].start, max(result[-1].end, span.end))
        else:
            result.append(span)
    return tuple(result)


def merged_absences(absences: Sequence[Absence], slack: float) -> tuple[Absence, ...]:
    """The absences in order, those that only a new file separates as one."""
    result: list[Absence] = []
    for absence in sorted(absences, key=lambda absence: absence.start):
        last = result[-1] if result else None
        if last is not None and absence.start <= last.end + slack and _alike(last, absence):
            result[-1] = evolve(last, end=max(last.end, absence.end))
        else:
            result.append(absence)
    return tuple(result)


def _alike(one: Absence, other: Absence) -> bool:
    return (one.reason, one.detail, one.permanent) == (other.reason, other.detail, other.permanent)


def _later(recording: Recording, by: float) -> Recording:
    """The same with every time that many seconds later, and with its presence written out."""
    whole = (Span(0.0, recording.end + recording.interval),)
    spans = {d.id: recording.presence.get(d.id, whole) for d in recording.devices}
    return evolve(
        recording,
        start=recording.start - by,
        end=recording.end + by,
        columns={
            key: evolve(column, times=column.times + by)
            for key, column in recording.columns.items()
        },
        absences={
            key: tuple(evolve(a, start=a.start + by, end=a.end + by) for a in found)
            for key, found in recording.absences.items()
        },
        presence={
            key: tuple(Span(s.start + by, s.end + by) for s in s_) for key, s_ in spans.items()
        },
        holders=tuple(evolve(h, start=h.start + by, end=h.end + by) for h in recording.holders),
    )


def _chained(key: Key, parts: Sequence[Column]) -> Column:
    parts = [part for part in parts if len(part)]
    for before, after in pairwise(parts):
        if after.times[0] <= before.times[-1]:
            device_id, metric = key
            raise broken(
                f"{metric} of {device_id}",
                "two of the files hold samples of it for the same time: leave one of them out",
            )
    return Column(
        np.concatenate([part.times for part in parts]) if parts else np.empty(0),
        np.concatenate([part.values for part in parts]) if parts else np.empty(0),
        any(part.shared for part in parts),
    )
