"""``advanced.scalingModifiers``: a formula over all triggers in place of their metrics.

The HPA then sees one composite metric, cut to thousandths. With a trigger that has fallen back the
formula is left out and the first fallback value counts, unless the fallback's behaviour hands the
decision to the formula, where such a trigger is nil. Of several series of one trigger the last
survives. The formula itself is given as a function: its language is not part of this model.

Origin: ``pkg/scaling/modifiers/formula.go``.
"""

from __future__ import annotations

from collections.abc import Mapping

from accelscale.errors import NoDataError
from accelscale.hpa.fallback import Fallback, FallbackBehavior, Observation
from accelscale.hpa.quantities import as_float
from accelscale.hpa.scaledobject import ScaledObject, ScalingModifiers


def composite_value(
    scaled_object: ScaledObject, modifiers: ScalingModifiers, observed: Mapping[int, Observation]
) -> int:
    """The composite metric in thousandths; ``observed`` is by index of the trigger.

    Raises:
        NoDataError: the formula gives no number, or needs a trigger that is not there.
    """
    fallbacks = [observed[index] for index in sorted(observed) if observed[index].fallback]
    if fallbacks:
        return fallbacks[0].values[0]
    values = {
        scaled_object.triggers[index].formula_name: formula_value(got)
        for index, got in observed.items()
    }
    try:
        result = modifiers.formula(values)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise NoDataError(f"error trying to run custom formula: {error!r}") from error
    if result is None:
        return _fallback_of_formula(scaled_object.fallback, modifiers)
    return int(float(result) * 1000.0)


def formula_value(observation: Observation) -> float | None:
    """What the formula sees of one trigger: its value, or None for nil."""
    if observation.absent or not observation.values:
        return None
    return as_float(observation.values[-1])


def _fallback_of_formula(fallback: Fallback | None, modifiers: ScalingModifiers) -> int:
    if fallback is None or fallback.behavior is not FallbackBehavior.SCALING_MODIFIERS:
        raise NoDataError("the formula gives nil")
    return int(float(fallback.replicas) * modifiers.target * 1000.0)
