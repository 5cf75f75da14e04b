"""KEDA's two callers: polls and queries, fallback, caches, push, formulas, the HPA it builds."""

from __future__ import annotations

import pytest
from attrs import evolve

from accelscale.errors import ConfigurationError, NoDataError
from accelscale.hpa import (
    Action,
    Behavior,
    ExternalMetric,
    Fallback,
    FallbackBehavior,
    KedaState,
    KedaTrigger,
    KedaVersion,
    MetricStatus,
    Pause,
    Scale,
    ScaledObject,
    ScalerAnswer,
    ScalingModifiers,
    SelectPolicy,
    desired_replicas,
    hpa_spec,
    poll,
    push,
    query,
)
from accelscale.hpa.fallback import (
    FallbackTarget,
    Observation,
    fallback_replicas,
    fallback_value,
    with_fallback,
)
from accelscale.trigger import MetricType

LOAD, QUEUE = KedaTrigger("load", 70.0), KedaTrigger("queue", 10.0)
ONE = ScaledObject((LOAD,))
TWO = ScaledObject((LOAD, QUEUE))
FALLBACK = Fallback(failure_threshold=3, replicas=6)
BUSY, IDLE = ScalerAnswer.of(350.0, active=True), ScalerAnswer.of(0.0, active=False)
NO_DATA = ScalerAnswer.failed("no data")
UNREACHABLE = ScalerAnswer.unreachable("connection refused")
FIVE = Scale.settled(5)
NEWEST = KedaVersion()


def test_the_hpa_that_keda_builds() -> None:
    spec = hpa_spec(evolve(TWO, max_replicas=20))
    assert (spec.min_replicas, spec.max_replicas, spec.behavior) == (1, 20, None)
    assert spec.metrics == (ExternalMetric("s0-load", 70_000), ExternalMetric("s1-queue", 10_000))
    assert hpa_spec(evolve(ONE, min_replicas=4)).min_replicas == 4
    with pytest.raises(ConfigurationError, match=r"at least 0\.001"):
        hpa_spec(ScaledObject((KedaTrigger("load", 0.0004),)))


def test_a_pause_of_one_direction_gives_the_other_a_behavior() -> None:
    spec = hpa_spec(evolve(ONE, pause=Pause(scale_in=True)))
    assert spec.behavior is not None
    assert spec.behavior.scale_down.select_policy is SelectPolicy.DISABLED
    assert spec.behavior.scale_up == Behavior().scale_up
    assert hpa_spec(evolve(ONE, behavior=Behavior())).behavior == Behavior()


def test_triggers_without_a_spec_vanish_from_the_hpa() -> None:
    spec = hpa_spec(TWO, reachable=[False, True])
    assert spec.metrics == (ExternalMetric("s1-queue", 10_000),)
    with pytest.raises(NoDataError, match="leaves the HPA"):
        hpa_spec(TWO, reachable=[False, False])
    older = hpa_spec(TWO, reachable=[False, False], keda=KedaVersion.parse("2.19"))
    assert older.metrics == ()


def test_one_active_trigger_is_enough() -> None:
    for answers, active in (([IDLE, BUSY], True), ([IDLE, IDLE], False)):
        got = poll(TWO, KedaState(), Scale.settled(0), answers, now=1000.0)
        assert (got.active, got.replicas) == (active, int(active))


def test_without_external_triggers_it_is_always_active() -> None:
    got = poll(ScaledObject(()), KedaState(), Scale.settled(0), [], now=1000.0)
    assert (got.active, got.replicas) == (True, 1)


def test_an_error_of_any_kind_holds() -> None:
    for answer in (NO_DATA, UNREACHABLE):
        got = poll(ONE, KedaState(last_active=0.0), FIVE, [answer], now=1000.0)
        assert (got.replicas, got.action) == (5, Action.ERROR)
        assert got.errors == (answer.error or answer.spec_error,)
        assert got.state.last_active == 0.0


def test_an_unreachable_trigger_fails_the_metrics_of_the_others() -> None:
    metrics = hpa_spec(TWO).metrics
    _, statuses = query(TWO, metrics, KedaState(), FIVE, [UNREACHABLE, BUSY])
    assert [status.error for status in statuses] == ["connection refused"] * 2


def test_a_trigger_without_data_fails_its_own_metric_only() -> None:
    metrics = hpa_spec(TWO).metrics
    _, statuses = query(TWO, metrics, KedaState(), FIVE, [NO_DATA, BUSY])
    assert statuses == (MetricStatus(error="no data"), MetricStatus((350_000,)))


