"""Seconds from counters of cycles."""

from __future__ import annotations

import pytest

from accelscale.model import Reason
from accelscale_amd.files import UnreadableError
from accelscale_amd.metrics_table import Table, parse_gpu_metrics
from accelscale_amd.throttling import ThrottledTime
from amd import tables

POWER, THERMAL = "throttled_power_seconds_total", "throttled_thermal_seconds_total"


def table(cycles: int, ppt: int = 0, **others: int) -> Table:
    values = {
        "prochot_residency_acc": 0,
        "socket_thm_residency_acc": 0,
        "vr_thm_residency_acc": 0,
        "hbm_thm_residency_acc": 0,
        **others,
    }
    data = tables.gpu_metrics((1, 6), accumulation_counter=cycles, ppt_residency_acc=ppt, **values)
    return parse_gpu_metrics(data)


def test_the_share_of_cycles_is_the_share_of_time() -> None:
    throttled = ThrottledTime()
    assert throttled.seconds(POWER, table(1000, 500), 10.0) == 0
    assert throttled.seconds(POWER, table(1100, 525), 12.0) == 0.5  # a quarter of 2 s
    assert throttled.seconds(POWER, table(1200, 525), 14.0) == 0.5
    assert throttled.seconds(POWER, table(1300, 625), 15.0) == 1.5


def test_several_throttlers_at_once_count_once() -> None:
    throttled = ThrottledTime()
    throttled.seconds(THERMAL, table(0), 0.0)
    heat = table(100, socket_thm_residency_acc=30, hbm_thm_residency_acc=50)
    assert throttled.seconds(THERMAL, heat, 10.0) == 5.0


def test_a_table_read_twice_adds_nothing_and_loses_nothing() -> None:
    throttled = ThrottledTime()
    throttled.seconds(POWER, table(0), 0.0)
    assert throttled.seconds(POWER, table(0), 1.0) == 0
    assert throttled.seconds(POWER, table(100, 50), 2.0) == 1.0


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        (table(10, 5), Reason.COUNTER_RESET),
        (table(2000, 5), Reason.COUNTER_RESET),
        (table(1001, 900), Reason.OUT_OF_RANGE),
    ],
)
def test_counters_that_do_not_fit(later: Table, reason: Reason) -> None:
    throttled = ThrottledTime()
    throttled.seconds(POWER, table(1000, 500), 0.0)
    with pytest.raises(UnreadableError) as caught:
        throttled.seconds(POWER, later, 1.0)
    assert caught.value.reason is reason
    cycles, ppt = later.number("accumulation"), later.number("ppt_residency")
    assert cycles is not None
    assert ppt is not None
    assert throttled.seconds(POWER, table(cycles + 10, ppt + 5), 2.0) == 0.5


def test_time_asleep_is_left_out() -> None:
    throttled = ThrottledTime()
    throttled.seconds(POWER, table(0), 0.0)
    throttled.seconds(POWER, table(100, 100), 1.0)
    throttled.interrupt()
    assert throttled.seconds(POWER, table(200, 200), 3600.0) == 1.0
    assert throttled.seconds(POWER, table(300, 300), 3601.0) == 2.0


@pytest.mark.parametrize("revision", [(1, 3), (1, 5), (3, 0)])
def test_tables_without_residencies(revision: tuple[int, int]) -> None:
    with pytest.raises(UnreadableError) as caught:
        ThrottledTime().seconds(POWER, parse_gpu_metrics(tables.gpu_metrics(revision)), 0.0)
    assert caught.value.reason is Reason.NOT_SUPPORTED
    assert caught.value.permanent
    assert "unit" in caught.value.detail


ALL_BITS = 2**64 - 1  # how a card says that it does not have a counter


@pytest.mark.parametrize("lacking", [("socket_thm_residency_acc",), "all"])
def test_a_cause_that_is_not_told_this_time_did_not_rest(lacking: tuple[str, ...] | str) -> None:
    causes = ("prochot_residency_acc", "socket_thm_residency_acc", "vr_thm_residency_acc")
    names = causes if lacking == "all" else lacking
    throttled = ThrottledTime()
    throttled.seconds(THERMAL, table(0, **dict.fromkeys(names, ALL_BITS)), 0.0)
    with pytest.raises(UnreadableError) as caught:
        throttled.seconds(THERMAL, table(100, hbm_thm_residency_acc=10), 1.0)
    assert caught.value.reason is Reason.NO_PROGRESS
    assert throttled.seconds(THERMAL, table(200, hbm_thm_residency_acc=60), 2.0) == 0.5
