"""Manifests as text: a clean one, and the same with changes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import yaml

from accelscale.lab.check import Conditions, Report, Source, check

GPU = {"nvidia.com/gpu": "1"}

OWN: dict[str, Any] = {
    "type": "external",
    "metadata": {
        "scalerAddress": "accelscale.example.svc:6000",
        "metric": "utilization_percent",
        "threshold": "70",
        "activationThreshold": "5",
        "idleAfter": "10m",
    },
}
QUEUE: dict[str, Any] = {
    "type": "prometheus",
    "metadata": {"serverAddress": "http://prometheus:9090", "query": "waiting", "threshold": "5"},
}
CLEAN: dict[str, Any] = {
    "apiVersion": "keda.sh/v1alpha1",
    "kind": "ScaledObject",
    "metadata": {"name": "server"},
    "spec": {
        "scaleTargetRef": {"name": "server"},
        "minReplicaCount": 1,
        "maxReplicaCount": 8,
        "triggers": [OWN],
    },
}

ZERO: dict[str, Any] = {"minReplicaCount": 0}


def changed(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The base with the change merged in; None takes a key out."""
    result = copy.deepcopy(dict(base))
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = changed(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def trigger(*, fields: Mapping[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """The clean trigger with other metadata, and other fields beside it."""
    return changed(OWN, {"metadata": metadata, **(fields or {})})


def scaled_object(*triggers: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """The clean object with other fields and triggers."""
    own = {"triggers": list(triggers)} if triggers else {}
    return changed(CLEAN, {"spec": {**own, **spec}})


def behavior(**directions: Any) -> dict[str, Any]:
    """The part ``advanced`` with a behaviour of the HPA."""
    return {"horizontalPodAutoscalerConfig": {"behavior": directions}}


def formula(**modifiers: Any) -> dict[str, Any]:
    """The part ``advanced`` with a formula."""
    return {"scalingModifiers": {"formula": "max(gpu, 1)", "target": "70", **modifiers}}


def scaled_job(*triggers: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """A ScaledJob."""
    container = {"name": "job", "image": "job:1", "resources": {"limits": GPU}}
    pod = {"containers": [container], "restartPolicy": "Never"}
    job = {
        "jobTargetRef": {"template": {"spec": pod}},
        "maxReplicaCount": 4,
        "triggers": list(triggers),
        **spec,
    }
    return {**CLEAN, "kind": "ScaledJob", "spec": job}


def deployment(*, container: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """The workload that the clean object scales."""
    one = {"name": "server", "image": "server:1", "resources": {"limits": GPU}}
    template = {
        "metadata": {"labels": {"app": "server"}},
        "spec": {"containers": [changed(one, container or {})]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "server"},
        "spec": {"template": template, **spec},
    }


def text(*documents: Mapping[str, Any]) -> str:
    """The documents as YAML."""
    return yaml.safe_dump_all(documents, sort_keys=False)


def checked(*documents: Mapping[str, Any] | str, conditions: Conditions | None = None) -> Report:
    """What a check of one file with these documents, or of this text, says."""
    content = "".join(each if isinstance(each, str) else f"---\n{text(each)}" for each in documents)
    return check([Source("file.yaml", content)], conditions)


def ids(report: Report) -> list[str]:
    """The ids of what was found, unusable inputs first."""
    return [finding.rule.id for finding in (*report.unusable, *report.findings)]
