"""What is right, or none of ours, is left in peace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from accelscale.profiles import PROFILES
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
    scaled_object,
    trigger,
)

Documents = tuple[Mapping[str, Any], ...]

QUIET: dict[str, Documents] = {
    "as it comes": (CLEAN,),
    "with its workload": (CLEAN, deployment()),
    "a queue wakes it": (scaled_object(trigger(), QUEUE, **ZERO),),
    "another external scaler may wake it": (
        scaled_object(
            trigger(),
            {"type": "external-push", "metadata": {"scalerAddress": "http-add-on:9090"}},
            **ZERO,
        ),
    ),
    "devices of a node exist without the pods": (scaled_object(trigger(scope="node"), **ZERO),),
    "it is woken by force": (
        changed(
            scaled_object(**ZERO),
            {"metadata": {"annotations": {"autoscaling.keda.sh/force-activation": "true"}}},
        ),
    ),
    "one replica at most": (scaled_object(trigger(threshold="95"), maxReplicaCount=1),),
    "a smaller tolerance": (
        scaled_object(trigger(threshold="94"), advanced=behavior(scaleUp={"tolerance": 0.05})),
    ),
    "sums of percentages": (
        scaled_object(trigger(threshold="400", aggregation="sum", activationThreshold="20")),
    ),
    "the mean fits Value": (
        scaled_object(trigger(fields={"metricType": "Value"}, metricType="value")),
    ),
    "Value with an aggregation of one's own": (
        scaled_object(trigger(fields={"metricType": "Value"}, replicaAggregation="max")),
    ),
    "a formula may use a mean": (
        scaled_object(
            trigger(
                fields={"name": "gpu"},
                activationThreshold=None,
                idleAfter=None,
                replicaAggregation="mean",
                threshold="95",
            ),
            advanced=formula(),
        ),
    ),
    "Ollama unloads": (
        scaled_object(trigger(metric="memory_used_percent")),
        deployment(container={"image": "ollama/ollama:0.12"}),
    ),
    "power with a threshold above rest": (
        scaled_object(
            trigger(metric="power_watts", threshold="300", activationThreshold="120"),
            QUEUE,
            **ZERO,
        ),
    ),
    "the newest sample needs no window": (
        scaled_object(trigger(window="0.5s", windowStatistic="last")),
    ),
    "no zero, no cold start": (scaled_object(cooldownPeriod=5),),
    "cached at KEDA's own pace": (scaled_object(trigger(fields={"useCachedMetrics": True})),),
    "scale-in is switched off": (
        scaled_object(
            advanced=behavior(
                scaleDown={"stabilizationWindowSeconds": 0, "selectPolicy": "Disabled"}
            )
        ),
    ),
    "a fallback that serves": (scaled_object(fallback={"failureThreshold": 3, "replicas": 4}),),
    "the HPA that KEDA made": (
        CLEAN,
        {
            "kind": "HorizontalPodAutoscaler",
            "metadata": {
                "name": "keda-hpa-server",
                "labels": {"app.kubernetes.io/managed-by": "keda-operator"},
            },
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "server"}},
        },
    ),
    "an HPA of another workload": (
        CLEAN,
        {
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "other"},
            "spec": {"scaleTargetRef": {"kind": "StatefulSet", "name": "server"}},
        },
    ),
    "a workload of another namespace": (
        changed(CLEAN, {"metadata": {"namespace": "a"}}),
        changed(deployment(replicas=3), {"metadata": {"namespace": "b"}}),
    ),
    "a device by a claim": (
        CLEAN,
        deployment(container={"resources": {"limits": None, "claims": [{"name": "gpu"}]}}),
    ),
    "names of triggers that differ": (
        scaled_object(trigger(fields={"name": "a"}), changed(QUEUE, {"name": "b"})),
    ),
    "labels that match": (scaled_object(trigger(podSelector="app in (server)")), deployment()),
    "only other scalers": (
        {**CLEAN, "spec": {"scaleTargetRef": {"name": "x"}, "triggers": [QUEUE], "mystery": 1}},
    ),
    "two targets": (
        CLEAN,
        changed(CLEAN, {"metadata": {"name": "b"}, "spec": {"scaleTargetRef": {"name": "b"}}}),
    ),
    "one name in two namespaces": (
        changed(CLEAN, {"metadata": {"namespace": "a"}}),
        changed(CLEAN, {"metadata": {"namespace": "b", "name": "b"}}),
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_is_right_raises_no_alarm(name: str) -> None:
    assert [f"{f.rule.id} {f.message}" for f in checked(*QUIET[name]).findings] == []


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_are_clean(profile: str) -> None:
    bare = dict.fromkeys(("metric", "threshold", "activationThreshold", "idleAfter"))
    assert ids(checked(scaled_object(trigger(profile=profile, **bare)))) == []


def test_what_was_meant_by_a_misspelt_field_is_not_guessed() -> None:
    # Without it the minimum would be 0, the maximum 100, and the cooldown of no use.
    spelt = {"minReplicaCount": None, "minReplicas": 1, "maxReplicaCount": None, "maxReplicas": 4}
    assert ids(checked(scaled_object(cooldownPeriod=5, **spelt))) == ["AS106", "AS106"]
