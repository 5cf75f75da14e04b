"""Figures of a simulation, and how they are said."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale.lab.simulate import report
from accelscale.lab.simulate.remarks import assumptions, warnings
from accelscale.lab.simulate.run import Simulation
from accelscale.lab.simulate.series import recorded
from accelscale.lab.simulate.summary import Percentiles, percentiles, summarize
from lab.simulate.cases import fixed, model, requests, simulated, steady
from lab.toys import policy


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    """Two replicas, of which the second is wanted only for a time."""
    arrivals = steady(6.0, 1200.0, prompts=100, answers=80)
    return simulated(arrivals, policy(threshold="80", spec={"maxReplicaCount": 4}), tail=60.0)


def test_percentiles_are_latencies_that_a_request_had() -> None:
    values = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
    assert percentiles(values) == Percentiles(3.0, 5.0, 5.0)
    assert percentiles(np.empty(0)) == Percentiles(None, None, None)


def test_who_is_never_served_counts_as_the_slowest() -> None:
    assert percentiles(np.array([1.0, 2.0, 3.0, math.nan])) == Percentiles(2.0, None, None)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_percentiles_rise(values: list[float]) -> None:
    found = percentiles(np.array(values))
    assert found.p50 is not None
    assert found.p95 is not None
    assert found.p99 is not None
    assert min(values) <= found.p50 <= found.p95 <= found.p99 == max(values) or len(values) > 99


def test_every_request_is_accounted_for(simulation: Simulation) -> None:
    summary = summarize(simulation)
    assert summary.requests == summary.completed + summary.unfinished + summary.refused
    assert summary.generated_tokens >= int(simulation.arrivals.answer_tokens.sum())
    served = simulation.fleet.served_by
    assert sum(number >= 0 for number in served) == summary.completed


def test_hours_energy_and_busy_time_follow_from_the_replicas(simulation: Simulation) -> None:
    summary = summarize(simulation)
    wanted = summary.replica_hours
    assert summary.device_hours == pytest.approx(wanted, abs=0.02)  # what drained is on top
    kept = recorded(simulation)
    energy = 0.0
    for (_, metric), column in kept.columns.items():
        if metric == "power_watts":
            energy += float(np.dot(np.diff(column.times), column.values[1:]))
    assert summary.energy_kilowatt_hours == pytest.approx(energy / 3.6e6, rel=0.01)
    assert summary.joules_per_token == pytest.approx(
        summary.energy_kilowatt_hours * 3.6e6 / summary.generated_tokens
    )
    assert summary.busy_share is not None
    assert 0 < summary.busy_share < 1


def test_devices_of_a_replica_all_count() -> None:
    arrivals = steady(1.0, 600.0)
    one = summarize(simulated(arrivals, fixed(2), model(devices=1), tail=0.0))
    four = summarize(simulated(arrivals, fixed(2), model(devices=4), tail=0.0))
    assert four.device_hours == pytest.approx(4 * one.device_hours)
    assert four.energy_kilowatt_hours == pytest.approx(4 * one.energy_kilowatt_hours)
    assert four.busy_share == pytest.approx(one.busy_share)


def test_late_requests_are_those_beyond_the_objective() -> None:
    found = simulated(requests([1.0, 1.001, 1.002], prompts=900, seconds=60.0), fixed(1), tail=0.0)
    waits = np.sort(found.first_token - found.arrivals.times)
    between = float(waits[0] + waits[1]) / 2
    assert summarize(found, objective=between).late_share == pytest.approx(2 / 3)
    assert summarize(found, objective=60.0).late_share == 0.0
    never = simulated(requests([59.99], prompts=900, seconds=60.0), fixed(1), tail=0.0)
    assert summarize(never, objective=60.0).late_share == 1.0


def test_figures_are_labelled_with_their_units(simulation: Simulation) -> None:
    summary = summarize(simulation)
    figures = dict(report.labelled(summary, 2.0))
    assert figures["requests"].startswith(str(summary.requests))
    assert "kWh" in figures["energy"]
    assert "first token after 2 s" in figures
    assert all(text and text != "-" for text in figures.values())


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "not in time"), (0.0123, "12.3 ms"), (0.1, "0.1 s"), (12.0, "12 s")],
)
def test_latencies_in_words(value: float | None, text: str) -> None:
    assert report.seconds(value) == text


def test_the_record_is_json(simulation: Simulation) -> None:
    summary = summarize(simulation)
    record = report.simulation_record(simulation, summary, warnings(simulation, summary))
    same = json.loads(json.dumps(record, allow_nan=False))
    assert same["summary"]["first_token"]["p95"] == summary.first_token.p95
    assert same["changes"][0] == [0.0, 1]
    assert same["server"]["max_requests"] == simulation.model.max_requests
    assert sum(one["served"] for one in same["replicas"]) == summary.completed
    assert same["assumptions"] == assumptions(simulation)


def test_the_subtitle_tells_what_was_simulated(simulation: Simulation) -> None:
    text = report.subtitle(simulation.arrivals, simulation.model)
    assert "7200 requests" in text
    assert "6 a second" in text
    assert text.endswith("simple on 1 device a replica")
