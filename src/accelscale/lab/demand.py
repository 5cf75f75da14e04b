"""The work that a recording holds, and a fleet of modelled replicas that does it.

Work is counted in *device seconds*: one device busy at 100 % for one second. `recorded_work` reads
from the recording how much of it came per second; `Fleet` lets the replicas of the model do it.
The model of the fleet, in full:

* Work is conserved: what came is spread evenly over the replicas that serve.
* A replica is full at 100 % on each of its devices; what is beyond that waits in one queue, which
  has no limit and from which nobody leaves, and is done as soon as there is room.
* A new replica serves once it has been loading for ``load_time`` and is Ready, which it is
  ``readiness_delay`` after its creation. While it loads its devices read 0 %.
* A removed replica is gone at once; its work goes back to the queue.
* Where the recording does not tell how much work came, nobody comes and nobody is served, and the
  scaler has no data.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np
from attrs import frozen

from accelscale.aggregation import statistic
from accelscale.errors import NoDataError
from accelscale.history import margins
from accelscale.hpa.loop import Pods
from accelscale.lab.recording import Floats, Recording
from accelscale.lab.view import View
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

WORK_METRICS = (
    "utilization_percent",
    "sm_activity_percent",
    "tensor_activity_percent",
    "memory_bandwidth_utilization_percent",
    "encoder_utilization_percent",
    "decoder_utilization_percent",
)
"""Metrics that say which share of a device's time is spent, so that work can be moved."""

FULL = 100.0


@frozen(eq=False)
class Work:
    """Work that came, in devices (device seconds per second), in steps of ``step`` seconds.

    ``arriving`` is NaN in steps where the recording does not tell; ``full_share`` is the share of
    the known steps in which every recorded device was full, so that more work may have waited.
    """

    metric: str
    step: float
    arriving: Floats
    full_share: float

    @property
    def known(self) -> Floats:
        """Work per step with 0 where nothing is known: only for sums that say so."""
        return np.nan_to_num(self.arriving)

    @property
    def device_hours(self) -> float:
        """All the work that is known."""
        return float(self.known.sum()) * self.step / 3600


def step_of(recording: Recording, metric: str) -> float:
    """Seconds per step of the work: the interval of the recording, from 1 to 5."""
    return min(max(recording.interval_of(metric), 1.0), 5.0)


def recorded_work(recording: Recording, trigger: Trigger, metric: str, view: View) -> Work:
    """How much work came at each step, by ``metric``, on the devices that the trigger counts.

    Where fewer than half of the devices have a fresh sample the step is unknown; otherwise the
    silent ones are taken to do as the others.
    """
    step = step_of(recording, metric)
    times = np.arange(0.0, recording.end, step)
    totals, reporting, counted = (np.zeros(len(times)) for _ in range(3))
    full = np.ones(len(times), dtype=bool)
    age = max_age(recording.interval_of(metric))
    for device_id, there in view.counted(trigger, times).items():
        counted += there
        column = recording.columns.get((device_id, metric))
        if column is None or not len(column):
            continue
        last = np.searchsorted(column.times, times, side="right") - 1
        fresh = there & (last >= 0) & (times - column.times[last] <= age)
        values = np.where(fresh, column.values[last], 0.0)
        totals += values
        reporting += fresh
        full &= ~fresh | (values >= FULL - 1)
    known = (counted == 0) | (2 * reporting >= np.maximum(counted, 1))
    scale = np.divide(counted, reporting, out=np.ones(len(times)), where=reporting > 0)
    arriving = np.where(known, totals * scale / FULL, np.nan)
    busy = known & (reporting > 0)
    share = float((full & busy).sum() / busy.sum()) if busy.any() else 0.0
    return Work(metric, step, arriving, share)


