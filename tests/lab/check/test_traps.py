from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from accelscale.lab.check import RULES, Conditions, Severity
from accelscale.lab.check.traps import TRAPS
from accelscale.metrics import METRICS, Metric
from lab.check.texts import (
    CLEAN,
    QUEUE,
    ZERO,
    behavior,
    changed,
    checked,
    deployment,
    formula,
    ids,
    scaled_job,
    scaled_object,
    trigger,
)

Documents = tuple[Mapping[str, Any], ...]

# Each trap, the documents that fall into it, the path and a part of the sentence.
CASES: list[tuple[str, Documents, str, str]] = [
    (
        "AS201",
        (scaled_object(trigger(replicaAggregation="mean")),),
        "spec.triggers[0].metadata.replicaAggregation",
        "divides by the replicas once more",
    ),
    (
        "AS201",
        (scaled_object(trigger(replicaAggregation="p95")),),
        "spec.triggers[0].metadata.replicaAggregation",
        "replicaAggregation p95",
    ),
    (
        "AS202",
        (
            scaled_object(
                trigger(
                    fields={"metricType": "Value"}, metricType="Value", replicaAggregation="sum"
                )
            ),
        ),
        "spec.triggers[0].metadata.replicaAggregation",
        "runs away",
    ),
    (
        "AS203",
        (scaled_object(trigger(threshold="91")),),
        "spec.triggers[0].metadata.threshold",
        "at most 90 can",
    ),
    (
        "AS203",
        (scaled_object(trigger(threshold="85"), advanced=behavior(scaleUp={"tolerance": "0.2"})),),
        "spec.triggers[0].metadata.threshold",
        "tolerance of 20 % (at most 83 can)",
    ),
    (
        "AS204",
        (scaled_object(trigger(threshold="0.8", activationThreshold="0.1")),),
        "spec.triggers[0].metadata.threshold",
        "was 80 meant?",
    ),
    (
        "AS205",
        (scaled_object(trigger(metricType="Value")),),
        "spec.triggers[0].metadata.metricType",
        "Value in the metadata, and AverageValue, KEDA's default",
    ),
    (
        "AS205",
        (scaled_object(trigger(fields={"metricType": "Value"}, metricType="AverageValue")),),
        "spec.triggers[0].metadata.metricType",
        "AverageValue in the metadata, and Value in the trigger",
    ),
    (
        "AS206",
        (scaled_object(trigger(fields={"metricType": "Value"})),),
        "spec.triggers[0].metricType",
        "stands in the trigger alone",
    ),
    (
        "AS207",
        (scaled_object(trigger(metric="thermal_headroom_celsius", threshold="30")),),
        "spec.triggers[0].metadata.metric",
        "falls as load rises",
    ),
    (
        "AS207",
        (scaled_object(trigger(metric="power_limit_watts", threshold="300")),),
        "spec.triggers[0].metadata.metric",
        "the same under any load",
    ),
    (
        "AS208",
        (scaled_object(trigger(), trigger(metricName="other")),),
        "spec.triggers[1]",
        "the same as trigger 0",
    ),
    (
        "AS209",
        (scaled_object(trigger(), trigger(window="5m")),),
        "spec.triggers[1].metadata.metricName",
        "accelscale-utilization-percent, and so is the one of trigger 0",
    ),
    (
        "AS210",
        (
            scaled_object(
                trigger(fields={"name": "gpu"}, activationThreshold=None), advanced=formula()
            ),
        ),
        "spec.triggers[0].metadata.idleAfter",
        "idleAfter has no effect",
    ),
    (
        "AS211",
        (scaled_object(trigger(activationThreshold=None, idleAfter=None), advanced=formula()),),
        "spec.triggers[0]",
        "has no name",
    ),
    (
        "AS301",
        (scaled_object(trigger(activationThreshold="80")),),
        "spec.triggers[0].metadata.activationThreshold",
        "80 is above threshold 70",
    ),
    (
        "AS302",
        (scaled_object(**ZERO),),
        "spec.minReplicaCount",
        "minReplicaCount is 0, and no trigger has a signal while no pod runs",
    ),
    (
        "AS302",
        (scaled_object(minReplicaCount=None),),
        "spec.minReplicaCount",
        "minReplicaCount, which is not written, is 0",
    ),
    (
        "AS302",
        (scaled_object(idleReplicaCount=0, minReplicaCount=2),),
        "spec.idleReplicaCount",
        "idleReplicaCount is 0",
    ),
    (
        "AS302",
        (
            scaled_object(
                trigger(),
                {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}},
                **ZERO,
            ),
        ),
        "spec.minReplicaCount",
        "no trigger has a signal",
    ),
    (
        "AS303",
        (scaled_object(trigger(metric="memory_used_percent")),),
        "spec.triggers[0].metadata.metric",
        "most servers and frameworks keep device memory",
    ),
    (
        "AS303",
        (
            scaled_object(trigger(metric="memory_used_bytes", threshold="60Gi")),
            deployment(container={"image": "registry.example/vllm/vllm-openai:v0.11"}),
        ),
        "spec.triggers[0].metadata.metric",
        "vllm keeps device memory",
    ),
    (
        "AS304",
        (
            scaled_object(
                trigger(metric="power_watts", threshold="300", activationThreshold=None),
                QUEUE,
                **ZERO,
            ),
        ),
        "spec.triggers[0].metadata.activationThreshold",
        "never counts as idle",
    ),
    (
        "AS401",
        (scaled_object(trigger(window="0.5s")),),
        "spec.triggers[0].metadata.window",
        "window 0.5 s is shorter than the 1 s",
    ),
    (
        "AS401",
        (
            scaled_object(
                trigger(metric="process_count", threshold="2", window="5s", activationThreshold="1")
            ),
        ),
        "spec.triggers[0].metadata.window",
        "the 10 s between two readings of process_count",
    ),
    (
        "AS402",
        (scaled_object(trigger(maxAge="0.5s")),),
        "spec.triggers[0].metadata.maxAge",
        "most of the time no sample counts",
    ),
    (
        "AS403",
        (scaled_object(trigger(), QUEUE, cooldownPeriod=30, **ZERO),),
        "spec.cooldownPeriod",
        "30 s is shorter than the 60 s that a replica takes to load (assumed",
    ),
    (
        "AS403",
        (
            scaled_object(trigger(), QUEUE, cooldownPeriod=90, **ZERO),
            deployment(container={"startupProbe": {"initialDelaySeconds": 120}}),
        ),
        "spec.cooldownPeriod",
        "120 s that a replica takes to load (its probes wait so long)",
    ),
    (
        "AS404",
        (scaled_object(advanced=behavior(scaleDown={"stabilizationWindowSeconds": 0})),),
        "spec.advanced.horizontalPodAutoscalerConfig.behavior.scaleDown.stabilizationWindowSeconds",
        "looks back 0 s",
    ),
    (
        "AS405",
        (scaled_object(trigger(fields={"useCachedMetrics": True}), pollingInterval=120),),
        "spec.triggers[0].useCachedMetrics",
        "up to 135 s old",
    ),
    (
        "AS501",
        (scaled_object(maxReplicaCount=None),),
        "spec",
        "up to 100 replicas",
    ),
    (
        "AS502",
        (scaled_object(fallback={"failureThreshold": 3, "replicas": 0}),),
        "spec.fallback.replicas",
        "fallback.replicas is 0",
    ),
    (
        "AS503",
        (
            CLEAN,
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "old"},
                "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "server"}},
            },
        ),
        "spec.scaleTargetRef.name",
        "Deployment server is scaled by the HPA old too",
    ),
    (
        "AS504",
        (CLEAN, deployment(replicas=1)),
        "spec.scaleTargetRef.name",
        "Deployment server sets spec.replicas (line 36 of file.yaml)",
    ),
    (
        "AS505",
        (CLEAN, deployment(container={"resources": {"limits": None}})),
        "spec.triggers[0]",
        "no container of Deployment server asks for a device",
    ),
    (
        "AS506",
        (scaled_object(trigger(container="main")), deployment()),
        "spec.triggers[0].metadata.container",
        "container main is none of Deployment server (server)",
    ),
    (
        "AS507",
        (scaled_object(trigger(podSelector="app=other")), deployment()),
        "spec.triggers[0].metadata.podSelector",
        "podSelector app=other matches no pod",
    ),
    (
        "AS508",
        (scaled_object(trigger(fields={"name": "gpu"}), changed(QUEUE, {"name": "gpu"}), QUEUE),),
        "spec.triggers[1].name",
        "name gpu is taken by spec.triggers[0]",
    ),
    (
        "AS603",
        (scaled_job(trigger(fields={"type": "external-push"})),),
        "spec.triggers[0].type",
        "external-push in a ScaledJob",
    ),
]


