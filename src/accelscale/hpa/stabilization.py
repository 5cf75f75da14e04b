"""Hindsight: what the HPA proposed lately holds back what it proposes now.

The history lives in the memory of the controller: a restart, a change of leader or a deleted HPA
(KEDA deletes it while a ScaledObject is paused) starts it anew. What is stored is the proposal
before it was stabilised. A slot whose age is past use is overwritten, the last such slot first, so
the history stays about as long as the window is in syncs.

Edges differ between the two paths and are kept: at an age of exactly the window a proposal still
counts without a behaviour, and no longer counts with one. In reality the sync's jitter decides.

Origin: ``stabilizeRecommendation``, ``stabilizeRecommendationWithBehaviors`` and
``recordInitialRecommendation`` in ``horizontal.go``.
"""

from __future__ import annotations

from attrs import frozen

from accelscale.hpa.behavior import ResolvedBehavior
from accelscale.hpa.moments import older_than, younger_than


@frozen
class Recommendation:
    """What the metrics asked for at one time."""

    replicas: int
    time: float


Recommendations = tuple[Recommendation, ...]


@frozen
class Stabilized:
    """The proposal after hindsight, the history to keep, and why the two differ, if they do."""

    replicas: int
    recommendations: Recommendations
    reason: str


def initial_recommendations(
    recommendations: Recommendations | None, replicas: int, now: float
) -> Recommendations:
    """The history at the head of a sync: on first sight of an HPA its replicas as they are.

    None is no history at all; an empty one stays empty.
    """
    if recommendations is None:
        return (Recommendation(replicas, now),)
    return recommendations


def stabilize_downscale(
    recommendations: Recommendations, proposal: int, *, window: float, now: float
) -> Stabilized:
    """Without a behaviour: the greatest proposal of the window; nothing damps a scale-up.

    ``window`` is the controller's downscale stabilisation in seconds.
    """
    old = [older_than(past.time, window, now) for past in recommendations]
    recent = [
        past.replicas for past, is_old in zip(recommendations, old, strict=True) if not is_old
    ]
    replicas = max(proposal, *recent) if recent else proposal
    reason = "ReadyForNewScale" if replicas == proposal else "ScaleDownStabilized"
    return Stabilized(replicas, _stored(recommendations, old, proposal, now), reason)


def stabilize(
    recommendations: Recommendations,
    proposal: int,
    *,
    current: int,
    behavior: ResolvedBehavior,
    now: float,
) -> Stabilized:
    """With a behaviour: no higher than every proposal of the scale-up window wants, and no lower
    than any proposal of the scale-down window wants; between the two the replicas stay as they are.
    """
    up_window = behavior.scale_up.stabilization_window
    down_window = behavior.scale_down.stabilization_window
    least = greatest = proposal
    for past in recommendations:
        if younger_than(past.time, up_window, now):
            least = min(least, past.replicas)
        if younger_than(past.time, down_window, now):
            greatest = max(greatest, past.replicas)
    replicas = min(max(current, least), greatest)
    if replicas == proposal:
        reason = "ReadyForNewScale"
    else:
        reason = "ScaleUpStabilized" if proposal >= current else "ScaleDownStabilized"
    longest = max(up_window, down_window)
    old = [older_than(past.time, longest, now) for past in recommendations]
    return Stabilized(replicas, _stored(recommendations, old, proposal, now), reason)


def _stored(
    recommendations: Recommendations, old: list[bool], proposal: int, now: float
) -> Recommendations:
    """The history with the new proposal in the last old slot, or at the end."""
    newest = Recommendation(proposal, now)
    for slot in reversed(range(len(recommendations))):
        if old[slot]:
            return (*recommendations[:slot], newest, *recommendations[slot + 1 :])
    return (*recommendations, newest)
