"""Utilisation from the CPU times that the kernel counts since boot: two readings make a share."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, frozen

from accelscale.model import Reason
from accelscale_host.files import UnreadableError

_IDLE = ("idle", "iowait")
_COUNTED_TWICE = ("guest", "guest_nice")  # the kernel counts them in user and nice already


@frozen
class CpuTime:
    """Microseconds that all CPUs together were busy and idle since boot.

    Busy is all but ``idle`` and ``iowait``: in both, no work could run. Time that a hypervisor
    took away (``steal``) is busy, because work was there to run; were it left out, a starved
    virtual machine would look idle. ``iowait`` is taken together with ``idle`` because the kernel
    moves time from one to the other, so that it can go back by itself (proc_stat(5)).
    """

    busy: int
    idle: int

    @classmethod
    def of(cls, seconds: Mapping[str, float]) -> CpuTime:
        """From the fields of `psutil.cpu_times`. Whole numbers, so that no rounding counts."""
        parts = {name: round(value * 1e6) for name, value in seconds.items()}
        idle = sum(parts.get(name, 0) for name in _IDLE)
        apart = sum(parts.get(name, 0) for name in _COUNTED_TWICE)
        return cls(sum(parts.values()) - idle - apart, idle)


@define
class BusyShare:
    """The share of busy time between one call and the next."""

    _before: CpuTime | None = None

    def percent(self, now: CpuTime) -> float:
        """Utilisation in percent since the previous call.

        Raises:
            UnreadableError: there is no previous call, the times did not move, or they went back.
        """
        before = self._before
        if before is None:
            self._before = now
            raise UnreadableError(Reason.NO_PROGRESS, "needs two readings of the CPU times")
        busy, idle = now.busy - before.busy, now.idle - before.idle
        if busy == idle == 0:
            # Kept as the start of the next share, which then covers more time.
            raise UnreadableError(
                Reason.NO_PROGRESS, "the CPU times have not moved since the last reading"
            )
        self._before = now
        if busy < 0 or idle < 0:
            raise UnreadableError(Reason.COUNTER_RESET, "the CPU times of the kernel went back")
        return 100.0 * busy / (busy + idle)
