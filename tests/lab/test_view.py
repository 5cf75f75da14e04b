"""Snapshots of a recording: the engine gets what the collector would have given."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from accelscale.engine import evaluate
from accelscale.errors import AccelscaleError, NotFoundError, UnsupportedError
from accelscale.history import History
from accelscale.lab.recording import Absence, Column, Holder, Recording, Span
from accelscale.lab.view import View
from accelscale.metrics import max_age
from accelscale.model import Failure, Reason, Sample, Series, SeriesValue
from accelscale.trigger import parse_trigger
from lab.toys import recording

METRIC = "utilization_percent"
SERIES = Series(METRIC, 15.0, "mean")


def trigger(**keys: str):  # type: ignore[no-untyped-def]
    return parse_trigger({"metric": METRIC, "threshold": "70", **keys})


@given(
    st.lists(st.floats(0.2, 20.0), min_size=1, max_size=40),
    st.sampled_from([Series(METRIC, 15.0, "mean"), Series(METRIC, 60.0, "max"), SERIES]),
    st.floats(0.0, 120.0),
)
def test_a_series_is_what_the_history_of_the_collector_gives(
    gaps: list[float], series: Series, moment: float
) -> None:
    times = np.cumsum(gaps)
    values = (times * 7919) % 100
    found = evolve(
        recording({METRIC: [0.0]}, seconds=120.0),
        columns={("GPU-0", METRIC): Column(times, values)},
    )
    shown = View(found, [moment]).snapshot(0, [series]).series["GPU-0", series]
    history = History()
    for time, value in zip(times.tolist(), values.tolist(), strict=True):
        if time <= moment:
            history.add(Sample("GPU-0", METRIC, value, time), max_age(1.0))
    expected = history.value("GPU-0", series, moment, 1.5)
    if isinstance(expected, SeriesValue):
        assert shown == expected
    else:
        assert isinstance(shown, Failure)
        assert shown.reason is Reason.STALE


def absent(start: float, end: float, reason: Reason) -> Absence:
    return Absence("GPU-0", METRIC, start, end, reason, "made up")


def test_a_lost_device_is_a_failure_at_once_and_a_slow_one_only_once_it_is_old() -> None:
    for reason, at_once in ((Reason.LOST, True), (Reason.TIMEOUT, False)):
        times = np.array([float(t) for t in range(200) if not 100 <= t < 150])
        found = evolve(
            recording({METRIC: [0.0]}, seconds=200.0, absences=[absent(100.0, 150.0, reason)]),
            columns={("GPU-0", METRIC): Column(times, np.full(len(times), 90.0))},
        )
        view = View(found, [99.0, 101.0, 120.0, 160.0])
        results = []
        for index, moment in enumerate(view.moments.tolist()):
            workload = view.workload(trigger(), moment)
            shown = view.snapshot(index, trigger().wanted_series)
            results.append(evaluate(trigger(), shown, workload, now=moment).value)
        assert results[0] == results[3] == 90.0
        assert isinstance(results[1], AccelscaleError) is at_once
        assert isinstance(results[2], AccelscaleError)


def test_a_gap_in_the_recording_is_never_a_number() -> None:
    times = np.array([*range(100), *range(300, 400)], dtype=np.float64)
    found = evolve(
        recording({METRIC: [0.0]}, seconds=400.0),
        columns={("GPU-0", METRIC): Column(times, np.full(len(times), 0.0))},
    )
    view = View(found, [200.0, 305.0])
    for index in (0, 1):
        moment = float(view.moments[index])
        outcome = evaluate(
            trigger(),
            view.snapshot(index, trigger().wanted_series),
            view.workload(trigger(), moment),
            now=moment,
        )
        # In the gap nothing is fresh; just behind it the idle verdict has no past to stand on.
        assert isinstance(outcome.active, AccelscaleError)
    assert outcome.value == 0.0


def test_a_device_counts_only_while_it_is_there() -> None:
    found = recording(
        {METRIC: [50.0, 50.0]}, seconds=100.0, presence={"GPU-1": (Span(20.0, 60.0),)}
    )
    view = View(found, [10.0, 30.0, 70.0])
    counts = [len(view.workload(trigger(), time).replicas) for time in (10.0, 30.0, 70.0)]
    assert counts == [1, 2, 1]
    there = view.counted(trigger(), np.array([10.0, 30.0, 70.0]))["GPU-1"]
    assert there.tolist() == [False, True, False]


def holders(*rows: tuple[str, str, float, float]) -> list[Holder]:
    return [Holder(device, "ns", pod, "main", start, end) for device, pod, start, end in rows]


def test_pods_are_the_replicas_where_the_recording_knows_them() -> None:
    found = recording(
        {METRIC: [10.0, 20.0, 30.0]},
        seconds=100.0,
        holders=holders(
            ("GPU-0", "web-a", 0, 100),
            ("GPU-1", "web-a", 0, 100),
            ("GPU-2", "web-b", 50, 100),
            ("GPU-2", "job-x", 0, 50),
        ),
    )
    view = View(found, [10.0, 60.0], pods="web-*")
    first, second = (view.workload(trigger(), time).replicas for time in (10.0, 60.0))
    assert [(replica.name, replica.devices) for replica in first] == [
        ("ns/web-a", ("GPU-0", "GPU-1"))
    ]
    assert [replica.name for replica in second] == ["ns/web-a", "ns/web-b"]
    by_namespace = View(found, [10.0], pods="ns/job-*").workload(trigger(), 10.0)
    assert [replica.name for replica in by_namespace.replicas] == ["ns/job-x"]
    assert not View(found, [10.0]).workload(trigger(container="side"), 10.0).replicas
    with pytest.raises(NotFoundError, match="no pod matches nothing-"):
        View(found, [10.0], pods="nothing-*").workload(trigger(), 10.0)


def test_scope_node_takes_devices_whoever_holds_them() -> None:
    found = recording(
        {METRIC: [10.0, 20.0]}, seconds=50.0, holders=holders(("GPU-0", "web-a", 0, 50))
    )
    view = View(found, [10.0])
    assert len(view.workload(trigger(scope="node"), 10.0).replicas) == 2


def test_devices_are_grouped_to_replicas_on_request() -> None:
    found = recording({METRIC: [10.0] * 5}, seconds=50.0)
    groups = View(found, [10.0], devices_per_replica=2).workload(trigger(), 10.0).replicas
    assert [len(replica.devices) for replica in groups] == [2, 2, 1]


def test_a_metric_that_no_device_has_is_an_error_that_says_so() -> None:
    never = Absence("GPU-0", METRIC, 0.0, 100.0, Reason.NOT_SUPPORTED, "too old", permanent=True)
    found: Recording = evolve(
        recording({METRIC: [0.0]}, seconds=100.0, absences=[never]), columns={}
    )
    with pytest.raises(UnsupportedError, match="too old"):
        View(found, [10.0]).workload(trigger(), 10.0)
    assert View(found, [10.0]).edges[0] == 0.0
