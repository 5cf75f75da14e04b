"""Builds a recording from what a reader finds, row after row, and checks it on the way.

Every row is named by its place in the file. What cannot be true (time that goes back, a number
that is none, a value outside the range of its metric) is an error at that place; with ``repair``
the row is left out instead, and a note says where the first such row was and how many there were.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping

import numpy as np
from attrs import define, field

from accelscale.lab.recording import (
    Absence,
    Column,
    Holder,
    Key,
    Recording,
    Span,
    broken,
    merged_absences,
)
from accelscale.metrics import METRICS, Metric
from accelscale.model import Device, Reason


@define
class _Rows:
    times: array[float] = field(factory=lambda: array("d"))
    values: array[float] = field(factory=lambda: array("d"))
    shared: bool = False


@define
class _Open:
    start: float
    reason: Reason
    detail: str
    permanent: bool


class Gathering:
    """A recording in the making. Times are on any one clock; the first one seen becomes 0.

    ``name`` is the file for messages. ``metrics`` limits what is kept, where given.
    """

    def __init__(
        self, name: str, *, repair: bool = False, metrics: Iterable[str] | None = None
    ) -> None:
        self.name = name
        self.notes: list[str] = []
        self.interval: float | None = None
        self.intervals: dict[str, float] = {}
        self.units: dict[str, str] = {}
        self._repair = repair
        self._wanted = None if metrics is None else frozenset(metrics)
        self._devices: dict[str, Device] = {}
        self._rows: dict[Key, _Rows] = {}
        self._open: dict[Key, _Open] = {}
        self._absences: dict[Key, list[Absence]] = {}
        self._present: dict[str, float] = {}
        self._spans: dict[str, list[Span]] = {}
        self._held: dict[tuple[str, str, str, str], float] = {}
        self._holders: list[Holder] = []
        self._left_out: dict[str, tuple[str, int]] = {}
        self._first = math.inf
        self._last = -math.inf

    def wants(self, metric: str) -> bool:
        """Whether this metric is to be kept."""
        return self._wanted is None or metric in self._wanted

    def at(self, time: float) -> None:
        """Learn that the recording went on at this time."""
        self._first = min(self._first, time)
        self._last = max(self._last, time)

    def device(self, device: Device) -> None:
        """Learn a device, or more about it, without saying when it was there."""
        self._devices[device.id] = device

    def inventory(self, time: float, devices: Iterable[Device]) -> None:
        """The devices that are there from this time on."""
        self.at(time)
        now = {device.id: device for device in devices}
        self._devices |= now
        for device_id in set(self._present) - set(now):
            self._spans.setdefault(device_id, []).append(Span(self._present.pop(device_id), time))
            for key in [key for key in self._open if key[0] == device_id]:
                self._close(key, time)
        for device_id in now:
            self._present.setdefault(device_id, time)

    def allocations(self, time: float, holders: Iterable[tuple[str, str, str, str]]) -> None:
        """Who holds which device from this time on: (device id, namespace, pod, container)."""
        self.at(time)
        now = set(holders)
        for holder in set(self._held) - now:
            self._holders.append(Holder(*holder, self._held.pop(holder), time))
        for holder in now:
            self._held.setdefault(holder, time)

    def holder(self, holder: Holder) -> None:
        """A holder whose times are known."""
        self._holders.append(holder)

    def sample(
        self, key: Key, time: float, value: float, where: str, *, shared: bool = False
    ) -> None:
        """A sample. ``where`` names its place in the file.

        Raises:
            ConfigurationError: it cannot be true, and nothing is to be repaired.
        """
        problem = self._problem(key, time, value)
        if problem is not None:
            self._refuse(where, *problem)
            return
        self.at(time)
        if not self.wants(key[1]):
            return
        if key in self._open:
            self._close(key, time)
        rows = self._rows.get(key)
        if rows is None:
            rows = self._rows[key] = _Rows()
        rows.times.append(time)
        rows.values.append(value)
        rows.shared = rows.shared or shared

    def absent(
        self, key: Key, time: float, reason: Reason, detail: str = "", *, permanent: bool = False
    ) -> None:
        """There is no reading from this time on, until the next sample or another reason."""
        self.at(time)
        if not self.wants(key[1]):
            return
        opened = self._open.get(key)
        if opened is not None:
            if (opened.reason, opened.detail) == (reason, detail):
                return
            self._close(key, time)
        self._open[key] = _Open(time, reason, detail, permanent)

    def absent_no_longer(self, key: Key, time: float) -> None:
        """From this time on nothing says why there is no reading."""
        self.at(time)
        if key in self._open:
            self._close(key, time)

    def finish(self, start: float, *, origin: str, zero: float | None = None) -> Recording:
        """The recording. ``start`` is the Unix time of ``zero``, the first time seen if not given.

        What is still true at the end is true until then, not for ever: another file may follow.

        Raises:
            ConfigurationError: there is not one sample or absence in it.
        """
        if not self._rows and not self._open and not self._absences:
            raise broken(self.name, "holds no sample of a metric that is wanted")
        zero, interval = self._first if zero is None else zero, self.step()
        end = self._last - zero
        for key in list(self._open):
            self._close(key, self._last)
        held = [Holder(*holder, since, self._last) for holder, since in self._held.items()]
        for device_id, since in self._present.items():
            self._spans.setdefault(device_id, []).append(Span(since, self._last))
        return Recording(
            start=start,
            end=end,
            interval=interval,
            devices=tuple(self._devices.values()),
            columns={key: _column(rows, zero) for key, rows in self._rows.items()},
            absences={
                key: merged_absences([_moved(a, zero) for a in found], 0.0)
                for key, found in self._absences.items()
            },
            presence={
                key: tuple(Span(span.start - zero, span.end - zero) for span in spans)
                for key, spans in self._spans.items()
            },
            holders=tuple(
                Holder(h.device_id, h.namespace, h.pod, h.container, h.start - zero, h.end - zero)
                for h in (*self._holders, *held)
            ),
            intervals=dict(self.intervals),
            units={**_units(self._rows), **self.units},
            origin=origin,
            notes=(*self.notes, *self._repairs()),
        )

    def present_from_first_sample(self) -> None:
        """For files without an inventory: a device is there from its first reading to the end.

        A series that stops may be a lost card, which is silent and not away: taken for a smaller
        fleet it would ask for fewer replicas.
        """
        firsts: dict[str, float] = {}
        for (device_id, _), rows in self._rows.items():
            firsts[device_id] = min(firsts.get(device_id, math.inf), rows.times[0])
        for device_id, first in firsts.items():
            self._spans[device_id] = [Span(first, self._last)]

    def _problem(self, key: Key, time: float, value: float) -> tuple[str, str] | None:
        """What is wrong with a sample: its kind, and the sentence."""
        device_id, metric = key
        if not math.isfinite(value):
            return "no number", f"{value} is no value of {metric}"
        row: Metric | None = METRICS.get(metric)
        if row is not None and not row.minimum <= value <= row.maximum:
            allowed = f"{row.minimum:g} to {row.maximum:g} {row.unit}"
            return "range", f"{metric} = {value:g} lies outside {allowed}: is the unit right?"
        rows = self._rows.get(key)
        if rows is not None and time <= rows.times[-1]:
            what = "stands still" if time == rows.times[-1] else "goes back"
            ago = f"{rows.times[-1] - time:g} s before the sample above it"
            return "time", f"time {what} for {metric} of {device_id}: {ago}"
        return None

    def _refuse(self, where: str, kind: str, problem: str) -> None:
        if not self._repair:
            raise broken(where, f"{problem} (with --repair such rows are left out)")
        first, count = self._left_out.get(kind, (f"{where}: {problem}", 0))
        self._left_out[kind] = (first, count + 1)

    def leave_out(self, where: str, kind: str, problem: str) -> None:
        """Refuse a row that cannot be read at all, or leave it out under ``repair``.

        Raises:
            ConfigurationError: nothing is to be repaired.
        """
        self._refuse(where, kind, problem)

    def _repairs(self) -> Iterable[str]:
        for first, count in self._left_out.values():
            yield f"left out {count} reading{'s' * (count != 1)}, the first at {first}"

    def _close(self, key: Key, time: float) -> None:
        opened = self._open.pop(key)
        if time > opened.start or time == self._last:
            absence = Absence(
                *key, opened.start, time, opened.reason, opened.detail, opened.permanent
            )
            self._absences.setdefault(key, []).append(absence)

    def step(self) -> float:
        """Seconds between two readings: as stated, else the median of the fastest metric."""
        if self.interval is not None:
            return self.interval
        steps = [
            float(np.median(np.diff(np.frombuffer(rows.times))))
            for rows in self._rows.values()
            if len(rows.times) > 1
        ]
        return min(steps, default=1.0)


def _column(rows: _Rows, zero: float) -> Column:
    return Column(np.array(rows.times) - zero, np.array(rows.values), rows.shared)


def _moved(absence: Absence, zero: float) -> Absence:
    return Absence(
        absence.device_id,
        absence.metric,
        absence.start - zero,
        absence.end - zero,
        absence.reason,
        absence.detail,
        absence.permanent,
    )


def _units(keys: Mapping[Key, object]) -> dict[str, str]:
    return {metric: METRICS[metric].unit for _, metric in keys if metric in METRICS}
