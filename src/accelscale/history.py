"""The recent past of each device and metric, and what a window over it says.

A ring keeps times and values in two arrays of doubles, oldest first, for as long as the longest
window that somebody asks for. An idle verdict needs to know that the past is whole, so each ring
also knows since when its samples follow each other without a gap.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from accelscale.aggregation import statistic
from accelscale.metrics import max_age
from accelscale.model import Reason, Sample, Series, SeriesValue

KEPT_SECONDS = 900.0
"""What every ring keeps. A longer window grows the rings of its metric from then on."""

FORGET_AFTER = 3600.0
"""Seconds after which a longer window that nobody asked for again no longer grows rings."""


def margins(window: float, interval: float) -> tuple[float, float]:
    """Seconds that samples may miss of a window, at its far end and at its near one.

    At the far end it is what lies between two samples, but never half of the window, so that one
    sample alone covers nothing. At the near end a sample may be missing as long as its forerunner
    counts, and no more than half of the window.
    """
    far = min(1.5 * interval, window / 2)
    near = min(max_age(interval), max(1.5 * interval, window / 2))
    return far, near


class Ring:
    """The samples of one metric of one device, oldest first."""

    __slots__ = ("_times", "_values", "shared", "whole_since")

    def __init__(self) -> None:
        self._times = array("d")
        self._values = array("d")
        self.whole_since = 0.0
        self.shared = False

    def __len__(self) -> int:
        return len(self._times)

    @property
    def newest(self) -> float:
        """Time of the newest sample, in monotonic seconds."""
        return self._times[-1]

    def add(self, sample: Sample, gap: float, keep: float) -> None:
        """Append a sample; one that is not newer than the last is left out.

        A distance of more than ``gap`` seconds from the last breaks the whole. Samples older than
        ``keep`` seconds go, in large steps so that the cost stays flat.
        """
        times = self._times
        if times and sample.time <= times[-1]:
            return
        if not times or sample.time - times[-1] > gap:
            self.whole_since = sample.time
        times.append(sample.time)
        self._values.append(sample.value)
        self.shared = sample.shared
        if times[0] < sample.time - 1.25 * keep:
            cut = bisect_left(times, sample.time - keep)
            del times[:cut], self._values[:cut]
            self.whole_since = max(self.whole_since, times[0])

    def window(self, series: Series, now: float, interval: float) -> SeriesValue:
        """What the series says at ``now``; the ring must not be empty.

        A window that holds no sample, because it is shorter than the interval, takes the newest.
        ``interval`` is the seconds between two readings.
        """
        start = bisect_left(self._times, now - series.window_seconds)
        values = self._values[min(start, len(self._values) - 1) :]
        far, near = margins(series.window_seconds, interval)
        covered = self.whole_since <= self.newest - series.window_seconds + far
        covered = covered and self.newest >= now - near
        value = statistic(series.statistic)(values)
        return SeriesValue(value, self.newest, covered, self.shared)


class History:
    """The rings of all devices. Not locked: the collector's lock guards it."""

    def __init__(self) -> None:
        self._rings: dict[tuple[str, str], Ring] = {}
        self._longer: dict[str, tuple[float, float]] = {}

    def add(self, sample: Sample, gap: float) -> None:
        """Keep a sample; ``gap`` is the most seconds to the one before without a break."""
        key = (sample.device_id, sample.metric)
        ring = self._rings.get(key)
        if ring is None:
            ring = self._rings[key] = Ring()
        ring.add(sample, gap, self._keep(sample.metric, sample.time))

    def value(
        self, device_id: str, series: Series, now: float, interval: float
    ) -> SeriesValue | Reason:
        """What the series says of the device, or ``STALE`` where there is no sample at all."""
        if series.window_seconds > KEPT_SECONDS:
            seconds, _ = self._longer.get(series.metric, (0.0, 0.0))
            self._longer[series.metric] = (max(seconds, series.window_seconds), now)
        ring = self._rings.get((device_id, series.metric))
        return Reason.STALE if ring is None else ring.window(series, now, interval)

    def forget(self, device_id: str) -> None:
        """Drop the rings of a device that is gone."""
        for key in [key for key in self._rings if key[0] == device_id]:
            del self._rings[key]

    def _keep(self, metric: str, now: float) -> float:
        longer = self._longer.get(metric)
        if longer is None:
            return KEPT_SECONDS
        seconds, asked = longer
        if now - asked > FORGET_AFTER:
            del self._longer[metric]
            return KEPT_SECONDS
        return seconds
