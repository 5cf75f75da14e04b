"""Which series somebody wants of a node, each for a while after it was asked for last."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from attrs import define

from accelscale.model import Series
from accelscale_server._proto.accelscale.v1 import agent_pb2 as pb

KEPT_SECONDS = 600.0
"""Seconds that a series stays wanted after it was asked for: longer than KEDA's longest sensible
polling interval, so that the agent need not begin anew at every poll."""

MOST_SERIES = 500
"""Series wanted of one node at a time. Each costs its agent time after every pass, and triggers
that differ in their windows alone make many."""


@define
class _Wish:
    id: int
    until: float


class Interest:
    """The series wanted of one node. Ids are never used for a second series."""

    def __init__(self) -> None:
        self._wishes: dict[Series, _Wish] = {}
        self._ids = itertools.count(1)
        self.revision = 0

    def __len__(self) -> int:
        return len(self._wishes)

    def __iter__(self) -> Iterator[Series]:
        return iter(self._wishes)

    def ask(self, series: Iterable[Series], now: float, seconds: float = KEPT_SECONDS) -> bool:
        """Want these series for some seconds more; True if one of them was not wanted yet."""
        grown = False
        for one in series:
            wish = self._wishes.get(one)
            if wish is not None:
                wish.until = max(wish.until, now + seconds)
            elif len(self._wishes) < MOST_SERIES:
                self._wishes[one] = _Wish(next(self._ids), now + seconds)
                grown = True
        self.revision += grown
        return grown

    def expire(self, now: float) -> bool:
        """Forget what nobody asked for any more; True if there was such a series."""
        old = [series for series, wish in self._wishes.items() if wish.until < now]
        for series in old:
            del self._wishes[series]
        self.revision += bool(old)
        return bool(old)

    def id_of(self, series: Series) -> int | None:
        """The id under which the values of a series come, or None if it is not wanted."""
        wish = self._wishes.get(series)
        return None if wish is None else wish.id

    def request(self) -> pb.WatchRequest:
        """What to tell the agent."""
        return pb.WatchRequest(
            series=[
                pb.Series(
                    id=wish.id,
                    metric=series.metric,
                    window_seconds=series.window_seconds,
                    statistic=series.statistic,
                )
                for series, wish in self._wishes.items()
            ]
        )
