"""``spec.fallback``: a number of replicas in place of a metric that keeps failing.

KEDA counts the failures of each metric, in a row, whoever asked: its own poll and the HPA both
count. Once there are more than the threshold it invents the value at which the HPA's formula gives
the wanted replicas. The tolerance, the stabilisation and the limits of the HPA still apply to it.

It does not help against an unreachable external scaler: without an answer to GetMetricSpec there is
no metric whose failures could be counted (kedacore/keda#8056).

Origin: ``pkg/fallback/fallback.go``.
"""

from __future__ import annotations

from enum import StrEnum

import attrs
from attrs import frozen

from accelscale.hpa.quantities import as_float
from accelscale.hpa.versions import KedaVersion
from accelscale.trigger import MetricType


class FallbackBehavior(StrEnum):
    """Which replicas a fallback asks for."""

    STATIC = "static"
    CURRENT = "currentReplicas"
    CURRENT_IF_HIGHER = "currentReplicasIfHigher"
    CURRENT_IF_LOWER = "currentReplicasIfLower"
    SCALING_MODIFIERS = "scalingModifiers"
    """The formula decides: a failing trigger is nil in it (operator ``??``)."""


@frozen
class Fallback:
    """``spec.fallback``; with a negative number KEDA acts as if there were none."""

    failure_threshold: int
    replicas: int
    behavior: FallbackBehavior = FallbackBehavior.STATIC

    @property
    def valid(self) -> bool:
        """Whether KEDA takes it into account."""
        return self.failure_threshold >= 0 and self.replicas >= 0


@frozen
class Observation:
    """What KEDA makes of one answer about one metric.

    ``values`` are its series in thousandths. ``fallback`` tells values that KEDA invented from
    values of the scaler. ``absent`` is a metric that failed too often and is nil to the formula.
    """

    values: tuple[int, ...] = ()
    active: bool = False
    error: str = ""
    fallback: bool = False
    absent: bool = False


@frozen
class FallbackTarget:
    """What a fallback value is made for: the HPA metric's target (thousandths) and type.

    With scalingModifiers that is the composite metric, whose target must then be a whole number.
    """

    target: int
    metric_type: MetricType
    composite: bool = False


def fallback_replicas(fallback: Fallback, current: int) -> int:
    """The replicas that the fallback asks for while ``current`` are wanted."""
    match fallback.behavior:
        case FallbackBehavior.CURRENT:
            return current
        case FallbackBehavior.CURRENT_IF_HIGHER:
            return max(current, fallback.replicas)
        case FallbackBehavior.CURRENT_IF_LOWER:
            return min(current, fallback.replicas)
        case _:
            return fallback.replicas


def fallback_value(
    fallback: Fallback,
    metric: FallbackTarget,
    *,
    current: int,
    ready: int,
    keda: KedaVersion,
) -> int | None:
    """The invented value in thousandths, or None where there is none: ``Value`` with nothing ready.

    Under ``Value`` the replicas are divided by the Ready ones, which the HPA multiplies by again;
    in doubles that can overshoot by one: 7 replicas with 25 ready come out as 8. Up to KEDA 2.17
    the target lost its fraction.
    """
    replicas = float(fallback_replicas(fallback, current))
    if not keda.fallback_serves_value:
        return metric.target // 1000 * 1000 * int(replicas)
    if metric.metric_type is MetricType.VALUE:
        if ready == 0:
            return None
        replicas /= float(ready)
    return int(as_float(metric.target) * 1000.0 * replicas)


def is_served(fallback: Fallback | None, metric: FallbackTarget, keda: KedaVersion) -> bool:
    """Whether failures of this metric are counted and may end in the fallback."""
    if fallback is None or not fallback.valid:
        return False
    if metric.composite and metric.target % 1000:
        return False
    return keda.fallback_serves_value or metric.metric_type is MetricType.AVERAGE_VALUE


def with_fallback(
    observation: Observation,
    failures: int,
    *,
    fallback: Fallback | None,
    metric: FallbackTarget,
    current: int,
    ready: int,
    keda: KedaVersion,
) -> tuple[Observation, int]:
    """The observation after a possible fallback, and the failures in a row with this one.

    Failures count only with a fallback that serves the metric; one success sets them to 0.
    """
    if fallback is None or not is_served(fallback, metric, keda):
        return observation, failures
    if not observation.error:
        return observation, 0
    failures += 1
    if failures <= fallback.failure_threshold:
        return observation, failures
    if not keda.fallback_knows_behavior:
        fallback = attrs.evolve(fallback, behavior=FallbackBehavior.STATIC)
    if fallback.behavior is FallbackBehavior.SCALING_MODIFIERS:
        return Observation(absent=True), failures
    value = fallback_value(fallback, metric, current=current, ready=ready, keda=keda)
    if value is None:
        return Observation(error="error performing fallback: no ready replicas"), failures
    return Observation(values=(value,), fallback=True), failures