@pytest.mark.parametrize(
    ("rule", "documents", "path", "words"),
    CASES,
    ids=[f"{rule}-{index}" for index, (rule, *_) in enumerate(CASES)],
)
def test_a_trap_gives_exactly_its_finding(
    rule: str, documents: Documents, path: str, words: str
) -> None:
    found = [
        finding
        for finding in checked(*documents).findings
        # In a ScaledJob a level is always told beside anything else.
        if finding.rule.id != "AS602" or rule == "AS602"
    ]
    assert [(finding.rule.id, finding.path) for finding in found] == [(rule, path)]
    assert words in found[0].message
    assert found[0].fix
    assert found[0].rule.explanation


def test_every_trap_has_a_case() -> None:
    told_below = {"AS601", "AS602"}
    assert {rule for rule, *_ in CASES} | told_below == {trap.rule.id for trap in TRAPS}


def test_levels_and_values_in_a_job() -> None:
    report = checked(scaled_job(trigger(), QUEUE))
    assert ids(report) == ["AS602"]
    assert "utilization_percent is a level" in report.findings[0].message
    report = checked(scaled_job(trigger(fields={"metricType": "Value"}, metricType="Value")))
    assert sorted(ids(report)) == ["AS601", "AS602"]
    report = checked(scaled_job(trigger(), maxReplicaCount=None))
    assert "100 jobs at a time" in report.findings[0].message


