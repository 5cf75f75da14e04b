"""Shares, differences and rates: what follows from other readings, in one place for all backends.

A driver's counter becomes a rate here and nowhere else, so the guards stand once: a first reading
gives no rate, a counter that went back gives none until it is clear whether it restarted or
hiccuped, one that must move and did not gives none, and so do readings too far apart to speak of
now. A value that cannot be derived fails with the reason of what it lacks. Some hardware measures a
rate and has no counter; what its backend gives then stands where none can be derived.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping

from attrs import define, frozen

from accelscale.metrics import Derivation, Metric
from accelscale.model import Failure, Reading, Reason, Sample


def can_follow(metric: Metric, read: Container[str]) -> bool:
    """Whether a metric is read, or can be derived from what is."""
    if metric.name in read:
        return True
    combine = any if metric.derivation is Derivation.BUSIEST_RATE_PERCENT else all
    return metric.derivation is not None and combine(source in read for source in metric.sources)


@frozen
class Gap:
    """Why there is no rate at this reading."""

    reason: Reason
    detail: str


@define
class Counter:
    """The last two levels of a driver's counter, and what they say per second."""

    value: float
    time: float
    before_drop: tuple[float, float] | None = None

    def advance(self, value: float, time: float, limit: float, must_move: bool) -> float | Gap:
        """Take the next reading; the rate per second since the last, or why there is none.

        ``limit`` is the most seconds that two readings may lie apart.

        A drop is a restart of the counter, or a single bad reading. Only the next one tells: back
        above the old level it was a hiccup, and the rate runs from there.
        """
        if self.before_drop is not None:
            level, since = self.before_drop
            self.before_drop = None
            if value >= level and time - since <= limit:
                self.value, self.time = level, since
        elapsed, change = time - self.time, value - self.value
        if elapsed <= 0:
            return Gap(Reason.NO_PROGRESS, "two readings at the same time")
        if change < 0:
            self.before_drop = (self.value, self.time)
            self.value, self.time = value, time
            return Gap(Reason.COUNTER_RESET, "the counter went back, as after a driver restart")
        if elapsed > limit:
            self.value, self.time = value, time
            return Gap(Reason.NO_PROGRESS, f"the reading before is {elapsed:.1f} s old")
        if change == 0 and must_move:
            return Gap(Reason.NO_PROGRESS, "the counter stands still")
        self.value, self.time = value, time
        return change / elapsed


