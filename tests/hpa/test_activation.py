"""The operator's writes: cooldown, initial cooldown, idle, errors, pauses."""

from __future__ import annotations

import pytest
from attrs import evolve

from accelscale.errors import ConfigurationError
from accelscale.hpa import (
    Action,
    Decision,
    Fallback,
    KedaTrigger,
    Pause,
    ScaledObject,
    decide,
)

TRIGGER = KedaTrigger("load", 70.0)
ZERO = ScaledObject((TRIGGER,))
IDLE = ScaledObject((TRIGGER,), min_replicas=5, idle_replicas=0)


def turn(
    scaled_object: ScaledObject,
    replicas: int,
    *,
    active: bool = False,
    error: bool = False,
    last_active: float | None = None,
    now: float = 1000.0,
) -> Decision:
    return decide(scaled_object, replicas, last_active, active=active, error=error, now=now)


def test_activation_leads_to_one_or_the_minimum() -> None:
    assert turn(ZERO, 0, active=True) == Decision(1, 1000.0, Action.ACTIVATED)
    assert turn(IDLE, 0, active=True) == Decision(5, 1000.0, Action.ACTIVATED)
    assert turn(IDLE, 3, active=True).replicas == 5
    without_idle = evolve(IDLE, idle_replicas=None)
    assert turn(without_idle, 3, active=True) == Decision(3, 1000.0, Action.REFRESHED)


def test_activity_is_not_refreshed_while_another_trigger_fails() -> None:
    got = turn(ZERO, 4, active=True, error=True, last_active=400.0)
    assert got == Decision(4, 400.0, Action.PARTIAL_ERROR)
    assert turn(ZERO, 0, active=True, error=True).replicas == 1


@pytest.mark.parametrize(("now", "expected"), [(1300.0, 7), (1300.5, 0), (1330.0, 0)])
def test_the_cooldown_must_be_strictly_past(now: float, expected: int) -> None:
    assert turn(ZERO, 7, last_active=1000.0, now=now).replicas == expected


def test_times_of_the_status_are_whole_seconds() -> None:
    got = turn(ZERO, 4, active=True, now=1000.9)
    assert got.last_active == 1000.0


def test_to_zero_in_one_step_from_any_count() -> None:
    got = turn(ZERO, 10, last_active=0.0)
    assert got == Decision(0, 0.0, Action.DEACTIVATED)


def test_what_was_never_active_waits_for_the_initial_cooldown_only() -> None:
    assert turn(evolve(ZERO, created=0.0), 10, now=1.0).replicas == 0
    slow = evolve(ZERO, created=0.4, initial_cooldown_period=120.0)
    assert turn(slow, 10, now=120.0).action is Action.COOLING_DOWN
    assert turn(slow, 10, now=120.3).replicas == 0


def test_idle_mode() -> None:
    assert turn(IDLE, 10, last_active=0.0).replicas == 0
    assert turn(IDLE, 0) == Decision(0, None, Action.NONE)
    two = ScaledObject((TRIGGER,), min_replicas=5, idle_replicas=2)
    assert turn(two, 10, last_active=0.0).replicas == 2
    assert turn(two, 2, last_active=0.0).action is Action.NONE
    assert turn(two, 2, active=True).replicas == 5


def test_below_the_minimum_without_idle_mode() -> None:
    three = ScaledObject((TRIGGER,), min_replicas=3)
    assert turn(three, 1) == Decision(3, None, Action.RAISED_TO_MINIMUM)
    assert turn(three, 8, last_active=0.0) == Decision(8, 0.0, Action.NONE)
    assert turn(ZERO, 0) == Decision(0, None, Action.NONE)


def test_an_error_holds_and_does_not_count_as_inactivity() -> None:
    assert turn(ZERO, 8, error=True, last_active=0.0) == Decision(8, 0.0, Action.ERROR)
    awaiting = evolve(ZERO, fallback=Fallback(3, 6))
    got = turn(awaiting, 8, error=True, last_active=0.0)
    assert got == Decision(8, 0.0, Action.AWAITS_FALLBACK)


def test_a_fallback_of_zero_replicas_is_not_protected() -> None:
    unprotected = evolve(ZERO, fallback=Fallback(3, 0))
    assert turn(unprotected, 8, error=True, last_active=0.0).replicas == 0


def test_the_first_inactive_answer_after_a_long_outage_scales_to_zero() -> None:
    outage = turn(ZERO, 5, error=True, last_active=600.0, now=1500.0)
    assert outage.replicas == 5
    assert turn(ZERO, 5, last_active=outage.last_active, now=1530.0).replicas == 0


def test_force_activation() -> None:
    forced = evolve(ZERO, force_activation=True)
    assert turn(forced, 0).replicas == 1
    assert turn(forced, 3).action is Action.REFRESHED


def test_pauses() -> None:
    stopped = evolve(ZERO, pause=Pause(paused=True))
    assert turn(stopped, 0, active=True) == Decision(0, None, Action.PAUSED)
    no_in = evolve(ZERO, pause=Pause(scale_in=True))
    assert turn(no_in, 5, last_active=0.0).action is Action.SCALE_IN_PAUSED
    assert turn(no_in, 0, active=True).replicas == 1
    no_out = evolve(ZERO, pause=Pause(scale_out=True))
    assert turn(no_out, 0, active=True).action is Action.SCALE_OUT_PAUSED
    assert turn(no_out, 5, last_active=0.0).replicas == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("1", True), ("yes", True), ("", True), ("false", False), ("F", False)],
)
def test_annotation_text_that_is_no_boolean_counts_as_true(text: str, expected: bool) -> None:
    pause = Pause.from_annotations({"autoscaling.keda.sh/paused": text})
    assert pause.paused is pause.stops is expected


def test_annotations() -> None:
    annotations = {
        "autoscaling.keda.sh/paused-replicas": "3",
        "autoscaling.keda.sh/paused-scale-in": "true",
        "autoscaling.keda.sh/paused-scale-out": "nonsense",
    }
    assert Pause.from_annotations(annotations) == Pause(replicas=3, scale_in=True, scale_out=True)
    assert Pause.from_annotations({}) == Pause()
    for text in ("-1", "two", "٣", ""):
        with pytest.raises(ConfigurationError, match="whole number"):
            Pause.from_annotations({"autoscaling.keda.sh/paused-replicas": text})


def test_every_fault_of_a_scaled_object_is_reported() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ScaledObject(
            (TRIGGER,), min_replicas=-1, max_replicas=0, idle_replicas=3, polling_interval=0.0
        )
    assert [fault.key for fault in caught.value.faults] == [
        "minReplicaCount",
        "maxReplicaCount",
        "idleReplicaCount",
        "pollingInterval",
    ]
    with pytest.raises(ConfigurationError, match="less than minReplicaCount"):
        ScaledObject((TRIGGER,), min_replicas=2, idle_replicas=2)
