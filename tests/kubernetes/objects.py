"""Objects of the Kubernetes API as they look in JSON, with as little as a test needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

NAMESPACE = "shop"
STARTED = "2026-01-31T12:00:00Z"
READY_SINCE = "2026-01-31T12:01:00Z"


def pod(
    name: str,
    namespace: str = NAMESPACE,
    *,
    labels: Mapping[str, str] | None = None,
    node: str | None = "node-a",
    phase: str = "Running",
    ready: bool = True,
    ready_since: str = READY_SINCE,
    containers: tuple[str, ...] = ("server",),
    states: Mapping[str, Object] | None = None,
    deleted: bool = False,
) -> Object:
    """A pod that serves, unless told otherwise; ``states`` are those of its containers."""
    running = {"running": {"startedAt": STARTED}}
    status: Object = {"phase": phase}
    if phase != "Pending":
        status["startTime"] = STARTED
        status["conditions"] = [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": STARTED},
            {"type": "Ready", "status": str(ready), "lastTransitionTime": ready_since},
        ]
        status["containerStatuses"] = [
            {"name": each, "ready": ready, "state": (states or {}).get(each, running)}
            for each in containers
        ]
    metadata: Object = {"name": name, "namespace": namespace, "labels": dict(labels or {})}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-31T13:00:00Z"
    spec: Object = {"containers": [{"name": each} for each in containers]}
    if node is not None:
        spec["nodeName"] = node
    return {"metadata": metadata, "spec": spec, "status": status}


def scalable(
    name: str,
    namespace: str = NAMESPACE,
    *,
    labels: Mapping[str, str] | None = None,
    replicas: int = 1,
    status: Mapping[str, Any] | None = None,
) -> Object:
    """A Deployment or anything like one: pods with ``labels`` are its own."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels or {"app": name}}},
        "status": {"replicas": replicas, **(status or {})},
    }


def scaled_object(
    name: str,
    namespace: str = NAMESPACE,
    *,
    target: Mapping[str, str] | None = None,
    triggers: tuple[Object, ...] | None = None,
    **spec: Any,
) -> Object:
    """A ScaledObject of a Deployment with its own name."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": dict(target or {"name": name}),
            "triggers": list(triggers if triggers is not None else (external(),)),
            **spec,
        },
    }


def scaled_job(name: str, namespace: str = NAMESPACE, *triggers: Object) -> Object:
    """A ScaledJob."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"jobTargetRef": {"template": {}}, "triggers": list(triggers or (external(),))},
    }


def external(metric_type: str | None = None, **metadata: str) -> Object:
    """A trigger that an external scaler answers."""
    written = {"scalerAddress": "accelscale:6000", "profile": "vllm", **metadata}
    trigger: Object = {"type": "external", "metadata": written}
    if metric_type is not None:
        trigger["metricType"] = metric_type
    return trigger


def endpoint_slice(
    name: str,
    namespace: str,
    service: str,
    *endpoints: Object,
    port: int = 6001,
    family: str = "IPv4",
) -> Object:
    """An EndpointSlice of a Service."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": family,
        "endpoints": list(endpoints),
        "ports": [{"name": "grpc", "port": port, "protocol": "TCP"}],
    }


def endpoint(address: str, node: str, *, uid: str = "", **conditions: bool) -> Object:
    """An endpoint: a pod's address."""
    made: Object = {"addresses": [address], "nodeName": node, "conditions": conditions}
    if uid:
        made["targetRef"] = {"kind": "Pod", "name": uid, "uid": uid}
    return made


def resource_slice(
    name: str,
    driver: str,
    pool: str,
    devices: Mapping[str, Mapping[str, Any]],
    *,
    generation: int = 1,
    basic: bool = False,
) -> Object:
    """A ResourceSlice with the attributes of each device; ``basic`` is how v1beta1 has them."""
    made = []
    for device, attributes in devices.items():
        typed = {
            key: {"int": value} if isinstance(value, int) else {"string": value}
            for key, value in attributes.items()
        }
        body = {"attributes": typed}
        made.append({"name": device, **({"basic": body} if basic else body)})
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": pool,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
            "devices": made,
        },
    }