def test_a_metric_that_no_trigger_has() -> None:
    _, statuses = query(ONE, [ExternalMetric("s9-other", 1)], KedaState(), FIVE, [BUSY])
    assert "no matching metrics" in statuses[0].error


def test_both_callers_count_failures_and_a_success_resets() -> None:
    scaled_object = evolve(ONE, fallback=FALLBACK)
    state = KedaState()
    metrics = hpa_spec(scaled_object).metrics
    polled = poll(scaled_object, state, FIVE, [NO_DATA], now=0.0)
    assert (polled.state.failures["s0-load"], polled.action) == (1, Action.AWAITS_FALLBACK)
    state, statuses = query(scaled_object, metrics, polled.state, FIVE, [NO_DATA])
    assert (state.failures["s0-load"], statuses[0].error) == (2, "no data")
    state, _ = query(scaled_object, metrics, state, FIVE, [NO_DATA])
    state, statuses = query(scaled_object, metrics, state, FIVE, [NO_DATA])
    assert (state.failures["s0-load"], statuses) == (4, (MetricStatus((420_000,)),))
    state, _ = query(scaled_object, metrics, state, FIVE, [BUSY])
    assert state.failures["s0-load"] == 0


def test_nothing_is_counted_without_a_valid_fallback() -> None:
    for fallback in (None, Fallback(-3, 6), Fallback(3, -1)):
        scaled_object = evolve(ONE, fallback=fallback)
        got = poll(scaled_object, KedaState(), FIVE, [NO_DATA], now=0.0)
        assert got.state.failures == {}


def test_fallback_never_covers_an_unreachable_scaler() -> None:
    scaled_object, state = evolve(ONE, fallback=FALLBACK), KedaState(last_active=0.0)
    metrics = hpa_spec(scaled_object).metrics
    for tick in range(20):
        got = poll(scaled_object, state, FIVE, [UNREACHABLE], now=1000.0 + tick)
        state, statuses = query(scaled_object, metrics, got.state, FIVE, [UNREACHABLE])
        assert (got.replicas, statuses[0].error) == (5, "connection refused")
    assert state.failures == {}


def test_a_fallback_lifts_from_zero_since_the_poll_falls_back() -> None:
    scaled_object = evolve(ONE, fallback=FALLBACK)
    for version, expected in (("2.18", [0] * 6), ("2.19", [0, 0, 0, 1, 1, 1])):
        keda, state, replicas, history = KedaVersion.parse(version), KedaState(), 0, []
        for tick in range(6):
            scale = Scale.settled(replicas)
            got = poll(scaled_object, state, scale, [NO_DATA], now=30.0 * tick, keda=keda)
            state, replicas = got.state, got.replicas
            history.append(replicas)
        assert history == expected


@pytest.mark.parametrize(
    ("behavior", "current", "expected"),
    [
        (FallbackBehavior.STATIC, 15, 10),
        (FallbackBehavior.CURRENT, 15, 15),
        (FallbackBehavior.CURRENT_IF_HIGHER, 15, 15),
        (FallbackBehavior.CURRENT_IF_HIGHER, 5, 10),
        (FallbackBehavior.CURRENT_IF_LOWER, 15, 10),
        (FallbackBehavior.CURRENT_IF_LOWER, 5, 5),
        (FallbackBehavior.SCALING_MODIFIERS, 15, 10),
    ],
)
def test_replicas_of_a_fallback(behavior: FallbackBehavior, current: int, expected: int) -> None:
    assert fallback_replicas(Fallback(3, 10, behavior), current) == expected


def test_before_behaviors_every_fallback_was_static() -> None:
    fallback = Fallback(0, 10, FallbackBehavior.CURRENT)
    got, _ = with_fallback(
        Observation(error="no data"),
        0,
        fallback=fallback,
        metric=FallbackTarget(1000, MetricType.AVERAGE_VALUE),
        current=15,
        ready=15,
        keda=KedaVersion.parse("2.16"),
    )
    assert got.values == (10_000,)


def test_a_fallback_for_value_divides_by_ready_and_can_overshoot() -> None:
    metric = FallbackTarget(70_000, MetricType.VALUE)
    fallback = Fallback(3, 7)
    value = fallback_value(fallback, metric, current=25, ready=25, keda=NEWEST)
    assert value == 19_600
    assert desired_replicas(19.6, 70, metric_type="Value", current=25, ready=25) == 8
    assert fallback_value(fallback, metric, current=25, ready=0, keda=NEWEST) is None


