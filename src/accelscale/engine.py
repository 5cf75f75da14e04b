"""What a trigger's number is: samples to replicas to one value and one verdict. Pure.

The value is what the HPA gets, the verdict (active or not) is what KEDA gets, and both come from
one look at one snapshot. A replica without a fresh sample is *silent*; `Trigger.missing` says what
that means. With ``hold`` it is filled in as the HPA fills in missing pods for its own metrics
(``replica_calculator.go`` of Kubernetes), so a fault alone never asks for fewer replicas.

A device that replicas of a workload share counts once: in a sum or a mean over replicas each has
its share of the figure. A maximum, a minimum or a percentile looks at what the devices of a replica
read, and nothing is added up there, so it sees the whole figure.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from attrs import evolve, frozen

from accelscale.aggregation import aggregation
from accelscale.errors import AccelscaleError, NoDataError, UnsupportedError
from accelscale.metrics import max_age
from accelscale.model import (
    Failure,
    Reason,
    Replica,
    Series,
    SeriesValue,
    Snapshot,
    Workload,
)
from accelscale.trigger import MetricType, Trigger
from accelscale.values import LARGEST

MOST_NAMED = 3
"""Silent ones that an error names one by one."""


@frozen
class DeviceFigure:
    """What one device of a replica contributed; ``failure`` stands where it gave no fresh value."""

    device_id: str
    value: SeriesValue | None
    idle: SeriesValue | None
    failure: Failure | None


@frozen
class ReplicaFigure:
    """One replica's part.

    ``value`` is what its reporting devices say, None for a silent one. ``least`` and ``filled`` are
    what it comes to if the devices that do not report are at 0, and if they are at the threshold;
    where all report, they are the value. ``counted`` is what stood for the replica in the end.
    """

    replica: Replica
    value: float | None
    least: float
    filled: float
    activation: float | None
    devices: tuple[DeviceFigure, ...]
    counted: float | None = None

    @property
    def complete(self) -> bool:
        """Whether every device is known and reported, so that nothing busy can hide here."""
        known = self.value is not None and not self.replica.problem
        return known and all(d.failure is None for d in self.devices)

    @property
    def covered(self) -> bool:
        """Whether the history of every device covers the windows that an idle verdict needs."""
        return all(
            part.covered for d in self.devices for part in (d.value, d.idle) if part is not None
        )


@frozen
class Evaluation:
    """The outcome for one trigger at one time, with all that led to it.

    ``value`` and ``active`` are the answers, or the error that stands for them. ``fill`` is how
    silent replicas were counted: ``none``, ``zero``, ``threshold`` or ``no change``. After
    ``fresh_until`` (monotonic seconds) a sample used here is too old and the trigger must be
    evaluated again.
    """

    trigger: Trigger
    workload: Workload
    time: float
    value: float | AccelscaleError
    active: bool | AccelscaleError
    activation_value: float | None = None
    replicas: tuple[ReplicaFigure, ...] = ()
    fill: str = "none"
    fresh_until: float = math.inf

    def metric_value(self) -> float:
        """The value for the HPA: finite, not negative.

        Raises:
            AccelscaleError: there is none; the class says what to do.
        """
        if isinstance(self.value, AccelscaleError):
            raise self.value.with_traceback(None)
        return self.value

    def is_active(self) -> bool:
        """Whether the workload is active.

        Raises:
            AccelscaleError: nobody can tell; never taken for idle.
        """
        if isinstance(self.active, AccelscaleError):
            raise self.active.with_traceback(None)
        return self.active


def evaluate(
    trigger: Trigger, snapshot: Snapshot, workload: Workload, *, now: float | None = None
) -> Evaluation:
    """Evaluate a trigger over the replicas of a workload.

    ``snapshot`` must hold `Trigger.wanted_series` for the devices of the workload. ``now`` is
    monotonic seconds. Missing data raise nothing: they end as errors in the `Evaluation`.
    """
    now = time.monotonic() if now is None else now
    if not workload.replicas:
        return Evaluation(trigger, workload, now, 0.0, False, activation_value=0.0)
    limit = max_age_of(trigger, snapshot)
    figures = tuple(
        _replica_figure(trigger, snapshot, replica, now - limit) for replica in workload.replicas
    )
    total, fill, figures = _value(trigger, figures, snapshot, now)
    value = _sendable(trigger, total)
    activation = _activation_value(trigger, figures)
    active = _active(trigger, activation, figures, snapshot, now)
    if active is False and isinstance(value, UnsupportedError):
        active = value  # what is no number for the HPA is no sign of idleness either
    oldest = min(
        (d.value.time for figure in figures for d in figure.devices if d.value is not None),
        default=math.inf,
    )
    return Evaluation(
        trigger=trigger,
        workload=workload,
        time=now,
        value=value,
        active=active,
        activation_value=activation,
        replicas=figures,
        fill=fill,
        fresh_until=oldest + limit,
    )


def failed_evaluation(
    trigger: Trigger, workload: Workload, error: AccelscaleError, now: float
) -> Evaluation:
    """An evaluation that could not begin, because nothing says whose devices count."""
    return Evaluation(trigger, workload, now, error, error)


def max_age_of(trigger: Trigger, snapshot: Snapshot) -> float:
    """Seconds after which a sample no longer counts for this trigger."""
    if trigger.max_age is not None:
        return trigger.max_age
    return max_age(snapshot.interval_of(trigger.metric))


def _replica_figure(
    trigger: Trigger, snapshot: Snapshot, replica: Replica, oldest: float
) -> ReplicaFigure:
    devices = tuple(
        _device_figure(trigger, snapshot, device_id, oldest) for device_id in replica.devices
    )
    reporting = [(d, d.value) for d in devices if d.value is not None]
    if not reporting or not replica.was_ready:
        return ReplicaFigure(replica, None, 0.0, trigger.threshold, None, devices)
    combine = aggregation(trigger.aggregation)
    shares = _shares(replica, trigger.replica_aggregation)
    peak = combine([_peak(d, value) * shares.get(d.device_id, 1.0) for d, value in reporting])
    shares = _shares(replica, trigger.resolved_replica_aggregation)
    values = [value.value * shares.get(d.device_id, 1.0) for d, value in reporting]
    known = combine(values)
    lacking = len(devices) - len(reporting) + bool(replica.problem)
    if not lacking or trigger.missing == "ignore":
        return ReplicaFigure(replica, known, known, known, peak, devices, known)
    least = combine([*values, *[0.0] * lacking])
    if trigger.aggregation == "sum":  # with a part missing it is no sum
        return ReplicaFigure(replica, None, least, max(least, trigger.threshold), peak, devices)
    filled = combine([*values, *[trigger.threshold] * lacking])
    return ReplicaFigure(replica, known, least, max(known, filled), peak, devices)


def _shares(replica: Replica, over_replicas: str) -> Mapping[str, float]:
    """The replica's part of each device that it shares, where replicas are added up."""
    return replica.shares if over_replicas in ("sum", "mean") else {}


