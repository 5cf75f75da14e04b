"""A recording seen as the collector would have shown it: snapshots and workloads at given moments.

The series of a snapshot follow the rules of `accelscale.readings`: a failure that says something
against the sample before it stands in its place, any other leaves the sample until its age limit,
and a gap in the recording is an old sample, never a new one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from accelscale.attribution import lacks, node_workload, select_devices
from accelscale.errors import AccelscaleError, NotFoundError
from accelscale.lab.recording import Absence, Column, Floats, Key, Recording
from accelscale.lab.windows import window_values
from accelscale.metrics import max_age
from accelscale.model import (
    Device,
    Failure,
    Reason,
    Replica,
    Series,
    SeriesValue,
    Snapshot,
    Workload,
)
from accelscale.trigger import Trigger

_EMPTY = Column(np.empty(0), np.empty(0))


@frozen(eq=False)
class _Cells:
    """One series of one device at every moment, as plain lists: quick to take apart."""

    values: list[float]
    newest: list[float]
    covered: list[bool]
    counts: list[int]
    shared: bool


class View:
    """A recording at ``moments``, which rise. Series are computed once and kept for all triggers.

    ``pods`` limits workloads to pods whose name or ``namespace/name`` matches this pattern.
    ``devices_per_replica`` joins devices to replicas where no pod is known.
    """

    def __init__(
        self,
        recording: Recording,
        moments: Sequence[float],
        *,
        pods: str | None = None,
        devices_per_replica: int = 1,
    ) -> None:
        self.recording = recording
        self.moments: Floats = np.asarray(moments, dtype=np.float64)
        self._pods = pods
        self._devices_per_replica = devices_per_replica
        self._cells: dict[tuple[str, Series], _Cells] = {}
        self._snapshots: dict[tuple[int, tuple[Series, ...]], Snapshot] = {}
        self._absences = {
            key: ([absence.start for absence in found], found)
            for key, found in recording.absences.items()
        }
        self._bounds = sorted(_bounds(recording))
        self._devices: dict[int, tuple[Device, ...]] = {}
        self._workloads: dict[tuple[Trigger, int], Workload | AccelscaleError] = {}

    @property
    def edges(self) -> list[float]:
        """0 and each later time at which the devices, or who holds them, change."""
        end = self.recording.end
        return [0.0, *(time for time in self._bounds if 0.0 < time <= end)]

    @property
    def knows_pods(self) -> bool:
        """Whether the recording says which pods held its devices."""
        return bool(self.recording.holders)

    def snapshot(self, index: int, series: Iterable[Series]) -> Snapshot:
        """What was known at that moment, with these series of every device that was there."""
        wanted = tuple(series)
        known = self._snapshots.get((index, wanted))
        if known is not None:
            return known
        now = float(self.moments[index])
        plain = self._plain(now, {one.metric for one in wanted})
        found: dict[tuple[str, Series], SeriesValue | Failure] = {}
        for one in wanted:
            for device in plain.devices:
                failure = plain.failures.get((device.id, one.metric))
                if failure is not None and not failure.reason.passing:
                    found[device.id, one] = failure
                else:
                    found[device.id, one] = self._value(device.id, one, index, failure)
        snapshot = evolve(plain, sequence=index + 1, series=found)
        self._snapshots[index, wanted] = snapshot
        return snapshot

    def workload(self, trigger: Trigger, now: float) -> Workload:
        """The replicas that the trigger counts at that time.

        With scope workload those are the pods that held devices then, where the recording knows
        pods; else each device, or each group of ``devices_per_replica``, is one.

        Raises:
            AccelscaleError: as `accelscale.attribution.node_workload`.
        """
        key = (trigger, self._epoch(now))
        found = self._workloads.get(key)
        if found is None:
            try:
                found = self._workload(trigger, self._plain(now, {trigger.metric}))
            except AccelscaleError as error:
                found = error
            self._workloads[key] = found
        if isinstance(found, AccelscaleError):
            raise found.with_traceback(None)
        return found

    def counted(self, trigger: Trigger, times: Floats) -> Mapping[str, npt.NDArray[np.bool_]]:
        """For each device that the trigger ever counts, at which of the times it does."""
        result: dict[str, npt.NDArray[np.bool_]] = {}
        edges = np.searchsorted(times, self._bounds, side="left").tolist()
        for start, end in pairwise([0, *edges, len(times)]):
            if start == end:
                continue
            try:
                workload = self.workload(trigger, float(times[start]))
            except AccelscaleError:
                continue
            for replica in workload.replicas:
                for device_id in replica.devices:
                    if device_id not in result:
                        result[device_id] = np.zeros(len(times), dtype=bool)
                    result[device_id][start:end] = True
        return result

    def _plain(self, now: float, metrics: Iterable[str]) -> Snapshot:
        """The devices of that time, and what fails of these metrics."""
        devices = self._devices_at(now)
        failures: dict[Key, Failure] = {}
        for metric in metrics:
            for device in devices:
                failure = self._failure(device.id, metric, now)
                if failure is not None:
                    failures[device.id, metric] = failure
        return Snapshot(
            time=now,
            sequence=0,
            interval=self.recording.interval,
            devices=devices,
            failures=failures,
            intervals=self.recording.intervals,
        )

    def _workload(self, trigger: Trigger, snapshot: Snapshot) -> Workload:
        if trigger.scope == "workload" and self.knows_pods:
            return self._pod_workload(trigger, snapshot)
        workload = node_workload(trigger, snapshot)
        size = self._devices_per_replica
        if size == 1:
            return workload
        ids = [replica.name for replica in workload.replicas]
        groups = [tuple(ids[at : at + size]) for at in range(0, len(ids), size)]
        replicas = tuple(Replica(f"{g[0]} and {len(g) - 1} more", g) for g in groups)
        return Workload(workload.name, replicas, scope=workload.scope)

    def _pod_workload(self, trigger: Trigger, snapshot: Snapshot) -> Workload:
        now, pattern = snapshot.time, self._pods or "*"
        capable = {
            device.id
            for device in select_devices(trigger, snapshot)
            if not lacks(snapshot, device.id, trigger.metric)
        }
        pods: dict[str, list[str]] = {}
        names: set[str] = set()
        for holder in self.recording.holders:
            name = f"{holder.namespace}/{holder.pod}"
            names.add(name)
            if (
                holder.start <= now < holder.end
                and holder.device_id in capable
                and trigger.container in {None, holder.container}
                and (fnmatchcase(name, pattern) or fnmatchcase(holder.pod, pattern))
            ):
                pods.setdefault(name, []).append(holder.device_id)
        if not any(fnmatchcase(n, pattern) or fnmatchcase(n.split("/")[1], pattern) for n in names):
            raise NotFoundError(
                f"no pod matches {pattern}; recorded are {', '.join(sorted(names))}"
            )
        replicas = tuple(Replica(name, tuple(dict.fromkeys(ids))) for name, ids in pods.items())
        return Workload(pattern, replicas, scope="workload")

    def _value(
        self, device_id: str, series: Series, index: int, failure: Failure | None
    ) -> SeriesValue | Failure:
        cells = self._cells.get((device_id, series))
        if cells is None:
            cells = self._cells[device_id, series] = self._computed(device_id, series)
        if not cells.counts[index]:
            return failure or Failure(
                device_id, series.metric, Reason.STALE, "no reading yet", math.nan
            )
        return SeriesValue(
            cells.values[index], cells.newest[index], cells.covered[index], cells.shared
        )

    def _computed(self, device_id: str, series: Series) -> _Cells:
        column = self.recording.columns.get((device_id, series.metric), _EMPTY)
        interval = self.recording.interval_of(series.metric)
        found = window_values(
            column, series, self.moments, gap=max_age(interval), interval=interval
        )
        return _Cells(
            found.values.tolist(),
            found.newest.tolist(),
            found.covered.tolist(),
            found.counts.tolist(),
            column.shared,
        )

    def _failure(self, device_id: str, metric: str, now: float) -> Failure | None:
        known = self._absences.get((device_id, metric))
        if known is None:
            return None
        starts, found = known
        absence = found[max(bisect_right(starts, now) - 1, 0)]
        return _failure_of(absence) if absence.start <= now < absence.end else None

    def _devices_at(self, now: float) -> tuple[Device, ...]:
        epoch = self._epoch(now)
        if epoch not in self._devices:
            self._devices[epoch] = tuple(
                device
                for device in self.recording.devices
                if any(s.start <= now < s.end for s in self.recording.spans_of(device.id))
            )
        return self._devices[epoch]

    def _epoch(self, now: float) -> int:
        """Which devices are there, who holds them and what they lack for good is one per epoch."""
        return bisect_right(self._bounds, now)


def _failure_of(absence: Absence) -> Failure:
    return Failure(
        absence.device_id,
        absence.metric,
        absence.reason,
        absence.detail,
        absence.start,
        permanent=absence.permanent,
    )


def _bounds(recording: Recording) -> set[float]:
    spans = [span for device in recording.devices for span in recording.spans_of(device.id)]
    permanent = [
        absence
        for found in recording.absences.values()
        for absence in found
        if absence.permanent or absence.reason is Reason.NOT_SUPPORTED
    ]
    stretches: Iterable[object] = (*spans, *recording.holders, *permanent)
    return {time for one in stretches for time in (one.start, one.end)}  # type: ignore[attr-defined]