def test_a_fallback_for_value_with_nothing_ready_stays_an_error() -> None:
    trigger = KedaTrigger("load", 70.0, MetricType.VALUE)
    scaled_object = ScaledObject((trigger,), fallback=Fallback(0, 7))
    got = poll(scaled_object, KedaState(), Scale(5, 5, 0), [NO_DATA], now=0.0)
    assert got.errors == ("error performing fallback: no ready replicas",)
    older = poll(
        scaled_object, KedaState(), FIVE, [NO_DATA], now=0.0, keda=KedaVersion.parse("2.17")
    )
    assert older.errors == ("no data",)


def test_older_fallbacks_cut_the_targets_fraction() -> None:
    metric = FallbackTarget(1_500, MetricType.AVERAGE_VALUE)
    fallback = Fallback(3, 6)
    values = [
        fallback_value(fallback, metric, current=1, ready=1, keda=KedaVersion.parse(version))
        for version in ("2.17", "2.18")
    ]
    assert values == [6_000, 9_000]


def test_the_tolerance_swallows_a_fallback_near_the_present() -> None:
    metric = FallbackTarget(70_000, MetricType.AVERAGE_VALUE)
    value = fallback_value(Fallback(3, 21), metric, current=20, ready=20, keda=NEWEST)
    assert value is not None
    assert desired_replicas(value / 1000, 70, current=20) == 20


def cached(fallback: Fallback | None = None) -> ScaledObject:
    return ScaledObject((evolve(LOAD, use_cached_metrics=True),), fallback=fallback)


def test_a_cached_metric_is_that_of_the_last_poll() -> None:
    scaled_object = cached()
    metrics = hpa_spec(scaled_object).metrics
    polled = poll(scaled_object, KedaState(), FIVE, [BUSY], now=0.0)
    _, statuses = query(scaled_object, metrics, polled.state, FIVE, [NO_DATA])
    assert statuses == (MetricStatus((350_000,)),)
    _, statuses = query(scaled_object, metrics, KedaState(), FIVE, [IDLE])
    assert statuses == (MetricStatus((0,)),)


def test_a_cached_metric_still_needs_the_specs() -> None:
    scaled_object = cached()
    metrics = hpa_spec(scaled_object).metrics
    polled = poll(scaled_object, KedaState(), FIVE, [BUSY], now=0.0)
    state, statuses = query(scaled_object, metrics, polled.state, FIVE, [UNREACHABLE])
    assert statuses[0].error == "connection refused"
    assert state.records == {}


def test_a_cached_error_is_gone_after_one_query() -> None:
    scaled_object = cached()
    metrics = hpa_spec(scaled_object).metrics
    polled = poll(scaled_object, KedaState(), FIVE, [NO_DATA], now=0.0)
    state, statuses = query(scaled_object, metrics, polled.state, FIVE, [BUSY])
    assert statuses[0].error == "no data"
    _, statuses = query(scaled_object, metrics, state, FIVE, [BUSY])
    assert statuses == (MetricStatus((350_000,)),)


def test_a_cached_fallback_value_counts_as_a_success() -> None:
    scaled_object = cached(Fallback(0, 6))
    metrics = hpa_spec(scaled_object).metrics
    polled = poll(scaled_object, KedaState(), FIVE, [NO_DATA], now=0.0)
    assert polled.state.failures["s0-load"] == 1
    state, statuses = query(scaled_object, metrics, polled.state, FIVE, [NO_DATA])
    assert statuses == (MetricStatus((420_000,)),)
    assert state.failures["s0-load"] == 0


def test_a_push_activates_or_refreshes_and_never_deactivates() -> None:
    got = push(ONE, KedaState(), Scale.settled(0), active=True, now=50.5)
    assert (got.replicas, got.state.last_active) == (1, 50.0)
    got = push(ONE, KedaState(), FIVE, active=True, now=50.0)
    assert (got.replicas, got.action, got.state.last_active) == (5, Action.REFRESHED, 50.0)
    got = push(ONE, KedaState(last_active=0.0), FIVE, active=False, now=5000.0)
    assert (got.replicas, got.action) == (5, Action.NONE)
    got = push(ONE, KedaState(), Scale.settled(0), active=True, now=50.0, registered=False)
    assert got.replicas == 0


def test_a_paused_object_takes_no_turn() -> None:
    stopped = evolve(ONE, pause=Pause(replicas=3))
    assert poll(stopped, KedaState(), Scale.settled(0), [BUSY], now=0.0).replicas == 0
    assert push(stopped, KedaState(), Scale.settled(0), active=True, now=0.0).replicas == 0


def greatest(values: object) -> float:
    assert isinstance(values, dict)
    return max(value for value in values.values() if value is not None)