def _peak(figure: DeviceFigure, value: SeriesValue) -> float:
    return value.value if figure.idle is None else max(value.value, figure.idle.value)


def _device_figure(
    trigger: Trigger, snapshot: Snapshot, device_id: str, oldest: float
) -> DeviceFigure:
    value = _fresh(snapshot, device_id, trigger.series, oldest)
    if isinstance(value, Failure):
        return DeviceFigure(device_id, None, None, value)
    series = trigger.idle_series
    idle = _fresh(snapshot, device_id, series, oldest) if series is not None else None
    if isinstance(idle, Failure):
        return DeviceFigure(device_id, value, None, idle)
    return DeviceFigure(device_id, value, idle, None)


def _fresh(
    snapshot: Snapshot, device_id: str, series: Series, oldest: float
) -> SeriesValue | Failure:
    found = snapshot.series.get((device_id, series))
    if found is None:
        return Failure(device_id, series.metric, Reason.STALE, "no reading yet", math.nan)
    if isinstance(found, Failure) or found.time >= oldest:
        return found
    behind = snapshot.failure(device_id, series.metric)
    if behind is not None:
        return evolve(behind, time=found.time)
    return Failure(device_id, series.metric, Reason.STALE, "no newer reading", found.time)


def _value(
    trigger: Trigger, figures: tuple[ReplicaFigure, ...], snapshot: Snapshot, now: float
) -> tuple[float | AccelscaleError, str, tuple[ReplicaFigure, ...]]:
    reporting = [f.value for f in figures if f.value is not None]
    silent = [f for f in figures if f.value is None]
    silent_once_ready = [f for f in silent if f.replica.was_ready]
    once_ready = len(reporting) + len(silent_once_ready)
    too_few = not reporting or 2 * len(reporting) < once_ready
    if (too_few and (trigger.missing != "ignore" or not reporting)) or (
        trigger.missing == "error" and silent_once_ready
    ):
        none_counts = tuple(evolve(figure, counted=None) for figure in figures)
        return no_data(trigger, figures, snapshot, now), "none", none_counts
    if trigger.missing == "ignore" or all(f.value == f.least == f.filled for f in figures):
        return _total(trigger, reporting, figures), "none", figures
    return _held(trigger, reporting, figures)


def _held(
    trigger: Trigger, reporting: Sequence[float], figures: tuple[ReplicaFigure, ...]
) -> tuple[float | AccelscaleError, str, tuple[ReplicaFigure, ...]]:
    """What is silent as the HPA treats missing pods: never in favour of the direction."""
    threshold = trigger.threshold
    before = _usage(trigger, reporting)
    upwards = before > threshold
    counted = [f.least if upwards else f.filled for f in figures]
    figures = tuple(evolve(f, counted=c) for f, c in zip(figures, counted, strict=True))
    after = _usage(trigger, counted)
    if before == threshold or upwards != (after > threshold):
        summed = trigger.resolved_replica_aggregation == "sum"
        no_change = threshold * len(figures) if summed else threshold
        return no_change, "no change", figures
    return _total(trigger, counted, figures), "zero" if upwards else "threshold", figures


