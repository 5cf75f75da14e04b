from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lab.check.texts import CLEAN, QUEUE, changed, checked, ids, scaled_job, scaled_object, trigger

CONFIG = "horizontalPodAutoscalerConfig"
LONG = "a" * 55


def advanced(**directions: Any) -> dict[str, Any]:
    return {"advanced": {CONFIG: {"behavior": directions}}}


CASES: list[tuple[str, Mapping[str, Any], str, str]] = [
    ("AS103", changed(CLEAN, {"apiVersion": None}), "", "apiVersion is missing"),
    ("AS103", changed(CLEAN, {"metadata": {"name": None}}), "metadata", "name is missing"),
    ("AS103", changed(CLEAN, {"spec": {"scaleTargetRef": None}}), "spec", "scaleTargetRef is miss"),
    ("AS103", scaled_object(scaleTargetRef={"name": None}), "spec.scaleTargetRef", "name is"),
    ("AS103", scaled_object(fallback={"replicas": 2}), "spec.fallback", "failureThreshold is"),
    ("AS103", changed(CLEAN, {"spec": {"triggers": []}}), "spec.triggers", "is empty"),
    (
        "AS103",
        scaled_object(**advanced(scaleUp={"policies": [{"type": "Pods", "value": 2}]})),
        f"spec.advanced.{CONFIG}.behavior.scaleUp.policies[0]",
        "periodSeconds is missing",
    ),
    ("AS103", scaled_job(QUEUE, trigger(), jobTargetRef=None), "spec", "jobTargetRef is missing"),
    ("AS104", scaled_object(maxReplicaCount="8"), "spec.maxReplicaCount", "and is text"),
    ("AS104", scaled_object(cooldownPeriod=True), "spec.cooldownPeriod", "is true or false"),
    ("AS104", scaled_object(cooldownPeriod=1.5), "spec.cooldownPeriod", "is a number"),
    ("AS104", scaled_object(scaleTargetRef={"name": 5}), "spec.scaleTargetRef.name", "be text"),
    ("AS104", scaled_object(fallback=[1]), "spec.fallback", "must be a mapping, and is a list"),
    (
        "AS104",
        scaled_object(trigger(fields={"useCachedMetrics": "true"})),
        "spec.triggers[0].useCachedMetrics",
        "must be true or false",
    ),
    ("AS105", scaled_object(minReplicaCount=9), "spec.maxReplicaCount", "at least 1 and min"),
    ("AS105", scaled_object(minReplicaCount=-1), "spec.minReplicaCount", "must be 0 or more"),
    ("AS105", scaled_object(idleReplicaCount=1), "spec.idleReplicaCount", "less than minReplica"),
    ("AS105", scaled_object(pollingInterval=0), "spec.pollingInterval", "must be above 0"),
    ("AS105", scaled_object(cooldownPeriod=-5), "spec.cooldownPeriod", "must be 0 or more"),
    ("AS105", scaled_object(cooldownPeriod=2**31), "spec.cooldownPeriod", "fit in 32 bits"),
    (
        "AS105",
        scaled_object(fallback={"failureThreshold": 3, "replicas": 2, "behavior": "Static"}),
        "spec.fallback.behavior",
        "must be one of static, currentReplicas,",
    ),
    (
        "AS105",
        scaled_object(trigger(fields={"metricType": "Average"})),
        "spec.triggers[0].metricType",
        "must be one of AverageValue, Value, Utilization",
    ),
    (
        "AS105",
        scaled_object(
            **advanced(
                scaleUp={"policies": [{"type": "Pods", "value": 0, "periodSeconds": 15}]},
            )
        ),
        f"spec.advanced.{CONFIG}.behavior.scaleUp.policies[0].value",
        "must be greater than 0",
    ),
    (
        "AS105",
        scaled_object(**advanced(scaleDown={"stabilizationWindowSeconds": 4000})),
        f"spec.advanced.{CONFIG}.behavior.scaleDown.stabilizationWindowSeconds",
        "must be 0 to 3600 seconds",
    ),
    (
        "AS105",
        scaled_object(**advanced(scaleUp={"tolerance": "-0.1"})),
        f"spec.advanced.{CONFIG}.behavior.scaleUp.tolerance",
        "must be a fraction of 0 or more",
    ),
    ("AS105", changed(CLEAN, {"metadata": {"name": LONG}}), "metadata.name", "64 characters"),
    (
        "AS105",
        changed(
            scaled_object(advanced={CONFIG: {"name": "hpa"}}), {"metadata": {"name": LONG + LONG}}
        ),
        "metadata.name",
        "the name has 110 characters",
    ),
    (
        "AS105",
        scaled_object(advanced={CONFIG: {"name": LONG + LONG}}),
        f"spec.advanced.{CONFIG}.name",
        "the HPA's name",
    ),
    (
        "AS106",
        scaled_object(maxReplicaCount=None, maxReplicas=8),
        "spec.maxReplicas",
        "did you mean maxReplicaCount?",
    ),
    (
        "AS106",
        scaled_object(trigger(fields={"metrictype": "Value"})),
        "spec.triggers[0].metrictype",
        "did you mean metricType?",
    ),
    ("AS107", {**CLEAN, "triggers": []}, "triggers", "is no field of KEDA"),
    ("AS107", scaled_object(replicaBudget=8), "spec.replicaBudget", "is no field of KEDA"),
    (
        "AS113",
        scaled_object(
            trigger(fields={"name": "gpu"}, activationThreshold=None, idleAfter=None),
            advanced={"scalingModifiers": {"formula": "gpu"}},
        ),
        "spec.advanced.scalingModifiers",
        "has no target",
    ),
    (
        "AS113",
        scaled_object(
            trigger(fields={"name": "gpu"}, activationThreshold=None, idleAfter=None),
            advanced={"scalingModifiers": {"formula": "gpu", "target": "70%"}},
        ),
        "spec.advanced.scalingModifiers.target",
        "must be a number above 0",
    ),
    (
        "AS114",
        {**CLEAN, "apiVersion": "keda.k8s.io/v1alpha1"},
        "apiVersion",
        "is not KEDA 2's keda.sh/v1alpha1",
    ),
]


