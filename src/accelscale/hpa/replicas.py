"""What one external metric asks for: the HPA's replica calculator.

Ratios are IEEE doubles, and every operation is done in the order in which the controller does it.
An exact computation would be wrong here: under ``Value`` 90 against 70 with 21 ready pods makes 28,
because ``90 / 70 * 21`` is just above 27 in doubles.

Origin: ``GetExternalPerPodMetricReplicas``, ``GetExternalMetricReplicas`` and the function behind
it, ``getUsageRatioReplicaCount``, of Kubernetes' ``replica_calculator.go``. ``Object`` metrics use
the same arithmetic.
"""

from __future__ import annotations

import math

from accelscale.errors import NoDataError
from accelscale.hpa.quantities import (
    LARGEST_INT64,
    metric_type_of,
    target_in_milli,
    value_in_milli,
)
from accelscale.hpa.tolerance import DEFAULT_TOLERANCE, Tolerance, ToleranceForm
from accelscale.trigger import MetricType

LARGEST_INT32 = 2**31 - 1


def desired_replicas(
    value: float,
    target: float,
    *,
    metric_type: MetricType | str = MetricType.AVERAGE_VALUE,
    current: int,
    ready: int | None = None,
    status: int | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    tolerance_up: float | None = None,
    tolerance_down: float | None = None,
    tolerance_form: ToleranceForm | str = ToleranceForm.BAND,
) -> int:
    """The replicas that one external metric asks for, before stabilisation, limits, min and max.

    ``value`` and ``target`` are in the metric's unit, as a scaler sends them to KEDA. ``current``
    is the scale's ``spec.replicas``; ``ready`` counts its Ready pods (all of them when not given)
    and matters under ``Value`` only; ``status`` is ``status.replicas``, the existing pods
    (``current`` when not given), and matters under ``AverageValue`` only. ``tolerance`` is the
    controller's; ``tolerance_up`` and ``tolerance_down`` override it, as an HPA's behaviour does.

    >>> desired_replicas(380, 70, current=8)
    6
    >>> desired_replicas(95, 70, metric_type="Value", current=8, ready=4)
    6

    Raises:
        ConfigurationError: the target is not above 0 in thousandths, or the type is unknown.
        NoDataError: ``Value`` with replicas wanted and no pod existing; the HPA reports an error.
        UnsupportedError: the value does not fit a quantity.
    """
    band = Tolerance(
        up=tolerance if tolerance_up is None else tolerance_up,
        down=tolerance if tolerance_down is None else tolerance_down,
        form=ToleranceForm(tolerance_form),
    )
    existing = current if status is None else status
    total, target_milli = value_in_milli(value), target_in_milli(target)
    if metric_type_of(metric_type) is MetricType.AVERAGE_VALUE:
        return average_value_replicas(total, target_milli, status=existing, tolerance=band)
    running = existing if ready is None else ready
    return value_replicas(
        total,
        target_milli,
        spec=current,
        ready=running,
        pods=max(existing, running),
        tolerance=band,
    )


def average_value_replicas(total: int, target: int, *, status: int, tolerance: Tolerance) -> int:
    """``AverageValue``: the whole over the target per pod, whatever the pods' readiness.

    ``total`` and ``target`` are in thousandths. Inside the tolerance the answer is ``status``, the
    number of existing pods, which during a surge is not what the scale asks for.
    """
    ratio = _quotient(float(total), float(target) * float(status))
    if tolerance.holds(ratio):
        return status
    return _int32(float(total) / float(target))


def value_replicas(
    total: int, target: int, *, spec: int, ready: int, pods: int, tolerance: Tolerance
) -> int:
    """``Value``: the ratio times the Ready pods; from 0 replicas the ratio alone.

    ``total`` and ``target`` are in thousandths; ``pods`` counts all pods of the workload. Because
    pods that are not Ready do not count, the answer may be below ``spec`` under a high load.

    Raises:
        NoDataError: outside the tolerance with no pod at all, where the HPA reports an error.
    """
    ratio = float(total) / float(target)
    if spec == 0:
        return _int32(ratio)
    if tolerance.holds(ratio):
        return spec
    if pods == 0:
        raise NoDataError("no pods returned by selector while calculating replica count")
    return _int32(ratio * float(ready))


def reported_value(total: int, *, metric_type: MetricType, status: int) -> int:
    """What the HPA's status shows as the current value, in thousandths.

    Under ``AverageValue`` that is the share of one existing pod, rounded up, and 0 without pods.
    """
    if metric_type is MetricType.VALUE:
        return total
    if float(total) >= float(LARGEST_INT64):
        return LARGEST_INT64
    return math.ceil(float(total) / float(status)) if status else 0


def _quotient(dividend: float, divisor: float) -> float:
    """Division as Go does it: by zero it gives infinity, or NaN for 0 / 0."""
    if divisor:
        return dividend / divisor
    return math.copysign(math.inf, dividend) if dividend else math.nan


def _int32(replicas: float) -> int:
    """Rounded up, and kept within what the replica field can hold.

    Older controllers let the conversion overflow; the model does not imitate that.
    """
    return max(min(math.ceil(replicas), LARGEST_INT32), -LARGEST_INT32 - 1)