def _usage(trigger: Trigger, values: Sequence[float]) -> float:
    """What one replica carries, to be compared with the threshold."""
    name = trigger.resolved_replica_aggregation
    return aggregation("mean" if name == "sum" else name)(values)


def _total(
    trigger: Trigger, values: Sequence[float], figures: Sequence[ReplicaFigure]
) -> float | AccelscaleError:
    name = trigger.resolved_replica_aggregation
    if name == "mean" and trigger.metric_type is MetricType.VALUE:
        # The HPA multiplies by its Ready pods, so the sum is spread over just those.
        ready = sum(1 for f in figures if f.replica.ready and f.counted is not None)
        if ready == 0:
            return NoDataError(
                "no replica is Ready, and under metricType Value the HPA multiplies by those"
            )
        return math.fsum(values) / ready
    return aggregation(name)(values)


def _sendable(trigger: Trigger, value: float | AccelscaleError) -> float | AccelscaleError:
    """Refuse what would not survive the way to the HPA."""
    if isinstance(value, AccelscaleError):
        return value
    if not math.isfinite(value) or value >= LARGEST:
        return UnsupportedError(
            f"{trigger.metric} = {value:g} is too large for the HPA, which counts thousandths in"
            f" 64 bits (below {LARGEST:g}); use a metric in percent or fewer devices",
            reason=Reason.OUT_OF_RANGE,
        )
    if value < 0:
        return UnsupportedError(
            f"{trigger.metric} = {value:g} is negative, which no HPA takes",
            reason=Reason.OUT_OF_RANGE,
        )
    return value


def _activation_value(trigger: Trigger, figures: Sequence[ReplicaFigure]) -> float | None:
    values = [f.activation for f in figures if f.activation is not None]
    if not values:
        return None
    name = trigger.replica_aggregation
    return aggregation("max" if name == "auto" else name)(values)


def _active(
    trigger: Trigger,
    activation: float | None,
    figures: Sequence[ReplicaFigure],
    snapshot: Snapshot,
    now: float,
) -> bool | AccelscaleError:
    if activation is None:
        return no_data(trigger, figures, snapshot, now)
    if activation > trigger.activation_threshold:
        return True
    heard = [f for f in figures if f.activation is not None]
    if trigger.missing != "ignore" and not all(f.complete for f in figures):
        return no_data(trigger, figures, snapshot, now, "what is silent may be busy")
    if not all(f.covered for f in heard):
        window = max(series.window_seconds for series in trigger.wanted_series)
        return NoDataError(
            f"{trigger.metric} is at {activation:g}, but its history does not yet cover the"
            f" {window:g} s that an idle verdict needs",
            reason=Reason.STALE,
        )
    return False


def no_data(
    trigger: Trigger,
    figures: Sequence[ReplicaFigure],
    snapshot: Snapshot,
    now: float,
    why: str = "",
) -> NoDataError:
    """The error that names the silent ones: device or replica, reason and age; a few of them."""
    silent = [failure for failure in map(_why_silent, figures) if failure is not None]
    missing = [d.failure for f in figures for d in f.devices if d.failure is not None]
    texts = [_silent_text(failure, snapshot, now) for failure in missing[:MOST_NAMED]]
    texts += silent[: MOST_NAMED - len(texts)]
    more = len(missing) + len(silent) - len(texts)
    shown = "; ".join(texts) + (f"; and {more} more" if more else "")
    reporting = sum(1 for f in figures if f.value is not None)
    lead = f"no fresh {trigger.metric} ({reporting} of {len(figures)} replicas report)"
    text = ": ".join(part for part in (lead, why, shown) if part)
    return NoDataError(text, reason=missing[0].reason if missing else None)


def _why_silent(figure: ReplicaFigure) -> str | None:
    """What there is to say of a replica beside its devices."""
    if figure.replica.problem:
        return f"{figure.replica.name}: {figure.replica.problem}"
    if not figure.replica.was_ready:
        return f"{figure.replica.name} is still starting"
    return None if figure.devices else f"{figure.replica.name}: none of its devices is known"


def _silent_text(failure: Failure, snapshot: Snapshot, now: float) -> str:
    device = snapshot.device(failure.device_id)
    name = f"{device.name} {failure.device_id}" if device is not None else failure.device_id
    detail = f" ({failure.detail})" if failure.detail else ""
    age = now - failure.time
    since = f", {age:.1f} s old" if math.isfinite(age) and failure.time > 0 else ""
    return f"{name}: {failure.reason}{detail}{since}"
