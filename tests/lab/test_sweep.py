from __future__ import annotations

import pytest

from accelscale.errors import ConfigurationError, NotFoundError
from accelscale.lab.replay import Conditions, Replayer
from accelscale.lab.report import comparison_record, ranking, shared_warnings
from accelscale.lab.sweep import MOST_KEPT, Candidate, compare, cost_of, grid, parse_sweep
from lab.toys import manifest, recording, wave

METRIC = "utilization_percent"


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("threshold=50..90:10", "threshold", ("50", "60", "70", "80", "90")),
        ("threshold=50..52", "threshold", ("50", "51", "52")),
        ("threshold=0.1..0.3:0.1", "threshold", ("0.1", "0.2", "0.3")),
        ("window=15..60:15s", "window", ("15s", "30s", "45s", "60s")),
        ("window= 15s, 1m", "window", ("15s", "1m")),
        ("load.threshold=70", "load.threshold", ("70",)),
        ("threshold=50..58:5", "threshold", ("50", "55")),
    ],
)
def test_ranges_and_lists_are_read(text: str, key: str, values: tuple[str, ...]) -> None:
    found = parse_sweep(text)
    assert (found.key, found.values) == (key, values)


@pytest.mark.parametrize(
    "text",
    ["threshold", "=1", "threshold=", "a=5..1", "a=1..2:0", "a=1..2:x:y", "a=..3", "a=1..9:.001"],
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="sweep="):
        parse_sweep(text)


def test_a_grid_holds_every_combination() -> None:
    sweeps = [parse_sweep("threshold=60,80"), parse_sweep("cooldownPeriod=60..120:30")]
    names = [candidate.name for candidate in grid("web", manifest(), sweeps)]
    assert len(names) == 6
    assert names[0] == "web threshold=60 cooldownPeriod=60"
    assert [candidate.name for candidate in grid("web", manifest(), [])] == ["web"]
    with pytest.raises(ConfigurationError, match="points are too many"):
        grid("", manifest(), [parse_sweep("threshold=1..90")] * 3)
    with pytest.raises(NotFoundError, match="no setting nonsense"):
        grid("", manifest(), [parse_sweep("nonsense=1,2")])


def test_policies_are_ranked_by_what_they_cost() -> None:
    replayer = Replayer(recording({METRIC: [wave(10.0, 95.0, 1800.0)] * 4}, seconds=3600.0))
    candidates = grid("", manifest(), [parse_sweep("threshold=40..90:5")])
    done: list[int] = []
    outcomes = compare(
        replayer, candidates, Conditions(), keeps_replays=True, on_progress=done.append
    )
    assert done == list(range(1, 12))
    assert [one.cost for one in outcomes] == sorted(one.cost for one in outcomes)
    assert {one.candidate.name for one in outcomes} == {c.name for c in candidates}
    assert [one.replay is not None for one in outcomes] == [n < MOST_KEPT for n in range(11)]
    cheap = compare(replayer, candidates, Conditions(), missed_hour_cost=0.0)
    hours = {one.candidate.name: one.summary.device_hours for one in cheap}
    assert cheap[0].cost == min(hours.values()) == hours["threshold=90"]
    assert all(one.replay is None for one in cheap)
    dear = compare(replayer, candidates, Conditions(), missed_hour_cost=1e6)
    assert (dear[0].summary.missed_share or 0.0) <= (cheap[0].summary.missed_share or 0.0)


def test_a_comparison_says_which_policy_a_warning_is_about() -> None:
    replayer = Replayer(recording({METRIC: [wave(10.0, 60.0, 1800.0)] * 2}, seconds=3600.0))
    candidates = [
        Candidate("sound", manifest()),
        Candidate("late", manifest(threshold="95")),
    ]
    outcomes = compare(replayer, candidates, Conditions())
    found = shared_warnings(outcomes)
    assert any(text.startswith("late: threshold 95 can never scale out") for text in found)
    titles, rows = ranking(outcomes)
    assert len(titles) == len(rows[0]) == len(rows[1])
    record = comparison_record(replayer.recording, Conditions(), outcomes, ["a"])
    assert [one["name"] for one in record["policies"]] == [row[1] for row in rows]


def test_hours_alone_count_where_no_work_was_recorded() -> None:
    replayer = Replayer(recording({"memory_used_percent": [50.0]}, seconds=600.0))
    (outcome,) = compare(
        replayer, [Candidate("m", manifest(metric="memory_used_percent"))], Conditions()
    )
    assert cost_of(outcome.summary, 100.0) == outcome.summary.device_hours
