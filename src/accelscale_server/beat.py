"""News at a pace that can be followed: many changes become one."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

QUICKEST = 0.25
"""Seconds between two beats at least: a thousand agents, each with news once a second, are no
reason to evaluate every trigger a thousand times."""

PER_LISTENER = 0.001
"""Seconds that each who listens adds, for it evaluates its trigger at every beat."""

SLOWEST = 5.0
"""Seconds between two beats at most, also without news: what is known grows old by itself."""


class Beat:
    """Tells of changes, but not more often than those who listen can take. For one event loop.

    ``sequence`` grows with every beat. ``listeners`` says how many evaluate at each.
    """

    def __init__(self, listeners: Callable[[], int], *, quickest: float = QUICKEST) -> None:
        self.sequence = 0
        self._listeners = listeners
        self._quickest = quickest
        self._subscribers: list[Callable[[], None]] = []
        self._last = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def note(self) -> None:
        """Something has changed."""
        if self._timer is None:
            pace = self._quickest + PER_LISTENER * self._listeners()
            due = self._last + min(pace, SLOWEST)
            self._timer = asyncio.get_running_loop().call_at(due, self._beat)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have ``callback`` called at every beat; returns undo."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    async def run(self) -> None:
        """Beat now and then, also without news, until cancelled."""
        while True:
            await asyncio.sleep(SLOWEST)
            self.note()

    def _beat(self) -> None:
        self._timer = None
        self._last = time.monotonic()
        self.sequence += 1
        for subscriber in tuple(self._subscribers):
            subscriber()
