"""Times of another machine's monotonic clock, told on ours.

No clocks need to agree: what counts is how much later a message arrives than it was written, as
the two clocks have it. The smallest such difference belongs to the message that was least delayed,
and stands for the distance between the clocks. A message that lay in a buffer arrives with a larger
difference, so what it says is old. A stepped wall clock changes nothing of this.
"""

from __future__ import annotations

import math

WINDOW = 300.0
"""Seconds after which the smallest difference is forgotten at the latest: clocks drift, and one
that stood still while its machine slept differs for good."""


class ClockOffset:
    """Follows the distance between our monotonic clock and that of a sender.

    The smallest difference of the last `WINDOW` seconds, or of at least half of that: two halves
    are kept, each with its own minimum, and the older is dropped as the newer one is full.
    """

    __slots__ = ("_begun", "_older", "_smallest")

    def __init__(self) -> None:
        self._older = math.inf
        self._smallest = math.inf
        self._begun = -math.inf

    def note(self, received: float, sent: float) -> None:
        """Take a message: when it was received by our clock, and sent by the other."""
        if received - self._begun > WINDOW / 2:
            self._older, self._smallest, self._begun = self._smallest, math.inf, received
        self._smallest = min(self._smallest, received - sent)

    def here(self, there: float) -> float:
        """A time of the other clock, on ours; at least one message must have been noted."""
        return there + min(self._smallest, self._older)
