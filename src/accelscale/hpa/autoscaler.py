"""One sync of one HPA: metrics to a proposal, hindsight, rate limit, and the replicas to write.

The controller syncs every HPA about 15 seconds after its last sync; the phase is the caller's. The
order of a sync, which decides more than the formulas do:

1. At 0 replicas the HPA is off (unless the gate HPAScaleToZero says otherwise).
2. Above the maximum or below the minimum it jumps there: no metric is read, nothing is stabilised
   or limited, and no proposal is remembered.
3. Otherwise every metric proposes and the greatest proposal wins. If all metrics fail, or some fail
   and the rest ask for fewer, nothing happens. If some fail and the rest ask for at least as many,
   those count.
4. The proposal is stabilised, then limited, then written if it differs.

There is no pause after a scale-up and no look at the time of the last one.

Origin: ``reconcileAutoscaler``, ``computeReplicasForMetrics``, ``normalizeDesiredReplicas`` and
``normalizeDesiredReplicasWithBehaviors`` in Kubernetes' ``horizontal.go``.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from attrs import frozen

from accelscale.errors import ConfigurationError, Fault, NoDataError
from accelscale.hpa.behavior import Behavior, tolerance_of
from accelscale.hpa.limits import (
    Limited,
    ScaleEvents,
    limit_by_behavior,
    limit_by_doubling,
    record_change,
)
from accelscale.hpa.quantities import total_of_series
from accelscale.hpa.replicas import LARGEST_INT32, average_value_replicas, value_replicas
from accelscale.hpa.stabilization import (
    Recommendations,
    Stabilized,
    initial_recommendations,
    stabilize,
    stabilize_downscale,
)
from accelscale.hpa.tolerance import Tolerance
from accelscale.hpa.versions import Controller
from accelscale.trigger import MetricType

_NEWEST = Controller()


@frozen
class Scale:
    """The workload as the controllers find it.

    ``replicas`` is what is wanted (``spec.replicas``), ``status`` the existing pods, surge and
    starting ones included, and ``ready`` those that run and are Ready.
    """

    replicas: int
    status: int
    ready: int

    @classmethod
    def settled(cls, replicas: int) -> Scale:
        """Every wanted pod exists and is Ready, and no other."""
        return cls(replicas, replicas, replicas)


@frozen
class ExternalMetric:
    """One external metric of an HPA; ``target`` is in thousandths."""

    name: str
    target: int
    metric_type: MetricType = MetricType.AVERAGE_VALUE


@frozen
class MetricStatus:
    """What the query for one metric gave: its series in thousandths, or an error."""

    values: tuple[int, ...] = ()
    error: str = ""


@frozen
class MetricError:
    """Why a metric proposes nothing: the HPA's condition reason, and the message."""

    reason: str
    message: str


Proposal = int | MetricError


@frozen
class HpaSpec:
    """What an HPA wants: its bounds, its external metrics, its behaviour if it has one.

    Raises:
        ConfigurationError: the bounds are not 0 <= min <= max with max >= 1, or a target is not
            positive.
    """

    min_replicas: int
    max_replicas: int
    metrics: tuple[ExternalMetric, ...] = ()
    behavior: Behavior | None = None

    def __attrs_post_init__(self) -> None:
        faults = []
        if self.min_replicas < 0:
            faults.append(Fault("minReplicas", str(self.min_replicas), "must be 0 or more"))
        if not max(1, self.min_replicas) <= self.max_replicas <= LARGEST_INT32:
            problem = f"must be at least 1 and minReplicas, and at most {LARGEST_INT32}"
            faults.append(Fault("maxReplicas", str(self.max_replicas), problem))
        faults += [
            Fault(f"target of {metric.name}", f"{metric.target}m", "must be positive")
            for metric in self.metrics
            if metric.target <= 0
        ]
        if faults:
            raise ConfigurationError(faults, subject="HPA")


@frozen
class HpaState:
    """What the controller remembers of an HPA, in memory only.

    ``recommendations`` is None before the first sync. ``scaled_to_zero`` is the HPA's condition of
    that name; it survives a restart, but only the gate HPAScaleToZero looks at it.
    """

    recommendations: Recommendations | None = None
    events: ScaleEvents = ScaleEvents()
    scaled_to_zero: bool = False

    def after_restart(self) -> HpaState:
        """After a restart or a change of leader: nothing scales down for a full window."""
        return HpaState(scaled_to_zero=self.scaled_to_zero)


@frozen
class Sync:
    """The outcome of one sync.

    ``replicas`` is what ``spec.replicas`` is afterwards. ``proposals`` are those of the metrics, in
    order; ``proposal`` is the greatest and ``stabilized`` what hindsight made of it, both None
    where no metric counted. The last three are reasons of the HPA's conditions, empty where the
    sync left them alone.
    """

    replicas: int
    state: HpaState
    proposals: tuple[Proposal, ...] = ()
    proposal: int | None = None
    stabilized: int | None = None
    scaling_active: str = ""
    able_to_scale: str = ""
    scaling_limited: str = ""

    @property
    def errors(self) -> tuple[MetricError, ...]:
        """The errors of the metrics that proposed nothing."""
        return tuple(item for item in self.proposals if isinstance(item, MetricError))


