from __future__ import annotations

import pytest

from accelscale.history import KEPT_SECONDS, History
from accelscale.model import Reason, Sample, Series, SeriesValue


def filled(values: dict[float, float], gap: float = 5.0) -> History:
    history = History()
    for time, value in values.items():
        history.add(Sample("a", "utilization_percent", value, time), gap)
    return history


def look(history: History, statistic: str, window: float, now: float) -> SeriesValue:
    found = history.value("a", Series("utilization_percent", window, statistic), now, 1.0)
    assert isinstance(found, SeriesValue)
    return found


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [("mean", 30.0), ("max", 50.0), ("min", 10.0), ("last", 50.0), ("p50", 30.0)],
)
def test_a_window_takes_the_samples_that_lie_in_it(statistic: str, expected: float) -> None:
    history = filled({0: 100.0, 10: 10.0, 11: 30.0, 12: 50.0})
    assert look(history, statistic, 2.5, 12.0).value == expected


def test_a_window_shorter_than_the_interval_takes_the_newest_sample() -> None:
    found = look(filled({0: 10.0, 10: 20.0}), "mean", 1.0, 15.0)
    assert (found.value, found.time) == (20.0, 10.0)


def test_a_device_without_a_sample_has_no_value() -> None:
    series = Series("utilization_percent", 15.0, "mean")
    assert History().value("a", series, 0.0, 1.0) is Reason.STALE
    history = filled({0: 1.0})
    history.forget("a")
    assert history.value("a", series, 0.0, 1.0) is Reason.STALE


def test_a_window_is_covered_once_samples_reach_back_over_it() -> None:
    history = filled({float(t): 0.0 for t in range(14)})
    assert not look(history, "mean", 15.0, 13.0).covered
    history = filled({float(t): 0.0 for t in range(15)})
    assert look(history, "mean", 15.0, 14.0).covered


def test_a_gap_begins_the_cover_anew() -> None:
    times = [*range(20), *range(30, 40)]
    assert not look(filled({float(t): 0.0 for t in times}), "max", 15.0, 39.0).covered
    short = [*range(20), *range(23, 40)]
    assert look(filled({float(t): 0.0 for t in short}), "max", 15.0, 39.0).covered


@pytest.mark.parametrize("interval", [1.0, 10.0, 60.0])
@pytest.mark.parametrize("window", [0.5, 1.0, 15.0, 600.0])
@pytest.mark.parametrize("statistic", ["last", "mean", "max"])
def test_one_sample_alone_covers_no_window(statistic: str, window: float, interval: float) -> None:
    history = filled({0: 1.0})
    for now in (0.0, 0.5, 5.0):
        found = history.value("a", Series("utilization_percent", window, statistic), now, interval)
        assert isinstance(found, SeriesValue)
        assert not found.covered


def test_two_samples_cover_a_window_that_is_shorter_than_the_interval() -> None:
    history = filled({0: 1.0, 60.0: 1.0}, gap=180.0)
    found = history.value("a", Series("utilization_percent", 15.0, "mean"), 60.0, 60.0)
    assert isinstance(found, SeriesValue)
    assert found.covered


def test_a_window_whose_near_end_is_empty_is_not_covered() -> None:
    history = filled({float(t): 0.0 for t in range(60)})
    assert look(history, "max", 5.0, 61.0).covered
    assert not look(history, "max", 5.0, 74.0).covered
    assert not look(history, "max", 30.0, 74.0).covered


def test_what_was_cut_away_covers_nothing() -> None:
    history = filled({float(t): 0.0 for t in range(7200)})
    assert look(history, "max", 900.0, 7199.0).covered
    assert not look(history, "max", 3600.0, 7199.0).covered


def test_a_sample_that_is_not_newer_is_left_out() -> None:
    history = filled({10: 1.0})
    history.add(Sample("a", "utilization_percent", 99.0, 10.0), 5.0)
    history.add(Sample("a", "utilization_percent", 99.0, 9.0), 5.0)
    assert look(history, "max", 15.0, 10.0).value == 1.0


def test_old_samples_go_and_a_longer_window_keeps_them() -> None:
    history = History()
    hour = Series("utilization_percent", 3600.0, "max")
    for time in range(2000):
        history.add(Sample("a", "utilization_percent", 0.0, float(time)), 5.0)
        history.add(Sample("a", "power_watts", 0.0, float(time)), 5.0)
        history.value("a", hour, float(time), 1.0)
    rings = {metric: len(ring) for (_, metric), ring in history._rings.items()}
    assert rings["utilization_percent"] == 2000
    assert KEPT_SECONDS <= rings["power_watts"] <= 1.3 * KEPT_SECONDS


def test_a_longer_window_that_nobody_asks_for_again_is_forgotten() -> None:
    history = History()
    history.value("a", Series("power_watts", 7200.0, "max"), 0.0, 1.0)
    for time in range(0, 12000, 2):
        history.add(Sample("a", "power_watts", 0.0, float(time)), 5.0)
    assert len(history._rings["a", "power_watts"]) <= 1.3 * KEPT_SECONDS
