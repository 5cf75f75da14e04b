"""The behaviour's defaults and faults, the limits' memory, the edges of windows and periods."""

from __future__ import annotations

import pytest

from accelscale.errors import ConfigurationError
from accelscale.hpa import (
    Behavior,
    Controller,
    Policy,
    PolicyType,
    ScalingRules,
    SelectPolicy,
    Tolerance,
)
from accelscale.hpa.behavior import tolerance_of
from accelscale.hpa.limits import (
    ScaleEvent,
    ScaleEvents,
    change_within,
    limit_by_behavior,
    limit_by_doubling,
    record_change,
    scale_down_limit,
    scale_up_limit,
    store_event,
)
from accelscale.hpa.moments import older_than, younger_than
from accelscale.hpa.stabilization import (
    Recommendation,
    initial_recommendations,
    stabilize,
    stabilize_downscale,
)

CONTROLLER = Controller()
DEFAULTS = Behavior().resolved(CONTROLLER)


def test_defaults_fill_both_directions() -> None:
    one = Behavior(scale_down=ScalingRules(select_policy=SelectPolicy.MIN)).resolved(CONTROLLER)
    assert one.scale_up == DEFAULTS.scale_up
    assert DEFAULTS.scale_up.policies == (
        Policy(PolicyType.PODS, 4, 15),
        Policy(PolicyType.PERCENT, 100, 15),
    )
    assert DEFAULTS.scale_up.stabilization_window == 0
    assert one.scale_down.policies == (Policy(PolicyType.PERCENT, 100, 15),)
    assert one.scale_down.select_policy is SelectPolicy.MIN
    assert one.scale_down.stabilization_window == 300


def test_the_scale_down_window_comes_from_the_controller_unless_written() -> None:
    controller = Controller(downscale_stabilization=60.0)
    assert Behavior().resolved(controller).scale_down.stabilization_window == 60
    written = Behavior(scale_down=ScalingRules(stabilization_window_seconds=0))
    assert written.resolved(controller).scale_down.stabilization_window == 0


def test_every_fault_is_reported() -> None:
    bad = ScalingRules(
        (Policy(PolicyType.PODS, 0, 15), Policy(PolicyType.PERCENT, 10, 1801)),
        stabilization_window_seconds=3601,
        tolerance=-0.1,
    )
    with pytest.raises(ConfigurationError) as caught:
        Behavior(bad, ScalingRules((Policy(PolicyType.PODS, 1, 0),)))
    assert [fault.key for fault in caught.value.faults] == [
        "behavior.scaleUp.stabilizationWindowSeconds",
        "behavior.scaleUp.tolerance",
        "behavior.scaleUp.policies[0].value",
        "behavior.scaleUp.policies[1].periodSeconds",
        "behavior.scaleDown.policies[0].periodSeconds",
    ]


def test_own_tolerances_need_the_gate() -> None:
    wanted = Behavior(ScalingRules(tolerance=0.02))
    assert tolerance_of(wanted, CONTROLLER) == Tolerance(up=0.02, down=0.1)
    assert tolerance_of(wanted, Controller(configurable_tolerance=False)) == Tolerance()
    assert tolerance_of(None, Controller(tolerance=0.3)) == Tolerance(up=0.3, down=0.3)
    older = Controller.for_kubernetes("1.32")
    assert tolerance_of(wanted, older) == Tolerance(form=older.tolerance_form)


def test_from_one_replica_a_behavior_allows_one_more() -> None:
    without = limit_by_doubling(1, 100, minimum=1, maximum=100)
    with_one = limit_by_behavior(
        1, 100, minimum=1, maximum=100, behavior=DEFAULTS, events=ScaleEvents(), now=0.0
    )
    assert (without.replicas, with_one.replicas) == (4, 5)
    assert without.reason == with_one.reason == "ScaleUpLimit"


def test_only_a_behavior_remembers() -> None:
    grown = record_change(ScaleEvents(), 4, 8, behavior=DEFAULTS, now=0.0)
    again = limit_by_behavior(
        8, 100, minimum=1, maximum=100, behavior=DEFAULTS, events=grown, now=14.0
    )
    later = limit_by_behavior(
        8, 100, minimum=1, maximum=100, behavior=DEFAULTS, events=grown, now=15.0
    )
    assert (again.replicas, later.replicas) == (8, 16)
    assert record_change(ScaleEvents(), 4, 8, behavior=None, now=0.0) == ScaleEvents()
    assert limit_by_doubling(8, 100, minimum=1, maximum=100).replicas == 16


def test_changes_of_both_directions_are_kept_apart() -> None:
    events = record_change(ScaleEvents(), 4, 8, behavior=DEFAULTS, now=0.0)
    events = record_change(events, 8, 5, behavior=DEFAULTS, now=5.0)
    assert events == ScaleEvents((ScaleEvent(4, 0.0),), (ScaleEvent(3, 5.0),))


