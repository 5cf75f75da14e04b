"""Who asks: a trigger of a ScaledObject, parsed once, with what the log last said about it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define, field

from accelscale.errors import (
    AccelscaleError,
    ConfigurationError,
    Fault,
    NoDataError,
    UnsupportedError,
)
from accelscale.trigger import MetricType, parse_trigger
from accelscale_server.explanation import headline
from accelscale_server.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from accelscale.engine import Evaluation
    from accelscale.metrics import Metric
    from accelscale.trigger import Trigger

logger = logging.getLogger("accelscale_server.verdicts")

MOST = 2048
LONGEST_METADATA = 2 * 1024
"""Characters of metadata that are remembered; longer ones are parsed at every call."""

LONGEST_NAME = 253
"""What Kubernetes allows; a client that sends more does not fill the log with it."""

ASKS_EVERY = 300.0
"""Seconds in which a trigger that is in force asks at least once, polled as seldom as it may be."""

MetricTypeOf = Callable[[str, str, "Mapping[str, str]"], MetricType | None]
"""KEDA's metricType for the trigger of a ScaledObject (namespace, name, metadata), or None where it
is not told; raises AccelscaleError while nobody can tell."""


@define
class Subject:
    """A trigger of a ScaledObject; ``error`` is set where the metadata is no trigger.

    One that is not ``remembered`` is made anew by every call, so the log stays silent about it.
    ``since`` is when it asked first, and ``asked`` when last, in monotonic seconds.
    """

    namespace: str
    name: str
    metadata: Mapping[str, str]
    parsed: Trigger | None
    error: ConfigurationError | None = None
    remembered: bool = True
    since: float = field(factory=time.monotonic)
    asked: float = field(factory=time.monotonic)
    retyped: Trigger | None = field(default=None, init=False)
    _said: tuple[Any, ...] | None = field(default=None, init=False)
    _doubted: MetricType | None = field(default=None, init=False)

    @property
    def trigger(self) -> Trigger:
        """The parsed trigger.

        Raises:
            ConfigurationError: the metadata is none.
        """
        if self.error is not None:
            raise self.error.with_traceback(None)
        assert self.parsed is not None
        return self.parsed

    def note(self, evaluation: Evaluation) -> None:
        """Say in the log what became of this trigger, where that differs from the last time."""
        held = evaluation.fill != "none"
        verdict = (_kind(evaluation.value), _kind(evaluation.active), held)
        if verdict == self._said or not self.remembered:
            return
        self._said = verdict
        known = not isinstance(evaluation.value, AccelscaleError)
        missing = [
            str(part)
            for part in (evaluation.value, evaluation.active)
            if isinstance(part, AccelscaleError)
        ]
        logger.log(
            logging.WARNING if missing or held else logging.INFO,
            "no value" if not known else "no verdict" if missing else "verdict",
            extra={
                **self._labels(),
                **({"value": round(float(evaluation.value), 3)} if known else {}),  # type: ignore[arg-type]
                **({} if missing else {"active": evaluation.active}),
                **(
                    {"why": missing[0] if missing else headline(evaluation)}
                    if missing or held
                    else {}
                ),
            },
        )

    def complain(self) -> None:
        """Say in the log what is wrong about the metadata."""
        if self.error is not None:
            # Without the values: what stands under a wrong key may be a secret.
            why = "; ".join(f"{fault.key}: {fault.problem}" for fault in self.error.faults)
            logger.warning("bad trigger metadata", extra={**self._labels(), "why": why[:2000]})

    def doubt(self, trigger: Trigger) -> None:
        """Say in the log what is doubtful about the trigger, once for each metric type."""
        if trigger.metric_type is not self._doubted and self.remembered:
            self._doubted = trigger.metric_type
            for warning in trigger.warnings:
                logger.warning("doubtful trigger", extra={**self._labels(), "why": warning})

    def _labels(self) -> dict[str, str]:
        scaled_object = f"{self.namespace[:LONGEST_NAME]}/{self.name[:LONGEST_NAME]}"
        labels = {"scaled_object": scaled_object}
        if self.parsed is not None:
            labels["metric"] = self.parsed.metric_name
        return labels


class Subjects:
    """All who asked recently, a bounded number of them. For one thread."""

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        scopes: Collection[str],
        metric_type_of: MetricTypeOf | None = None,
    ) -> None:
        self._metrics = metrics
        self._scopes = scopes
        self._metric_type_of = metric_type_of
        self._recent: Recent[tuple[str, str, frozenset[tuple[str, str]]], Subject] = Recent(MOST)

    def __len__(self) -> int:
        return len(self._recent)

    def of(self, namespace: str, name: str, metadata: Mapping[str, str]) -> Subject:
        """The subject of a request; its metadata is parsed at the first one."""
        key = (namespace, name, frozenset(metadata.items()))
        found = self._recent.find(key)
        if found is not None:
            found.asked = time.monotonic()
            return found
        made = self._made(namespace, name, metadata)
        length = len(namespace) + len(name) + sum(len(k) + len(v) for k, v in metadata.items())
        made.remembered = length <= LONGEST_METADATA
        if made.remembered:
            self._recent.keep(key, made)
            made.complain()
            if made.parsed is not None and self._metric_type_of is None:
                made.doubt(made.parsed)
        return made

    def trigger_of(self, subject: Subject) -> Trigger:
        """The trigger with the metric type that its ScaledObject has, as far as that is told.

        Raises:
            ConfigurationError: the metadata is none.
            AccelscaleError: nobody can tell the metric type at present, or who may ask.
        """
        trigger = subject.trigger
        if self._metric_type_of is not None:
            told = self._metric_type_of(subject.namespace, subject.name, subject.metadata)
            if told is not None and told is not trigger.metric_type:
                trigger = self._retyped(subject, told)
        subject.doubt(trigger)
        return trigger

    def _retyped(self, subject: Subject, told: MetricType) -> Trigger:
        if subject.retyped is None or subject.retyped.metric_type is not told:
            metadata = {**subject.metadata, "metricType": told.value}
            subject.retyped = self._parsed(metadata)
        return subject.retyped

    def asked_by(self, namespace: str, name: str) -> list[Subject]:
        """The triggers with which a ScaledObject asks at present, the latest last."""
        own = [s for s in self._recent.values() if (s.namespace, s.name) == (namespace, name)]
        current = time.monotonic() - ASKS_EVERY
        return [subject for subject in own if subject.asked > current] or own[-1:]

    def _made(self, namespace: str, name: str, metadata: Mapping[str, str]) -> Subject:
        try:
            trigger = self._parsed(metadata)
        except ConfigurationError as error:
            return Subject(namespace, name, dict(metadata), None, error)
        return Subject(namespace, name, dict(metadata), trigger)

    def _parsed(self, metadata: Mapping[str, str]) -> Trigger:
        trigger = parse_trigger(metadata, metrics=self._metrics, scopes=self._scopes)
        if trigger.scope == "node" and trigger.node is None and len(self._scopes) > 1:
            problem = "is required with scope node, for a cluster has many"
            raise ConfigurationError([Fault("node", None, problem)])
        return trigger


def _kind(answer: float | bool | AccelscaleError) -> object:
    """What makes two answers the same verdict: values may differ, errors must agree in kind."""
    if isinstance(answer, NoDataError | UnsupportedError):
        return type(answer), answer.reason
    if isinstance(answer, AccelscaleError):
        return type(answer)
    return answer if isinstance(answer, bool) else True
