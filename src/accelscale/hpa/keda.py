"""KEDA's two callers of a scaler: the operator's poll, and the HPA's query through the adapter.

Every polling interval the operator asks each trigger for its specs, its metric and its activity,
at any number of replicas. Every sync the HPA asks for each of its metrics; each of those queries
first asks *all* triggers for their specs, so one unreachable trigger fails the metrics of the
others (kedacore/keda#5914). An error of IsActive discards the metric as well. On an error KEDA asks
once more at once; an answer here is what was true after that.

State is explicit: `KedaState` goes in and a new one comes out. It is what the ScaledObject's status
and the operator's memory hold; what the HPA remembers is `accelscale.hpa.autoscaler.HpaState`.

With useCachedMetrics the HPA gets the record of the last poll; counting goes on as if it were an
answer of its own, so a record that is a fallback value counts as a success. After a query that
failed the record is gone and the next query asks the scaler, until the next poll.

Not modelled: releases after 2.20 that no longer ask the scaler on a poll where only the HPA can
act (kedacore/keda#8031); replicas differ only in how fast failures are counted for a fallback.

Origin: ``getScaledObjectState``, ``GetScaledObjectMetrics``, ``getScalerState`` and
``startPushScalers`` in ``pkg/scaling/scale_handler.go``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from attrs import field, frozen

from accelscale.errors import NoDataError
from accelscale.hpa.activation import Action, decide
from accelscale.hpa.autoscaler import ExternalMetric, HpaSpec, MetricStatus, Scale
from accelscale.hpa.behavior import Behavior
from accelscale.hpa.fallback import FallbackTarget, Observation, with_fallback
from accelscale.hpa.modifiers import composite_value
from accelscale.hpa.quantities import as_float, target_in_milli, value_in_milli
from accelscale.hpa.scaledobject import COMPOSITE_METRIC, ScaledObject
from accelscale.hpa.versions import KedaVersion

_NEWEST = KedaVersion()


@frozen
class ScalerAnswer:
    """What one trigger's scaler answers; made by `of`, `failed` or `unreachable`.

    ``value`` is in the metric's unit and None unless given. ``error`` is that of GetMetrics or
    IsActive, ``spec_error`` that of GetMetricSpec; an empty list of specs is one too.
    """

    value: float | None = None
    active: bool = False
    error: str = ""
    spec_error: str = ""

    @classmethod
    def of(cls, value: float, *, active: bool) -> ScalerAnswer:
        """Both answers given."""
        return cls(value, active)

    @classmethod
    def failed(cls, error: str) -> ScalerAnswer:
        """The specs came, but no value or no activity: the scaler has no data."""
        return cls(error=error)

    @classmethod
    def unreachable(cls, error: str) -> ScalerAnswer:
        """Not even the specs came."""
        return cls(spec_error=error)


@frozen
class KedaState:
    """What KEDA remembers of a ScaledObject.

    ``failures`` in a row and the ``records`` of useCachedMetrics are by metric name: ``s0-…``.
    """

    last_active: float | None = None
    failures: Mapping[str, int] = field(factory=dict, hash=False)
    records: Mapping[str, Observation] = field(factory=dict, hash=False)


@frozen
class Poll:
    """The outcome of one turn of the operator; ``replicas`` is what is wanted afterwards."""

    replicas: int
    state: KedaState
    action: Action
    active: bool = False
    errors: tuple[str, ...] = ()


def hpa_spec(
    scaled_object: ScaledObject,
    *,
    reachable: Sequence[bool] | None = None,
    keda: KedaVersion = _NEWEST,
) -> HpaSpec:
    """The HPA that KEDA makes of a ScaledObject; its minimum is never below 1.

    ``reachable`` says which triggers answer GetMetricSpec at that moment (all of them when not
    given): the others are silently left out until a later reconcile. Before KEDA 2.20 an HPA
    without any metric was sent, and API defaulting made it "cpu at 80 %".

    Raises:
        NoDataError: no trigger answers, so KEDA leaves the HPA as it was (from 2.20).
        ConfigurationError: a target that the API server refuses.
    """
    answering = [True] * len(scaled_object.triggers) if reachable is None else list(reachable)
    metrics = tuple(
        ExternalMetric(name, target_in_milli(trigger.target, keda), trigger.metric_type)
        for name, trigger, answers in zip(
            scaled_object.metric_names, scaled_object.triggers, answering, strict=True
        )
        if answers
    )
    if scaled_object.triggers and not metrics and keda.refuses_empty_specs:
        raise NoDataError("no trigger answers GetMetricSpec: KEDA leaves the HPA as it is")
    modifiers = scaled_object.modifiers
    if modifiers is not None:
        target = target_in_milli(modifiers.target, keda)
        metrics = (ExternalMetric(COMPOSITE_METRIC, target, modifiers.metric_type),)
    behavior, pause = scaled_object.behavior, scaled_object.pause
    if pause.scale_in or pause.scale_out:
        behavior = (behavior or Behavior()).disabling(
            scale_up=pause.scale_out, scale_down=pause.scale_in
        )
    least = max(1, scaled_object.min_replicas)
    return HpaSpec(least, scaled_object.max_replicas, metrics, behavior)


def poll(
    scaled_object: ScaledObject,
    state: KedaState,
    scale: Scale,
    answers: Sequence[ScalerAnswer],
    *,
    now: float,
    keda: KedaVersion = _NEWEST,
) -> Poll:
    """One poll of the operator at ``now``, in seconds; ``answers`` are the triggers', in order."""
    if scaled_object.pause.stops:
        return Poll(scale.replicas, state, Action.PAUSED)
    failures = dict(state.failures)
    observed: dict[int, Observation] = {}
    for index, answer in enumerate(answers):
        if answer.spec_error:
            continue
        observed[index] = _observe(answer, keda)
        if keda.fallback_when_polling:
            observed[index] = _counted(scaled_object, index, observed[index], failures, scale, keda)
    errors = _errors(answers, observed)
    active = not scaled_object.triggers or any(
        got.active or got.fallback for got in observed.values()
    )
    if scaled_object.modifiers is not None:
        active = not errors and _composite_is_active(scaled_object, observed)
    records = {
        scaled_object.metric_names[index]: got
        for index, got in observed.items()
        if scaled_object.triggers[index].use_cached_metrics
    }
    kept = {} if errors else state.records
    decision = decide(
        scaled_object,
        scale.replicas,
        state.last_active,
        active=active,
        error=bool(errors),
        now=now,
    )
    return Poll(
        decision.replicas,
        KedaState(decision.last_active, failures, records or kept),
        decision.action,
        active,
        errors,
    )


