"""Utilisation from two readings of the CPU times."""

from __future__ import annotations

import pytest

from accelscale.model import Reason
from accelscale_host.cpu_time import BusyShare, CpuTime
from accelscale_host.files import UnreadableError

LINUX = {
    "user": 50.0,
    "nice": 1.0,
    "system": 16.0,
    "idle": 1200.0,
    "iowait": 2.0,
    "irq": 0.5,
    "softirq": 0.25,
    "steal": 4.0,
    "guest": 10.0,
    "guest_nice": 0.5,
}


def test_guests_are_not_counted_twice_and_steal_is_busy() -> None:
    busy = 50 + 1 + 16 + 0.5 + 0.25 + 4
    assert CpuTime.of(LINUX) == CpuTime(round(busy * 1e6), round(1202 * 1e6))


def test_fields_that_a_system_lacks_are_left_out() -> None:
    assert CpuTime.of({"user": 1.0, "idle": 3.0}) == CpuTime(1_000_000, 3_000_000)


@pytest.mark.parametrize(
    ("later", "percent"),
    [
        ({"user": 51.0, "idle": 1201.0}, 50.0),
        ({"idle": 1201.0}, 0.0),
        ({"system": 17.0}, 100.0),
        ({"steal": 5.0, "idle": 1203.0}, 25.0),
        ({"iowait": 5.0, "user": 51.0}, 25.0),
        ({"iowait": 1.0, "idle": 1202.0, "user": 51.0}, 50.0),  # moved from iowait to idle
        ({"user": 51.0, "guest": 11.0}, 100.0),
    ],
)
def test_share_of_busy_time_between_two_readings(later: dict[str, float], percent: float) -> None:
    share = BusyShare()
    with pytest.raises(UnreadableError):
        share.percent(CpuTime.of(LINUX))
    assert share.percent(CpuTime.of({**LINUX, **later})) == pytest.approx(percent)


def test_the_first_reading_is_no_number() -> None:
    with pytest.raises(UnreadableError, match="two readings") as caught:
        BusyShare().percent(CpuTime(500, 500))
    assert caught.value.reason is Reason.NO_PROGRESS


def test_within_one_tick_there_is_no_number_and_nothing_is_lost() -> None:
    share = BusyShare(CpuTime(100, 100))
    with pytest.raises(UnreadableError, match="not moved") as caught:
        share.percent(CpuTime(100, 100))
    assert caught.value.reason is Reason.NO_PROGRESS
    assert share.percent(CpuTime(130, 110)) == pytest.approx(75.0)


@pytest.mark.parametrize("later", [CpuTime(90, 200), CpuTime(200, 90)])
def test_times_that_go_back_are_no_number_and_start_anew(later: CpuTime) -> None:
    share = BusyShare(CpuTime(100, 100))
    with pytest.raises(UnreadableError, match="went back") as caught:
        share.percent(later)
    assert caught.value.reason is Reason.COUNTER_RESET
    assert share.percent(CpuTime(later.busy + 1, later.idle + 3)) == pytest.approx(25.0)
