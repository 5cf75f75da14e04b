"""One evaluation per trigger and snapshot, shared by everyone who asks meanwhile.

KEDA's operator and its metrics adapter ask the same questions several times within a second, and
every stream asks after each pass. All get one answer, made once from memory.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from accelscale.engine import Evaluation
    from accelscale.trigger import Trigger

MOST = 8192
"""Evaluations kept of one snapshot. A stuck driver brings no new snapshot, so time is no bound."""

COSTLY = 0.01
REST = 10.0
"""An evaluation that took more than so many seconds, over every device of a large cluster, counts
for so many times as long, whatever news there is: it held up all calls while it was made."""


_Asker: TypeAlias = "tuple[Trigger, str, str]"


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
        self._by_asker: dict[_Asker, Evaluation] = {}
        self._costly: dict[_Asker, tuple[Evaluation, float]] = {}
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
        self._by_asker[key] = made = self._rested(key) or self._made(key, namespace, name)
        return made

    def _rested(self, key: _Asker) -> Evaluation | None:
        """One of before that was too costly to be made again so soon."""
        evaluation, until = self._costly.get(key, (None, 0.0))
        if evaluation is None or (time.monotonic() < until and not _outlived(evaluation)):
            return evaluation
        del self._costly[key]
        return None

    def _made(self, key: _Asker, namespace: str, name: str) -> Evaluation:
        self.made += 1
        begun = time.thread_time()
        evaluation = self._source.evaluate(namespace, name, key[0])
        took = time.thread_time() - begun
        if took > COSTLY and len(self._costly) < MOST:
            self._costly[key] = evaluation, time.monotonic() + REST * took
        return evaluation


def _outlived(evaluation: Evaluation) -> bool:
    """Whether a sample has become too old since. One that says so already is made only once."""
    return evaluation.time <= evaluation.fresh_until < time.monotonic()
