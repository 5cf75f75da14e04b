"""What a ScaledObject says, as far as it decides on replicas.

Defaults are KEDA's: poll every 30 s, cool down for 300 s, between 0 and 100 replicas. Origin:
``apis/keda/v1alpha1/scaledobject_types.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Self

from attrs import field, frozen

from accelscale.errors import ConfigurationError, Fault
from accelscale.hpa.behavior import Behavior
from accelscale.hpa.fallback import Fallback
from accelscale.trigger import MetricType

COMPOSITE_METRIC = "composite-metric"

Formula = Callable[[Mapping[str, float | None]], float | None]
"""``scalingModifiers.formula``: trigger names to their values, None for one that fell back."""


@frozen
class KedaTrigger:
    """One external trigger. ``name`` is its metric's name, ``target`` in the metric's unit.

    ``trigger_name`` is what a formula calls it; the metric's name where it has none.
    """

    name: str
    target: float
    metric_type: MetricType = MetricType.AVERAGE_VALUE
    use_cached_metrics: bool = False
    trigger_name: str = ""

    @property
    def formula_name(self) -> str:
        """The name that a formula knows it by."""
        return self.trigger_name or self.name


@frozen
class ScalingModifiers:
    """``advanced.scalingModifiers``: one composite metric in place of all the triggers' metrics."""

    formula: Formula
    target: float
    metric_type: MetricType = MetricType.AVERAGE_VALUE
    activation_target: float = 0.0


@frozen
class Pause:
    """The pausing annotations of a ScaledObject.

    ``paused`` and ``replicas`` (``paused-replicas``) stop the loop and delete the HPA, its memory
    included; ``scale_in`` and ``scale_out`` keep it and switch off one direction.
    """

    paused: bool = False
    replicas: int | None = None
    scale_in: bool = False
    scale_out: bool = False

    @property
    def stops(self) -> bool:
        """Whether neither the operator nor an HPA acts."""
        return self.paused or self.replicas is not None

    @classmethod
    def from_annotations(cls, annotations: Mapping[str, str]) -> Self:
        """As KEDA reads them: text that is no boolean counts as true.

        Raises:
            ConfigurationError: ``paused-replicas`` is no whole number.
        """
        prefix = "autoscaling.keda.sh/"
        replicas = annotations.get(f"{prefix}paused-replicas")
        if replicas is not None and not (replicas.isascii() and replicas.isdigit()):
            fault = Fault(f"{prefix}paused-replicas", replicas, "must be a whole number")
            raise ConfigurationError([fault], subject="ScaledObject annotations")
        return cls(
            paused=_is_true(annotations.get(f"{prefix}paused")),
            replicas=None if replicas is None else int(replicas),
            scale_in=_is_true(annotations.get(f"{prefix}paused-scale-in")),
            scale_out=_is_true(annotations.get(f"{prefix}paused-scale-out")),
        )


@frozen
class ScaledObject:
    """A ScaledObject: its external triggers, bounds, timing and exceptions.

    Periods are in seconds; ``created`` is a time on the clock that drives the loop. A ScaledObject
    without external triggers (cpu and memory only) is always active.

    Raises:
        ConfigurationError: what KEDA's admission webhook would refuse, all of it in one message.
    """

    triggers: tuple[KedaTrigger, ...]
    min_replicas: int = 0
    max_replicas: int = 100
    idle_replicas: int | None = None
    polling_interval: float = 30.0
    cooldown_period: float = 300.0
    initial_cooldown_period: float = 0.0
    fallback: Fallback | None = None
    behavior: Behavior | None = None
    modifiers: ScalingModifiers | None = None
    pause: Pause = field(factory=Pause)
    force_activation: bool = False
    created: float = 0.0

    def __attrs_post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise ConfigurationError(faults, subject="ScaledObject")

    def _faults(self) -> Iterator[Fault]:
        idle = self.idle_replicas
        if self.min_replicas < 0:
            yield Fault("minReplicaCount", str(self.min_replicas), "must be 0 or more")
        if self.max_replicas < max(1, self.min_replicas):
            problem = "must be at least 1 and minReplicaCount"
            yield Fault("maxReplicaCount", str(self.max_replicas), problem)
        if idle is not None and not 0 <= idle < self.min_replicas:
            yield Fault("idleReplicaCount", str(idle), "must be less than minReplicaCount")
        if not self.polling_interval > 0:
            yield Fault("pollingInterval", f"{self.polling_interval:g}", "must be above 0")

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names that KEDA gives the triggers' metrics: ``s0-…``, ``s1-…``."""
        return tuple(f"s{index}-{trigger.name}" for index, trigger in enumerate(self.triggers))

    @property
    def activated_replicas(self) -> int:
        """Where an activation leads to."""
        return max(1, self.min_replicas)

    @property
    def resting_replicas(self) -> int:
        """Where the end of the cooldown leads to."""
        return self.min_replicas if self.idle_replicas is None else self.idle_replicas


_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def _is_true(text: str | None) -> bool:
    return text is not None and text not in _FALSE