def test_two_scaled_objects_on_one_workload_are_both_told() -> None:
    report = checked(CLEAN, changed(CLEAN, {"metadata": {"name": "second"}}))
    assert ids(report) == ["AS503", "AS503"]
    assert "ScaledObject second" in report.findings[0].message


def test_the_load_time_and_the_interval_can_be_told() -> None:
    document = scaled_object(trigger(window="20s"), QUEUE, **ZERO)
    assert ids(checked(document, conditions=Conditions(load_time=240, interval=5))) == []
    slow = checked(document, conditions=Conditions(load_time=600, interval=30))
    assert sorted(ids(slow)) == ["AS401", "AS403", "AS404"]
    assert {finding.severity for finding in slow.findings} == {Severity.WARNING, Severity.NOTE}


def test_metrics_of_plugins_are_asked_for_when_needed() -> None:
    asked = []

    def more() -> Mapping[str, Metric]:
        asked.append(True)
        return {**METRICS, "toy_heat_percent": Metric("toy_heat_percent", "percent", "", 0, 100)}

    conditions = Conditions(more_metrics=more)
    assert ids(checked(CLEAN, conditions=conditions)) == []
    assert asked == []
    toy = scaled_object(trigger(metric="toy_heat_percent"))
    assert ids(checked(toy, conditions=conditions)) == []
    assert ids(checked(toy)) == ["AS101"]


def test_ids_are_whole_and_rules_speak() -> None:
    assert list(RULES) == sorted(RULES)
    for name, rule in RULES.items():
        assert rule.id == name
        assert rule.explanation.endswith(".")
        assert rule.fix
    assert len({rule.name for rule in RULES.values()}) == len(RULES)
