"""One object with everything that a trap looks at, and what a trap is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from attrs import frozen

from accelscale.lab.check.documents import Mapping as Node
from accelscale.lab.check.findings import Hit, Rule
from accelscale.lab.check.manifests import MODIFIERS, Bounds, Manifest
from accelscale.lab.check.triggers import OwnTrigger
from accelscale.lab.check.workloads import Autoscaler, Workload
from accelscale.metrics import Metric
from accelscale.trigger import Trigger

ASSUMED_LOAD_TIME = 60.0
"""Seconds that a replica needs before it works, where nobody says; as a replay assumes."""


@frozen
class Conditions:
    """What no manifest says: seconds to load, seconds between readings, metrics of plugins.

    ``more_metrics`` is asked once, when a trigger names a metric that the common table lacks.
    """

    load_time: float | None = None
    interval: float = 1.0
    more_metrics: Callable[[], Mapping[str, Metric]] | None = None


@frozen(eq=False)
class Subject:
    """One ScaledObject or ScaledJob with at least one trigger of accelscale.

    ``others`` are the triggers of other scalers. ``autoscaler`` and ``sibling`` are an HPA and
    another ScaledObject with the same target.
    """

    manifest: Manifest
    bounds: Bounds
    triggers: tuple[OwnTrigger, ...]
    others: tuple[Node, ...]
    conditions: Conditions
    workload: Workload | None = None
    autoscaler: Autoscaler | None = None
    sibling: Manifest | None = None
    misspelt: frozenset[str] = frozenset()
    """Fields of the spec that were meant and spelt otherwise: what they say is not known."""

    @property
    def composite(self) -> bool:
        """Whether a formula makes one metric of all triggers."""
        return bool(self.manifest.at((*MODIFIERS, "formula")))

    @property
    def parsed(self) -> Iterator[tuple[OwnTrigger, Trigger, Metric]]:
        """The triggers that could be read."""
        for own in self.triggers:
            if own.trigger is not None and own.metric is not None:
                yield own, own.trigger, own.metric

    @property
    def load_time(self) -> tuple[float, str]:
        """Seconds that a new replica needs before it works, and how that is known."""
        if self.conditions.load_time is not None:
            return self.conditions.load_time, "given"
        delay = self.workload.delay if self.workload is not None else 0.0
        if delay > ASSUMED_LOAD_TIME:
            return delay, "its probes wait so long"
        return ASSUMED_LOAD_TIME, "assumed; --load-time sets it"


@frozen
class Trap:
    """A rule about what is legal and goes wrong, with the function that looks for it."""

    rule: Rule
    find: Callable[[Subject], Iterator[Hit]]
