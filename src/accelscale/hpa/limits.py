"""Rate limits: how far one sync may go, given what the HPA itself did shortly before.

Only what the HPA wrote counts, its jumps to minimum and maximum included; the operator's step from
0 and a user's hand on the Deployment are invisible to it. Without a behaviour there is no memory at
all: the replicas may double every sync.

Origin: ``convertDesiredReplicasWithBehaviorRate``, ``convertDesiredReplicasWithRules``,
``calculateScaleUpLimitWithScalingRules``, ``calculateScaleDownLimitWithBehaviors``,
``getReplicasChangePerPeriod`` and ``storeScaleEvent`` in ``horizontal.go``. Where a percentage
overflows 32 bits there, the model goes on counting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import attrs
from attrs import frozen

from accelscale.hpa.behavior import (
    PolicyType,
    ResolvedBehavior,
    ResolvedRules,
    SelectPolicy,
)
from accelscale.hpa.moments import older_than, younger_than


@frozen
class ScaleEvent:
    """One change that the HPA made in one direction; ``change`` is never negative.

    ``outdated`` marks a slot that may be overwritten; it stays marked if a longer policy comes.
    """

    change: int
    time: float
    outdated: bool = False


@frozen
class ScaleEvents:
    """What the HPA remembers of its own changes, by direction."""

    up: tuple[ScaleEvent, ...] = ()
    down: tuple[ScaleEvent, ...] = ()


@frozen
class Limited:
    """The replicas after the limit, and the reason of the HPA's ScalingLimited condition."""

    replicas: int
    reason: str


def change_within(events: Iterable[ScaleEvent], period: float, now: float) -> int:
    """Replicas changed in the last ``period`` seconds; an event exactly that old is out."""
    return sum(event.change for event in events if younger_than(event.time, period, now))


def store_event(
    events: tuple[ScaleEvent, ...], change: int, *, longest_period: float, now: float
) -> tuple[ScaleEvent, ...]:
    """The events with a new one, in the last slot older than every policy, or at the end."""
    marked = tuple(
        attrs.evolve(event, outdated=True) if older_than(event.time, longest_period, now) else event
        for event in events
    )
    newest = ScaleEvent(change, now)
    for slot in reversed(range(len(marked))):
        if marked[slot].outdated:
            return (*marked[:slot], newest, *marked[slot + 1 :])
    return (*marked, newest)


def record_change(
    events: ScaleEvents, before: int, after: int, *, behavior: ResolvedBehavior | None, now: float
) -> ScaleEvents:
    """The memory after the HPA wrote ``after``; without a behaviour nothing is remembered."""
    if behavior is None:
        return events
    if after > before:
        longest = behavior.scale_up.longest_period
        up = store_event(events.up, after - before, longest_period=longest, now=now)
        return ScaleEvents(up, events.down)
    longest = behavior.scale_down.longest_period
    down = store_event(events.down, before - after, longest_period=longest, now=now)
    return ScaleEvents(events.up, down)


def scale_up_limit(current: int, events: ScaleEvents, rules: ResolvedRules, now: float) -> int:
    """The most replicas that the scale-up policies allow; it may lie below ``current``."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return current
    limits = []
    for policy in rules.policies:
        start = _start_of_period(current, events, policy.period_seconds, now)
        if policy.type is PolicyType.PODS:
            limits.append(start + policy.value)
        else:
            limits.append(math.ceil(float(start) * (1.0 + float(policy.value) / 100.0)))
    return min(limits) if rules.select_policy is SelectPolicy.MIN else max(limits)


def scale_down_limit(current: int, events: ScaleEvents, rules: ResolvedRules, now: float) -> int:
    """The fewest replicas that the scale-down policies allow; it may lie above ``current``."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return current
    limits = []
    for policy in rules.policies:
        start = _start_of_period(current, events, policy.period_seconds, now)
        if policy.type is PolicyType.PODS:
            limits.append(start - policy.value)
        else:
            limits.append(math.trunc(float(start) * (1.0 - float(policy.value) / 100.0)))
    return max(limits) if rules.select_policy is SelectPolicy.MIN else min(limits)


def limit_by_behavior(
    current: int,
    desired: int,
    *,
    minimum: int,
    maximum: int,
    behavior: ResolvedBehavior,
    events: ScaleEvents,
    now: float,
) -> Limited:
    """With a behaviour: within the policies' reach from ``current``, and within min and max."""
    if desired > current:
        reach = max(scale_up_limit(current, events, behavior.scale_up, now), current)
        if maximum > reach and desired > reach:
            return Limited(reach, "ScaleUpLimit")
        if desired > maximum:
            return Limited(maximum, "TooManyReplicas")
    elif desired < current:
        reach = min(scale_down_limit(current, events, behavior.scale_down, now), current)
        if minimum < reach and desired < reach:
            return Limited(reach, "ScaleDownLimit")
        if desired < minimum:
            return Limited(minimum, "TooFewReplicas")
    return Limited(desired, "DesiredWithinRange")


def limit_by_doubling(current: int, desired: int, *, minimum: int, maximum: int) -> Limited:
    """Without a behaviour: at most twice the replicas, or 4, and within min and max."""
    reach = max(2 * current, 4)
    if desired < minimum:
        return Limited(minimum, "TooFewReplicas")
    if desired > min(maximum, reach):
        if maximum > reach:
            return Limited(reach, "ScaleUpLimit")
        return Limited(maximum, "TooManyReplicas")
    return Limited(desired, "DesiredWithinRange")


def _start_of_period(current: int, events: ScaleEvents, period: float, now: float) -> int:
    """The replicas before the HPA's own changes of the last ``period`` seconds."""
    added = change_within(events.up, period, now)
    return current - added + change_within(events.down, period, now)
