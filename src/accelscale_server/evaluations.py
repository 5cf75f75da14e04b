"""One evaluation per trigger and snapshot, shared by everyone who asks meanwhile.

KEDA's operator and its metrics adapter ask the same questions several times within a second, and
every stream asks after each pass. All get one answer, made once from memory.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from accelscale.engine import Evaluation
    from accelscale.trigger import Trigger

MOST = 8192
"""Evaluations kept of one snapshot. A stuck driver brings no new snapshot, so time is no bound."""


class Source(Protocol):
    """What triggers are evaluated over.

    ``names_matter`` says whether the answer depends on which ScaledObject asks.
    ``first_answer_seconds`` is how long what a ScaledObject asks for first may be under way: a call
    waits for it so long. 0 where everything is known from the start.
    """

    names_matter: bool
    first_answer_seconds: float

    @property
    def sequence(self) -> int:
        """Grows with every change after which an evaluation may come out differently."""

    def evaluate(self, namespace: str, name: str, trigger: Trigger) -> Evaluation:
        """The evaluation of a trigger of this ScaledObject now, from memory.

        Raises nothing for what is missing: that ends in the evaluation.
        """


class Evaluations:
    """Evaluations of the newest snapshot; those of older ones are dropped. For one thread."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._sequence = -1
        self._by_asker: dict[tuple[Trigger, str, str], Evaluation] = {}
        self.first_answer_seconds = source.first_answer_seconds
        self.made = 0

    def of(self, trigger: Trigger, namespace: str = "", name: str = "") -> Evaluation:
        """The evaluation of this trigger of this ScaledObject over what is known now."""
        sequence = self._source.sequence
        if sequence != self._sequence or len(self._by_asker) >= MOST:
            self._sequence = sequence
            self._by_asker.clear()
        key = (trigger, namespace, name) if self._source.names_matter else (trigger, "", "")
        found = self._by_asker.get(key)
        if found is not None and not _outlived(found):
            return found
        # Read before it was made: should a pass have ended in between, it is made once too often.
        self.made += 1
        self._by_asker[key] = made = self._source.evaluate(namespace, name, trigger)
        return made


def _outlived(evaluation: Evaluation) -> bool:
    """Whether a sample has become too old since. One that says so already is made only once."""
    return evaluation.time <= evaluation.fresh_until < time.monotonic()
