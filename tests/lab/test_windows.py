"""Windows over columns say what the rings of the collector say, number for number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale.history import Ring
from accelscale.lab.recording import Column
from accelscale.lab.windows import window_values
from accelscale.model import Sample, Series

GAP = 5.0
INTERVAL = 1.0

steps = st.one_of(
    st.floats(0.001, 3.0), st.sampled_from([0.25, 1.0, 1.0, 1.0, 5.0, 5.5]), st.floats(4.0, 400.0)
)
values = st.one_of(
    st.integers(0, 100).map(float),
    st.floats(0.0, 100.0),
    st.sampled_from([0.1, 1e-9, 1e15, 33.3, 1 / 3]),
)
statistics = st.sampled_from(["mean", "max", "min", "last", "p1", "p50", "p95", "p99"])


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[float], list[float], list[float]]:
    """Times of samples, their values, and moments at which to look."""
    gaps = draw(st.lists(steps, min_size=1, max_size=60))
    times = np.cumsum(gaps).tolist()
    found = draw(st.lists(values, min_size=len(times), max_size=len(times)))
    looks = draw(st.lists(st.floats(0.0, times[-1] + 30.0), min_size=1, max_size=20))
    edges = draw(st.lists(st.sampled_from(times), max_size=5))
    return times, found, sorted([*looks, *edges])


@given(histories(), statistics, st.one_of(st.sampled_from([0.5, 15.0, 60.0]), st.floats(0.1, 500)))
def test_columns_and_rings_agree(
    history: tuple[list[float], list[float], list[float]], statistic: str, seconds: float
) -> None:
    times, found, moments = history
    series = Series("power_watts", seconds, statistic)
    column = Column(np.array(times), np.array(found))
    computed = window_values(column, series, np.array(moments), gap=GAP, interval=INTERVAL)
    ring, taken = Ring(), 0
    for at, moment in enumerate(moments):
        while taken < len(times) and times[taken] <= moment:
            ring.add(Sample("a", "power_watts", found[taken], times[taken]), GAP, 1e6)
            taken += 1
        assert computed.counts[at] == taken
        if not taken:
            continue
        expected = ring.window(series, moment, INTERVAL)
        assert computed.values[at] == expected.value
        assert computed.newest[at] == expected.time
        assert computed.covered[at] == expected.covered


def test_a_column_without_a_sample_counts_none() -> None:
    empty = Column(np.empty(0), np.empty(0))
    found = window_values(
        empty, Series("power_watts", 15.0, "mean"), np.array([0.0, 1.0]), gap=5.0, interval=1.0
    )
    assert found.counts.tolist() == [0, 0]
    assert not found.covered.any()


def test_a_long_window_is_summed_without_an_error() -> None:
    rng = np.random.default_rng(3)
    column = Column(np.arange(5000.0), rng.uniform(0, 100, 5000))
    series = Series("utilization_percent", 3600.0, "mean")
    found = window_values(column, series, np.array([4999.0]), gap=5.0, interval=1.0)
    ring = Ring()
    for time, value in zip(column.times.tolist(), column.values.tolist(), strict=True):
        ring.add(Sample("a", "utilization_percent", value, time), 5.0, 1e6)
    assert found.values[0] == ring.window(series, 4999.0, 1.0).value


def test_an_unknown_statistic_is_refused() -> None:
    column = Column(np.arange(3.0), np.arange(3.0))
    with pytest.raises(KeyError):
        window_values(column, Series("m", 1.0, "median"), np.array([2.0]), gap=5.0, interval=1.0)
