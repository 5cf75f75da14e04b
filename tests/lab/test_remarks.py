"""Each warning where it belongs, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from accelscale.lab.recording import Absence, Column, Recording
from accelscale.lab.remarks import assumptions, warnings
from accelscale.lab.summary import summarize
from accelscale.model import Reason
from lab.toys import policy, recording, replayed, step_at, wave

METRIC = "utilization_percent"
CALM = recording({METRIC: [wave(30.0, 66.0, 3600.0)] * 4}, seconds=7200.0)


def remarks(found: Recording, wanted: Any = None, **conditions: Any) -> list[str]:
    outcome = replayed(found, wanted or policy(), **conditions)
    return warnings(outcome, summarize(outcome))


def test_a_sound_policy_on_a_calm_day_needs_no_warning() -> None:
    assert remarks(CALM) == []
    assert remarks(CALM, closed_loop=True) == []


def lost() -> Recording:
    gone = Absence("GPU-0", METRIC, 3000.0, 7200.0, Reason.LOST, "Xid 79")
    found = recording({METRIC: [60.0]}, seconds=7200.0, absences=[gone])
    columns = {k: Column(c.times[:3000], c.values[:3000]) for k, c in found.columns.items()}
    return evolve(found, columns=columns)


ZERO = {"minReplicaCount": 0, "cooldownPeriod": 60}
QUICK = {
    "advanced": {
        "horizontalPodAutoscalerConfig": {
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}
        }
    }
}


@pytest.mark.parametrize(
    ("found", "wanted", "conditions", "text"),
    [
        (CALM, {"replicaAggregation": "mean"}, {}, "the HPA divides by the replicas once more"),
        (CALM, {"threshold": "95"}, {}, "threshold 95 can never scale out"),
        (CALM, {"podSelector": "app=web"}, {}, "podSelector was not applied"),
        (CALM, {}, {"load_time": 600.0}, "longer than the 300 s for which the HPA remembers"),
        (evolve(CALM, end=500.0), {}, {}, "is 500 s long, and the policy looks back 300 s"),
        (evolve(CALM, notes=("left out 3 readings",)), {}, {}, "left out 3 readings"),
        (
            recording({METRIC: [wave(30, 66, 3600)] * 2}, seconds=7200.0, interval=57.0),
            {},
            {},
            "window 15 s is shorter than the 57 s between two readings",
        ),
        (lost(), {}, {}, "no answer in 58% of the time, for example: no fresh utilization"),
        (
            recording({METRIC: [100.0] * 2}, seconds=7200.0),
            {"spec": {"maxReplicaCount": 2}},
            {},
            "saturated in 100% of the time",
        ),
        (
            recording({METRIC: [100.0] * 2}, seconds=7200.0),
            {},
            {},
            "every recorded device was full in 100% of the time",
        ),
        (
            recording({METRIC: [95.0] * 2}, seconds=7200.0),
            {"spec": {"maxReplicaCount": 2}},
            {},
            "at maxReplicaCount (2) in 100% of the time, above the threshold in 100%",
        ),
        (
            recording({METRIC: [75.0] * 2}, seconds=7200.0),
            {},
            {},
            "above the threshold in 100% of the time",
        ),
        (
            CALM,
            {"activationThreshold": "68", "threshold": "70"},
            {},
            "never above activationThreshold 68",
        ),
        (CALM, {"spec": ZERO}, {}, "always active: utilization_percent never stayed at or below"),
        (
            recording({METRIC: [wave(40, 100, 300)] * 4}, seconds=7200.0),
            {"spec": QUICK, "window": "1s"},
            {},
            "flapping: ",
        ),
        (
            recording({METRIC: [step_at(3600.0, 0.0, 60.0)]}, seconds=7200.0),
            {"spec": ZERO},
            {},
            "woke from 0 1 times on the recorded activity, which no device shows at 0 replicas",
        ),
        (
            recording({METRIC: [step_at(3600.0, 0.0, 60.0)]}, seconds=7200.0),
            {"spec": ZERO},
            {"closed_loop": True},
            "stayed at 0 replicas once there",
        ),
        (
            lost(),
            {"spec": {"fallback": {"failureThreshold": 3, "replicas": 2}}},
            {},
            "the fallback was in force",
        ),
    ],
)
def test_what_looks_wrong_is_said(
    found: Recording, wanted: dict[str, Any], conditions: dict[str, Any], text: str
) -> None:
    assert any(text in remark for remark in remarks(found, policy(**wanted), **conditions))
    assert not any(text in remark for remark in remarks(CALM))


def test_triggers_that_were_left_out_are_named() -> None:
    wanted = evolve(policy(), left_out=("trigger 1, prometheus",))
    assert any("trigger 1, prometheus was left out" in text for text in remarks(CALM, wanted))


def test_the_model_of_the_demand_is_told_in_full() -> None:
    closed = " ".join(assumptions(replayed(CALM, policy(), closed_loop=True, load_time=90.0)))
    for thought in (
        "the recorded work is conserved and spread evenly",
        "full at 100 %",
        "one queue without a limit, which nobody leaves",
        "reads 0 % while it loads (90 s)",
        "is Ready after 90 s",
        "nothing wakes the workload",
        "Polls begin at 0 s",
        "HPA tolerance 0.1 (band), KEDA 2.20.2",
        "each recorded device (or group of them) counts as one replica",
    ):
        assert thought in closed
    open_ = " ".join(assumptions(replayed(CALM, evolve(policy(), pushes=True), replicas=3)))
    assert "Open loop: value and activity are those of the recorded replicas" in open_
    assert "with 3 Ready replicas" in open_
    assert "external-push is replayed as external" in open_
    assert "conserved" not in open_
    awake = assumptions(replayed(CALM, policy(), closed_loop=True, wakes=True))
    assert any("a queue in front of the workload wakes it" in text for text in awake)
