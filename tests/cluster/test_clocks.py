"""A sender's times on our clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale_server.clocks import WINDOW, ClockOffset


def test_the_least_delayed_message_says_how_far_apart_the_clocks_are() -> None:
    clock = ClockOffset()
    clock.note(1000.5, 20.0)
    assert clock.here(20.0) == 1000.5
    clock.note(1001.002, 21.0)
    assert clock.here(21.0) == pytest.approx(1001.002)
    assert clock.here(20.0) == pytest.approx(1000.002)


def test_what_a_delayed_message_says_is_old() -> None:
    clock = ClockOffset()
    clock.note(1000.0, 20.0)
    clock.note(1031.0, 21.0)
    assert 1031.0 - clock.here(21.0) == 30.0


def test_the_sender_may_be_ahead() -> None:
    clock = ClockOffset()
    clock.note(10.0, 5000.0)
    assert clock.here(4999.0) == 9.0


def test_clocks_that_drift_apart_are_followed() -> None:
    clock = ClockOffset()
    drift = 1e-4
    for second in range(4000):
        clock.note(second * (1 + drift) + 0.001, float(second))
    error = 3999 * (1 + drift) - clock.here(3999.0)
    assert abs(error) < drift * WINDOW + 0.002


def test_a_sender_whose_clock_stood_still_is_believed_again_after_the_window() -> None:
    clock = ClockOffset()
    for second in range(100):
        clock.note(float(second), float(second))
    for second in range(100, 100 + int(WINDOW) + 2):
        clock.note(second + 3600.0, float(second))
    assert clock.here(401.0) == 4001.0


@given(
    st.floats(-1e6, 1e6),
    st.lists(st.tuples(st.floats(0, 2), st.floats(0, 60)), min_size=1, max_size=50),
)
def test_no_sample_looks_younger_than_the_least_delay_allows(
    apart: float, messages: list[tuple[float, float]]
) -> None:
    clock, sent = ClockOffset(), 0.0
    least = min(delay for _, delay in messages)
    for pause, delay in messages:
        sent += pause
        clock.note(sent + delay + apart, sent)
        assert clock.here(sent) - (sent + apart) <= delay + 1e-6
    assert clock.here(sent) - (sent + apart) == pytest.approx(least, abs=1e-6)
