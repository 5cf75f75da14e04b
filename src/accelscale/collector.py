"""All backends of a process, each read by a `BackendLoop`, and the watchdog over them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from accelscale.backend import Backend
from accelscale.backend_loop import REFRESH_SECONDS, BackendLoop, BackendState
from accelscale.readings import Readings

logger = logging.getLogger("accelscale.collector")


class Collector:
    """All backends of a process with their watchdog.

    ``deadline`` is how many seconds a driver call may take, ``refresh`` how many lie between two
    looks for devices that came or went. ``optional`` backends were not asked for by name: that one
    of them cannot be opened is no problem where others have devices.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        readings: Readings,
        *,
        deadline: float = 2.0,
        refresh: float = REFRESH_SECONDS,
        optional: bool = False,
    ) -> None:
        self._loops = tuple(
            BackendLoop(backend, readings, deadline=deadline, refresh=refresh, optional=optional)
            for backend in backends
        )
        self._deadline = deadline
        self._ended = threading.Event()
        self._watchdog = threading.Thread(
            target=self._watch, name="accelscale-watchdog", daemon=True
        )

    def start(self) -> None:
        """Start to read. Returns at once: a driver that is slow to open delays nobody."""
        for loop in self._loops:
            loop.start()
        self._watchdog.start()

    def states(self) -> tuple[BackendState, ...]:
        """How each backend is doing."""
        return tuple(loop.state for loop in self._loops)

    def release(self) -> bool:
        """Let go of all drivers; False if a hanging call holds one."""
        stopped = [loop.stop(self._deadline) for loop in self._loops]
        return all(stopped)

    def resume(self) -> None:
        """Take the drivers again after `release`."""
        for loop in self._loops:
            if loop.state.phase == "released":
                loop.start()

    def close(self) -> None:
        """End all threads, except those inside hanging calls, and close the backends."""
        self._ended.set()
        for loop in self._loops:
            loop.stop(self._deadline)
        if self._watchdog.is_alive():
            self._watchdog.join()

    def _watch(self) -> None:
        period = max(0.02, min(0.25, self._deadline / 4))
        while not self._ended.wait(period):
            now = time.monotonic()
            for loop in self._loops:
                try:
                    loop.check(now)
                except Exception:
                    logger.exception("the watchdog failed; it goes on")
