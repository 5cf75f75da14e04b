"""The share of time that compute units worked: given only where it is known."""

from __future__ import annotations

import pytest

from accelscale.model import Reason
from accelscale_fpga.busy import busy_percent, starts_between
from accelscale_fpga.files import Absent, UnreadableError
from accelscale_fpga.xrt import CardReport, ComputeUnit


def report(*units: tuple[str, int, bool | None], design: str = "A") -> CardReport:
    return CardReport(0.0, {}, tuple(ComputeUnit(*unit) for unit in units), design, hangs=False)


BROKEN = CardReport(0.0, {}, Absent(Reason.ERROR, "no report"), "A", hangs=False)


@pytest.mark.parametrize(
    ("first", "second", "percent"),
    [((5, False), (3, False), 0.0), ((5, True), (3, True), 100.0), ((5, True), (3, False), 50.0)],
)
def test_units_that_stayed_as_they_were(
    first: tuple[int, bool], second: tuple[int, bool], percent: float
) -> None:
    both = report(("k1", *first), ("k2", *second))
    assert busy_percent(both, both) == percent


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ((5, False), (6, False)),  # ran and ended: for how long?
        ((5, True), (6, True)),
        ((5, True), (5, False)),
        ((5, False), (6, True)),
    ],
)
def test_a_unit_that_changed_is_not_guessed(
    before: tuple[int, bool], now: tuple[int, bool]
) -> None:
    with pytest.raises(UnreadableError, match="does not count") as caught:
        busy_percent(report(("k", *before)), report(("k", *now)))
    assert caught.value.absent.reason is Reason.NOT_SUPPORTED
    assert not caught.value.absent.permanent


@pytest.mark.parametrize(
    ("before", "now", "reason"),
    [
        (None, report(("k", 1, True)), Reason.NO_PROGRESS),
        (report(("k", 1, True), design="B"), report(("k", 1, True)), Reason.COUNTER_RESET),
        (report(("k", 1, None)), report(("k", 1, None)), Reason.ERROR),
        (report(("k", 1, True)), report(("k", 1, True), ("new", 1, True)), Reason.ERROR),
        (report(("k", 1, True)), report(), Reason.NOT_SUPPORTED),
        (report(("k", 1, True)), BROKEN, Reason.ERROR),
    ],
)
def test_without_two_comparable_reports_there_is_no_share(
    before: CardReport | None, now: CardReport, reason: Reason
) -> None:
    with pytest.raises(UnreadableError) as caught:
        busy_percent(before, now)
    assert caught.value.absent.reason is reason


@pytest.mark.parametrize(
    ("before", "now", "starts"),
    [
        (None, report(("k", 7, False), ("l", 3, True)), 10),
        (report(("k", 7, False), ("l", 3, True)), report(("k", 9, False), ("l", 3, True)), 2),
        (report(("k", 7, False)), report(("k", 2, False)), 2),  # the driver was loaded anew
        (report(("k", 7, False), design="B"), report(("k", 8, False)), 8),  # another design
    ],
)
def test_starts(before: CardReport | None, now: CardReport, starts: int) -> None:
    assert starts_between(before, now) == starts


@pytest.mark.parametrize("now", [BROKEN, report()])
def test_unknown_starts(now: CardReport) -> None:
    with pytest.raises(UnreadableError):
        starts_between(report(("k", 7, False)), now)
