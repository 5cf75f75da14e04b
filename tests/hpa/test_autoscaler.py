"""One sync: its order, failing metrics, memory, restarts, scale to zero."""

from __future__ import annotations

import pytest

from accelscale.errors import ConfigurationError
from accelscale.hpa import (
    Behavior,
    Controller,
    ExternalMetric,
    HpaSpec,
    HpaState,
    MetricError,
    MetricStatus,
    Scale,
    ScalingRules,
    sync,
)
from accelscale.hpa.autoscaler import greatest_proposal, reads_metrics
from accelscale.hpa.stabilization import Recommendation
from accelscale.trigger import MetricType

METRIC = ExternalMetric("s0-load", 70_000)
SPEC = HpaSpec(1, 100, (METRIC,))
SEEN = HpaState(recommendations=())
FAILED = MetricStatus(error="no data")


def load(value: int) -> MetricStatus:
    return MetricStatus((value * 1000,))


def test_a_sync_writes_what_the_metric_asks_for() -> None:
    got = sync(SPEC, SEEN, Scale.settled(4), [load(420)], now=0.0)
    assert (got.replicas, got.proposal, got.stabilized, got.proposals) == (6, 6, 6, (6,))
    assert got.scaling_active == "ValidMetricFound"
    assert got.able_to_scale == "SucceededRescale"
    assert got.scaling_limited == "DesiredWithinRange"
    assert got.state.recommendations == (Recommendation(6, 0.0),)


def test_outside_the_bounds_it_jumps_without_a_metric_and_without_a_trace() -> None:
    for found, expected in ((200, 100), (1, 3)):
        spec = HpaSpec(3, 100, (METRIC,))
        assert not reads_metrics(spec, SEEN, found)
        got = sync(spec, SEEN, Scale.settled(found), [], now=0.0)
        assert got.replicas == expected
        assert (got.proposal, got.proposals) == (None, ())
        assert got.state.recommendations == ()
        assert got.state.events == SEEN.events


def test_with_a_behavior_a_jump_counts_as_a_change() -> None:
    spec = HpaSpec(3, 100, (METRIC,), Behavior())
    got = sync(spec, SEEN, Scale.settled(1), [], now=0.0)
    assert [event.change for event in got.state.events.up] == [2]


def test_at_zero_it_is_off() -> None:
    got = sync(SPEC, SEEN, Scale.settled(0), [], now=0.0)
    assert (got.replicas, got.scaling_active) == (0, "ScalingDisabled")


def test_the_greatest_proposal_wins() -> None:
    spec = HpaSpec(1, 100, (METRIC, ExternalMetric("s1-queue", 10_000)))
    got = sync(spec, SEEN, Scale.settled(4), [load(70), load(55)], now=0.0)
    assert got.proposals == (1, 6)
    assert got.replicas == 6


def test_other_kinds_of_metric_take_part() -> None:
    got = sync(SPEC, SEEN, Scale.settled(4), [load(70)], now=0.0, others=[7])
    assert (got.proposals, got.replicas) == ((1, 7), 7)


def test_a_failing_metric_blocks_scale_down_but_not_scale_up() -> None:
    spec = HpaSpec(1, 100, (METRIC, ExternalMetric("s1-queue", 10_000)))
    down = sync(spec, SEEN, Scale.settled(4), [load(70), FAILED], now=0.0)
    assert (down.replicas, down.scaling_active) == (4, "FailedGetExternalMetric")
    assert down.state.recommendations == ()
    up = sync(spec, SEEN, Scale.settled(4), [load(420), FAILED], now=0.0)
    assert (up.replicas, up.scaling_active) == (6, "ValidMetricFound")
    assert up.errors == (MetricError("FailedGetExternalMetric", "no data"),)
    same = sync(spec, SEEN, Scale.settled(4), [load(280), FAILED], now=0.0)
    assert (same.replicas, same.scaling_active) == (4, "ValidMetricFound")
    assert same.state.recommendations == (Recommendation(4, 0.0),)


def test_with_every_metric_failing_nothing_is_known() -> None:
    got = sync(SPEC, SEEN, Scale.settled(4), [FAILED], now=0.0)
    assert (got.replicas, got.proposal) == (4, None)
    assert got.state.recommendations == ()


def test_value_without_pods_is_a_failing_metric() -> None:
    spec = HpaSpec(1, 100, (ExternalMetric("s0-load", 70_000, MetricType.VALUE),))
    got = sync(spec, SEEN, Scale(4, 0, 0), [load(400)], now=0.0)
    assert got.replicas == 4
    assert "no pods" in got.errors[0].message


def test_without_any_metric_nothing_happens() -> None:
    got = sync(HpaSpec(1, 100), SEEN, Scale.settled(4), [], now=0.0)
    assert got.replicas == 4
    assert isinstance(greatest_proposal((), 4), MetricError)