def sync(
    spec: HpaSpec,
    state: HpaState,
    scale: Scale,
    statuses: Sequence[MetricStatus],
    *,
    now: float,
    controller: Controller = _NEWEST,
    others: Sequence[Proposal] = (),
) -> Sync:
    """One sync at ``now``, in seconds of any clock that does not go back.

    ``statuses`` belong to the external metrics of ``spec``, in order. ``others`` are proposals of
    metrics of other kinds (cpu, memory), computed by `accelscale.hpa.pods`.
    """
    current = scale.replicas
    known = initial_recommendations(state.recommendations, current, now)
    state = attrs.evolve(state, recommendations=known)
    if not reads_metrics(spec, state, current, controller):
        if current == 0:
            return Sync(0, state, scaling_active="ScalingDisabled")
        bound = min(max(current, spec.min_replicas), spec.max_replicas)
        return _written(spec, Sync(bound, state), current, now=now, controller=controller)
    tolerance = tolerance_of(spec.behavior, controller)
    external = zip(spec.metrics, statuses, strict=True)
    proposals = (*(propose(metric, got, scale, tolerance) for metric, got in external), *others)
    proposal = greatest_proposal(proposals, current)
    if isinstance(proposal, MetricError):
        return Sync(current, state, proposals, scaling_active=proposal.reason)
    desired = max(proposal, 0)
    stabilized, limited = _normalized(spec, known, state.events, current, desired, now, controller)
    replicas = limited.replicas
    if current == 0:
        replicas = max(replicas, spec.min_replicas)
    outcome = Sync(
        replicas,
        attrs.evolve(state, recommendations=stabilized.recommendations),
        proposals,
        proposal,
        stabilized.replicas,
        scaling_active="ValidMetricFound",
        able_to_scale=stabilized.reason,
        scaling_limited=limited.reason,
    )
    return _written(spec, outcome, current, now=now, controller=controller)


def reads_metrics(
    spec: HpaSpec, state: HpaState, current: int, controller: Controller = _NEWEST
) -> bool:
    """Whether a sync queries its metrics at all: not at 0, and not outside minimum and maximum."""
    if current == 0:
        return _leaves_zero(spec, state, controller)
    return spec.min_replicas <= current <= spec.max_replicas


def propose(
    metric: ExternalMetric, got: MetricStatus, scale: Scale, tolerance: Tolerance
) -> Proposal:
    """What one external metric asks for, or why it asks for nothing."""
    if got.error:
        return MetricError("FailedGetExternalMetric", got.error)
    total = total_of_series(got.values, metric.metric_type)
    if metric.metric_type is MetricType.AVERAGE_VALUE:
        return average_value_replicas(
            total, metric.target, status=scale.status, tolerance=tolerance
        )
    try:
        return value_replicas(
            total,
            metric.target,
            spec=scale.replicas,
            ready=scale.ready,
            pods=max(scale.status, scale.ready),
            tolerance=tolerance,
        )
    except NoDataError as error:
        return MetricError("FailedGetExternalMetric", str(error))


def greatest_proposal(proposals: Sequence[Proposal], current: int) -> Proposal:
    """The greatest proposal, or the first error where a failing metric forbids to act.

    With every metric failing nothing is known; with some failing, fewer replicas than at present
    are not to be believed.
    """
    errors = [proposal for proposal in proposals if isinstance(proposal, MetricError)]
    replicas = [proposal for proposal in proposals if not isinstance(proposal, MetricError)]
    if not replicas:
        return errors[0] if errors else MetricError("InvalidMetricSourceType", "no metrics")
    if errors and max(replicas) < current:
        return errors[0]
    return max(replicas)


def _leaves_zero(spec: HpaSpec, state: HpaState, controller: Controller) -> bool:
    """Whether the HPA acts at 0 replicas (``shouldComputeMetricsForZeroReplicas``)."""
    if not controller.scale_to_zero:
        return False
    if controller.remembers_scaled_to_zero:
        return state.scaled_to_zero
    return spec.min_replicas == 0


def _normalized(
    spec: HpaSpec,
    known: Recommendations,
    events: ScaleEvents,
    current: int,
    desired: int,
    now: float,
    controller: Controller,
) -> tuple[Stabilized, Limited]:
    """Hindsight and rate limit, on the path that the presence of a behaviour selects."""
    minimum, maximum = spec.min_replicas, spec.max_replicas
    if spec.behavior is None:
        window = controller.downscale_stabilization
        stabilized = stabilize_downscale(known, desired, window=window, now=now)
        wanted = stabilized.replicas
        return stabilized, limit_by_doubling(current, wanted, minimum=minimum, maximum=maximum)
    behavior = spec.behavior.resolved(controller)
    stabilized = stabilize(known, desired, current=current, behavior=behavior, now=now)
    limited = limit_by_behavior(
        current,
        stabilized.replicas,
        minimum=minimum,
        maximum=maximum,
        behavior=behavior,
        events=events,
        now=now,
    )
    return stabilized, limited


def _written(
    spec: HpaSpec, outcome: Sync, current: int, *, now: float, controller: Controller
) -> Sync:
    """The outcome once the scale is written, with the change remembered."""
    replicas = outcome.replicas
    if replicas == current:
        return outcome
    behavior = None if spec.behavior is None else spec.behavior.resolved(controller)
    events = record_change(outcome.state.events, current, replicas, behavior=behavior, now=now)
    went_to_zero = replicas == 0 and spec.min_replicas == 0 and bool(spec.metrics)
    state = attrs.evolve(
        outcome.state,
        events=events,
        scaled_to_zero=controller.scale_to_zero and went_to_zero,
    )
    return attrs.evolve(outcome, state=state, able_to_scale="SucceededRescale")
