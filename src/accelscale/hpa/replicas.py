"""What one external metric asks for: the HPA's replica calculator.

Values and targets are whole thousandths (milli-units), as the HPA's quantities are; ratios are
IEEE doubles, and every operation is done in the order in which the controller does it. An exact
computation would be wrong here: under ``Value`` 90 against 70 with 21 ready pods makes 28, because
``90 / 70 * 21`` is just above 27 in doubles.

Origin: ``GetExternalPerPodMetricReplicas`` and ``GetExternalMetricReplicas`` of Kubernetes'
``pkg/controller/podautoscaler/replica_calculator.go``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from accelscale.errors import ConfigurationError, Fault, NoDataError, UnsupportedError
from accelscale.hpa.tolerance import DEFAULT_TOLERANCE, Tolerance, ToleranceForm
from accelscale.model import Reason
from accelscale.trigger import MetricType

LARGEST_INT32 = 2**31 - 1
LARGEST_INT64 = 2**63 - 1
LARGEST_VALUE = LARGEST_INT64 / 1000
"""The double next to the greatest quantity that thousandths in 64 bits can hold."""


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
    if _metric_type(metric_type) is MetricType.AVERAGE_VALUE:
        return average_value_replicas(total, target_milli, status=existing, tolerance=band)
    return value_replicas(
        total,
        target_milli,
        spec=current,
        ready=existing if ready is None else ready,
        tolerance=band,
        pods=existing if ready is None else max(existing, ready),
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
    total: int, target: int, *, spec: int, ready: int, tolerance: Tolerance, pods: int | None = None
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


def sum_of_series(values: Iterable[int]) -> int:
    """The HPA's total of the series of one metric, in thousandths, saturating at 64 bits."""
    return min(sum(values), LARGEST_INT64)


def value_in_milli(value: float) -> int:
    """A scaler's value as KEDA hands it on: three decimals, in thousandths.

    KEDA writes the number with ``%.3f`` and turns what no quantity can say (NaN, infinity, and
    since 2.20.2 negative numbers) into 0, so a scaler must never send such a value.

    Raises:
        UnsupportedError: the value is greater than a quantity in thousandths can be.
    """
    if not math.isfinite(value) or value < 0:
        return 0
    if value > LARGEST_VALUE:
        raise UnsupportedError(
            f"value {value:g} overflows: KEDA carries thousandths in 64 bits, so {LARGEST_VALUE:g}"
            " is the greatest",
            reason=Reason.OUT_OF_RANGE,
        )
    return min(int(f"{value:.3f}".replace(".", "")), LARGEST_INT64)


def target_in_milli(target: float) -> int:
    """A trigger's target in thousandths.

    Raises:
        ConfigurationError: it is 0 or less after rounding; the API server refuses such an HPA.
    """
    milli = value_in_milli(target)
    if milli <= 0:
        fault = Fault("target", f"{target:g}", "must be at least 0.001 (three decimals are kept)")
        raise ConfigurationError([fault], subject="HPA metric")
    return milli


def _metric_type(name: MetricType | str) -> MetricType:
    try:
        return MetricType(name)
    except ValueError:
        allowed = " or ".join(MetricType)
        fault = Fault("metricType", str(name), f"must be {allowed} for an external metric")
        raise ConfigurationError([fault], subject="HPA metric") from None


def _quotient(dividend: float, divisor: float) -> float:
    """Division as Go does it: by zero it gives infinity, or NaN for 0 / 0."""
    if divisor:
        return dividend / divisor
    return math.inf if dividend > 0 else math.nan


def _int32(replicas: float) -> int:
    """Rounded up, and capped at what the replica field can hold."""
    return LARGEST_INT32 if replicas > LARGEST_INT32 else math.ceil(replicas)
