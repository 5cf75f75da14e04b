"""Wakes the streams of the event loop when a collector thread has ended a pass."""

from __future__ import annotations

import asyncio
import contextlib

WOKEN_AT_ONCE = 8
"""Streams woken in one turn of the event loop, so that calls in between need not wait for all."""


class Changes:
    """Counts passes, and lets coroutines wait for the next one or for the end.

    A pass that ends while the waiters of the one before are still being woken is not lost: who
    waits names the count it has seen. Belongs to the loop it was made in; `announce` alone may be
    called from any thread.
    """

    def __init__(self) -> None:
        self.count = 0
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._announced = False
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._waking: dict[asyncio.Future[None], None] = {}

    def announce(self) -> None:
        """Tell all who wait, soon; several announcements within one turn are one."""
        if self._announced:
            return
        self._announced = True
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            self._loop.call_soon_threadsafe(self._begin)

    def stop(self) -> None:
        """End all waiting for good."""
        self.stopping = True
        self._begin()

    @property
    def waiters(self) -> int:
        """How many coroutines wait now."""
        return len(self._waiting) + len(self._waking)

    async def after(self, count: int) -> bool:
        """Wait until there is more than ``count`` to see; False if the end has come instead."""
        while self.count == count and not self.stopping:
            future = self._loop.create_future()
            self._waiting[future] = None
            try:
                await future
            finally:
                self._waiting.pop(future, None)
                self._waking.pop(future, None)
        return not self.stopping

    def _begin(self) -> None:
        self._announced = False
        self.count += 1
        already_waking = bool(self._waking)
        self._waking.update(self._waiting)
        self._waiting.clear()
        if not already_waking:
            self._wake_some()

    def _wake_some(self) -> None:
        for future in list(self._waking)[:WOKEN_AT_ONCE]:
            del self._waking[future]
            if not future.done():
                future.set_result(None)
        if self._waking:
            self._loop.call_soon(self._wake_some)
