"""``spec.behavior`` of an HPA: how fast, and after how much hindsight, each direction may go.

Without a behaviour the HPA takes an older path (see `accelscale.hpa.stabilization` and
`accelscale.hpa.limits`). As soon as one is there, even an empty one or one for a single direction,
API defaulting fills both directions, so the path changes for the direction that nobody wrote about:
from one replica five instead of four may follow, and the HPA begins to remember what it did.

Origin of the defaults: ``pkg/apis/autoscaling/v2/defaults.go``; of the ranges: the validation of
``autoscaling/v2``.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import attrs
from attrs import frozen

from accelscale.errors import ConfigurationError, Fault
from accelscale.hpa.tolerance import Tolerance
from accelscale.hpa.versions import Controller

LONGEST_PERIOD = 1800
LONGEST_WINDOW = 3600


class PolicyType(StrEnum):
    """What a policy's value counts."""

    PODS = "Pods"
    PERCENT = "Percent"


class SelectPolicy(StrEnum):
    """Which of several policies counts: the one that allows most, least, or none at all."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


@frozen
class Policy:
    """At most ``value`` pods or percent of change within any ``period_seconds``."""

    type: PolicyType
    value: int
    period_seconds: int


@frozen
class ScalingRules:
    """The rules of one direction as the user wrote them; None and an empty tuple mean unset.

    ``tolerance`` is a fraction and needs the gate HPAConfigurableTolerance.
    """

    policies: tuple[Policy, ...] = ()
    select_policy: SelectPolicy | None = None
    stabilization_window_seconds: int | None = None
    tolerance: float | None = None


@frozen
class ResolvedRules:
    """The rules of one direction with every default in place; the window is in seconds."""

    policies: tuple[Policy, ...]
    select_policy: SelectPolicy
    stabilization_window: float

    @property
    def longest_period(self) -> int:
        """The longest period of a policy, in seconds: events older than that are of no use."""
        return max((policy.period_seconds for policy in self.policies), default=0)


@frozen
class ResolvedBehavior:
    """Both directions, with every default in place."""

    scale_up: ResolvedRules
    scale_down: ResolvedRules


_DEFAULT_UP = (Policy(PolicyType.PODS, 4, 15), Policy(PolicyType.PERCENT, 100, 15))
_DEFAULT_DOWN = (Policy(PolicyType.PERCENT, 100, 15),)


@frozen
class Behavior:
    """``spec.behavior``: rules for both directions.

    Raises:
        ConfigurationError: a policy, period, window or tolerance that the API server would refuse.
    """

    scale_up: ScalingRules = ScalingRules()
    scale_down: ScalingRules = ScalingRules()

    def __attrs_post_init__(self) -> None:
        faults = [
            *_faults("behavior.scaleUp", self.scale_up),
            *_faults("behavior.scaleDown", self.scale_down),
        ]
        if faults:
            raise ConfigurationError(faults, subject="HPA behavior")

    def resolved(self, controller: Controller) -> ResolvedBehavior:
        """With the API's defaults, and the controller's window where scale-down has none."""
        return ResolvedBehavior(
            _resolved(self.scale_up, _DEFAULT_UP, 0.0),
            _resolved(self.scale_down, _DEFAULT_DOWN, controller.downscale_stabilization),
        )

    def disabling(self, *, scale_up: bool = False, scale_down: bool = False) -> Behavior:
        """The same with a direction switched off, as KEDA's paused-scale-in and -out do it."""
        disabled = SelectPolicy.DISABLED
        up, down = self.scale_up, self.scale_down
        return Behavior(
            attrs.evolve(up, select_policy=disabled) if scale_up else up,
            attrs.evolve(down, select_policy=disabled) if scale_down else down,
        )


def tolerance_of(behavior: Behavior | None, controller: Controller) -> Tolerance:
    """The tolerance of an HPA: its own where it has one and the gate is on, else the controller's.

    Origin: ``tolerancesForHpa`` in ``horizontal.go``.
    """
    up = down = None
    if behavior is not None and controller.configurable_tolerance:
        up, down = behavior.scale_up.tolerance, behavior.scale_down.tolerance
    return Tolerance(
        up=controller.tolerance if up is None else up,
        down=controller.tolerance if down is None else down,
        form=controller.tolerance_form,
    )


def _resolved(
    rules: ScalingRules, policies: tuple[Policy, ...], window_seconds: float
) -> ResolvedRules:
    window = rules.stabilization_window_seconds
    return ResolvedRules(
        rules.policies or policies,
        rules.select_policy or SelectPolicy.MAX,
        window_seconds if window is None else float(window),
    )


def _faults(key: str, rules: ScalingRules) -> Iterator[Fault]:
    window = rules.stabilization_window_seconds
    if window is not None and not 0 <= window <= LONGEST_WINDOW:
        problem = f"must be 0 to {LONGEST_WINDOW} seconds"
        yield Fault(f"{key}.stabilizationWindowSeconds", str(window), problem)
    if rules.tolerance is not None and not rules.tolerance >= 0:
        yield Fault(f"{key}.tolerance", f"{rules.tolerance:g}", "must be a fraction of 0 or more")
    for index, policy in enumerate(rules.policies):
        at = f"{key}.policies[{index}]"
        if policy.value <= 0:
            yield Fault(f"{at}.value", str(policy.value), "must be greater than 0")
        if not 0 < policy.period_seconds <= LONGEST_PERIOD:
            problem = f"must be 1 to {LONGEST_PERIOD} seconds"
            yield Fault(f"{at}.periodSeconds", str(policy.period_seconds), problem)
