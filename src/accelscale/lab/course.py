"""What a policy did over a stretch of time, and the figures that follow from its turns and answers.

A replay and a simulation are both courses: what they have in common is told here once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from attrs import frozen

from accelscale.hpa import Controller, Turn
from accelscale.lab.policy import Policy
from accelscale.trigger import MetricType, Trigger

FLAP_SECONDS = 600.0
"""A change against the direction of the one before it is a flap if it comes within this time."""


@frozen(eq=False)
class Answered:
    """What the scaler answered at one time, trigger by trigger.

    ``values`` and ``active`` are None where there was an error, which ``errors`` then holds.
    ``recorded`` is how many replicas the first trigger counted in a recording, or None.
    """

    time: float
    values: tuple[float | None, ...]
    active: tuple[bool | None, ...]
    activation: tuple[float | None, ...]
    errors: tuple[str, ...]
    recorded: int | None = None


@frozen(eq=False, kw_only=True)
class Course:
    """Every turn of the model, and what the scaler answered at each, over so many ``seconds``.

    ``load_time`` is what a new replica needs until it helps, ``tolerance`` the HPA's.
    """

    policy: Policy
    start_replicas: int
    turns: tuple[Turn, ...]
    answered: tuple[Answered, ...]
    devices_per_replica: float
    seconds: float
    load_time: float
    tolerance: float

    def changes(self) -> list[tuple[float, int]]:
        """The replicas wanted, as (time, from then on); the first entry is the start."""
        found = [(0.0, self.start_replicas)]
        for turn in self.turns:
            if turn.replicas != found[-1][1]:
                found.append((turn.time, turn.replicas))
        return found


Verdict = Callable[[Answered], bool | None]


@frozen
class CourseSummary:
    """The figures of a course; hours are of the whole of it.

    Every figure that cannot be told is None, never 0. Shares are fractions of the time for which
    they can be told. ``no_data_share`` is the time without an answer of every trigger.
    ``above_threshold_share`` is the time that one replica carried more than the threshold.
    ``reaction_median_seconds`` runs from the first moment beyond threshold and tolerance until a
    further replica had loaded. ``replicas_started`` are cold starts, each of which takes the load
    time.
    """

    hours: float
    replica_hours: float
    device_hours: float
    replicas_least: int
    replicas_mean: float
    replicas_most: int
    scale_ups: int
    scale_downs: int
    starts_from_zero: int
    stops_to_zero: int
    replicas_started: int
    flaps: int
    at_maximum_share: float
    no_data_share: float
    active_share: float | None
    above_threshold_share: float | None
    reactions: int
    reaction_median_seconds: float | None
    reaction_longest_seconds: float | None


def summarize_course(course: Course) -> CourseSummary:
    """The figures that need nothing but turns and answers."""
    changes = course.changes()
    counts = [replicas for _, replicas in changes]
    steps = [(before, after) for (_, before), (_, after) in pairwise(changes)]
    durations = np.diff([*(time for time, _ in changes), course.seconds])
    replica_seconds = float(np.dot(durations, counts))
    most = course.policy.scaled_object.max_replicas
    at_most = float(durations[np.array(counts) >= most].sum())
    reactions = sorted(_reactions(course, changes))
    return CourseSummary(
        hours=course.seconds / 3600,
        replica_hours=replica_seconds / 3600,
        device_hours=replica_seconds / 3600 * course.devices_per_replica,
        replicas_least=min(counts),
        replicas_mean=replica_seconds / course.seconds,
        replicas_most=max(counts),
        scale_ups=sum(after > before for before, after in steps),
        scale_downs=sum(after < before for before, after in steps),
        starts_from_zero=sum(before == 0 for before, _ in steps),
        stops_to_zero=sum(after == 0 for _, after in steps),
        replicas_started=sum(max(0, after - before) for before, after in steps),
        flaps=_flaps(changes),
        at_maximum_share=at_most / course.seconds,
        no_data_share=_share(course, lambda one: bool(one.errors)) or 0.0,
        active_share=_share(course, lambda one: None if one.errors else any(one.active)),
        above_threshold_share=_share(course, _above(course, changes, 1.0)),
        reactions=len(reactions),
        reaction_median_seconds=reactions[len(reactions) // 2] if reactions else None,
        reaction_longest_seconds=reactions[-1] if reactions else None,
    )


def scale_down_window(policy: Policy, controller: Controller) -> float:
    """Seconds for which the HPA remembers what it asked for before it removes replicas."""
    behavior = policy.scaled_object.behavior
    if behavior is None:
        return controller.downscale_stabilization
    return behavior.resolved(controller).scale_down.stabilization_window


def carried(trigger: Trigger, value: float | None, replicas: int) -> float | None:
    """What one of so many replicas carries of a value, as the HPA divides it; None without any."""
    if value is None or not replicas:
        return None
    return value / replicas if trigger.metric_type is MetricType.AVERAGE_VALUE else value


def ratio(course: Course, answered: Answered, replicas: int) -> float | None:
    """How much one replica carries, in thresholds: the greatest of the triggers, or None."""
    shares = [
        (trigger, carried(trigger, value, replicas))
        for trigger, value in zip(course.policy.triggers, answered.values, strict=True)
    ]
    found = [share / trigger.threshold for trigger, share in shares if share is not None]
    return max(found) if found else None


def _above(course: Course, changes: Sequence[tuple[float, int]], limit: float) -> Verdict:
    since = [time for time, _ in changes]

    def above(answered: Answered) -> bool | None:
        # A change at this very moment follows from the answer: what counts is before it.
        at = max(bisect_right(since, answered.time - 1e-9) - 1, 0)
        found = ratio(course, answered, changes[at][1])
        return None if found is None else found > limit

    return above


def _share(course: Course, holds: Verdict) -> float | None:
    """The share of the time in which something held, of that for which it can be told."""
    known = held = 0.0
    ends = [*(one.time for one in course.answered[1:]), course.seconds]
    for one, end in zip(course.answered, ends, strict=bool(course.answered)):
        verdict = holds(one)
        if verdict is not None:
            known += end - one.time
            held += (end - one.time) * verdict
    return held / known if known else None


def _reactions(course: Course, changes: Sequence[tuple[float, int]]) -> Iterator[float]:
    """Seconds of each overload until a further replica had loaded; some pass before that."""
    over = _above(course, changes, 1.0 + course.tolerance)
    rises = [time for (_, before), (time, after) in pairwise(changes) if after > before]
    since: float | None = None
    for one in course.answered:
        if not over(one):
            since = None
            continue
        since = one.time if since is None else since
        at = bisect_right(rises, since - 1e-9)
        if at < len(rises) and rises[at] <= one.time:
            yield rises[at] - since + course.load_time
            since = None


def _flaps(changes: Sequence[tuple[float, int]]) -> int:
    moves = [(time, after > before) for (_, before), (time, after) in pairwise(changes)]
    return sum(
        up != before_up and time - before <= FLAP_SECONDS
        for (before, before_up), (time, up) in pairwise(moves)
    )
