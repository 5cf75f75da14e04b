"""Both controllers on one workload: polls and syncs interleaved on the same ``spec.replicas``.

This is the model with a clock driven through it, for a replay or a test. What a cluster leaves to
chance is a parameter here: the phases of poll and sync, how long a pod takes to become Ready, when
the controller restarts. What is simplified: a poll, a sync and the start of a pod object take no
time, so status replicas follow at once and a sync begins exactly one period after the last; where
both fall on one moment the poll comes first; a removed pod is gone at once, the youngest first, as
the ReplicaSet controller prefers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Self

import attrs
from attrs import frozen

from accelscale.errors import ConfigurationError, Fault
from accelscale.hpa.autoscaler import (
    HpaState,
    MetricStatus,
    Scale,
    Sync,
    reads_metrics,
    sync,
)
from accelscale.hpa.keda import KedaState, Poll, ScalerAnswer, hpa_spec, poll, query
from accelscale.hpa.moments import younger_than
from accelscale.hpa.scaledobject import ScaledObject
from accelscale.hpa.versions import Controller, KedaVersion

Answers = Callable[[float, Scale], Sequence[ScalerAnswer]]
"""What the scalers answer at a time, given the workload: the caller's trace or demand model."""

_CONTROLLER = Controller()
_KEDA = KedaVersion()


@frozen
class Timing:
    """What a cluster leaves to chance, in seconds.

    The first poll is ``poll_phase`` after the start, the first sync ``sync_phase``. KEDA spreads
    the first polls of many objects over the interval; a replay should try several phases.
    ``controller_restarts`` are times at which the HPA's memory is lost.
    """

    poll_phase: float = 0.0
    sync_phase: float = 0.0
    readiness_delay: float = 0.0
    controller_restarts: tuple[float, ...] = ()

    def __attrs_post_init__(self) -> None:
        faults = [
            Fault(name, f"{value:g}", "must be 0 or more")
            for name, value in attrs.asdict(self).items()
            if name != "controller_restarts" and not value >= 0
        ]
        if faults:
            raise ConfigurationError(faults, subject="timing")


@frozen
class Pods:
    """The pods of a workload by the time at which each was created, oldest first."""

    created: tuple[float, ...] = ()

    @classmethod
    def settled(cls, replicas: int) -> Self:
        """Pods that have been there for ever, so they are Ready whatever the delay."""
        return cls((float("-inf"),) * replicas)

    def scaled(self, replicas: int, now: float) -> Self:
        """With that many pods: new ones created now, or the youngest removed."""
        new = (now,) * (replicas - len(self.created))
        return type(self)((*self.created, *new)[:replicas])

    def scale(self, replicas: int, readiness_delay: float, now: float) -> Scale:
        """What a controller finds: every pod exists, and those old enough are Ready."""
        starting = sum(younger_than(time, readiness_delay, now) for time in self.created)
        return Scale(replicas, len(self.created), len(self.created) - starting)


@frozen
class Turn:
    """One turn of one controller: the workload that it found, and what it made of it."""

    time: float
    found: Scale
    outcome: Poll | Sync

    @property
    def replicas(self) -> int:
        """The replicas wanted afterwards."""
        return self.outcome.replicas


def run(
    scaled_object: ScaledObject,
    answers: Answers,
    *,
    start: float,
    end: float,
    replicas: int,
    timing: Timing = Timing(),
    controller: Controller = _CONTROLLER,
    keda: KedaVersion = _KEDA,
) -> Iterator[Turn]:
    """Every turn from ``start`` to before ``end``, in order of time, from settled ``replicas``.

    A paused ScaledObject takes no turn; with ``paused-replicas`` the caller sets that number. The
    HPA's metrics are those of all triggers: whether each answers GetMetricSpec when the HPA is
    built is for callers of `accelscale.hpa.keda.hpa_spec`.

    Raises:
        ConfigurationError: a target that the API server refuses.
    """
    if scaled_object.pause.stops:
        return
    spec = hpa_spec(scaled_object, keda=keda)
    memory, hpa = KedaState(), HpaState()
    pods = Pods.settled(replicas)
    restarts = sorted(timing.controller_restarts)
    for now, is_poll in _turns(scaled_object, timing, controller, start, end):
        while restarts and restarts[0] <= now:
            hpa, restarts = hpa.after_restart(), restarts[1:]
        found = pods.scale(replicas, timing.readiness_delay, now)
        outcome: Poll | Sync
        if is_poll:
            outcome = poll(scaled_object, memory, found, answers(now, found), now=now, keda=keda)
            memory = outcome.state
        else:
            statuses: tuple[MetricStatus, ...] = ()
            if reads_metrics(spec, hpa, found.replicas, controller):
                given = answers(now, found)
                memory, statuses = query(
                    scaled_object, spec.metrics, memory, found, given, keda=keda
                )
            outcome = sync(spec, hpa, found, statuses, now=now, controller=controller)
            hpa = outcome.state
        replicas = outcome.replicas
        pods = pods.scaled(replicas, now)
        yield Turn(now, found, outcome)


def _turns(
    scaled_object: ScaledObject, timing: Timing, controller: Controller, start: float, end: float
) -> Iterator[tuple[float, bool]]:
    """The times of polls (True) and syncs (False), merged; a poll comes before a sync."""
    polls = syncs = 0
    while True:
        next_poll = start + timing.poll_phase + polls * scaled_object.polling_interval
        next_sync = start + timing.sync_phase + syncs * controller.sync_period
        now = min(next_poll, next_sync)
        if not now < end:
            return
        if next_poll <= next_sync:
            polls += 1
            yield now, True
        else:
            syncs += 1
            yield now, False
