"""Ages, compared as the controllers' clocks compare them.

Times are seconds of whatever clock the caller drives; nothing here asks for the time. Go counts
whole nanoseconds, so 45.3 s less 15 s is exactly 30.3 s there, where doubles leave a residue that
would decide at an edge. Ages are therefore compared in whole microseconds, which a double can carry
even as seconds since 1970.
"""

from __future__ import annotations

import math


def younger_than(time: float, seconds: float, now: float) -> bool:
    """Whether ``time`` is less than that many seconds ago; exactly that many is not."""
    return _microseconds(now - time) < _microseconds(seconds)


def older_than(time: float, seconds: float, now: float) -> bool:
    """Whether ``time`` is more than that many seconds ago; exactly that many is not."""
    return _microseconds(now - time) > _microseconds(seconds)


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6) if math.isfinite(seconds) else seconds