def test_a_missing_status_is_a_fault_of_the_caller() -> None:
    with pytest.raises(ValueError, match="shorter"):
        sync(SPEC, SEEN, Scale.settled(4), [], now=0.0)


def test_a_negative_total_counts_as_none() -> None:
    spec = HpaSpec(1, 100, (ExternalMetric("s0-load", 70_000, MetricType.VALUE),))
    got = sync(spec, SEEN, Scale.settled(4), [load(-400)], now=0.0)
    assert (got.proposal, got.replicas) == (-22, 1)
    assert got.state.recommendations == (Recommendation(0, 0.0),)


def test_status_replicas_of_a_surge_are_a_proposal_of_their_own() -> None:
    got = sync(SPEC, SEEN, Scale(4, 5, 5), [load(350)], now=0.0)
    assert (got.proposal, got.replicas) == (5, 5)


def test_after_a_restart_nothing_scales_down_for_a_window() -> None:
    state, replicas, history = HpaState(), 8, []
    for tick in range(22):
        got = sync(SPEC, state, Scale.settled(replicas), [load(70)], now=15.0 * tick)
        state, replicas = got.state, got.replicas
        history.append(replicas)
    assert history == [8] * 21 + [1]
    with_behavior = HpaSpec(1, 100, (METRIC,), Behavior())
    state, replicas, history = got.state.after_restart(), 8, []
    for tick in range(22):
        got = sync(with_behavior, state, Scale.settled(replicas), [load(70)], now=15.0 * tick)
        state, replicas = got.state, got.replicas
        history.append(replicas)
    assert history == [8] * 20 + [1] * 2


def test_history_stays_bounded() -> None:
    state, replicas = HpaState(), 8
    for tick in range(500):
        got = sync(SPEC, state, Scale.settled(replicas), [load(560)], now=15.0 * tick)
        state, replicas = got.state, got.replicas
    assert state.recommendations is not None
    assert len(state.recommendations) == 22


def test_doubling_without_a_behavior_and_memory_with_one() -> None:
    for behavior, expected in ((None, [4, 8, 16, 32]), (Behavior(), [5, 10, 20, 40])):
        spec = HpaSpec(1, 1000, (METRIC,), behavior)
        state, replicas, history = HpaState(), 1, []
        for tick in range(4):
            got = sync(spec, state, Scale.settled(replicas), [load(70_000)], now=15.0 * tick)
            state, replicas = got.state, got.replicas
            history.append(replicas)
        assert history == expected


def test_own_tolerance_of_an_hpa() -> None:
    spec = HpaSpec(1, 100, (METRIC,), Behavior(ScalingRules(tolerance=0.01)))
    newer = sync(spec, SEEN, Scale.settled(10), [load(720)], now=0.0)
    older = sync(
        spec,
        SEEN,
        Scale.settled(10),
        [load(720)],
        now=0.0,
        controller=Controller.for_kubernetes("1.34"),
    )
    assert (newer.replicas, older.replicas) == (11, 10)


def test_scale_to_zero_is_remembered() -> None:
    gate = Controller(scale_to_zero=True, downscale_stabilization=0.0)
    spec = HpaSpec(0, 10, (METRIC,))
    down = sync(spec, SEEN, Scale.settled(2), [load(0)], now=0.0, controller=gate)
    assert (down.replicas, down.state.scaled_to_zero) == (0, True)
    restarted = down.state.after_restart()
    assert restarted == HpaState(scaled_to_zero=True)
    up = sync(spec, down.state, Scale.settled(0), [load(140)], now=15.0, controller=gate)
    assert (up.replicas, up.state.scaled_to_zero) == (2, False)
    raised = HpaSpec(3, 10, (METRIC,))
    up = sync(raised, down.state, Scale.settled(0), [load(1)], now=15.0, controller=gate)
    assert up.replicas == 3


def test_before_the_condition_existed_a_minimum_of_zero_was_enough() -> None:
    gate = Controller(scale_to_zero=True, remembers_scaled_to_zero=False)
    spec = HpaSpec(0, 10, (METRIC,))
    got = sync(spec, SEEN, Scale.settled(0), [load(140)], now=0.0, controller=gate)
    assert got.replicas == 2
    assert not reads_metrics(SPEC, SEEN, 0, gate)


def test_bounds_and_targets_are_checked() -> None:
    with pytest.raises(ConfigurationError) as caught:
        HpaSpec(-1, 0, (ExternalMetric("s0-load", 0),))
    assert [fault.key for fault in caught.value.faults] == [
        "minReplicas",
        "maxReplicas",
        "target of s0-load",
    ]
    with pytest.raises(ConfigurationError, match="maxReplicas"):
        HpaSpec(5, 4)
