"""Which series are wanted, and for how long."""

from __future__ import annotations

from accelscale.model import Series
from accelscale_server.interest import MOST_SERIES, Interest

MEAN = Series("utilization_percent", 15.0, "mean")
PEAK = Series("utilization_percent", 600.0, "max")


def test_what_is_asked_for_again_is_nothing_new() -> None:
    interest = Interest()
    assert interest.ask([MEAN], 0.0)
    assert not interest.ask([MEAN], 1.0)
    assert interest.ask([MEAN, PEAK], 2.0)
    assert interest.revision == 2
    assert list(interest) == [MEAN, PEAK]


def test_what_nobody_asks_for_is_forgotten_and_its_id_never_used_again() -> None:
    interest = Interest()
    interest.ask([MEAN, PEAK], 0.0, 10.0)
    first = interest.id_of(MEAN)
    interest.ask([PEAK], 8.0, 10.0)
    assert not interest.expire(9.0)
    assert interest.expire(11.0)
    assert list(interest) == [PEAK]
    assert interest.id_of(MEAN) is None
    interest.ask([MEAN], 12.0)
    assert interest.id_of(MEAN) not in (first, interest.id_of(PEAK))


def test_a_short_wish_does_not_end_a_long_one() -> None:
    interest = Interest()
    interest.ask([MEAN], 0.0, 600.0)
    interest.ask([MEAN], 1.0, 30.0)
    assert not interest.expire(500.0)


def test_a_request_names_everything_that_is_wanted() -> None:
    interest = Interest()
    interest.ask([MEAN, PEAK], 0.0)
    sent = [(s.id, s.metric, s.window_seconds, s.statistic) for s in interest.request().series]
    assert sent == [
        (interest.id_of(MEAN), "utilization_percent", 15.0, "mean"),
        (interest.id_of(PEAK), "utilization_percent", 600.0, "max"),
    ]


def test_there_is_a_bound() -> None:
    interest = Interest()
    interest.ask([Series("utilization_percent", float(n), "mean") for n in range(1, 2000)], 0.0)
    assert len(interest) == MOST_SERIES
    assert not interest.ask([PEAK], 0.0)
    assert interest.id_of(PEAK) is None
