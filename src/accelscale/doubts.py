"""What is legal in a trigger but hardly meant: said once, for logs, for replays and for checks.

A trigger that gives cause for doubt works. Whoever wrote it should know what it leads to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from accelscale.metrics import Metric
    from accelscale.trigger import Trigger

HPA_TOLERANCE = 0.1
"""How far a ratio may be from 1 before an HPA acts, where nobody changed it."""


class DoubtKind(StrEnum):
    """What can be legal in a trigger and hardly meant."""

    FRACTION = "threshold is a fraction"
    NEVER_SCALES_OUT = "never scales out"
    MEAN_UNDER_AVERAGE_VALUE = "mean under AverageValue"
    SUM_UNDER_VALUE = "sum under Value"
    ACTIVATION_ABOVE_THRESHOLD = "activation above threshold"


class Doubt(str):
    """A sentence about what is legal in a trigger but hardly meant.

    ``kind`` is for programs, ``key`` the metadata key that it is about.
    """

    __slots__ = ("key", "kind")
    kind: DoubtKind
    key: str

    def __new__(cls, sentence: str, kind: DoubtKind, key: str) -> Self:
        """The sentence, with what it is about."""
        doubt = super().__new__(cls, sentence)
        doubt.kind, doubt.key = kind, key
        return doubt

    def __getnewargs__(self) -> tuple[str, DoubtKind, str]:  # type: ignore[override]
        return str(self), self.kind, self.key


def doubts(
    trigger: Trigger, metric: Metric, *, tolerance: float = HPA_TOLERANCE
) -> Iterator[Doubt]:
    """What is legal in this trigger but hardly meant.

    ``metric`` is the row that the trigger names, ``tolerance`` the HPA's for scaling out.
    """
    average_value = trigger.metric_type == "AverageValue"  # a MetricType, which is text
    threshold, aggregation = trigger.threshold, trigger.resolved_replica_aggregation
    percentage = metric.unit == "percent" and trigger.aggregation != "sum"
    if percentage and threshold <= 1:
        yield Doubt(
            f"threshold {threshold:g} on {metric.name}, which runs from 0 to 100: was"
            f" {100 * threshold:g} meant?",
            DoubtKind.FRACTION,
            "threshold",
        )
    if percentage and 100 / threshold <= 1 + tolerance:
        highest = math.ceil(100 / (1 + tolerance)) - 1
        yield Doubt(
            f"threshold {threshold:g} can never scale out: a value of 100 is within the HPA's"
            f" tolerance of {100 * tolerance:g} % (at most {highest} can)",
            DoubtKind.NEVER_SCALES_OUT,
            "threshold",
        )
    if average_value and aggregation != "sum":
        yield Doubt(
            f"replicaAggregation {aggregation} under metricType AverageValue: the HPA divides by"
            " the replicas once more, so the workload shrinks to 1 or 2 replicas; use auto, or"
            " metricType Value",
            DoubtKind.MEAN_UNDER_AVERAGE_VALUE,
            "replicaAggregation",
        )
    if not average_value and aggregation == "sum":
        yield Doubt(
            "replicaAggregation sum under metricType Value: the HPA multiplies by the replicas"
            " once more, so the workload runs away; use auto, or metricType AverageValue",
            DoubtKind.SUM_UNDER_VALUE,
            "replicaAggregation",
        )
    if trigger.activation_threshold > threshold:
        yield Doubt(
            f"activationThreshold {trigger.activation_threshold:g} is above threshold"
            f" {threshold:g}: the workload can be idle while it asks for replicas",
            DoubtKind.ACTIVATION_ABOVE_THRESHOLD,
            "activationThreshold",
        )