def test_limits_equal_to_a_bound_are_the_bounds_fault() -> None:
    up = limit_by_behavior(
        5, 50, minimum=1, maximum=10, behavior=DEFAULTS, events=ScaleEvents(), now=0.0
    )
    assert (up.replicas, up.reason) == (10, "TooManyReplicas")
    down = limit_by_behavior(
        5, 0, minimum=0, maximum=10, behavior=DEFAULTS, events=ScaleEvents(), now=0.0
    )
    assert (down.replicas, down.reason) == (0, "DesiredWithinRange")


def test_a_disabled_direction_does_not_move() -> None:
    closed = Behavior().disabling(scale_up=True, scale_down=True).resolved(CONTROLLER)
    assert scale_up_limit(5, ScaleEvents(), closed.scale_up, 0.0) == 5
    assert scale_down_limit(5, ScaleEvents(), closed.scale_down, 0.0) == 5
    one = Behavior().disabling(scale_down=True).resolved(CONTROLLER)
    assert one.scale_up == DEFAULTS.scale_up


def test_percentages_round_towards_more_replicas_up_and_fewer_down() -> None:
    ten = ScalingRules((Policy(PolicyType.PERCENT, 10, 60),))
    resolved = Behavior(ten, ten).resolved(CONTROLLER)
    assert scale_up_limit(1, ScaleEvents(), resolved.scale_up, 0.0) == 2
    assert scale_down_limit(9, ScaleEvents(), resolved.scale_down, 0.0) == 8
    assert scale_down_limit(1, ScaleEvents(), resolved.scale_down, 0.0) == 0


def test_a_reused_event_slot_stays_marked_for_a_longer_policy() -> None:
    old = (ScaleEvent(7, 0.0, outdated=True), ScaleEvent(6, 0.0))
    after = store_event(old, 5, longest_period=600, now=61.0)
    assert after == (ScaleEvent(5, 61.0), ScaleEvent(6, 0.0))


def test_ages_at_the_edge() -> None:
    events = (ScaleEvent(3, 100.0),)
    assert change_within(events, 60, 160.0) == 0
    assert change_within(events, 60, 159.999) == 3
    assert len(store_event(events, 1, longest_period=60, now=160.0)) == 2
    assert len(store_event(events, 1, longest_period=60, now=160.001)) == 1


@pytest.mark.parametrize("start", [0.0, 30.3, 1_760_000_000.7])
def test_ages_ignore_the_residue_of_doubles(start: float) -> None:
    for periods in range(1, 60):
        now = start + periods * 15.1
        assert not younger_than(now - 15.1, 15.1, now)
        assert not older_than(now - 15.1, 15.1, now)


def test_a_window_ends_differently_on_the_two_paths() -> None:
    past = (Recommendation(9, 0.0),)
    without = stabilize_downscale(past, 3, window=300.0, now=300.0)
    with_one = stabilize(past, 3, current=9, behavior=DEFAULTS, now=300.0)
    assert (without.replicas, with_one.replicas) == (9, 3)
    assert (without.reason, with_one.reason) == ("ScaleDownStabilized", "ReadyForNewScale")
    assert stabilize_downscale(past, 3, window=300.0, now=300.001).replicas == 3
    assert stabilize(past, 3, current=9, behavior=DEFAULTS, now=299.9).replicas == 9


def test_what_is_stored_is_the_raw_proposal() -> None:
    past = (Recommendation(9, 0.0),)
    got = stabilize_downscale(past, 3, window=300.0, now=15.0)
    assert got.recommendations == (*past, Recommendation(3, 15.0))


def test_between_the_limits_nothing_moves() -> None:
    both = Behavior(
        ScalingRules(stabilization_window_seconds=60),
        ScalingRules(stabilization_window_seconds=60),
    ).resolved(CONTROLLER)
    past = (Recommendation(2, 0.0), Recommendation(8, 15.0))
    assert stabilize(past, 7, current=5, behavior=both, now=30.0).replicas == 5
    assert stabilize(past, 7, current=1, behavior=both, now=30.0).replicas == 2
    assert stabilize(past, 7, current=9, behavior=both, now=30.0).replicas == 8
    assert stabilize(past, 7, current=5, behavior=both, now=30.0).reason == "ScaleUpStabilized"
    assert stabilize(past, 3, current=9, behavior=both, now=30.0).reason == "ScaleDownStabilized"


def test_first_sight_records_the_replicas_and_an_empty_history_does_not() -> None:
    assert initial_recommendations(None, 5, 1.0) == (Recommendation(5, 1.0),)
    assert initial_recommendations((), 5, 1.0) == ()
