"""Several policies on the same requests: the ranking, and its picture."""

from __future__ import annotations

from pathlib import Path

import attrs
import matplotlib.image
import pytest

from accelscale.lab.pictures import Picture, Role
from accelscale.lab.png import write_png
from accelscale.lab.simulate import report
from accelscale.lab.simulate.compare import LATE_SHARE, Outcome, compare
from accelscale.lab.simulate.pictures import comparison_of, fleet_watts, picture_of
from accelscale.lab.simulate.run import Conditions, Simulation
from accelscale.lab.simulate.summary import summarize
from accelscale.lab.simulate.synthetic import Lengths, Rate, synthetic
from accelscale.lab.sweep import MOST_KEPT, Candidate, grid, parse_sweep
from lab.simulate.cases import SIMPLE, simulated, steady
from lab.toys import manifest, policy

ARRIVALS = synthetic(Rate(1.0, 40.0, 600.0), seconds=1200.0, lengths=Lengths(100.0, 80.0), seed=2)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    candidates = grid("", manifest(), [parse_sweep("threshold=20..90:10")])
    return compare(ARRIVALS, candidates, SIMPLE, Conditions(), {}, keeps_simulations=True)


def test_those_that_are_quick_enough_come_first_and_the_cheapest_of_them(
    outcomes: list[Outcome],
) -> None:
    assert len(outcomes) == 8
    quick = [one.quick_enough for one in outcomes]
    assert quick == sorted(quick, reverse=True)
    assert any(quick)
    assert not all(quick)
    hours = [one.summary.device_hours for one in outcomes if one.quick_enough]
    assert hours == sorted(hours)
    late = [one.summary.late_share for one in outcomes if not one.quick_enough]
    assert late == sorted(late, key=lambda share: share or 0)
    assert all((share or 0) > LATE_SHARE for share in late)


def test_only_the_best_are_kept_for_the_picture(outcomes: list[Outcome]) -> None:
    kept = [one.simulation is not None for one in outcomes]
    assert kept == [True] * MOST_KEPT + [False] * (8 - MOST_KEPT)
    candidates = [Candidate("one", manifest())]
    (bare,) = compare(ARRIVALS, candidates, SIMPLE, Conditions(), {})
    assert bare.simulation is None
    assert comparison_of([bare]) is None


def test_progress_is_told() -> None:
    told: list[int] = []
    candidates = grid("", manifest(), [parse_sweep("threshold=60,80")])
    compare(ARRIVALS, candidates, SIMPLE, Conditions(), {}, on_progress=told.append)
    assert told == [1, 2]


def test_the_ranking_is_a_table(outcomes: list[Outcome]) -> None:
    titles, rows = report.ranking(outcomes)
    assert [row[0] for row in rows] == [str(n) for n in range(1, 9)]
    assert {len(row) for row in rows} == {len(titles)}
    assert rows[0][1].startswith("threshold=")
    record = outcomes[0].record()
    assert record["quick_enough"] is True
    assert record["summary"]["requests"] == len(ARRIVALS)


def shown(picture: Picture) -> dict[str, list[str]]:
    return {panel.title: [line.name for line in panel.lines] for panel in picture.panels}


def test_the_picture_of_a_comparison(outcomes: list[Outcome], tmp_path: Path) -> None:
    picture = comparison_of(outcomes)
    assert picture is not None
    names = [one.candidate.name for one in outcomes[:MOST_KEPT]]
    assert shown(picture) == {
        "Replicas, best policies": names,
        "Time to the first token, p95": names,
        "Requests that come": ["requests"],
    }
    write_png(picture, tmp_path / "comparison.png")
    assert matplotlib.image.imread(tmp_path / "comparison.png").shape[1] == 1320


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulated(ARRIVALS, policy())


def test_the_picture_of_a_simulation(simulation: Simulation) -> None:
    picture = picture_of(simulation)
    assert shown(picture) == {
        "utilization_percent per replica": ["per replica", "threshold"],
        "Replicas": ["wanted", "serving"],
        "Requests": ["waiting", "in work"],
        "Time to the first token": ["p95"],
        "Power of all devices": ["drawn"],
    }
    assert picture.start == ARRIVALS.start
    assert picture.seconds == simulation.seconds
    roles = [line.role for panel in picture.panels for line in panel.lines]
    assert Role.SERVING in roles


def test_the_latency_line_has_the_slowest_of_each_minute_and_breaks_where_nobody_came() -> None:
    arrivals = attrs.evolve(steady(2.0, 60.0), seconds=180.0)
    found = simulated(arrivals, policy(), tail=0.0)
    line = picture_of(found).panels[3].lines[0]
    assert line.times[:3] == (0.0, 60.0, 120.0)
    first, *rest = line.values
    assert first is not None
    assert 0.1 <= first < 1.0
    assert rest == [None, None]


def test_power_adds_up_to_the_energy(simulation: Simulation) -> None:
    watts = fleet_watts(simulation)
    summary = summarize(simulation)
    assert float(watts[1:].sum()) / 3.6e6 == pytest.approx(summary.energy_kilowatt_hours, rel=0.01)
