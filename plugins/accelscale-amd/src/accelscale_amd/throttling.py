"""Throttled seconds from counters that have no unit of their own.

The firmware counts in how many of its cycles a throttler was at work, and how many cycles there
were. How long a cycle lasts is not published, so the counts are no times. The meaning of their
ratio between two readings is: AMD's own ``amd-smi`` shows it as a percentage
(``amdsmi_get_violation_status``, which waits between two readings and is not used here). The share
of each interval, times its length, adds up to the seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import Factory, define

from accelscale.model import Reason
from accelscale_amd.files import UnreadableError
from accelscale_amd.metrics_table import Table

CAUSES: Mapping[str, tuple[str, ...]] = {
    "throttled_power_seconds_total": ("ppt_residency",),
    "throttled_thermal_seconds_total": (
        "prochot_residency",
        "socket_residency",
        "vr_residency",
        "hbm_residency",
    ),
}
"""Which counters make a metric. Where several throttlers of a metric were at work, the busiest
counts: their times may overlap."""


@define
class _Reading:
    time: float
    cycles: int
    residencies: dict[str, int]


@define
class ThrottledTime:
    """The seconds of one card since it was first read, by metric."""

    _before: dict[str, _Reading] = Factory(dict)
    _seconds: dict[str, float] = Factory(dict)

    def interrupt(self) -> None:
        """Leave out the time until the next reading: the card slept, and counted nothing."""
        self._before.clear()

    def seconds(self, metric: str, table: Table, now: float) -> float:
        """The total after this reading; 0 at the first.

        Raises:
            UnreadableError: the card does not count, or its counters started anew.
        """
        reading = _reading(metric, table, now)
        before = self._before.get(metric)
        self._before[metric] = reading
        if before is None:
            return self._seconds.setdefault(metric, 0.0)
        if reading.residencies.keys() != before.residencies.keys():
            # A cause that is missing from one of the two may be the one that throttled.
            detail = "the card does not count the same causes as at the reading before"
            raise UnreadableError(Reason.NO_PROGRESS, detail)
        cycles = reading.cycles - before.cycles
        steps = [reading.residencies[name] - level for name, level in before.residencies.items()]
        if cycles < 0 or any(step < 0 for step in steps):
            raise UnreadableError(Reason.COUNTER_RESET, "the throttle counters started anew")
        if max(steps) > cycles:
            detail = f"throttled in {max(steps)} of {cycles} cycles"
            raise UnreadableError(Reason.OUT_OF_RANGE, detail)
        if cycles > 0:
            share = max(steps) / cycles
            self._seconds[metric] += share * (reading.time - before.time)
        else:
            self._before[metric] = before  # a table that the driver had at hand, not a new one
        return self._seconds[metric]


def _reading(metric: str, table: Table, now: float) -> _Reading:
    cycles = table.number("accumulation")
    residencies = {
        name: value for name in CAUSES[metric] if (value := table.number(name)) is not None
    }
    if cycles is None or not residencies:
        detail = (
            f"gpu_metrics {table.revision} of this card has no throttle residencies whose unit is"
            " known; they come with revision 1.6 of discrete cards"
        )
        raise UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=True)
    return _Reading(now, cycles, residencies)
