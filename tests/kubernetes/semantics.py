"""What paths, events and scales of a Kubernetes API look like, for the stand-in. Pure."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import field, frozen

from accelscale.selectors import parse_selector

Object = dict[str, Any]
Key = tuple[str, str]


@frozen
class Resource:
    """One line of an APIResourceList."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    scalable: bool = False

    @property
    def group_version(self) -> str:
        """As ``apiVersion`` has it."""
        return f"{self.group}/{self.version}" if self.group else self.version


_LWS = "leaderworkerset.x-k8s.io"
RESOURCES = (
    Resource("", "v1", "pods", "Pod"),
    Resource("apps", "v1", "deployments", "Deployment", scalable=True),
    Resource("apps", "v1", "replicasets", "ReplicaSet", scalable=True),
    Resource("apps", "v1", "statefulsets", "StatefulSet", scalable=True),
    Resource("apps", "v1", "daemonsets", "DaemonSet"),
    Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout", scalable=True),
    Resource(_LWS, "v1", "leaderworkersets", "LeaderWorkerSet", scalable=True),
    Resource("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject"),
    Resource("keda.sh", "v1alpha1", "scaledjobs", "ScaledJob"),
    Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False),
)


@frozen
class Asked:
    """A request that arrived; ``verb`` is list, watch, get or discover."""

    plural: str
    verb: str
    path: str
    parameters: Mapping[str, str]


@frozen
class Change:
    """An entry of the log that watches read."""

    version: int
    resource: Resource
    before: Object | None
    after: Object | None


@frozen
class Reply(Exception):  # noqa: N818 - an answer, which is not always an error
    """A reply other than the usual."""

    status: int
    reason: str = ""
    headers: Mapping[str, str] = field(factory=dict)
    body: bytes | None = None

    def payload(self) -> bytes:
        """The body."""
        return self.body if self.body is not None else json.dumps(self.as_status()).encode()

    def as_status(self) -> Object:
        """As the Status that watches send."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.reason,
            "reason": {410: "Expired", 403: "Forbidden", 404: "NotFound"}.get(self.status, ""),
            "code": self.status,
        }


def key_of(value: Object) -> Key:
    """Namespace and name."""
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]


def split_path(path: str) -> tuple[str, str, list[str]]:
    """Group and version of a path, the namespace, and what comes after."""
    parts = path.strip("/").split("/")
    group_version, rest = ("", [])
    if parts[0] == "api" and len(parts) > 1:
        group_version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 1:
        group_version, rest = "/".join(parts[1:3]), parts[3:]
    if rest[:1] == ["namespaces"]:
        return group_version, rest[1], rest[2:]
    return group_version, "", rest


def chosen_by(namespace: str, parameters: Mapping[str, str]) -> Callable[[Object], bool]:
    """Whether an object is in the namespace and fits the selectors."""
    labels = parse_selector(parameters.get("labelSelector", ""))
    fields = list(_field_terms(parameters.get("fieldSelector", "")))

    def chosen(value: Object) -> bool:
        if namespace and value["metadata"].get("namespace") != namespace:
            return False
        if not labels.matches(value["metadata"].get("labels") or {}):
            return False
        return all((_at(value, path) == text) is equal for path, equal, text in fields)

    return chosen


def _field_terms(text: str) -> Iterator[tuple[list[str], bool, str]]:
    for term in filter(None, text.split(",")):
        equal = "!=" not in term
        path, _, wanted = term.partition("=" if equal else "!=")
        yield path.split("."), equal, wanted


def _at(value: Any, path: list[str]) -> str:
    for name in path:
        value = (value or {}).get(name)
    return str(value or "")


def event_of(change: Change, chosen: Callable[[Object], bool]) -> tuple[str, Object] | None:
    """What a watch with a selector sees: what leaves the selection is deleted for it."""
    before = change.before if change.before is not None and chosen(change.before) else None
    after = change.after if change.after is not None and chosen(change.after) else None
    if after is not None:
        return ("ADDED" if before is None else "MODIFIED"), after
    if before is None:
        return None
    last = copy.deepcopy(before)
    last["metadata"]["resourceVersion"] = str(change.version)
    return "DELETED", last


def bookmark_of(resource: Resource, version: int) -> Object:
    """The object of a bookmark, which is none."""
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    return {"kind": resource.kind, "apiVersion": resource.group_version, "metadata": metadata}


def scale_of(value: Object) -> Object:
    """The Scale of an object, as its resource fills it in."""
    spec, status = value.get("spec", {}), value.get("status", {})
    selector = status.get("selector") or status.get("hpaPodSelector")
    if selector is None:
        labels = spec.get("selector", {}).get("matchLabels", {})
        selector = ",".join(f"{key}={text}" for key, text in sorted(labels.items()))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {k: v for k, v in value["metadata"].items() if k != "labels"},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {"replicas": status.get("replicas", 0), "selector": selector},
    }


def resource_list(group_version: str, resources: list[Resource]) -> Object:
    """An APIResourceList."""
    lines: list[Object] = []
    for each in resources:
        line = {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced}
        lines.append({**line, "verbs": ["get", "list", "watch"]})
        if each.scalable:
            scale = {"name": f"{each.plural}/scale", "kind": "Scale", "namespaced": True}
            lines.append({**scale, "group": "autoscaling", "version": "v1", "verbs": ["get"]})
    return {"kind": "APIResourceList", "groupVersion": group_version, "resources": lines}


def group_description(group: str, versions: list[str]) -> Object:
    """An APIGroup."""
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group,
        "versions": [{"groupVersion": f"{group}/{v}", "version": v} for v in versions],
        "preferredVersion": {"groupVersion": f"{group}/{versions[0]}", "version": versions[0]},
    }