def first_of(values: object) -> float | None:
    assert isinstance(values, dict)
    return next((value for value in values.values() if value is not None), None)


FORMULA = ScalingModifiers(greatest, 10.0, activation_target=20.0)


def test_a_formula_replaces_metrics_and_activity() -> None:
    scaled_object = evolve(TWO, modifiers=FORMULA)
    metrics = hpa_spec(scaled_object).metrics
    assert metrics == (ExternalMetric("composite-metric", 10_000),)
    answers = [ScalerAnswer.of(20.0, active=True), ScalerAnswer.of(3.0, active=True)]
    _, statuses = query(scaled_object, metrics, KedaState(), FIVE, answers)
    assert statuses == (MetricStatus((20_000,)),)
    zero = Scale.settled(0)
    assert not poll(scaled_object, KedaState(), zero, answers, now=0.0).active
    answers[0] = ScalerAnswer.of(20.001, active=False)
    assert poll(scaled_object, KedaState(), zero, answers, now=0.0).replicas == 1
    assert push(scaled_object, KedaState(), zero, active=True, now=0.0).replicas == 1


def test_a_composite_is_cut_to_thousandths() -> None:
    modifiers = ScalingModifiers(lambda _: 1.9999, 10.0)
    scaled_object = evolve(TWO, modifiers=modifiers)
    metrics = hpa_spec(scaled_object).metrics
    _, statuses = query(scaled_object, metrics, KedaState(), FIVE, [BUSY, BUSY])
    assert statuses == (MetricStatus((1_999,)),)


def test_any_error_fails_a_formula() -> None:
    scaled_object = evolve(TWO, modifiers=FORMULA)
    metrics = hpa_spec(scaled_object).metrics
    _, statuses = query(scaled_object, metrics, KedaState(), FIVE, [NO_DATA, BUSY])
    assert statuses[0].error == "no data"
    got = poll(scaled_object, KedaState(last_active=0.0), FIVE, [NO_DATA, BUSY], now=1000.0)
    assert (got.active, got.replicas) == (False, 5)


def test_a_fallback_skips_the_formula_and_takes_the_first_value() -> None:
    scaled_object = evolve(TWO, modifiers=FORMULA, fallback=Fallback(0, 6))
    metrics = hpa_spec(scaled_object).metrics
    for answers in ([NO_DATA, BUSY], [BUSY, NO_DATA], [NO_DATA, NO_DATA]):
        _, statuses = query(scaled_object, metrics, KedaState(), FIVE, answers)
        assert statuses == (MetricStatus((60_000,)),)


def test_the_formula_may_decide_on_a_failing_trigger() -> None:
    decides = Fallback(0, 6, FallbackBehavior.SCALING_MODIFIERS)
    modifiers = ScalingModifiers(first_of, 10.0)
    scaled_object = evolve(TWO, modifiers=modifiers, fallback=decides)
    metrics = hpa_spec(scaled_object).metrics
    _, statuses = query(scaled_object, metrics, KedaState(), FIVE, [NO_DATA, BUSY])
    assert statuses == (MetricStatus((350_000,)),)
    _, statuses = query(scaled_object, metrics, KedaState(), FIVE, [NO_DATA, NO_DATA])
    assert statuses == (MetricStatus((60_000,)),)


def test_a_formula_that_cannot_be_computed_is_no_data() -> None:
    scaled_object = evolve(TWO, modifiers=ScalingModifiers(lambda values: values["nobody"], 10.0))
    metrics = hpa_spec(scaled_object).metrics
    _, statuses = query(scaled_object, metrics, KedaState(), FIVE, [BUSY, BUSY])
    assert "formula" in statuses[0].error
    got = poll(scaled_object, KedaState(), Scale.settled(0), [BUSY, BUSY], now=0.0)
    assert (got.active, got.replicas) == (False, 0)
    nothing = evolve(TWO, modifiers=ScalingModifiers(lambda _: None, 10.0))
    _, statuses = query(nothing, metrics, KedaState(), FIVE, [BUSY, BUSY])
    assert statuses[0].error == "the formula gives nil"


def test_a_fallback_under_a_formula_needs_a_whole_target() -> None:
    modifiers = evolve(FORMULA, target=10.5)
    scaled_object = evolve(TWO, modifiers=modifiers, fallback=Fallback(0, 6))
    metrics = hpa_spec(scaled_object).metrics
    state, statuses = query(scaled_object, metrics, KedaState(), FIVE, [NO_DATA, BUSY])
    assert (state.failures, statuses[0].error) == ({}, "no data")
