"""Choosing between the two ways of reading."""

from __future__ import annotations

import pytest

from accelscale.model import Reason
from accelscale_intel.files import UnreadableError
from accelscale_intel.sources import KERNEL, LEVEL_ZERO, Sources

Outcome = float | Reason | None


def value(sources: Sources, level_zero: Outcome, kernel: Outcome) -> float:
    def reader(outcome: Outcome, name: str):  # type: ignore[no-untyped-def]
        def read() -> float:
            if isinstance(outcome, Reason):
                raise UnreadableError(outcome, f"{name} says {outcome}", permanent=name == KERNEL)
            assert outcome is not None
            return outcome

        return lambda: None if outcome is None else read

    ways = [(LEVEL_ZERO, reader(level_zero, LEVEL_ZERO)), (KERNEL, reader(kernel, KERNEL))]
    return sources.value("0000:03:00.0", "temperature_celsius", ways)


@pytest.mark.parametrize(
    ("level_zero", "kernel", "expected"),
    [
        (40.0, 50.0, 40.0),
        (Reason.NOT_SUPPORTED, 50.0, 50.0),
        (Reason.PERMISSION, 50.0, 50.0),
        (None, 50.0, 50.0),
        (0.0, 50.0, 0.0),
        (Reason.OUT_OF_RANGE, 50.0, Reason.OUT_OF_RANGE),
        (Reason.LOST, 50.0, Reason.LOST),
        (Reason.NO_PROGRESS, 50.0, Reason.NO_PROGRESS),
        (Reason.PERMISSION, Reason.NOT_SUPPORTED, Reason.PERMISSION),
        (Reason.NOT_SUPPORTED, Reason.PERMISSION, Reason.PERMISSION),
        (Reason.PERMISSION, Reason.NO_PROGRESS, Reason.NO_PROGRESS),
        (Reason.NOT_SUPPORTED, Reason.NOT_SUPPORTED, Reason.NOT_SUPPORTED),
        (None, None, Reason.NOT_SUPPORTED),
    ],
)
def test_the_first_way_that_can_is_taken(
    level_zero: Outcome, kernel: Outcome, expected: float | Reason
) -> None:
    if isinstance(expected, Reason):
        with pytest.raises(UnreadableError) as caught:
            value(Sources(), level_zero, kernel)
        assert caught.value.reason is expected
    else:
        assert value(Sources(), level_zero, kernel) == expected


def test_a_metric_stays_with_the_way_that_first_gave_it() -> None:
    sources = Sources()
    assert value(sources, Reason.PERMISSION, 50.0) == 50.0
    assert value(sources, 40.0, 51.0) == 51.0
    with pytest.raises(UnreadableError, match="kernel says not_supported"):
        value(sources, 40.0, Reason.NOT_SUPPORTED)
    sources.forget()
    assert value(sources, 40.0, 51.0) == 40.0


def test_a_failure_says_what_both_ways_said_and_is_permanent_only_if_both_are() -> None:
    with pytest.raises(UnreadableError) as caught:
        value(Sources(), Reason.NOT_SUPPORTED, Reason.NOT_SUPPORTED)
    assert caught.value.detail == (
        "Level Zero: Level Zero says not_supported; kernel: kernel says not_supported"
    )
    assert not caught.value.permanent
    with pytest.raises(UnreadableError) as caught:
        value(Sources(), None, Reason.NOT_SUPPORTED)
    assert caught.value.permanent
