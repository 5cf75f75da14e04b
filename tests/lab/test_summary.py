from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from attrs import evolve

from accelscale.lab.recording import Absence, Column
from accelscale.lab.summary import power_model, replicas_at, summarize, timeline
from accelscale.model import Reason
from lab.toys import policy, recording, replayed, step_at, wave

METRIC = "utilization_percent"


def test_hours_add_up_to_what_the_changes_say() -> None:
    found = recording({METRIC: [step_at(600.0, 30.0, 95.0)] * 2}, seconds=3600.0)
    outcome = replayed(found, policy())
    changes = [*outcome.changes(), (3600.0, 0)]
    expected = sum((end - start) * n for (start, n), (end, _) in pairwise(changes))
    figures = summarize(outcome)
    assert figures.replica_hours == pytest.approx(expected / 3600)
    assert figures.device_hours == figures.replica_hours
    assert figures.replicas_mean == pytest.approx(expected / 3600)
    assert figures.hours == 1.0
    grouped = summarize(replayed(found, policy(), devices_per_replica=2))
    assert grouped.device_hours == pytest.approx(2 * grouped.replica_hours)


def test_events_starts_and_stops_are_counted() -> None:
    load = wave(0.0, 100.0, 1200.0)
    found = recording({METRIC: [lambda t: np.where(load(t) < 20, 0.0, load(t))]}, seconds=4800.0)
    spec = {
        "minReplicaCount": 0,
        "cooldownPeriod": 30,
        "advanced": {
            "horizontalPodAutoscalerConfig": {
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}
            }
        },
    }
    outcome = replayed(found, policy(spec=spec, activationThreshold="5"))
    figures = summarize(outcome)
    counts = [n for _, n in outcome.changes()]
    ups = [b - a for a, b in pairwise(counts) if b > a]
    assert figures.scale_ups == len(ups)
    assert figures.replicas_started == sum(ups)
    assert figures.scale_ups + figures.scale_downs == len(counts) - 1
    assert figures.stops_to_zero == counts.count(0) >= 3
    assert figures.starts_from_zero >= 3
    assert figures.flaps > 0
    assert figures.replicas_least == 0
    assert 0.0 < (figures.active_share or 0.0) < 1.0


def test_overload_is_timed_until_more_replicas_have_loaded() -> None:
    found = recording({METRIC: [step_at(607.0, 40.0, 100.0)] * 2}, seconds=1800.0)
    figures = summarize(replayed(found, policy(), load_time=90.0))
    assert figures.reactions == 1
    # Seen above the tolerance at the sync that acts on it, so only loading is left.
    assert figures.reaction_median_seconds == figures.reaction_longest_seconds == 90.0
    limited = policy(spec={"maxReplicaCount": 2})
    stuck = summarize(replayed(found, limited))
    assert stuck.reactions == 0
    assert stuck.reaction_median_seconds is None
    assert stuck.at_maximum_share == 1.0
    assert stuck.above_threshold_share == pytest.approx(1190 / 1800, abs=0.02)


def test_open_loop_misses_what_the_replicas_had_no_room_for() -> None:
    found = recording({METRIC: [100.0] * 4}, seconds=3600.0)
    figures = summarize(replayed(found, policy(spec={"maxReplicaCount": 3}), replicas=3))
    assert figures.work_device_hours == pytest.approx(4.0, rel=0.01)
    assert figures.missed_device_hours == pytest.approx(1.0, rel=0.01)
    assert figures.missed_share == pytest.approx(0.25, rel=0.01)
    assert figures.saturated_share == 1.0
    assert figures.longest_wait_seconds is None
    assert figures.left_device_hours is None


def test_closed_loop_tells_what_waited_and_what_is_left() -> None:
    found = recording({METRIC: [100.0] * 4}, seconds=3600.0)
    limited = policy(spec={"maxReplicaCount": 3})
    figures = summarize(replayed(found, limited, closed_loop=True, replicas=3))
    assert figures.left_device_hours == pytest.approx(1.0, rel=0.01)
    assert figures.longest_wait_seconds == pytest.approx(1200.0, rel=0.01)
    assert figures.saturated_share == 1.0
    enough = summarize(replayed(found, policy(threshold="60"), closed_loop=True))
    assert enough.left_device_hours == 0.0


def test_energy_follows_the_power_that_was_recorded() -> None:
    load = wave(0.0, 100.0, 900.0)
    found = recording(
        {METRIC: [load] * 4, "power_watts": [lambda t: 80.0 + 5.0 * load(t)] * 4}, seconds=3600.0
    )
    model = power_model(found, METRIC)
    assert model is not None
    assert (model.idle_watts, model.busy_watts) == pytest.approx((80.0, 580.0))
    fixed = policy(spec={"minReplicaCount": 4, "maxReplicaCount": 4})
    figures = summarize(replayed(found, fixed))
    assert figures.energy_kilowatt_hours == pytest.approx(4 * (80 + 250) / 1000, rel=0.01)
    twice = policy(spec={"minReplicaCount": 8, "maxReplicaCount": 8})
    more = summarize(replayed(found, twice))
    assert more.energy_kilowatt_hours == pytest.approx((8 * 80 + 4 * 250) / 1000, rel=0.01)


def test_power_that_says_nothing_about_work_is_taken_as_it_is() -> None:
    steady = recording({METRIC: [50.0], "power_watts": [300.0]})
    falling = recording({METRIC: [wave(0, 100, 600)], "power_watts": [wave(300, 100, 600)]})
    for found, watts in ((steady, 300.0), (falling, 200.0)):
        model = power_model(found, METRIC)
        assert model is not None
        assert model.idle_watts == model.busy_watts == pytest.approx(watts, rel=0.01)


def test_what_the_recording_does_not_tell_is_none_and_never_0() -> None:
    found = recording({"memory_used_percent": [60.0, 60.0]}, seconds=600.0)
    outcome = replayed(found, policy(metric="memory_used_percent"))
    figures = summarize(outcome)
    assert outcome.work is None
    for name in (
        "energy_kilowatt_hours",
        "saturated_share",
        "work_device_hours",
        "missed_device_hours",
        "missed_share",
    ):
        assert getattr(figures, name) is None
    assert summarize(replayed(recording({METRIC: [1.0]}), policy())).energy_kilowatt_hours is None


def test_time_without_an_answer_is_told_and_no_part_of_the_shares() -> None:
    found = recording(
        {METRIC: [90.0]},
        seconds=1000.0,
        absences=[Absence("GPU-0", METRIC, 500.0, 1000.0, Reason.LOST)],
    )
    columns = {k: Column(c.times[:500], c.values[:500]) for k, c in found.columns.items()}
    limited = policy(spec={"maxReplicaCount": 1})
    figures = summarize(replayed(evolve(found, columns=columns), limited))
    assert figures.no_data_share == pytest.approx(0.49, abs=0.01)
    assert figures.above_threshold_share == 1.0


def test_replicas_that_load_are_not_those_that_serve() -> None:
    found = recording({METRIC: [step_at(600.0, 50.0, 100.0)] * 2}, seconds=1800.0)
    line = timeline(replayed(found, policy(), load_time=100.0))
    first = int(np.argmax(line.wanted > 2))
    assert line.serving[first] == 2
    assert line.serving[first + 99] == 2
    assert line.serving[first + 101] == 3
    times = np.array([0.0, 10.0, 10.5, 99.0])
    assert replicas_at([(0.0, 1), (10.0, 4)], times).tolist() == [1, 4, 4, 4]
