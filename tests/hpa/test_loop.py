"""Polls and syncs interleaved on one workload, driven through whole stories."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from attrs import evolve

from accelscale.errors import ConfigurationError
from accelscale.hpa import (
    Behavior,
    Controller,
    Fallback,
    KedaTrigger,
    Pause,
    Poll,
    Scale,
    ScaledObject,
    ScalerAnswer,
    ScalingRules,
    Sync,
    Timing,
    Turn,
    run,
)
from accelscale.hpa.loop import Pods
from accelscale.trigger import MetricType

LOAD = KedaTrigger("load", 70.0)
ONE = ScaledObject((LOAD,))
FLEET = ScaledObject((LOAD,), min_replicas=1)

Answers = Callable[[float, Scale], Sequence[ScalerAnswer]]


def saturated(_: float, found: Scale) -> Sequence[ScalerAnswer]:
    """As a sum over pods: every Ready one at 100 %, whatever their number."""
    return [ScalerAnswer.of(100.0 * found.ready, active=True)]


def busy_until(end: float) -> Answers:
    def answers(now: float, _: Scale) -> Sequence[ScalerAnswer]:
        return [ScalerAnswer.of(60.0 * (now < end), active=now < end)]

    return answers


def first_time_at(turns: Sequence[Turn], replicas: int) -> float:
    return next(turn.time for turn in turns if turn.replicas == replicas)


def test_turns_come_in_order_and_a_poll_before_a_sync() -> None:
    turns = list(run(FLEET, saturated, start=0.0, end=60.0, replicas=1))
    kinds = [(turn.time, isinstance(turn.outcome, Poll)) for turn in turns]
    assert kinds == [
        (0.0, True),
        (0.0, False),
        (15.0, False),
        (30.0, True),
        (30.0, False),
        (45.0, False),
    ]


def test_phases_shift_both_clocks() -> None:
    timing = Timing(poll_phase=7.0, sync_phase=3.0)
    turns = list(run(FLEET, saturated, start=100.0, end=140.0, replicas=1, timing=timing))
    assert [turn.time for turn in turns] == [103.0, 107.0, 118.0, 133.0, 137.0]


def test_a_new_object_with_minimum_zero_drops_on_its_first_idle_poll() -> None:
    def idle(_: float, __: Scale) -> Sequence[ScalerAnswer]:
        return [ScalerAnswer.of(0.0, active=False)]

    turns = list(run(ONE, idle, start=1.0, end=60.0, replicas=8))
    assert turns[0].found == Scale.settled(8)
    assert [turn.replicas for turn in turns] == [0] * len(turns)


@pytest.mark.parametrize(("phase", "expected"), [(0.0, 930.0), (10.0, 940.0), (10.5, 910.5)])
def test_scale_to_zero_comes_a_cooldown_later_at_the_next_poll(
    phase: float, expected: float
) -> None:
    """Last active at the poll before 620; the status keeps whole seconds of that."""
    timing = Timing(poll_phase=phase)
    end = 615.0 if phase else 620.0
    turns = list(run(ONE, busy_until(end), start=0.0, end=1000.0, replicas=1, timing=timing))
    assert first_time_at(turns, 0) == expected


def test_an_outage_holds_and_its_end_finds_the_cooldown_over() -> None:
    def answers(now: float, _: Scale) -> Sequence[ScalerAnswer]:
        if now < 300:
            return [ScalerAnswer.of(350.0, active=True)]
        if now < 900:
            return [ScalerAnswer.failed("agent lost")]
        return [ScalerAnswer.of(0.0, active=False)]

    turns = list(run(ONE, answers, start=0.0, end=960.0, replicas=5))
    assert {turn.replicas for turn in turns if turn.time < 900} == {5}
    assert first_time_at(turns, 0) == 900.0


@pytest.mark.parametrize(
    ("target", "periods"), [(50, 5), (60, 6), (70, 8), (75, 10), (80, 12), (85, 14), (90, 18)]
)
def test_from_one_to_thirty_two_takes_that_many_load_periods(target: int, periods: int) -> None:
    """Permanent saturation: the sum grows only once new pods are Ready."""
    delay = 60.0
    scaled_object = ScaledObject((KedaTrigger("load", float(target)),), min_replicas=1)
    timing = Timing(readiness_delay=delay, sync_phase=0.5)
    turns = run(scaled_object, saturated, start=0.0, end=2000.0, replicas=1, timing=timing)
    reached = next(turn.time for turn in turns if turn.replicas >= 32)
    assert reached // delay == periods - 1


def test_a_target_near_saturation_never_scales_out() -> None:
    scaled_object = ScaledObject((KedaTrigger("load", 91.0),), min_replicas=1)
    turns = run(scaled_object, saturated, start=0.0, end=3600.0, replicas=1)
    assert {turn.replicas for turn in turns} == {1}


def test_a_mean_under_average_value_shrinks_a_busy_fleet_to_two() -> None:
    def mean(_: float, __: Scale) -> Sequence[ScalerAnswer]:
        return [ScalerAnswer.of(95.0, active=True)]

    turns = list(run(FLEET, mean, start=0.0, end=600.0, replicas=20))
    assert turns[-1].replicas == 2
    by_value = evolve(FLEET, triggers=(evolve(LOAD, metric_type=MetricType.VALUE),))
    turns = list(run(by_value, mean, start=0.0, end=600.0, replicas=20))
    assert turns[-1].replicas == 100


def test_loading_longer_than_the_window_scales_a_starting_fleet_in() -> None:
    """Eight pods were asked for once; four carry 95 %, the others still load."""

    def answers(now: float, _: Scale) -> Sequence[ScalerAnswer]:
        return [ScalerAnswer.of(8 * 70.0 if now < 15 else 4 * 95.0, active=True)]

    turns = list(run(FLEET, answers, start=0.0, end=600.0, replicas=4))
    assert first_time_at(turns, 8) == 0.0
    assert first_time_at(turns, 6) == 315.0
    rules = ScalingRules(stabilization_window_seconds=600)
    patient = evolve(FLEET, behavior=Behavior(scale_down=rules))
    turns = list(run(patient, answers, start=0.0, end=600.0, replicas=4))
    assert turns[-1].replicas == 8


def test_readiness_delays_what_value_counts() -> None:
    pods = Pods.settled(2).scaled(5, 100.0)
    assert pods.scale(5, 60.0, 159.0) == Scale(5, 5, 2)
    assert pods.scale(5, 60.0, 160.0) == Scale.settled(5)
    assert pods.scaled(3, 170.0).scale(3, 60.0, 159.0) == Scale(3, 3, 2)
    assert Pods.settled(1).scaled(2, 0.0).scale(2, 0.0, 0.0) == Scale.settled(2)


def test_a_controller_restart_forgets() -> None:
    def answers(now: float, _: Scale) -> Sequence[ScalerAnswer]:
        return [ScalerAnswer.of(70.0, active=True)]

    plain = list(run(FLEET, answers, start=0.0, end=900.0, replicas=8))
    timing = Timing(controller_restarts=(150.0,))
    restarted = list(run(FLEET, answers, start=0.0, end=900.0, replicas=8, timing=timing))
    assert first_time_at(plain, 1) == 315.0
    assert first_time_at(restarted, 1) == 465.0


def test_fallback_while_both_callers_fail() -> None:
    def failing(_: float, __: Scale) -> Sequence[ScalerAnswer]:
        return [ScalerAnswer.failed("no data")]

    scaled_object = evolve(ONE, fallback=Fallback(3, 6))
    turns = list(run(scaled_object, failing, start=0.0, end=120.0, replicas=3))
    syncs = [turn for turn in turns if isinstance(turn.outcome, Sync)]
    assert first_time_at(turns, 6) == 30.0  # poll, sync, sync, poll: the fourth failure
    assert {turn.replicas for turn in syncs if turn.time >= 30} == {6}


def test_without_both_clocks_nothing_is_read_while_paused() -> None:
    def unexpected(_: float, __: Scale) -> Sequence[ScalerAnswer]:
        raise AssertionError

    paused = evolve(ONE, pause=Pause(paused=True))
    assert list(run(paused, unexpected, start=0.0, end=600.0, replicas=3)) == []


def test_metrics_are_not_read_outside_the_bounds() -> None:
    asked: list[float] = []

    def answers(now: float, _: Scale) -> Sequence[ScalerAnswer]:
        asked.append(now)
        return [ScalerAnswer.of(70.0, active=True)]

    scaled_object = ScaledObject((LOAD,), min_replicas=1, max_replicas=4)
    timing = Timing(poll_phase=100.0)
    turns = list(run(scaled_object, answers, start=0.0, end=20.0, replicas=9, timing=timing))
    assert [turn.replicas for turn in turns] == [4, 4]
    assert asked == [15.0]


def test_a_slower_sync_period() -> None:
    controller = Controller(sync_period=40.0)
    turns = run(FLEET, saturated, start=0.0, end=100.0, replicas=1, controller=controller)
    times = [turn.time for turn in turns if isinstance(turn.outcome, Sync)]
    assert times == [0.0, 40.0, 80.0]


def test_negative_phases_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="sync_phase"):
        Timing(sync_phase=-1.0)
