"""A policy on a simulated fleet: the engine answers, KEDA and the HPA act on what it says."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import attrs
import numpy as np
import pytest

from accelscale.errors import ConfigurationError, UnsupportedError
from accelscale.hpa import Poll
from accelscale.lab.simulate.fleet import Silence
from accelscale.lab.simulate.run import Conditions, Simulation, seen, simulate
from accelscale.lab.simulate.summary import summarize
from accelscale.lab.simulate.synthetic import Rate, synthetic
from lab.simulate.cases import (
    SIMPLE,
    fixed,
    model,
    policy_with_signals,
    queue_trigger,
    requests,
    simulated,
    steady,
)
from lab.toys import manifest, policy

BUSY = {"prompts": 100, "answers": 80}
"""A request keeps a replica busy for a second, so that one a second fills it half or more."""


def replicas_at(found: Simulation, time: float) -> int:
    return [replicas for since, replicas in found.changes() if since <= time][-1]


def test_a_steady_load_finds_its_replicas_and_stays() -> None:
    # Eight a second, each of which alone is 0.9 s of work: batching makes a replica carry several.
    found = simulated(steady(8.0, 1500.0, **BUSY), policy(threshold="70"), tail=0.0)
    assert found.changes()[0] == (0.0, 1)
    counts = [replicas for time, replicas in found.changes() if time > 900]
    assert len(set(counts)) <= 1
    assert 2 <= replicas_at(found, 1500.0) <= 20
    late = found.first_token[-1000:] - found.arrivals.times[-1000:]
    assert np.nanmax(late) < 1.0


def test_every_answer_is_that_of_the_engine() -> None:
    """With all replicas alike and busy all the time, the sum is 100 a replica."""
    found = simulated(
        steady(50.0, 300.0, prompts=100, answers=100), fixed(3), tail=0.0, interval=1.0
    )
    last = found.answered[-1]
    assert last.values == (pytest.approx(300.0, abs=1.0),)
    assert last.active == (True,)
    assert last.activation == (pytest.approx(100.0, abs=1.0),)


def test_idle_replicas_are_idle_and_measured() -> None:
    found = simulated(requests([1.0], seconds=300.0), fixed(2), tail=0.0)
    assert found.answered[-1].values == (0.0,)
    assert found.answered[-1].active == (False,)
    assert found.answered[-1].errors == ()


def test_the_same_case_gives_the_same_numbers() -> None:
    arrivals = synthetic(Rate(1.0, 8.0, 600.0), seconds=900.0, seed=3)
    one, same = (simulated(arrivals, policy(threshold="60")) for _ in range(2))
    assert one.changes() == same.changes()
    assert summarize(one) == summarize(same)
    assert one.fleet.finished == same.fleet.finished


def test_a_faulted_agent_does_not_shrink_the_fleet() -> None:
    """All agents silent for 8 minutes, longer than the HPA's hindsight and KEDA's cooldown."""
    arrivals = steady(8.0, 2400.0, **BUSY)
    wanted = policy(threshold="70", spec={"minReplicaCount": 0, "cooldownPeriod": 60})
    healthy = simulated(arrivals, wanted, tail=0.0)
    silent = simulated(arrivals, wanted, tail=0.0, silences=(Silence(1200.0, 1680.0, None),))
    assert replicas_at(healthy, 1199.0) >= 2
    before = replicas_at(silent, 1199.0)
    assert before == replicas_at(healthy, 1199.0)
    during = [replicas for time, replicas in silent.changes() if 1200 <= time <= 1800]
    assert all(replicas >= before for replicas in during)
    unanswered = [one for one in silent.answered if 1210 <= one.time < 1680]
    assert unanswered
    assert all(one.errors and one.values == (None,) for one in unanswered)
    assert summarize(silent).no_data_share > summarize(healthy).no_data_share
    # KEDA was told of an error, not of idleness.
    polls = [
        turn.outcome
        for turn in silent.turns
        if isinstance(turn.outcome, Poll) and 1210 <= turn.time < 1680
    ]
    assert all(poll.errors and poll.replicas >= before for poll in polls)


def test_one_silent_replica_is_filled_in_and_the_fleet_holds() -> None:
    arrivals = steady(8.0, 2400.0, **BUSY)
    wanted = policy(threshold="70")
    healthy = simulated(arrivals, wanted, tail=0.0)
    silences = (Silence(1200.0, 1800.0, 1),)
    silent = simulated(arrivals, wanted, tail=0.0, silences=silences)
    before = replicas_at(healthy, 1199.0)
    assert before >= 3
    assert all(replicas >= before for time, replicas in silent.changes() if 1200 <= time <= 1800)
    answers = [one for one in silent.answered if 1210 <= one.time < 1800]
    assert not any(one.errors for one in answers)


def test_the_load_going_away_shrinks_the_fleet_in_spite_of_an_earlier_fault() -> None:
    times = [*np.arange(0.5, 1200.0, 0.125).tolist()]
    arrivals = requests(times, 100, 80, seconds=2400.0)
    found = simulated(
        arrivals, policy(threshold="70"), tail=0.0, silences=(Silence(900.0, 1100.0, None),)
    )
    assert replicas_at(found, 1150.0) >= 2
    assert replicas_at(found, 2399.0) == 1


def test_a_loading_replica_is_not_taken_for_an_idle_one() -> None:
    found = simulated(
        steady(20.0, 900.0, **BUSY), policy(threshold="70"), model(load_seconds=240.0), tail=0.0
    )
    ups = [after >= before for (_, before), (_, after) in pairwise(found.changes())]
    assert ups
    assert all(ups)


def test_a_queue_wakes_a_workload_from_zero_and_utilisation_does_not() -> None:
    arrivals = requests(np.arange(400.0, 700.0, 0.5).tolist(), seconds=900.0)
    spec = {"minReplicaCount": 0, "cooldownPeriod": 60}
    asleep = simulated(arrivals, policy(spec=spec), tail=300.0, replicas=1)
    assert asleep.changes()[-1][1] == 0
    assert not np.isfinite(asleep.finished).any()
    document = manifest(spec=spec)
    document["spec"]["triggers"].append(
        {"type": "kafka", "name": "inbox", "metadata": {"threshold": "5"}}
    )
    wanted, signals = policy_with_signals(document, inbox="requests_waiting")
    awake = simulate(arrivals, wanted, SIMPLE, Conditions(tail=300.0), signals)
    assert np.isfinite(awake.finished).all()
    assert summarize(awake).starts_from_zero == 1
    # What the servers show of their queue is nothing without a server.
    document["spec"]["triggers"][1] = queue_trigger("sum(vllm:num_requests_waiting)")
    wanted, signals = policy_with_signals(document)
    still = simulate(arrivals, wanted, SIMPLE, Conditions(tail=300.0), signals)
    assert not np.isfinite(still.finished).any()


def test_no_number_without_a_server_is_an_error_where_the_user_wants_that() -> None:
    document = manifest(spec={"minReplicaCount": 0})
    document["spec"]["triggers"][0] = queue_trigger(
        "sum(vllm:num_requests_waiting)", ignoreNullValues="false"
    )
    document["spec"]["triggers"].append(
        {
            "type": "external",
            "metadata": {"metric": "utilization_percent", "threshold": "70", "idleAfter": "1m"},
        }
    )
    wanted, signals = policy_with_signals(document)
    found = simulate(
        requests([1.0], seconds=600.0), wanted, SIMPLE, Conditions(replicas=0), signals
    )
    assert all("no replica serves" in one.errors[0] for one in found.answered)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_greatest_of_several_triggers_wins(seed: int) -> None:
    arrivals = synthetic(Rate(2.0, 14.0, 900.0), seconds=1800.0, seed=seed)
    alone = simulated(arrivals, policy(threshold="80"), tail=0.0)
    document = manifest(threshold="80")
    document["spec"]["triggers"].append(queue_trigger("sum(vllm:num_requests_waiting)", "2"))
    wanted, signals = policy_with_signals(document)
    both = simulate(arrivals, wanted, SIMPLE, Conditions(tail=0.0), signals)
    for turn, answered in zip(both.turns, both.answered, strict=False):
        assert len(answered.values) == 2
        assert turn.replicas >= 1
    assert summarize(both).device_hours >= summarize(alone).device_hours
    assert (summarize(both).late_share or 0) <= (summarize(alone).late_share or 0)


def test_memory_that_is_reserved_never_scales_in() -> None:
    found = simulated(
        requests([1.0], seconds=1500.0),
        policy(metric="memory_used_percent", threshold="60"),
        tail=0.0,
    )
    assert replicas_at(found, 1499.0) > 1  # 90 % against 60 %, with no work at all


def test_memory_that_is_taken_as_needed_tells_the_load() -> None:
    server = model(reserves_cache=False, step_seconds=0.05)
    wanted = policy(metric="memory_used_percent", threshold="40")
    idle = simulated(requests([1.0], seconds=900.0), wanted, server, tail=0.0)
    busy = simulated(steady(2.0, 900.0, prompts=800, answers=120), wanted, server, tail=0.0)
    assert replicas_at(idle, 899.0) == 1
    assert replicas_at(busy, 899.0) > 1


def test_under_value_the_same_replicas_are_asked_for() -> None:
    arrivals = steady(8.0, 1200.0, **BUSY)
    average = simulated(arrivals, policy(threshold="70"), tail=0.0)
    value = simulated(
        arrivals,
        policy(threshold="70", metricType="Value", trigger={"metricType": "Value"}),
        tail=0.0,
    )
    assert replicas_at(value, 1199.0) == replicas_at(average, 1199.0)


def test_replicas_are_those_of_the_models_pods() -> None:
    """The fleet and the model of the HPA agree on how many there are and which are Ready."""
    found = simulated(steady(12.0, 900.0, **BUSY), policy(threshold="60"), tail=0.0)
    trigger = found.policy.triggers[0]
    _, workload = seen(found.fleet, trigger, found.seconds)
    assert len(workload.replicas) == found.changes()[-1][1] > 1
    assert all(len(replica.devices) == found.model.devices for replica in workload.replicas)
    for turn in found.turns:
        created = [r.created for r in found.fleet.all_replicas if r.created <= turn.time]
        assert turn.found.ready <= turn.found.status <= len(created)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"metric": "temperature_celsius", "threshold": "70"}, "temperature_celsius would read"),
        ({"vendor": "nvidia"}, "vendor of a trigger means nothing"),
    ],
)
def test_what_the_model_cannot_tell_is_refused(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnsupportedError, match=problem):
        simulated(requests([1.0]), policy(**keys))


def test_a_paused_policy_is_refused() -> None:
    paused = policy()
    stopped = attrs.evolve(paused.scaled_object.pause, paused=True)
    with pytest.raises(UnsupportedError, match="paused"):
        simulated(
            requests([1.0]),
            attrs.evolve(paused, scaled_object=attrs.evolve(paused.scaled_object, pause=stopped)),
        )


def test_conditions_that_cannot_be_are_refused_together() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Conditions(replicas=-1, grace=-2.0, interval=0.0)
    assert {fault.key for fault in caught.value.faults} == {"replicas", "grace", "interval"}
