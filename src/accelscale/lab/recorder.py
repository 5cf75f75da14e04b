"""Turns the passes of a source into the lines of a recording, as they come.

A kill costs the last pass at most: see `accelscale.lab.sinks` for where the lines go.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from attrs import define, field

from accelscale.lab import jsonlines
from accelscale.lab.recording import Key
from accelscale.lab.sinks import Head, Sink
from accelscale.lab.sources import Observed
from accelscale.model import Device, Reason, Snapshot


@define
class Progress:
    """How far a recording is."""

    seconds: float = 0.0
    devices: int = 0
    samples: int = 0
    missing: int = 0


@define
class _Known:
    """What the current file has said already."""

    devices: tuple[Device, ...] | None = None
    holders: frozenset[tuple[str, str, str, str]] | None = None
    intervals: dict[str, float] = field(factory=dict)
    missing: dict[Key, tuple[Reason, str]] = field(factory=dict)


class Recorder:
    """Turns passes into lines. ``metrics`` limits what is written, where given.

    ``offset`` is the time in the recording at which this process begins, for one that goes on.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        metrics: Sequence[str] = (),
        start: float | None = None,
        offset: float = 0.0,
    ) -> None:
        self.progress = Progress()
        self._sink = sink
        self._metrics = frozenset(metrics)
        self._start = start
        self._offset = offset
        self._zero: float | None = None
        self._last_times: dict[Key, float] = {}
        self._known = _Known()
        self._begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def take(self, observed: Observed) -> None:
        """Write what is new in a pass."""
        snapshot = observed.snapshot
        if self._zero is None:
            ages = [snapshot.time - sample.time for sample in snapshot.samples.values()]
            self._zero = snapshot.time - max(ages, default=0.0)
            if self._start is None:
                self._start = time.time() - (time.monotonic() - self._zero)
        now = self._at(snapshot.time)
        if not self._begun or self._sink.full(now):
            head = Head(self._start or 0.0, snapshot.interval, observed.units)
            self._sink.begin(head, now)
            self._known = _Known()
        # What is there at the first pass was there when the first sample of it was taken.
        since = now if self._begun else self._offset
        self._begun = True
        lines = [*self._inventory(observed, since), *self._values(snapshot)]
        lines += self._missing(snapshot, now)
        self._sink.write(lines or [jsonlines.time_line(now)])
        self.progress.seconds = now
        self.progress.devices = len(snapshot.devices)
        self.progress.missing = sum(not f.permanent for f in snapshot.failures.values())

    def close(self) -> None:
        """End the recording and complete its file."""
        if self._begun:
            self._sink.write([jsonlines.time_line(self.progress.seconds, end=True)])
        self._sink.close()

    def _at(self, monotonic: float) -> float:
        assert self._zero is not None
        return round(self._offset + monotonic - self._zero, 6)

    def _wants(self, metric: str) -> bool:
        return not self._metrics or metric in self._metrics

    def _inventory(self, observed: Observed, now: float) -> Iterator[str]:
        known, snapshot = self._known, observed.snapshot
        if snapshot.devices != known.devices:
            known.devices = snapshot.devices
            yield jsonlines.devices_line(now, snapshot.devices)
            there = {device.id for device in snapshot.devices}
            for key in [key for key in known.missing if key[0] not in there]:
                del known.missing[key]
        if observed.holders is not None and observed.holders != known.holders:
            known.holders = observed.holders
            yield jsonlines.holders_line(now, sorted(observed.holders))
        intervals = {k: v for k, v in snapshot.intervals.items() if v != snapshot.interval}
        if intervals != known.intervals:
            known.intervals = intervals
            yield jsonlines.intervals_line(now, intervals)

    def _values(self, snapshot: Snapshot) -> Iterator[str]:
        fresh: dict[tuple[str, float], dict[str, float]] = {}
        shared: dict[tuple[str, float], list[str]] = {}
        for key, sample in snapshot.samples.items():
            if not self._wants(sample.metric):
                continue
            self._known.missing.pop(key, None)
            if sample.time <= self._last_times.get(key, float("-inf")):
                continue
            self._last_times[key] = sample.time
            at = (sample.device_id, sample.time)
            fresh.setdefault(at, {})[sample.metric] = sample.value
            if sample.shared:
                shared.setdefault(at, []).append(sample.metric)
        for (device_id, when), values in sorted(fresh.items(), key=lambda item: item[0][1]):
            self.progress.samples += len(values)
            found = shared.get((device_id, when), ())
            yield jsonlines.values_line(self._at(when), device_id, values, found)

    def _missing(self, snapshot: Snapshot, now: float) -> Iterator[str]:
        new: dict[str, dict[str, tuple[Reason, str, bool]]] = {}
        for key, failure in snapshot.failures.items():
            why = (failure.reason, failure.detail)
            if not self._wants(failure.metric) or self._known.missing.get(key) == why:
                continue
            if failure.reason is Reason.STALE and key not in self._last_times:
                continue  # nothing has been read yet, which the lack of samples says already
            self._known.missing[key] = why
            found = new.setdefault(failure.device_id, {})
            found[failure.metric] = (*why, failure.permanent)
        for device_id, missing in new.items():
            yield jsonlines.missing_line(now, device_id, missing)
        for key in [key for key in self._known.missing if key not in snapshot.failures]:
            del self._known.missing[key]
            yield jsonlines.no_longer_missing_line(now, *key)
