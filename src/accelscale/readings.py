"""The newest result of every device and metric, checked, completed and ready to be looked at.

Backends hand in what their driver said; here it is held against the metrics table, what follows
from it is derived, and each (device, metric) ends as exactly one sample or one failure. All methods
may be called from any thread.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from accelscale.derive import Deriver, can_follow
from accelscale.errors import BackendError
from accelscale.history import History
from accelscale.metrics import LEAST_MAX_AGE, TIER_SECONDS, Kind, Metric, Tier, max_age
from accelscale.model import (
    Device,
    Failure,
    ProcessUse,
    Reading,
    Reason,
    Sample,
    Series,
    SeriesValue,
    Snapshot,
)

if TYPE_CHECKING:
    from accelscale.backend import Backend


class Readings:
    """What is known at this moment about all devices of all backends.

    ``interval`` is the seconds between two passes, ``node`` the name that devices get.
    """

    def __init__(
        self, metrics: Mapping[str, Metric], interval: float, node: str | None = None
    ) -> None:
        self.metrics = metrics
        self.interval = interval
        self._node = node
        self._changed = threading.Condition()
        self._sequence = 0
        self._devices: dict[str, tuple[Device, ...]] = {}
        self._samples: dict[tuple[str, str], Sample] = {}
        self._failures: dict[tuple[str, str], Failure] = {}
        self._intervals: dict[str, float] = {}
        self._max_ages: dict[str, float] = {}
        self._problems: dict[str, tuple[str, bool]] = {}
        self._unseen: set[str] = set()
        self._processes: dict[str, tuple[float, tuple[ProcessUse, ...]]] = {}
        self._given: set[tuple[str, str]] = set()
        self._lacking: set[tuple[str, str]] = set()
        self._history = History()
        self._deriver = Deriver(metrics)
        self._subscribers: list[Callable[[], None]] = []

    @property
    def sequence(self) -> int:
        """The number of passes so far."""
        return self._sequence

    def declare(self, backend: Backend) -> None:
        """Learn how often a backend's metrics, and what is derived from them, are read."""
        with self._changed:
            for name, tier in backend.metrics.items():
                self._set_interval(name, interval_of(tier, self.interval))
            for metric in self.metrics.values():
                known = [
                    self._intervals[name] for name in metric.sources if name in self._intervals
                ]
                if metric.derivation is not None and known:
                    self._set_interval(metric.name, min(known))

    def set_devices(self, backend: Backend, devices: Sequence[Device]) -> tuple[Device, ...]:
        """Replace the devices of a backend; what is known of those that are gone is dropped.

        Raises:
            BackendError: an id is there twice, so that one device would hide behind another.
        """
        named = tuple(evolve(device, node=device.node or self._node) for device in devices)
        with self._changed:
            self._refuse_doubles(backend, named)
            gone = {device.id for device in self._devices.get(backend.name, ())}
            self._devices[backend.name] = named
            for device_id in gone - {device.id for device in named}:
                self._forget(device_id)
            for device in named:
                self._declare_absent(backend, device)
        return named

    def set_problem(self, backend: Backend, problem: str | None, *, optional: bool = False) -> None:
        """Say why a backend cannot read at present, or that it can.

        An ``optional`` problem counts only while no backend has a device.
        """
        with self._changed:
            if problem is None:
                self._problems.pop(backend.name, None)
                self._unseen.discard(backend.vendor)
            else:
                self._problems[backend.name] = (problem, optional)
                if not optional and not self._devices.get(backend.name):
                    self._unseen.add(backend.vendor)

    def take(self, reading: Reading, asked: Iterable[str] = ()) -> None:
        """Take what one device gave in one pass; what was ``asked`` and not given fails."""
        with self._changed:
            checked = self._checked(_with_forgotten(reading, asked))
            complete = self._checked(self._deriver.extend(checked, self._max_ages))
            for sample in complete.samples:
                key = (sample.device_id, sample.metric)
                self._given.add(key)
                self._lacking.discard(key)
                self._samples[key] = sample
                self._failures.pop(key, None)
                if self.metrics[sample.metric].kind is Kind.GAUGE:
                    self._history.add(sample, self._max_ages.get(sample.metric, LEAST_MAX_AGE))
            for failure in complete.failures:
                key = (failure.device_id, failure.metric)
                self._failures[key] = self._judged(failure)
                self._samples.pop(key, None)
            if reading.processes is not None:
                self._processes[reading.device_id] = (time.monotonic(), reading.processes)

    def fail(
        self,
        devices: Iterable[Device],
        metrics: Collection[str],
        reason: Reason,
        detail: str,
        code: int | None = None,
    ) -> None:
        """Let all these metrics of these devices fail for one reason."""
        now = time.monotonic()
        for device in devices:
            failures = (Failure(device.id, metric, reason, detail, now, code) for metric in metrics)
            self.take(Reading(device.id, failures=tuple(failures)))

    def publish(self) -> None:
        """End a pass: wake who waits, call who subscribed."""
        with self._changed:
            self._sequence += 1
            self._changed.notify_all()
            subscribers = tuple(self._subscribers)
        for subscriber in subscribers:
            subscriber()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have ``callback`` called after every pass, in the thread that ended it; returns undo."""
        with self._changed:
            self._subscribers.append(callback)

        def unsubscribe() -> None:
            with self._changed:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return unsubscribe

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the condition holds, looking after every pass, at most ``seconds``."""
        with self._changed:
            return self._changed.wait_for(condition, timeout=seconds)

    def snapshot(self, series: Iterable[Series] = ()) -> Snapshot:
        """All that is known now, and these series of every device."""
        with self._changed:
            now = time.monotonic()
            self._expire(now)
            devices = tuple(device for group in self._devices.values() for device in group)
            return Snapshot(
                time=now,
                sequence=self._sequence,
                interval=self.interval,
                devices=devices,
                samples=dict(self._samples),
                failures=dict(self._failures),
                series={
                    (device.id, one): self._series_value(device.id, one, now)
                    for one in series
                    for device in devices
                },
                intervals=dict(self._intervals),
                problems={
                    name: problem
                    for name, (problem, optional) in self._problems.items()
                    if not optional or not devices
                },
                processes=dict(self._processes),
                unseen_vendors=frozenset(self._unseen),
            )

    def _expire(self, now: float) -> None:
        """No value outlives its age, whatever became of the thread that should renew it."""
        old = [
            (key, sample.time)
            for key, sample in self._samples.items()
            if now - sample.time > self._max_ages.get(sample.metric, LEAST_MAX_AGE)
        ]
        for key, taken in old:
            del self._samples[key]
            self._failures[key] = Failure(*key, Reason.STALE, "no newer reading", taken)
        limit = max_age(interval_of(Tier.SLOW, self.interval))
        self._processes = {
            device_id: (taken, uses)
            for device_id, (taken, uses) in self._processes.items()
            if now - taken <= limit
        }

    def _series_value(self, device_id: str, series: Series, now: float) -> SeriesValue | Failure:
        failure = self._failures.get((device_id, series.metric))
        if failure is not None and not failure.reason.passing:
            return failure
        interval = self._intervals.get(series.metric, self.interval)
        value = self._history.value(device_id, series, now, interval)
        if isinstance(value, SeriesValue):
            return value
        return failure or Failure(device_id, series.metric, value, "no reading yet", math.nan)

    def _set_interval(self, metric: str, seconds: float) -> None:
        self._intervals[metric] = max(seconds, self._intervals.get(metric, 0.0))
        self._max_ages[metric] = max_age(self._intervals[metric])

    def _declare_absent(self, backend: Backend, device: Device) -> None:
        """Metrics that a backend never reads are absent with a reason, like all that is absent."""
        for metric in self.metrics.values():
            if can_follow(metric, backend.metrics):
                continue
            key = (device.id, metric.name)
            if key not in self._failures:
                detail = f"the {backend.name} backend does not read it from {device.name}"
                self._failures[key] = Failure(
                    *key, Reason.NOT_SUPPORTED, detail, time.monotonic(), permanent=True
                )

    def _judged(self, failure: Failure) -> Failure:
        """The failure, permanent or not by what the device did before.

        What it once gave it has, whatever the driver says now; what it never had it does not get
        by falling ill as a whole.
        """
        key = (failure.device_id, failure.metric)
        if failure.permanent and key not in self._given:
            self._lacking.add(key)
        permanent = key in self._lacking
        return failure if failure.permanent == permanent else evolve(failure, permanent=permanent)

    def _refuse_doubles(self, backend: Backend, devices: Sequence[Device]) -> None:
        holders = {
            device.id: name
            for name, group in self._devices.items()
            for device in group
            if name != backend.name
        }
        for device in devices:
            if device.id in holders:
                raise BackendError(
                    f"the device id {device.id} of {backend.name} is there already, in"
                    f" {holders[device.id]}",
                    reason=Reason.ERROR,
                )
            holders[device.id] = backend.name

    def _checked(self, reading: Reading) -> Reading:
        """The reading with its impossible values turned into failures."""
        samples: list[Sample] = []
        failures = list(reading.failures)
        now = time.monotonic()
        for sample in reading.samples:
            metric = self.metrics[sample.metric]
            if not sample.time <= now:
                detail = f"the reading is dated {sample.time - now:.1f} s ahead of the clock"
                failures.append(Failure(sample.device_id, sample.metric, Reason.ERROR, detail, now))
                continue
            if metric.minimum <= sample.value <= metric.maximum and math.isfinite(sample.value):
                samples.append(sample)
                continue
            detail = (
                f"{sample.value:g} is outside {metric.minimum:g} to {metric.maximum:g}"
                f" {metric.unit}"
            )
            failures.append(
                Failure(sample.device_id, sample.metric, Reason.OUT_OF_RANGE, detail, sample.time)
            )
        return evolve(reading, samples=tuple(samples), failures=tuple(failures))

    def _forget(self, device_id: str) -> None:
        self._samples = {k: v for k, v in self._samples.items() if k[0] != device_id}
        self._failures = {k: v for k, v in self._failures.items() if k[0] != device_id}
        self._processes.pop(device_id, None)
        self._given = {key for key in self._given if key[0] != device_id}
        self._lacking = {key for key in self._lacking if key[0] != device_id}
        self._history.forget(device_id)
        self._deriver.forget(device_id)


def interval_of(tier: Tier, interval: float) -> float:
    """Seconds between two readings of a tier."""
    return max(interval, TIER_SECONDS[tier])


def _with_forgotten(reading: Reading, asked: Iterable[str]) -> Reading:
    """A metric that the backend said nothing about must not keep its last value for ever."""
    given = {sample.metric for sample in reading.samples}
    given.update(failure.metric for failure in reading.failures)
    now = time.monotonic()
    forgotten = tuple(
        Failure(reading.device_id, metric, Reason.ERROR, "the backend said nothing", now)
        for metric in asked
        if metric not in given
    )
    return evolve(reading, failures=reading.failures + forgotten) if forgotten else reading