class Fleet:
    """Replicas that do the recorded work, step by step; the scaler sees what they would show.

    ``devices`` is how many devices one replica holds.
    """

    def __init__(
        self,
        work: Work,
        *,
        replicas: int,
        devices: int,
        load_time: float,
        readiness_delay: float,
    ) -> None:
        self.work = work
        self.devices = devices
        self.queue = 0.0
        self.utilization: list[float] = []
        self.queues: list[float] = []
        self.served: list[float] = []
        self.serving: list[int] = []
        self._arriving = work.arriving.tolist()
        self._serves_after = max(load_time, readiness_delay)
        self._readiness_delay = readiness_delay
        self._pods = Pods.settled(replicas)
        self._whole_since = 0.0

    @property
    def steps(self) -> int:
        """How many steps are done."""
        return len(self.queues)

    def scaled(self, replicas: int, now: float) -> None:
        """That many replicas are wanted from now on."""
        self.advance(now)
        self._pods = self._pods.scaled(replicas, now)

    def advance(self, now: float) -> None:
        """Do the work of all steps that begin before ``now``, and of the one at it."""
        step, created = self.work.step, self._pods.created
        while self.steps < len(self._arriving) and self.steps * step <= now:
            oldest_loading = self.steps * step - self._serves_after
            self._step(self._arriving[self.steps], bisect_right(created, oldest_loading))

    def _step(self, arriving: float, serving: int) -> None:
        step = self.work.step
        self.serving.append(serving)
        if math.isnan(arriving):
            self.utilization.append(math.nan)
            self.served.append(0.0)
            self.queues.append(self.queue)
            self._whole_since = self.steps * step
            return
        offered = arriving + self.queue / step
        served = min(offered, float(serving * self.devices))
        self.queue = max(0.0, (offered - served) * step)
        self.utilization.append(FULL * served / (serving * self.devices) if serving else 0.0)
        self.served.append(served)
        self.queues.append(self.queue)

    def demands(self, now: float) -> bool:
        """Whether work is there, waiting or coming: what a queue in front of it would show."""
        self.advance(now)
        arriving = self._arriving[min(self.steps, len(self._arriving)) - 1]
        return self.queue > 0 or arriving > 0

    def seen(self, trigger: Trigger, now: float) -> tuple[Snapshot, Workload]:
        """What the scaler sees of the fleet at ``now``.

        Raises:
            NoDataError: the recording does not tell how much work came.
        """
        self.advance(now)
        if self.utilization and math.isnan(self.utilization[-1]):
            raise NoDataError("the recording does not tell how much work came", reason=Reason.STALE)
        newest = (self.steps - 1) * self.work.step
        series: dict[tuple[str, Series], SeriesValue | Failure] = {}
        devices: list[Device] = []
        replicas: list[Replica] = []
        values: dict[tuple[float, Series], SeriesValue] = {}
        for number, created in enumerate(self._pods.created):
            ids = tuple(f"replica {number} device {index}" for index in range(self.devices))
            ready = now - created >= self._readiness_delay
            replicas.append(Replica(f"replica {number}", ids, ready=ready, was_ready=ready))
            for one in trigger.wanted_series:
                value = values.get((created, one))
                if value is None:
                    value = values[created, one] = self._window(one, created, now, newest)
                series.update({(device_id, one): value for device_id in ids})
            devices.extend(_device(device_id) for device_id in ids)
        snapshot = Snapshot(now, self.steps, self.work.step, tuple(devices), series=series)
        return snapshot, Workload("modelled", tuple(replicas), scope=trigger.scope)

    def _window(self, series: Series, created: float, now: float, newest: float) -> SeriesValue:
        """As `accelscale.history.Ring` over the samples of a replica created at that time."""
        step = self.work.step
        first = max(0, math.ceil(created / step)) if math.isfinite(created) else 0
        start = max(first, math.ceil((now - series.window_seconds) / step - 1e-9))
        start = min(start, self.steps - 1)
        loaded = created + self._serves_after
        serves_from = math.ceil(loaded / step) if math.isfinite(loaded) else 0
        loading = min(max(serves_from - start, 0), self.steps - start)
        known = self.utilization[start + loading :]
        if self._whole_since > start * step:
            known = [value for value in known if not math.isnan(value)]
        whole_since = max(created, self._whole_since)
        far, near = margins(series.window_seconds, step)
        covered = whole_since <= newest - series.window_seconds + far and newest >= now - near
        value = statistic(series.statistic)([0.0] * loading + known)
        return SeriesValue(value, newest, covered)


def _device(device_id: str) -> Device:
    return Device(device_id, "modelled", "modelled", "modelled")
