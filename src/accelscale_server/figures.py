"""Counts of what the server did, kept in plain numbers: a call pays next to nothing for them.

`accelscale_server.telemetry` turns them into Prometheus metrics when it is scraped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds in seconds; KEDA's own patience is about 3 s."""


class CallFigures:
    """Calls by method and status, their durations, and the streams that are open.

    Written by one thread; the scraping one reads copies.
    """

    def __init__(self) -> None:
        self.handled: Counter[tuple[str, str]] = Counter()
        self.streams: Counter[str] = Counter()
        self.refused_streams = 0
        self._buckets: dict[str, list[int]] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @property
    def open_streams(self) -> int:
        """Streams of all methods that are open now."""
        return self.streams.total()

    def took(self, method: str, seconds: float) -> None:
        """Count the duration of a unary call."""
        buckets = self._buckets.get(method)
        if buckets is None:
            buckets = self._buckets[method] = [0] * (len(BUCKETS) + 1)
        buckets[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[method] += seconds

    def durations(self) -> dict[str, tuple[list[int], float]]:
        """For each method how many calls each bucket counts, and the sum of all in seconds."""
        return {
            method: (list(buckets), self._seconds[method])
            for method, buckets in list(self._buckets.items())
        }
