"""The fleet that does the recorded work: nothing is lost, nothing is done twice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from accelscale.engine import evaluate
from accelscale.errors import NoDataError
from accelscale.lab.demand import Fleet, Work, recorded_work
from accelscale.lab.recording import Column, Span
from accelscale.lab.view import View
from accelscale.trigger import parse_trigger
from lab.toys import recording, step_at

METRIC = "utilization_percent"
TRIGGER = parse_trigger({"metric": METRIC, "threshold": "70"})


def work(*arriving: float, step: float = 1.0) -> Work:
    return Work(METRIC, step, np.array(arriving), 0.0)


def fleet(found: Work, replicas: int, **options: float) -> Fleet:
    settings = {"devices": 1, "load_time": 0.0, "readiness_delay": 0.0, **options}
    return Fleet(found, replicas=replicas, **settings)  # type: ignore[arg-type]


@given(
    st.lists(st.one_of(st.floats(0, 30), st.just(math.nan)), min_size=1, max_size=60),
    st.lists(st.tuples(st.floats(0, 60), st.integers(0, 12)), max_size=10),
    st.integers(1, 4),
    st.floats(0, 20),
)
def test_work_is_conserved_whatever_the_replicas_do(
    arriving: list[float], changes: list[tuple[float, int]], devices: int, load: float
) -> None:
    modelled = fleet(work(*arriving), 3, devices=devices, load_time=load, readiness_delay=load / 2)
    for now, replicas in sorted(changes):
        modelled.scaled(replicas, now)
    modelled.advance(1e9)
    came = math.fsum(value for value in arriving if not math.isnan(value))
    assert math.fsum(modelled.served) + modelled.queue == pytest.approx(came, abs=1e-6)
    assert modelled.steps == len(arriving)
    for served, serving, used in zip(
        modelled.served, modelled.serving, modelled.utilization, strict=True
    ):
        assert 0 <= served <= serving * devices + 1e-9
        assert math.isnan(used) or 0 <= used <= 100 + 1e-9
    assert min(modelled.queues) >= 0


def test_a_full_fleet_reads_100_and_the_rest_waits() -> None:
    modelled = fleet(work(3.0, 3.0, 0.0, 0.0), 2)
    modelled.advance(10.0)
    assert modelled.utilization == [100.0, 100.0, 100.0, 0.0]
    assert modelled.queues == [1.0, 2.0, 0.0, 0.0]


def test_a_new_replica_reads_0_and_helps_once_it_has_loaded() -> None:
    modelled = fleet(work(*[1.0] * 100), 1, load_time=30.0, readiness_delay=10.0)
    modelled.scaled(2, 20.0)
    modelled.advance(99.0)
    assert modelled.serving[:50] == [1] * 50
    assert set(modelled.serving[50:]) == {2}
    assert modelled.utilization[49:52] == [100.0, 50.0, 50.0]

    young = fleet(work(*[1.0] * 100), 1, load_time=30.0, readiness_delay=10.0)
    young.scaled(2, 20.0)
    _, starting = young.seen(TRIGGER, 25.0)
    assert [replica.was_ready for replica in starting.replicas] == [True, False]
    snapshot, ready = young.seen(TRIGGER, 40.0)
    assert [replica.ready for replica in ready.replicas] == [True, True]
    values = [snapshot.series[r.devices[0], TRIGGER.series].value for r in ready.replicas]
    assert values == [100.0, 0.0]


def test_the_youngest_goes_first_and_its_work_goes_back() -> None:
    modelled = fleet(work(*[2.0] * 40), 2, load_time=10.0)
    modelled.scaled(3, 5.0)
    modelled.scaled(1, 20.0)
    modelled.advance(39.0)
    assert modelled.serving[16] == 3
    assert modelled.serving[21] == 1
    assert modelled.queue == pytest.approx(19.0)


def test_the_engine_sees_windows_over_what_each_replica_did() -> None:
    modelled = fleet(work(*[0.5] * 30, *[1.0] * 30), 1)
    snapshot, workload = modelled.seen(TRIGGER, 37.0)
    outcome = evaluate(TRIGGER, snapshot, workload, now=37.0)
    # 16 samples lie in [22, 37]: eight at 50 % and eight at 100 %.
    assert outcome.value == 75.0
    assert outcome.active is True


def test_the_past_of_a_fleet_covers_a_window_only_once_it_is_long_enough() -> None:
    modelled = fleet(work(*[0.0] * 60), 1)
    for now, known in ((5.0, False), (20.0, True)):
        snapshot, workload = modelled.seen(TRIGGER, now)
        active = evaluate(TRIGGER, snapshot, workload, now=now).active
        assert (active is False) is known


def test_where_the_recording_tells_nothing_there_is_no_number() -> None:
    modelled = fleet(work(1.0, 1.0, math.nan, math.nan, 1.0), 1)
    with pytest.raises(NoDataError, match="does not tell how much work came"):
        modelled.seen(TRIGGER, 3.0)
    snapshot, _ = modelled.seen(TRIGGER, 4.0)
    value = snapshot.series["replica 0 device 0", TRIGGER.series]
    assert value.value == 100.0
    assert not value.covered


def test_work_is_the_sum_over_the_devices_that_are_there() -> None:
    found = recording(
        {METRIC: [50.0, step_at(50.0, 20.0, 100.0)]},
        seconds=100.0,
        presence={"GPU-0": (Span(0.0, 80.0),)},
    )
    came = recorded_work(found, TRIGGER, METRIC, View(found, [0.0]))
    assert came.arriving[10] == pytest.approx(0.7)
    assert came.arriving[60] == pytest.approx(1.5)
    assert came.arriving[90] == pytest.approx(1.0)
    assert came.full_share == pytest.approx(0.2)
    assert came.device_hours == pytest.approx((0.7 * 50 + 1.5 * 30 + 1.0 * 20) / 3600)


def test_silent_devices_do_as_the_others_until_most_are_silent() -> None:
    def cut(count: int) -> float:
        found = recording({METRIC: [40.0] * 4}, seconds=100.0)
        columns = dict(found.columns)
        for number in range(count):
            key = (f"GPU-{number}", METRIC)
            columns[key] = Column(columns[key].times[:50], columns[key].values[:50])
        silent = evolve(found, columns=columns)
        return float(recorded_work(silent, TRIGGER, METRIC, View(silent, [0.0])).arriving[80])

    assert cut(0) == cut(1) == cut(2) == pytest.approx(1.6)
    assert math.isnan(cut(3))
