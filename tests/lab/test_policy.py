from __future__ import annotations

from typing import Any

import pytest
import yaml

from accelscale.errors import ConfigurationError, NotFoundError, UnsupportedError
from accelscale.hpa import FallbackBehavior, PolicyType, SelectPolicy
from accelscale.lab.policy import changed, read_policy, scaled_objects, wanted_metrics
from accelscale.metrics import METRICS, Metric
from accelscale.trigger import MetricType
from lab.toys import manifest


def test_everything_that_decides_on_replicas_is_read() -> None:
    policy = read_policy(
        manifest(
            spec={
                "minReplicaCount": 2,
                "maxReplicaCount": 9,
                "idleReplicaCount": 0,
                "pollingInterval": 10,
                "cooldownPeriod": 120,
                "initialCooldownPeriod": 60,
                "fallback": {
                    "failureThreshold": 3,
                    "replicas": 4,
                    "behavior": "currentReplicasIfHigher",
                },
                "advanced": {
                    "horizontalPodAutoscalerConfig": {
                        "behavior": {
                            "scaleDown": {
                                "stabilizationWindowSeconds": 600,
                                "selectPolicy": "Min",
                                "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
                                "tolerance": 0.05,
                            }
                        }
                    }
                },
            },
            trigger={"name": "load", "metricType": "Value", "useCachedMetrics": True},
            window="30s",
        )
    )
    found = policy.scaled_object
    assert (policy.namespace, policy.name) == ("toys", "web")
    assert (found.min_replicas, found.max_replicas, found.idle_replicas) == (2, 9, 0)
    assert (found.polling_interval, found.cooldown_period) == (10, 120)
    assert found.initial_cooldown_period == 60
    assert found.fallback is not None
    assert found.fallback.behavior is FallbackBehavior.CURRENT_IF_HIGHER
    assert found.behavior is not None
    down = found.behavior.scale_down
    assert down.stabilization_window_seconds == 600
    assert down.select_policy is SelectPolicy.MIN
    assert down.policies[0].type is PolicyType.PODS
    assert down.tolerance == 0.05
    (trigger,) = found.triggers
    assert (trigger.target, trigger.use_cached_metrics) == (70.0, True)
    assert trigger.metric_type is policy.triggers[0].metric_type is MetricType.VALUE
    assert policy.triggers[0].window == 30.0


def test_triggers_of_other_scalers_are_left_out_by_name() -> None:
    document = manifest()
    document["spec"]["triggers"] += [
        {"type": "prometheus", "name": "queue", "metadata": {}},
        {"type": "external", "metadata": {"scalerAddress": "other:1", "target": "3"}},
    ]
    policy = read_policy(document)
    assert len(policy.triggers) == len(policy.scaled_object.triggers) == 1
    assert policy.left_out == ("trigger 1, prometheus (queue)", "trigger 2, external")


def test_pausing_annotations_and_pushes_are_seen() -> None:
    document = manifest(trigger={"type": "external-push"})
    document["metadata"]["annotations"] = {"autoscaling.keda.sh/paused-scale-in": "true"}
    policy = read_policy(document)
    assert policy.pushes
    assert policy.scaled_object.pause.scale_in


def test_a_plugins_metric_is_known_where_the_recording_has_it() -> None:
    document = manifest(metric="acme_depth")
    with pytest.raises(ConfigurationError, match="acme_depth"):
        read_policy(document)
    table = {**METRICS, "acme_depth": Metric("acme_depth", "requests", "")}
    assert read_policy(document, metrics=table).metrics == ("acme_depth",)