class Deriver:
    """Adds to each reading of a backend what follows from it.

    ``metrics`` is the table, plugins' rows included. Keeps the last level of each counter, and the
    last sample of each source that is read more rarely than what needs it.
    """

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        self._metrics = metrics
        self._derived = [metric for metric in metrics.values() if metric.derivation is not None]
        self._counters: dict[tuple[str, str], Counter] = {}
        self._latest: dict[tuple[str, str], Sample | Failure] = {}

    def forget(self, device_id: str) -> None:
        """Drop what is kept about a device that is gone."""
        for kept in (self._counters, self._latest):
            for key in [key for key in kept if key[0] == device_id]:
                del kept[key]

    def extend(self, reading: Reading, max_ages: Mapping[str, float]) -> Reading:
        """The reading with the derived samples and failures added.

        ``max_ages`` holds, for each source, the most seconds that its sample may be old.
        """
        device_id = reading.device_id
        fresh: set[str] = set()
        results: tuple[Sample | Failure, ...] = (*reading.samples, *reading.failures)
        for result in results:
            self._latest[device_id, result.metric] = result
            fresh.add(result.metric)
        rates = dict(self._rates(reading.samples, max_ages))
        complete = {result.metric: result for result in results}
        for metric in self._derived:
            if not fresh.intersection(metric.sources):
                continue
            derived = self._derive(metric, device_id, rates, max_ages)
            if derived is not None and _is_better(derived, complete.get(metric.name)):
                complete[metric.name] = derived
        found = complete.values()
        return Reading(
            device_id,
            tuple(result for result in found if isinstance(result, Sample)),
            tuple(result for result in found if isinstance(result, Failure)),
        )

    def _rates(
        self, samples: Iterable[Sample], max_ages: Mapping[str, float]
    ) -> Iterator[tuple[str, Sample | Failure]]:
        for sample in samples:
            metric = self._metrics[sample.metric]
            if metric.kind != "counter":
                continue
            key = (sample.device_id, sample.metric)
            counter = self._counters.get(key)
            if counter is None:
                self._counters[key] = Counter(sample.value, sample.time)
                rate: float | Gap = Gap(Reason.NO_PROGRESS, "a rate needs a second reading")
            else:
                limit = max_ages.get(sample.metric, math.inf)
                rate = counter.advance(sample.value, sample.time, limit, metric.always_advances)
            if isinstance(rate, Gap):
                failure = Failure(*key, rate.reason, rate.detail, sample.time)
                yield sample.metric, failure
            else:
                yield sample.metric, Sample(*key, rate, sample.time, sample.shared)

    def _derive(
        self,
        metric: Metric,
        device_id: str,
        rates: Mapping[str, Sample | Failure],
        max_ages: Mapping[str, float],
    ) -> Sample | Failure | None:
        """The derived value, why there is none, or None where its backend never reads a source."""
        if metric.derivation in {Derivation.RATE, Derivation.BUSIEST_RATE_PERCENT}:
            return self._derive_rate(metric, device_id, rates)
        parts = [self._latest.get((device_id, source)) for source in metric.sources]
        samples = [part for part in parts if isinstance(part, Sample)]
        failures = [part for part in parts if isinstance(part, Failure)]
        if failures:
            return _because(metric, failures[0])
        if len(samples) < len(parts):
            return None
        newest = max(sample.time for sample in samples)
        for sample in samples:
            if newest - sample.time > max_ages.get(sample.metric, math.inf):
                detail = f"{sample.metric} is {newest - sample.time:.1f} s old"
                return Failure(device_id, metric.name, Reason.STALE, detail, newest)
        first, second = samples
        shared = first.shared or second.shared
        if metric.derivation is Derivation.DIFFERENCE:
            value = first.value - second.value
        elif second.value > 0:
            value = 100 * first.value / second.value
        else:
            detail = f"{second.metric} is {second.value:g}"
            return Failure(device_id, metric.name, Reason.OUT_OF_RANGE, detail, newest)
        return Sample(device_id, metric.name, value, newest, shared)

    def _derive_rate(
        self, metric: Metric, device_id: str, rates: Mapping[str, Sample | Failure]
    ) -> Sample | Failure | None:
        """The rate of the counter, or of several the largest.

        Of several causes the hardware may count only some, and its backend may read only some;
        those are left out. A counter that is read, but was not this time, leaves nothing to say.
        """
        found: list[Sample] = []
        lacking: Failure | None = None
        for source in metric.sources:
            part = rates.get(source)
            if part is None:
                latest = self._latest.get((device_id, source))
                if isinstance(latest, Sample):
                    return None
                part = latest
            if isinstance(part, Sample):
                found.append(part)
            elif part is not None and not part.permanent:
                return _because(metric, part)
            else:
                lacking = lacking or part
        if not found:
            return None if lacking is None else _because(metric, lacking)
        busiest = max(found, key=lambda sample: sample.value)
        scale = 100 if metric.derivation is Derivation.BUSIEST_RATE_PERCENT else 1
        return Sample(device_id, metric.name, scale * busiest.value, busiest.time, busiest.shared)


def _is_better(derived: Sample | Failure, given: Sample | Failure | None) -> bool:
    """Whether what was derived takes the place of what the backend gave of the same metric."""
    if isinstance(derived, Sample) or given is None:
        return True
    return isinstance(given, Failure) and not derived.permanent


def _because(metric: Metric, cause: Failure) -> Failure:
    """The failure of a derived metric, for the failure of what it needs."""
    detail = f"{cause.metric}: {cause.detail}" if cause.detail else f"{cause.metric} is missing"
    return Failure(
        cause.device_id, metric.name, cause.reason, detail, cause.time, cause.code, cause.permanent
    )
