"""One evaluation per trigger and snapshot, shared by everyone who asks meanwhile.

KEDA's operator and its metrics adapter ask the same questions several times within a second, and
every stream asks after each pass. All get one answer, made once from memory.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelscale.engine import Evaluation
    from accelscale.monitor import Monitor
    from accelscale.trigger import Trigger

MOST = 8192
"""Evaluations kept of one snapshot. A stuck driver brings no new snapshot, so time is no bound."""


class Evaluations:
    """Evaluations of the newest snapshot; those of older ones are dropped. For one thread."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._sequence = -1
        self._by_trigger: dict[Trigger, Evaluation] = {}
        self.made = 0

    def of(self, trigger: Trigger) -> Evaluation:
        """The evaluation of this trigger over what is known now."""
        sequence = self._monitor.sequence
        if sequence != self._sequence or len(self._by_trigger) >= MOST:
            self._sequence = sequence
            self._by_trigger.clear()
        found = self._by_trigger.get(trigger)
        if found is not None and not _outlived(found):
            return found
        # Read before it was made: should a pass have ended in between, it is made once too often.
        self.made += 1
        self._by_trigger[trigger] = made = self._monitor.evaluate(trigger)
        return made


def _outlived(evaluation: Evaluation) -> bool:
    """Whether a sample has become too old since. One that says so already is made only once."""
    return evaluation.time <= evaluation.fresh_until < time.monotonic()