def push(
    scaled_object: ScaledObject,
    state: KedaState,
    scale: Scale,
    *,
    active: bool,
    now: float,
    registered: bool = True,
) -> Poll:
    """One message on StreamIsActive of an external-push trigger.

    True activates at once or refreshes the time of the last activity; false is ignored, also with
    scalingModifiers. ``registered`` is whether the ScaledObject's status already names the metric;
    before that the message is dropped. It never changes a count between minimum and maximum.
    """
    if not active or not registered:
        return Poll(scale.replicas, state, Action.NONE)
    decision = decide(
        scaled_object, scale.replicas, state.last_active, active=True, error=False, now=now
    )
    state = attrs.evolve(state, last_active=decision.last_active)
    return Poll(decision.replicas, state, decision.action, active=True)


def query(
    scaled_object: ScaledObject,
    metrics: Sequence[ExternalMetric],
    state: KedaState,
    scale: Scale,
    answers: Sequence[ScalerAnswer],
    *,
    keda: KedaVersion = _NEWEST,
) -> tuple[KedaState, tuple[MetricStatus, ...]]:
    """What the HPA gets for each of its metrics in one sync, and KEDA's state afterwards."""
    statuses = []
    for metric in metrics:
        state, status = _query_one(scaled_object, metric, state, scale, answers, keda)
        statuses.append(status)
    return state, tuple(statuses)


def _query_one(
    scaled_object: ScaledObject,
    metric: ExternalMetric,
    state: KedaState,
    scale: Scale,
    answers: Sequence[ScalerAnswer],
    keda: KedaVersion,
) -> tuple[KedaState, MetricStatus]:
    failures = dict(state.failures)
    observed: dict[int, Observation] = {}
    for index, answer in enumerate(answers):
        name = scaled_object.metric_names[index]
        if answer.spec_error or metric.name not in (name, COMPOSITE_METRIC):
            continue
        cached = scaled_object.triggers[index].use_cached_metrics and name in state.records
        got = _recorded(state.records[name]) if cached else _observe(answer, keda)
        observed[index] = _counted(scaled_object, index, got, failures, scale, keda)
    errors = _errors(answers, observed)
    records = {} if errors else state.records
    state = attrs.evolve(state, failures=failures, records=records)
    fell_back = any(got.fallback for got in observed.values())
    if errors and not fell_back:
        return state, MetricStatus(error=errors[0])
    if not observed:
        return state, MetricStatus(error=f"no matching metrics found for {metric.name}")
    if scaled_object.modifiers is None:
        values = [value for got in observed.values() for value in got.values]
        return state, MetricStatus(tuple(values))
    try:
        composite = composite_value(scaled_object, scaled_object.modifiers, observed)
    except NoDataError as error:
        return state, MetricStatus(error=str(error))
    return state, MetricStatus((composite,))


def _observe(answer: ScalerAnswer, keda: KedaVersion) -> Observation:
    if answer.error or answer.value is None:
        return Observation(error=answer.error or "no value")
    return Observation((value_in_milli(answer.value, keda),), answer.active)


def _recorded(record: Observation) -> Observation:
    """A record of the last poll, as the query takes it: like an answer of the scaler."""
    return attrs.evolve(record, fallback=False)


def _counted(
    scaled_object: ScaledObject,
    index: int,
    observation: Observation,
    failures: dict[str, int],
    scale: Scale,
    keda: KedaVersion,
) -> Observation:
    """The observation after a possible fallback; the metric's entry of ``failures`` is updated."""
    trigger, modifiers = scaled_object.triggers[index], scaled_object.modifiers
    wanted = trigger if modifiers is None else modifiers
    metric = FallbackTarget(
        target_in_milli(wanted.target, keda), wanted.metric_type, composite=modifiers is not None
    )
    name = scaled_object.metric_names[index]
    observation, count = with_fallback(
        observation,
        failures.get(name, 0),
        fallback=scaled_object.fallback,
        metric=metric,
        current=scale.replicas,
        ready=scale.ready,
        keda=keda,
    )
    if count or name in failures:
        failures[name] = count
    return observation


def _errors(
    answers: Sequence[ScalerAnswer], observed: Mapping[int, Observation]
) -> tuple[str, ...]:
    """Every error of the triggers: of the specs, and what a fallback did not cover."""
    spec_errors = [answer.spec_error for answer in answers if answer.spec_error]
    return (*spec_errors, *(got.error for got in observed.values() if got.error))


def _composite_is_active(scaled_object: ScaledObject, observed: Mapping[int, Observation]) -> bool:
    """With a formula the triggers' own activity counts for nothing; the threshold is strict."""
    modifiers = scaled_object.modifiers
    assert modifiers is not None
    try:
        composite = composite_value(scaled_object, modifiers, observed)
    except NoDataError:
        return False
    return as_float(composite) > modifiers.activation_target
