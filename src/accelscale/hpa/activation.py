"""The operator's own writes to the scale: from 0, to 0, to and from idle, up to the minimum.

Between 1 (or the minimum) and the maximum the HPA alone decides. Here a fault must not look like
idleness: an error without a fallback block holds the replicas, and so does one with it while the
failures are being counted. A block with ``replicas: 0`` is not protected that way. Errors do not
refresh the time of the last activity either, so the first "inactive" after an outage longer than
the cooldown goes from any number to 0 at once.

Times of the status and of the object's creation are kept in whole seconds, as the API does.

Origin: ``RequestScale``, ``scaleToZeroOrIdle`` and ``scaleFromZeroOrIdle`` in KEDA's
``pkg/scaling/executor/scale_scaledobjects.go``.
"""

from __future__ import annotations

import math
from enum import StrEnum

from attrs import frozen

from accelscale.hpa.moments import older_than
from accelscale.hpa.scaledobject import ScaledObject


class Action(StrEnum):
    """What the operator did, or why it did nothing."""

    ACTIVATED = "activated"
    DEACTIVATED = "deactivated"
    RAISED_TO_MINIMUM = "raised to the minimum"
    REFRESHED = "activity refreshed"
    COOLING_DOWN = "cooling down"
    PARTIAL_ERROR = "active, but a trigger fails: activity not refreshed"
    AWAITS_FALLBACK = "held: a trigger fails and the fallback is awaited"
    ERROR = "held: a trigger fails"
    SCALE_IN_PAUSED = "scale-in is paused"
    SCALE_OUT_PAUSED = "scale-out is paused"
    PAUSED = "paused"
    NONE = "no change"


@frozen
class Decision:
    """The replicas after the operator's turn, its new time of last activity, and what it did."""

    replicas: int
    last_active: float | None
    action: Action


def decide(
    scaled_object: ScaledObject,
    replicas: int,
    last_active: float | None,
    *,
    active: bool,
    error: bool,
    now: float,
) -> Decision:
    """One turn of the operator with ``replicas`` wanted at present."""
    if scaled_object.pause.stops:
        return Decision(replicas, last_active, Action.PAUSED)
    if active or scaled_object.force_activation:
        return _active(scaled_object, replicas, last_active, error=error, now=now)
    return _inactive(scaled_object, replicas, last_active, error=error, now=now)


def _active(
    scaled_object: ScaledObject,
    replicas: int,
    last_active: float | None,
    *,
    error: bool,
    now: float,
) -> Decision:
    idle = scaled_object.idle_replicas is not None and replicas < scaled_object.min_replicas
    if replicas == 0 or idle:
        if scaled_object.pause.scale_out:
            return Decision(replicas, last_active, Action.SCALE_OUT_PAUSED)
        return Decision(scaled_object.activated_replicas, float(math.floor(now)), Action.ACTIVATED)
    if error:
        return Decision(replicas, last_active, Action.PARTIAL_ERROR)
    return Decision(replicas, float(math.floor(now)), Action.REFRESHED)


def _inactive(
    scaled_object: ScaledObject,
    replicas: int,
    last_active: float | None,
    *,
    error: bool,
    now: float,
) -> Decision:
    fallback, idle = scaled_object.fallback, scaled_object.idle_replicas
    if error and fallback is not None and fallback.replicas != 0:
        return Decision(replicas, last_active, Action.AWAITS_FALLBACK)
    if error and fallback is None:
        return Decision(replicas, last_active, Action.ERROR)
    above_idle = idle is not None and replicas > idle
    if above_idle or (replicas > 0 and scaled_object.min_replicas == 0):
        return _rest(scaled_object, replicas, last_active, now)
    if idle is None and replicas < scaled_object.min_replicas:
        return Decision(scaled_object.min_replicas, last_active, Action.RAISED_TO_MINIMUM)
    return Decision(replicas, last_active, Action.NONE)


def _rest(
    scaled_object: ScaledObject, replicas: int, last_active: float | None, now: float
) -> Decision:
    """To 0 or idle, in one step from any count, once the cooldown is strictly past.

    What was never active only waits for the initial cooldown, 0 by default: a new ScaledObject
    with minimum 0 falls to 0 on the first poll that finds it inactive.
    """
    if scaled_object.pause.scale_in:
        return Decision(replicas, last_active, Action.SCALE_IN_PAUSED)
    if last_active is None:
        since = float(math.floor(scaled_object.created))
        cooled = older_than(since, scaled_object.initial_cooldown_period, now)
    else:
        cooled = older_than(last_active, scaled_object.cooldown_period, now)
    if not cooled:
        return Decision(replicas, last_active, Action.COOLING_DOWN)
    return Decision(scaled_object.resting_replicas, last_active, Action.DEACTIVATED)