@pytest.mark.parametrize(
    ("spec", "faults"),
    [
        ({"minReplicaCount": "2"}, ["spec.minReplicaCount='2': must be a whole number"]),
        ({"maxReplicaCount": True}, ["spec.maxReplicaCount='True': must be a whole number"]),
        ({"minReplicaCount": 5, "maxReplicaCount": 3}, ["maxReplicaCount='3': must be at least"]),
        (
            {"fallback": {"failureThreshold": 3, "replicas": 2, "behavior": "guess"}},
            ["spec.fallback.behavior='guess': must be one of static"],
        ),
        (
            {
                "advanced": {
                    "horizontalPodAutoscalerConfig": {
                        "behavior": {
                            "scaleUp": {"policies": [{"type": "Pods"}], "tolerance": "x"},
                            "scaleDown": {"stabilizationWindowSeconds": 9999},
                        }
                    }
                }
            },
            [
                "behavior.scaleUp.policies[0]: needs type, value and periodSeconds",
                "behavior.scaleUp.tolerance='x': must be a fraction",
                "behavior.scaleDown.stabilizationWindowSeconds='9999': must be 0 to 3600",
            ],
        ),
        ({"triggers": []}, ["spec.triggers: none of them is of accelscale"]),
    ],
)
def test_every_fault_of_the_spec_is_named(spec: dict[str, Any], faults: list[str]) -> None:
    with pytest.raises(ConfigurationError) as error:
        read_policy(manifest(spec=spec))
    for fault in faults:
        assert fault in str(error.value)


def test_faults_of_a_trigger_carry_its_place() -> None:
    document = manifest(threshold="70%", windw="3s")
    document["spec"]["triggers"][0]["metadata"]["maxAge"] = 5
    with pytest.raises(ConfigurationError) as error:
        read_policy(document)
    keys = {fault.key for fault in error.value.faults}
    assert keys == {
        "spec.triggers[0].metadata.threshold",
        "spec.triggers[0].metadata.windw",
        "spec.triggers[0].metadata.maxAge",
    }
    assert "put it in quotes" in str(error.value)


def test_a_formula_is_refused() -> None:
    spec = {"advanced": {"scalingModifiers": {"formula": "a + b", "target": "1"}}}
    with pytest.raises(UnsupportedError, match="formula is not part of the model"):
        read_policy(manifest(spec=spec))


def test_scaled_objects_are_found_in_a_stream() -> None:
    text = yaml.safe_dump_all(
        [{"kind": "Deployment"}, manifest(), None, {"kind": "List", "items": [manifest()]}]
    )
    assert len(scaled_objects(text)) == 2
    with pytest.raises(NotFoundError, match=r"no ScaledObject in it \(found: Deployment\)"):
        scaled_objects("kind: Deployment\n")
    with pytest.raises(ConfigurationError, match="line 2, column 4"):
        scaled_objects("kind: ScaledObject\n  x: [\n", subject="web.yaml")


def test_the_metrics_are_known_before_anything_is_checked() -> None:
    document = manifest()
    document["spec"]["triggers"] += [{"type": "external", "metadata": {"profile": "VLLM"}}]
    document["spec"]["triggers"] += [{"type": "external", "metadata": {"metric": "power_watts"}}]
    assert wanted_metrics(document) == {"utilization_percent", "power_watts"}
    assert wanted_metrics({"kind": "ScaledObject"}) == set()


def test_settings_are_changed_in_a_copy() -> None:
    document = manifest(trigger={"name": "load"})
    for key, text, seen in (
        ("threshold", "55", lambda p: p.triggers[0].threshold == 55.0),
        ("load.window", "1m", lambda p: p.triggers[0].window == 60.0),
        ("0.activationThreshold", "3", lambda p: p.triggers[0].activation_threshold == 3.0),
        ("cooldownPeriod", "60", lambda p: p.scaled_object.cooldown_period == 60),
        (
            "scaleDown.stabilizationWindowSeconds",
            "30",
            lambda p: p.scaled_object.behavior.scale_down.stabilization_window_seconds == 30,
        ),
    ):
        assert seen(read_policy(changed(document, key, text)))
    assert document == manifest(trigger={"name": "load"})


@pytest.mark.parametrize("key", ["treshold", "other.threshold", "replicas"])
def test_a_setting_that_does_not_exist_is_refused(key: str) -> None:
    with pytest.raises(NotFoundError):
        changed(manifest(), key, "1")