@pytest.mark.parametrize(
    ("rule", "document", "path", "words"),
    CASES,
    ids=[f"{rule}-{index}" for index, (rule, *_) in enumerate(CASES)],
)
def test_what_is_refused_is_told_where_it_stands(
    rule: str, document: Mapping[str, Any], path: str, words: str
) -> None:
    found = [each for each in checked(document).findings if each.rule.id != "AS602"]
    assert [(each.rule.id, each.path) for each in found] == [(rule, path)]
    assert words in found[0].message


def test_quotes_are_advised_where_they_help() -> None:
    (number,) = checked(scaled_object(maxReplicaCount="8")).findings
    assert number.fix == "Write it without quotes: 8"
    (word,) = checked(scaled_object(maxReplicaCount="many")).findings
    assert word.fix == "Write a value of the right type."
    (text,) = checked(scaled_object(scaleTargetRef={"name": 5})).findings
    assert text.fix == 'Put it in quotes: "5".'


def test_a_key_that_stands_twice_is_told_with_both_lines() -> None:
    report = checked(
        """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: a}
spec:
  scaleTargetRef: {name: a}
  minReplicaCount: 1
  maxReplicaCount: 4
  triggers:
    - type: external
      metadata:
        scalerAddress: accelscale:6000
        metric: utilization_percent
        threshold: "70"
        threshold: "60"
"""
    )
    (finding,) = report.findings
    assert (finding.rule.id, finding.place.line) == ("AS108", 14)
    assert "here and in line 13" in finding.message


@pytest.mark.parametrize(
    "document",
    [
        scaled_object(idleReplicaCount=0, minReplicaCount=2, advanced={}),
        scaled_object(**advanced()),
        scaled_object(
            **advanced(
                scaleUp={
                    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
                    "selectPolicy": "Max",
                    "stabilizationWindowSeconds": 0,
                    "tolerance": "50m",
                }
            ),
        ),
        scaled_object(initialCooldownPeriod=60, cooldownPeriod=600, pollingInterval=15),
        scaled_object(fallback={"failureThreshold": 3, "replicas": 2, "behavior": "static"}),
        scaled_object(
            trigger(fields={"authenticationRef": {"name": "x", "kind": "TriggerAuthentication"}})
        ),
        {**CLEAN, "status": {"conditions": []}},
        changed(CLEAN, {"metadata": {"name": None, "generateName": "a-"}}),
        scaled_object(fallback=None, advanced=None),
        changed(CLEAN, {"metadata": {"labels": {"a": "b"}}}),
        scaled_job(
            trigger(),
            minReplicaCount=1,
            scalingStrategy={"strategy": "accurate", "pendingPodConditions": ["Ready"]},
            rollout={"strategy": "gradual"},
            successfulJobsHistoryLimit=0,
        ),
    ],
)
def test_fields_of_keda_are_known(document: Mapping[str, Any]) -> None:
    assert set(ids(checked(document))) <= {"AS302", "AS602"}


def test_a_minimum_written_as_zero_beside_an_idle_count_is_admitted() -> None:
    report = checked(scaled_object(trigger(), QUEUE, idleReplicaCount=0, minReplicaCount=0))
    assert ids(report) == []


@pytest.mark.parametrize("spec", [None, [], "x", 5, {"triggers": "x"}, {"triggers": ["x"]}])
def test_objects_of_any_shape_are_survived(spec: Any) -> None:
    report = checked({**CLEAN, "spec": spec})
    assert {"AS103", "AS104"} & set(ids(report))
    report = checked({"kind": "ScaledJob", "metadata": [1], "spec": spec})
    assert {"AS103", "AS104"} <= set(ids(report))
