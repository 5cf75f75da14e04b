"""Whole replays: the engine's numbers, the model's decisions."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from accelscale.errors import ConfigurationError, NoDataError, UnsupportedError
from accelscale.hpa import desired_replicas
from accelscale.lab.recording import Absence, Column
from accelscale.lab.replay import Conditions, Replay, Replayer
from accelscale.model import Reason
from lab.toys import policy, recording, replayed, step_at, wave

METRIC = "utilization_percent"


def counts(replay: Replay) -> list[int]:
    return [replicas for _, replicas in replay.changes()]


def at(replay: Replay, time: float) -> int:
    return [replicas for since, replicas in replay.changes() if since <= time][-1]


@pytest.mark.parametrize("level", [20.0, 40.0, 60.0, 77.0, 80.0, 95.0, 100.0])
@pytest.mark.parametrize("replicas", [1, 2, 4, 8])
def test_a_steady_load_ends_where_the_hpa_would_take_it(level: float, replicas: int) -> None:
    found = recording({METRIC: [level] * replicas}, seconds=900.0)
    expected = desired_replicas(level * replicas, 70, current=replicas)
    for metric_type in ("AverageValue", "Value"):
        outcome = replayed(found, policy(trigger={"metricType": metric_type}))
        if expected >= replicas:
            assert at(outcome, 60.0) == expected
        else:
            assert at(outcome, 299.0) == replicas
            # Once fewer are there the band is about them; the total stays as recorded.
            assert outcome.changes()[-1][1] <= replicas


def test_value_does_not_run_away_in_open_loop() -> None:
    found = recording({METRIC: [95.0] * 4}, seconds=1800.0)
    outcome = replayed(found, policy(trigger={"metricType": "Value"}))
    assert outcome.changes()[-1][1] == 6


def test_scaling_in_waits_for_the_stabilization_window() -> None:
    found = recording({METRIC: [step_at(600.0, 90.0, 20.0)] * 4}, seconds=2000.0)
    outcome = replayed(found, policy(window="15s"))
    assert at(outcome, 895.0) == 6
    assert at(outcome, 945.0) == 2
    quick = policy(
        spec={
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}
                }
            }
        }
    )
    assert at(replayed(found, quick), 645.0) == 2


def test_idle_work_goes_to_zero_after_the_cooldown_and_wakes_when_it_comes_back() -> None:
    load = step_at(600.0, 50.0, 0.0)
    found = recording({METRIC: [lambda t: load(t) + 50.0 * (t >= 2000.0)]}, seconds=2400.0)
    outcome = replayed(
        found, policy(spec={"minReplicaCount": 0, "cooldownPeriod": 300}, activationThreshold="5")
    )
    zero = [time for time, replicas in outcome.changes() if replicas == 0]
    assert zero == [930.0]  # idle seen at 630 (a poll), last active at 600: strictly 300 s past
    assert at(outcome, 2040.0) == 1


def test_idle_after_holds_the_replicas() -> None:
    found = recording({METRIC: [step_at(600.0, 50.0, 0.0)]}, seconds=3000.0)
    spec = {"minReplicaCount": 0, "cooldownPeriod": 60}
    plain = replayed(found, policy(spec=spec, activationThreshold="5"))
    held = replayed(found, policy(spec=spec, activationThreshold="5", idleAfter="20m"))
    assert [time for time, n in plain.changes() if n == 0] == [690.0]
    assert [time for time, n in held.changes() if n == 0] == [1860.0]


def test_a_lost_fleet_holds_its_replicas_and_is_not_idle() -> None:
    lost = [Absence(f"GPU-{n}", METRIC, 600.0, 1800.0, Reason.LOST, "Xid 79") for n in range(2)]
    found = recording({METRIC: [60.0, 60.0]}, seconds=2400.0, absences=lost)
    cut = {
        key: Column(*(part[(c.times < 600) | (c.times >= 1800)] for part in (c.times, c.values)))
        for key, c in found.columns.items()
    }
    outcome = replayed(
        evolve(found, columns=cut), policy(spec={"minReplicaCount": 0, "cooldownPeriod": 60})
    )
    assert counts(outcome) == [2]
    errors = [one.time for one in outcome.answered if one.errors]
    assert (errors[0], errors[-1]) == (600.0, 1785.0)
    assert all(one.values == (None,) for one in outcome.answered if one.errors)


def test_replicas_and_phases_are_free_inputs() -> None:
    found = recording({METRIC: [90.0] * 3}, seconds=200.0)
    outcome = replayed(found, policy(), replicas=1, sync_phase=7.0, poll_phase=3.0)
    assert outcome.changes()[:3] == [(0.0, 1), (7.0, 4)]
    late = replayed(found, policy(), replicas=1, sync_phase=100.0)
    assert late.changes()[1][0] == 100.0
    with pytest.raises(ConfigurationError, match="load_time"):
        Conditions(load_time=-1.0)
    with pytest.raises(ConfigurationError, match="replicas"):
        Conditions(replicas=-1)


def test_the_start_lies_within_the_bounds() -> None:
    found = recording({METRIC: [70.0] * 30}, seconds=60.0)
    assert replayed(found, policy()).start_replicas == 20
    few = recording({METRIC: [70.0]}, seconds=60.0)
    assert replayed(few, policy(spec={"minReplicaCount": 3})).start_replicas == 3


def test_a_paused_policy_is_refused() -> None:
    paused = policy()
    pause = evolve(paused.scaled_object.pause, paused=True)
    paused = evolve(paused, scaled_object=evolve(paused.scaled_object, pause=pause))
    with pytest.raises(UnsupportedError, match="is paused by an annotation"):
        replayed(recording({METRIC: [1.0]}), paused)


def test_closed_loop_grows_by_load_times_and_not_by_syncs() -> None:
    found = recording({METRIC: [100.0] * 8}, seconds=3600.0)
    outcome = replayed(found, policy(), closed_loop=True, replicas=1, load_time=120.0)
    rises = [time for time, _ in outcome.changes()[1:]]
    gaps = [later - earlier for earlier, later in pairwise(rises)]
    assert min(gaps) >= 120.0
    # 1 -> 2 -> 3 -> 5 -> 8 -> 12, as ceil(100 x n / 70) makes it while all are full.
    assert counts(outcome)[:6] == [1, 2, 3, 5, 8, 12]
    assert outcome.fleet is not None
    assert outcome.fleet.queue == 0


def test_closed_loop_never_leaves_saturation_above_90() -> None:
    found = recording({METRIC: [100.0] * 8}, seconds=3600.0)
    stuck = replayed(found, policy(threshold="91"), closed_loop=True, replicas=2)
    assert counts(stuck) == [2]
    assert stuck.fleet is not None
    assert stuck.fleet.queue == pytest.approx(6 * 3600, rel=0.01)


def test_closed_loop_and_open_loop_agree_where_nothing_is_short() -> None:
    found = recording({METRIC: [wave(20.0, 60.0, 3600.0)] * 6}, seconds=7200.0)
    open_, closed = (
        replayed(found, policy(), closed_loop=loop, load_time=0.0) for loop in (False, True)
    )
    assert abs(len(open_.changes()) - len(closed.changes())) <= 2
    for time in range(600, 7200, 600):
        assert abs(at(open_, float(time)) - at(closed, float(time))) <= 1


def test_at_zero_only_a_queue_wakes_a_closed_loop() -> None:
    load = step_at(600.0, 0.0, 60.0)
    found = recording({METRIC: [load]}, seconds=1800.0)
    wanted = policy(spec={"minReplicaCount": 0, "cooldownPeriod": 60}, activationThreshold="5")
    asleep = replayed(found, wanted, closed_loop=True)
    awake = replayed(found, wanted, closed_loop=True, wakes=True)
    assert counts(asleep)[-1] == 0
    assert asleep.fleet is not None
    assert asleep.fleet.queue > 0
    assert (600.0, 1) in awake.changes()


def test_closed_loop_refuses_what_it_cannot_model() -> None:
    found = recording({METRIC: [50.0], "memory_used_percent": [80.0]})
    with pytest.raises(UnsupportedError, match="how memory_used_percent would follow"):
        replayed(found, policy(metric="memory_used_percent"), closed_loop=True)


def test_a_metric_that_was_not_recorded_is_an_error_and_no_quiet_day() -> None:
    never = Absence("GPU-0", "power_watts", 0.0, 3600.0, Reason.PERMISSION, "ask the admin")
    found = recording({METRIC: [50.0]}, absences=[never])
    with pytest.raises(NoDataError, match=r"toy holds not one sample of power_watts \(ask the"):
        replayed(found, policy(metric="power_watts"))


def test_a_single_moment_cannot_be_replayed() -> None:
    with pytest.raises(NoDataError, match="holds a single moment"):
        replayed(recording({METRIC: [50.0]}, seconds=0.0), policy())


def test_several_triggers_are_answered_together() -> None:
    found = recording({METRIC: [50.0] * 2, "memory_used_percent": [95.0] * 2}, seconds=600.0)
    document: dict[str, Any] = {
        "metadata": {"name": "two"},
        "spec": {
            "maxReplicaCount": 20,
            "minReplicaCount": 1,
            "triggers": [
                {"type": "external", "metadata": {"metric": METRIC, "threshold": "70"}},
                {
                    "type": "external",
                    "metadata": {"metric": "memory_used_percent", "threshold": "60"},
                },
            ],
        },
    }
    from accelscale.lab.policy import read_policy

    outcome = replayed(found, read_policy(document))
    assert at(outcome, 60.0) == math.ceil(190 / 60)
    assert outcome.answered[-1].values == (100.0, 190.0)


@settings(max_examples=15, deadline=None)
@given(
    st.floats(0, 100),
    st.floats(0, 100),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from(["AverageValue", "Value"]),
)
def test_replicas_stay_within_their_bounds(
    low: float, high: float, devices: int, closed: bool, metric_type: str
) -> None:
    found = recording({METRIC: [wave(low, high, 400.0)] * devices}, seconds=900.0)
    wanted = policy(
        spec={"minReplicaCount": 2, "maxReplicaCount": 5}, trigger={"metricType": metric_type}
    )
    outcome = replayed(found, wanted, closed_loop=closed, load_time=30.0)
    assert all(2 <= replicas <= 5 for replicas in counts(outcome))


def test_a_replayer_gives_each_policy_what_a_new_one_would() -> None:
    found = recording({METRIC: [wave(10.0, 90.0, 1800.0)] * 4}, seconds=3600.0)
    shared = Replayer(found)
    for threshold in ("50", "70", "90"):
        again = shared.replay(policy(threshold=threshold)).changes()
        assert again == Replayer(found).replay(policy(threshold=threshold)).changes()
