"""Traps about the number: what the HPA makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from accelscale.doubts import HPA_TOLERANCE, DoubtKind, doubts
from accelscale.lab.check.findings import Hit, Rule, Severity
from accelscale.lab.check.structure import tolerance
from accelscale.lab.check.subject import Subject, Trap
from accelscale.trigger import MetricType, Trigger

CONSTANT = frozenset({"memory_total_bytes", "power_limit_watts", "slowdown_temperature_celsius"})
FALLING = frozenset({"thermal_headroom_celsius"})


def parser_doubts(kind: DoubtKind) -> Callable[[Subject], Iterator[Hit]]:
    """What the parser itself doubts; a formula may make sense of any of it."""

    def find(subject: Subject) -> Iterator[Hit]:
        own_tolerance = tolerance(subject.manifest, "scaleUp")
        limit = HPA_TOLERANCE if own_tolerance is None else own_tolerance
        for own, trigger, metric in subject.parsed:
            if subject.composite or _is_told_elsewhere(subject, kind):
                continue
            for doubt in doubts(trigger, metric, tolerance=limit):
                if doubt.kind is kind:
                    yield Hit(doubt, own.key(doubt.key))

    return find


def _is_told_elsewhere(subject: Subject, kind: DoubtKind) -> bool:
    """In a ScaledJob no HPA computes, and with one replica at most none scales out."""
    if subject.manifest.is_job:
        return kind is not DoubtKind.ACTIVATION_ABOVE_THRESHOLD
    bounds = subject.bounds
    return kind is DoubtKind.NEVER_SCALES_OUT and bounds.most <= max(bounds.least, 1)


def _metric_type_differs(subject: Subject) -> Iterator[Hit]:
    for own, trigger, _ in subject.parsed:
        written = own.texts.get("metricType")
        if written and written.lower() != trigger.metric_type.lower():
            said = own.node.text("metricType") or f"{MetricType.AVERAGE_VALUE}, KEDA's default"
            message = f"metricType is {written} in the metadata, and {said} in the trigger"
            yield Hit(message, own.key("metricType"))


def _metric_type_not_repeated(subject: Subject) -> Iterator[Hit]:
    for own, trigger, _ in subject.parsed:
        if trigger.metric_type is not MetricType.VALUE or own.wrote("metricType"):
            continue
        if trigger.replica_aggregation == "auto" and not subject.manifest.is_job:
            message = (
                "metricType Value stands in the trigger alone: a scaler that cannot read the"
                " ScaledObject takes AverageValue, answers a sum, and the workload runs away"
            )
            yield Hit(message, (*own.path, "metricType"))


def _does_not_follow_load(subject: Subject) -> Iterator[Hit]:
    for own, _, metric in subject.parsed:
        if metric.name in CONSTANT:
            message = f"{metric.name} is the same under any load"
        elif metric.name in FALLING:
            message = f"{metric.name} falls as load rises: replicas are added to an idle fleet"
        else:
            continue
        if not subject.composite:
            yield Hit(message, own.key("metric"))


def _same_trigger_twice(subject: Subject) -> Iterator[Hit]:
    seen: dict[tuple[str | None, Trigger], int] = {}
    for own, trigger, _ in subject.parsed:
        # What the metric is called and who brought the keys do not matter to the number.
        bare = attrs.evolve(trigger, metric_name="", profile=None)
        first = seen.setdefault((own.texts.get("scalerAddress"), bare), own.index)
        if first != own.index:
            yield Hit(f"this trigger is the same as trigger {first}", own.path)


def _metric_name_twice(subject: Subject) -> Iterator[Hit]:
    twice = {hit.path for hit in _same_trigger_twice(subject)}
    seen: dict[str, int] = {}
    for own, trigger, _ in subject.parsed:
        first = seen.setdefault(trigger.metric_name, own.index)
        if first != own.index and own.path not in twice:
            name = trigger.metric_name
            message = f"the metric is called {name}, and so is the one of trigger {first}"
            yield Hit(message, own.key("metricName"))


def _without_effect(subject: Subject) -> Iterator[Hit]:
    if not subject.composite:
        return
    for own, _, _ in subject.parsed:
        for key in ("activationThreshold", "idleAfter"):
            if own.wrote(key):
                message = f"{key} has no effect beside scalingModifiers.formula"
                yield Hit(message, own.key(key))


def _formula_without_names(subject: Subject) -> Iterator[Hit]:
    for own in subject.triggers:
        if subject.composite and not own.node.text("name"):
            message = "the trigger has no name, so scalingModifiers.formula cannot use it"
            yield Hit(message, own.path)


TRAPS = (
    Trap(
        Rule(
            "AS201",
            "mean-under-average-value",
            Severity.ERROR,
            "Under AverageValue the HPA asks for number / threshold replicas. A mean (or maximum,"
            " or percentile) does not grow with the fleet: at 95 % against 70 it says 2 replicas,"
            " for 2 replicas and for 20.",
            "Remove replicaAggregation: auto gives the sum that AverageValue needs.",
        ),
        parser_doubts(DoubtKind.MEAN_UNDER_AVERAGE_VALUE),
    ),
    Trap(
        Rule(
            "AS202",
            "sum-under-value",
            Severity.ERROR,
            "Under Value the HPA asks for ready replicas x number / threshold. A sum has grown"
            " with the fleet already, so every step asks for more replicas than the one before.",
            "Remove replicaAggregation: auto gives the mean that Value needs.",
        ),
        parser_doubts(DoubtKind.SUM_UNDER_VALUE),
    ),
    Trap(
        Rule(
            "AS203",
            "never-scales-out",
            Severity.ERROR,
            "A percentage ends at 100, and the HPA acts only where the number exceeds the threshold"
            " by more than its tolerance: 100 / (1 + tolerance) is the end, 90 as it comes.",
            "Lower the threshold; between 50 and 80 are sensible.",
        ),
        parser_doubts(DoubtKind.NEVER_SCALES_OUT),
    ),
    Trap(
        Rule(
            "AS204",
            "threshold-is-a-fraction",
            Severity.WARNING,
            "Percentages run from 0 to 100 here. A threshold of 0.8 asks for a hundred replicas"
            " where 80 asks for one.",
            "Write the threshold in percent.",
        ),
        parser_doubts(DoubtKind.FRACTION),
    ),
    Trap(
        Rule(
            "AS205",
            "metric-type-differs",
            Severity.ERROR,
            "The HPA goes by the trigger's field metricType, the scaler by the key of that name in"
            " the metadata where it cannot read the ScaledObject: then one sums, and the other"
            " multiplies or divides once more.",
            "Write the same metricType beside the trigger's type and in its metadata.",
        ),
        _metric_type_differs,
    ),
    Trap(
        Rule(
            "AS206",
            "metric-type-not-repeated",
            Severity.WARNING,
            "KEDA does not tell a scaler the metricType. accelscale reads it from the ScaledObject"
            " where it may; a server without that right, such as `accelscale serve`, takes"
            " AverageValue.",
            "Repeat metricType: Value in the trigger's metadata.",
        ),
        _metric_type_not_repeated,
    ),
    Trap(
        Rule(
            "AS207",
            "does-not-follow-load",
            Severity.WARNING,
            "More replicas are asked for when the number is high. A number that never changes, or"
            " that is high when nothing happens, says nothing about how many are needed.",
            "Scale on utilization_percent or another metric that rises with load.",
        ),
        _does_not_follow_load,
    ),
    Trap(
        Rule(
            "AS208",
            "same-trigger-twice",
            Severity.WARNING,
            "The largest proposal wins, so the second of two equal triggers changes nothing and"
            " costs every call once more.",
            "Remove one of them, or make them differ as was meant.",
        ),
        _same_trigger_twice,
    ),
    Trap(
        Rule(
            "AS209",
            "metric-name-twice",
            Severity.NOTE,
            "KEDA tells such metrics apart by s0-, s1- in front of the name. In the HPA's status,"
            " in logs and on dashboards that is hard to read.",
            "Give one of the triggers a metricName.",
        ),
        _metric_name_twice,
    ),
    Trap(
        Rule(
            "AS210",
            "without-effect",
            Severity.WARNING,
            "With a formula KEDA ignores what the triggers say about activity: the workload is"
            " active while the composite metric is above activationTarget.",
            "Write scalingModifiers.activationTarget, and remove the key.",
        ),
        _without_effect,
    ),
    Trap(
        Rule(
            "AS211",
            "trigger-without-name",
            Severity.ERROR,
            "A formula knows triggers by their name alone, and KEDA wants one of each trigger"
            " beside a formula.",
            "Give the trigger a name and use it in the formula, or remove the trigger.",
        ),
        _formula_without_names,
    ),
)
