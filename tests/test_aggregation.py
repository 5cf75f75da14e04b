from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale.aggregation import aggregation, statistic

NAMES = ("mean", "max", "min", "sum", "p1", "p50", "p95", "p99")
numbers = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("mean", [90] * 8 + [10], pytest.approx(81.111, abs=0.001)),
        ("p95", [90] * 8 + [10], 90),
        ("min", [90] * 8 + [10], 10),
        ("max", [90] * 8 + [10], 90),
        ("sum", [0.1] * 10, 1.0),
        ("p50", [1, 2, 3, 4], 2),
        ("p1", [5, 1, 9], 1),
        ("p99", [5, 1, 9], 9),
    ],
)
def test_each_name_gives_its_number(name: str, values: list[float], expected: float) -> None:
    assert aggregation(name)(values) == expected


@pytest.mark.parametrize("name", ["p0", "p100", "P95", "avg", "median", "p9.5", ""])
def test_other_names_are_none(name: str) -> None:
    with pytest.raises(KeyError):
        aggregation(name)


def test_last_is_the_newest_value() -> None:
    assert statistic("last")([3.0, 1.0, 2.0]) == 2.0


@given(numbers, st.sampled_from(NAMES), st.randoms())
def test_order_does_not_matter(values: list[float], name: str, random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert aggregation(name)(values) == aggregation(name)(shuffled)


@given(numbers, st.sampled_from([name for name in NAMES if name != "sum"]))
def test_all_but_the_sum_stay_between_least_and_greatest(values: list[float], name: str) -> None:
    assert min(values) <= aggregation(name)(values) <= max(values)
