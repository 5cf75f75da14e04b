"""What is said beside the figures of a simulation."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from accelscale.lab.simulate.arrivals import Arrivals
from accelscale.lab.simulate.fleet import Silence
from accelscale.lab.simulate.remarks import assumptions, warnings
from accelscale.lab.simulate.run import Conditions, Simulation, simulate
from accelscale.lab.simulate.summary import summarize
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


def warned(found: Simulation) -> str:
    return "\n".join(warnings(found, summarize(found)))


def quiet(seconds: float = 1200.0) -> Arrivals:
    return steady(0.5, seconds, prompts=100, answers=100)


def test_the_assumptions_name_every_figure_that_decides() -> None:
    silences = (Silence(60.0, 300.0, 2),)
    found = simulated(quiet(), fixed(2), model(load_seconds=77.0), silences=silences, grace=9.0)
    text = "\n".join(assumptions(found))
    for part in (
        "10 ms for the weights",
        "1000 tokens a second, at most 1000 tokens a step",
        "At most 8 requests are in work at once",
        "a cache of 10000 tokens",
        "has 9 s to finish",
        "loads for 77 s, is Ready after 77 s",
        "100 W idle or loading, 300 W while one request gets its tokens, 0 W more",
        "and 500 W while prompts are read",
        "100 % without a pause",
        "reserved at start",
        "sampled every 1 s",
        "read every 15 s",
        "HPA tolerance 0.1 (band), KEDA 2.20.2",
        "From 60 s to 5 min no agent tells anything of the 2 oldest replicas",
    ):
        assert part in text


def test_a_sound_case_gives_no_warning() -> None:
    assert warned(simulated(quiet(), fixed(1), tail=60.0)) == ""


@pytest.mark.parametrize(
    ("arrivals", "wanted", "server", "conditions", "part"),
    [
        (
            quiet(),
            policy(metric="memory_used_percent", threshold="95"),
            SIMPLE,
            {},
            "memory_used_percent does not move once the model is loaded",
        ),
        (quiet(), fixed(1), model(load_seconds=400.0), {}, "loading takes 400 s, longer than"),
        (
            requests([1.0, 2.0], [9_999, 5], seconds=1000.0),
            fixed(1),
            SIMPLE,
            {},
            "1 requests were refused",
        ),
        (
            requests([1.0, 998.0], answers=5000, seconds=1000.0),
            fixed(1),
            SIMPLE,
            {"tail": 1.0},
            "1 requests were not done when the simulation ended, 1 s after",
        ),
        (quiet(600.0), fixed(1), SIMPLE, {}, "requests came for 10 min only"),
        (quiet(), fixed(6), SIMPLE, {}, "of the time that they were held"),
        (
            steady(40.0, 1200.0, prompts=100, answers=100),
            policy(spec={"maxReplicaCount": 2}),
            SIMPLE,
            {},
            "at maxReplicaCount (2) in",
        ),
        (
            quiet(),
            fixed(2),
            SIMPLE,
            {"silences": (Silence(300.0, 900.0, None),)},
            "no answer in",
        ),
        (
            requests([500.0], seconds=1000.0),
            policy(spec={"minReplicaCount": 0, "cooldownPeriod": 30}),
            SIMPLE,
            {},
            "stayed at 0 replicas while requests waited",
        ),
    ],
)
def test_what_looks_wrong_is_said(
    arrivals: Arrivals, wanted: Any, server: Any, conditions: dict[str, Any], part: str
) -> None:
    assert part in warned(simulated(arrivals, wanted, server, **conditions))


def test_requests_that_lost_their_replica_are_told() -> None:
    found = simulated(quiet(), fixed(1), tail=60.0)
    summary = attrs.evolve(summarize(found), begun_again=3)
    assert warnings(found, summary)[0].startswith("3 requests lost their replica and began again")


def test_triggers_are_told_apart_and_an_empty_answer_is_warned_of() -> None:
    document = manifest(threshold="95")
    document["spec"]["triggers"].append(queue_trigger("sum(vllm:num_requests_waiting)"))
    document["spec"]["triggers"].append({"type": "cron", "metadata": {}})
    wanted, signals = policy_with_signals(document)
    text = warned(simulate(quiet(), wanted, SIMPLE, Conditions(), signals))
    assert "trigger 0 (utilization_percent): threshold 95 can never scale out" in text
    assert "trigger 1 (sum(vllm:num_requests_waiting)): an empty answer of Prometheus" in text
    assert "trigger 2, cron was left out" in text


def test_notes_of_the_requests_come_first() -> None:
    noted = attrs.evolve(quiet(), notes=("trace.csv, line 3: left out",))
    found = simulated(noted, fixed(1), tail=60.0)
    assert warnings(found, summarize(found)) == ["trace.csv, line 3: left out"]
