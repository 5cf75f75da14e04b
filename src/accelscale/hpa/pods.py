"""What a metric of each pod asks for: ``Pods`` metrics, and cpu or memory as a share of requests.

accelscale serves external metrics, but a ScaledObject may hold a cpu trigger beside them, and the
HPA takes the greatest. Means are integer divisions here, as in the controller.

Origin: ``calcPlainMetricReplicas`` and ``GetResourceReplicas`` in Kubernetes'
``replica_calculator.go``, and the ratios of its ``metrics/utilization.go``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from attrs import frozen

from accelscale.errors import NoDataError
from accelscale.hpa.tolerance import Tolerance


@frozen
class Pod:
    """One running or pending pod: its value in thousandths, or None where there is no sample.

    ``request`` is what it asks for of that resource, in thousandths. ``unready`` pods count as 0
    when the others ask for more, and not at all otherwise: pending pods, and for cpu also those
    that are not Ready in their first minutes.
    """

    value: int | None
    request: int = 0
    unready: bool = False


@frozen
class PodProposal:
    """The replicas asked for, and the mean (thousandths) or percentage that the status shows."""

    replicas: int
    usage: int


def pods_replicas(
    pods: Sequence[Pod], target: int, *, current: int, tolerance: Tolerance
) -> PodProposal:
    """A ``Pods`` metric against its ``AverageValue`` in thousandths.

    Pods without a sample count as the target when the others ask for fewer, as 0 when they ask for
    more. ``current`` is the answer inside the tolerance, and where the filling turns the direction.

    Raises:
        NoDataError: no pod has a sample.
    """

    def mean(counted: Sequence[Pod]) -> int:
        return sum(pod.value or 0 for pod in counted) // len(counted)

    return _propose(pods, mean, lambda _: target, target, current, tolerance)


def utilization_replicas(
    pods: Sequence[Pod], target_percent: int, *, current: int, tolerance: Tolerance
) -> PodProposal:
    """A resource metric against its ``Utilization``, in percent of what the pods request.

    Pods without a sample count as using their whole request (or the target, if above 100 %) when
    the others ask for fewer, as 0 when they ask for more.

    Raises:
        NoDataError: no pod has a sample, or the pods request nothing.
    """

    def percent(counted: Sequence[Pod]) -> int:
        requested = sum(pod.request for pod in counted)
        if requested == 0:
            raise NoDataError("no metrics returned matched known pods: they request nothing")
        return sum(pod.value or 0 for pod in counted) * 100 // requested

    def full(pod: Pod) -> int:
        return pod.request * max(100, target_percent) // 100

    return _propose(pods, percent, full, target_percent, current, tolerance)


def _propose(
    pods: Sequence[Pod],
    usage_of: Callable[[Sequence[Pod]], int],
    full: Callable[[Pod], int],
    target: int,
    current: int,
    tolerance: Tolerance,
) -> PodProposal:
    ready = [pod for pod in pods if not pod.unready and pod.value is not None]
    unready = [pod for pod in pods if pod.unready]
    missing = [pod for pod in pods if not pod.unready and pod.value is None]
    if not ready:
        raise NoDataError("did not receive metrics for targeted pods (pods might be unready)")
    usage = usage_of(ready)
    ratio = float(usage) / float(target)
    counts_unready = bool(unready) and ratio > 1.0
    if not counts_unready and not missing:
        replicas = current if tolerance.holds(ratio) else math.ceil(ratio * float(len(ready)))
        return PodProposal(replicas, usage)

    counted = list(ready)
    if ratio < 1.0:
        counted += [Pod(full(pod), pod.request) for pod in missing]
    elif ratio > 1.0:
        counted += [Pod(0, pod.request) for pod in missing]
    if counts_unready:
        counted += [Pod(0, pod.request) for pod in unready]
    filled = float(usage_of(counted)) / float(target)
    replicas = math.ceil(filled * float(len(counted)))
    turned = (ratio < 1.0 < filled) or (filled < 1.0 < ratio)
    against = (filled < 1.0 and replicas > current) or (filled > 1.0 and replicas < current)
    held = tolerance.holds(filled) or turned or against
    return PodProposal(current if held else replicas, usage)
