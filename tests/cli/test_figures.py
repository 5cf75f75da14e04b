"""Numbers, units and durations in text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale.cli.figures import SHORT_REASONS, duration, figure, number
from accelscale.metrics import METRICS
from accelscale.model import Reason


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (0.0004, "0.0004"),
        (0.5, "0.5"),
        (7.25, "7.25"),
        (9.996, "10"),
        (37.25, "37.2"),
        (99.96, "100"),
        (1980.0, "1980"),
        (-12.34, "-12.3"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


@given(st.floats(min_value=1e-6, max_value=1e15))
def test_a_number_above_0_never_reads_as_0(value: float) -> None:
    assert math.isclose(float(number(value)), value, rel_tol=0.51)


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("utilization_percent", 37.2, "37.2 %"),
        ("memory_used_bytes", 12.3 * 2**30, "12.3 GiB"),
        ("memory_used_bytes", 0.0, "0 B"),
        ("memory_used_bytes", 1023.0, "1023 B"),
        ("pcie_receive_bytes_per_second", 1.5 * 2**20, "1.5 MiB/s"),
        ("energy_joules_total", 1_234_567.0, "1.23 MJ"),
        ("temperature_celsius", 54.0, "54 °C"),
        ("power_watts", 311.7, "312 W"),
        ("sm_clock_megahertz", 1980.0, "1980 MHz"),
        ("process_count", 3.0, "3 processes"),
    ],
)
def test_figures_carry_their_unit(metric: str, value: float, text: str) -> None:
    assert figure(value, METRICS[metric]) == text


def test_a_figure_of_an_unknown_metric_is_a_bare_number() -> None:
    assert figure(1.5, None) == "1.5"


def test_durations() -> None:
    assert duration(0.00031) == "0.31 ms"
    assert duration(0.0123) == "12.3 ms"
    assert duration(1.2) == "1.2 s"


def test_every_reason_has_a_short_word_of_its_own() -> None:
    assert set(SHORT_REASONS) == set(Reason)
    assert len(set(SHORT_REASONS.values())) == len(Reason)
    assert all(0 < len(word) <= 7 and not word[0].isdigit() for word in SHORT_REASONS.values())
