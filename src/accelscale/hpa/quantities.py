"""Values and targets as the HPA sees them: whole thousandths ("milli-units") in 64 bits.

Origin: ``quantityFromFloat64`` in KEDA's ``pkg/scalers/scaler.go``, and the sums at the head of
``GetExternalMetricReplicas`` and ``GetExternalPerPodMetricReplicas`` in Kubernetes'
``replica_calculator.go``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from accelscale.errors import ConfigurationError, Fault, UnsupportedError
from accelscale.hpa.versions import KedaVersion
from accelscale.model import Reason
from accelscale.trigger import MetricType

LARGEST_INT64 = 2**63 - 1
LARGEST_VALUE = LARGEST_INT64 / 1000
"""The double next to the greatest quantity that thousandths in 64 bits can hold."""

_NEWEST = KedaVersion()


def value_in_milli(value: float, keda: KedaVersion = _NEWEST) -> int:
    """A scaler's value as KEDA hands it on, in thousandths.

    KEDA writes the number with ``%.3f`` and turns what no quantity can say (NaN, infinity, and
    since 2.20.2 negative numbers) into 0, so a scaler must never send such a value. Before 2.20 it
    cut the product with 1000 instead: 1.005 arrived as 1.004.

    Raises:
        UnsupportedError: the value is greater than a quantity in thousandths can be, or one that
            an older KEDA turned into garbage (NaN, infinity).
    """
    if keda.rounds_values and not math.isfinite(value):
        return 0
    if not abs(value) <= LARGEST_VALUE:
        raise UnsupportedError(
            f"value {value:g} overflows: KEDA carries thousandths in 64 bits, so {LARGEST_VALUE:g}"
            " is the greatest",
            reason=Reason.OUT_OF_RANGE,
        )
    if value < 0 and keda.negative_is_zero:
        return 0
    milli = int(f"{value:.3f}".replace(".", "")) if keda.rounds_values else int(value * 1000)
    return min(milli, LARGEST_INT64)


def target_in_milli(target: float, keda: KedaVersion = _NEWEST) -> int:
    """A trigger's target in thousandths.

    Raises:
        ConfigurationError: it is 0 or less at three decimals; the API server refuses such an HPA.
    """
    milli = value_in_milli(target, keda)
    if milli <= 0:
        fault = Fault("target", f"{target:g}", "must be at least 0.001 (three decimals are kept)")
        raise ConfigurationError([fault], subject="HPA metric")
    return milli


def as_float(milli: int) -> float:
    """A quantity as KEDA computes with it: ``AsApproximateFloat64``, digits times 10 to the -3."""
    return float(milli) * 1e-3


def total_of_series(values: Iterable[int], metric_type: MetricType) -> int:
    """The HPA's sum of the series of one metric, in thousandths, saturating at 64 bits.

    Under ``AverageValue`` any negative total is taken for an overflow and becomes the greatest
    number, which is how a scaler's -1 once asked for every replica there is (kedacore/keda#7880).
    """
    total = 0
    for value in values:
        total = min(total + value, LARGEST_INT64)
        if total < 0 and metric_type is MetricType.AVERAGE_VALUE:
            return LARGEST_INT64
    return total


def metric_type_of(name: MetricType | str) -> MetricType:
    """The type of that name.

    Raises:
        ConfigurationError: an external metric has no such type (``Utilization`` is one of them).
    """
    try:
        return MetricType(name)
    except ValueError:
        allowed = " or ".join(MetricType)
        fault = Fault("metricType", str(name), f"must be {allowed} for an external metric")
        raise ConfigurationError([fault], subject="HPA metric") from None
