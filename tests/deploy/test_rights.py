"""The rights in the manifests are those that the scaler uses, no more and no fewer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from accelscale.errors import AccelscaleError
from accelscale.model import Allocation, Claim, Device
from accelscale.trigger import parse_trigger
from accelscale_server.api_server import ApiServer
from accelscale_server.cluster import Cluster
from accelscale_server.scales import ScalePace
from accelscale_server.watching import Pace
from cluster.waiting import until
from deploy.manifests import EXAMPLES, NAMESPACE, documents, scaler_objects, the
from kubernetes.api_server import ApiServerStandIn
from kubernetes.objects import (
    endpoint,
    endpoint_slice,
    pod,
    resource_slice,
    scalable,
    scaled_job,
    scaled_object,
)
from kubernetes.semantics import Asked, Reply

Right = tuple[str, str, str, str]  # namespace or "", API group, resource, verb

TARGETS = {
    "deployments": {"name": "deployments"},
    "statefulsets": {"name": "statefulsets", "kind": "StatefulSet"},
    "replicasets": {"name": "replicasets", "kind": "ReplicaSet"},
    "rollouts": {
        "name": "rollouts",
        "kind": "Rollout",
        "apiVersion": "argoproj.io/v1alpha1",
    },
    "leaderworkersets": {
        "name": "leaderworkersets",
        "kind": "LeaderWorkerSet",
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
    },
}
TRIGGER = parse_trigger({"profile": "vllm"})
GPU = Device("node-a/GPU-1", "H200", "nvidia", "nvidia", node="node-a")
CLAIM = Claim("gpu.nvidia.com", "node-a", "gpu-0")


def granted() -> set[Right]:
    """What the shipped roles grant."""
    objects = scaler_objects()
    rights: set[Right] = set()
    for role, namespace in [
        (the(objects, "ClusterRole"), ""),
        (the(objects, "Role"), NAMESPACE),
    ]:
        for rule in role["rules"]:
            rights |= {
                (namespace, group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return rights


def right_of(asked: Asked) -> Right | None:
    """The right that a request needs; to see which resources there are, everybody has."""
    if asked.verb == "discover":
        return None
    parts = asked.path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" else ""
    return "", group, asked.plural, asked.verb


@pytest.fixture
def filled(api_server: ApiServerStandIn) -> ApiServerStandIn:
    """A cluster with a target of every kind, a ScaledJob, a claim and an agent."""
    for plural, target in TARGETS.items():
        name = target["name"]
        labels = {"app": name, "leaderworkerset.sigs.k8s.io/name": name}
        api_server.put("scaledobjects", scaled_object(name, target=target))
        api_server.put(plural, scalable(name))
        api_server.put("pods", pod(f"{name}-0", labels=labels))
    api_server.put("scaledjobs", scaled_job("jobs"))
    api_server.put("pods", pod("jobs-0", labels={"scaledjob.keda.sh/name": "jobs"}))
    slices = resource_slice("s", CLAIM.driver, CLAIM.pool, {CLAIM.device: {"uuid": "GPU-1"}})
    api_server.put("resourceslices", slices)
    agents = endpoint_slice("a", NAMESPACE, "accelscale-agents", endpoint("10.0.0.1", "node-a"))
    api_server.put("endpointslices", agents)
    return api_server


def held(node: str, namespace: str, name: str) -> Sequence[Allocation]:
    return (Allocation(None, node, namespace, name, "server", "", "cdi", CLAIM),)


def state_of(cluster: Cluster) -> str:
    """The first thing that does not work, or nothing."""
    try:
        if cluster.agents(NAMESPACE, "accelscale-agents") != {"10.0.0.1:6001"}:
            return "no agents"
        for name in (*TARGETS, "jobs"):
            workload = cluster.workload("shop", name, TRIGGER, held, lambda node: [GPU])
            (replica,) = workload.replicas
            if replica.devices != (GPU.id,):
                return replica.problem
    except AccelscaleError as error:
        return str(error)
    return ""


async def running(server: ApiServerStandIn) -> tuple[Cluster, asyncio.Task[None]]:
    pace = Pace(first_pause=0.02, longest_pause=0.1, refused_pause=0.05)
    scale_pace = ScalePace(refused=0.05, failed=0.02, spacing=0.0)
    cluster = Cluster(ApiServer(server.kubeconfig()), pace=pace, scale_pace=scale_pace)
    return cluster, asyncio.create_task(cluster.run())


def enforce(server: ApiServerStandIn, rights: set[Right]) -> set[Right]:
    """Refuse what is not granted; gives the rights that were used, as they are found out."""
    used: set[Right] = set()

    def refuse(asked: Asked) -> Reply | None:
        right = right_of(asked)
        if right is None:
            return None
        there = f"/namespaces/{NAMESPACE}/" in asked.path
        for each in (right, (NAMESPACE, *right[1:])):
            if each in rights and (not each[0] or there):
                used.add(each)
                return None
        return Reply(403, f"{asked.plural} is forbidden")

    server.instead = refuse
    return used


async def test_the_rights_granted_are_those_that_are_used(filled: ApiServerStandIn) -> None:
    used = enforce(filled, granted())
    cluster, task = await running(filled)
    try:
        await until(lambda: state_of(cluster) == "", 20.0, what="a right is missing")
        await until(lambda: used == granted(), what="a right is not used")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("missing", sorted({right[2] for right in granted()}))
async def test_without_a_right_only_that_does_not_work_and_the_right_is_named(
    filled: ApiServerStandIn, missing: str
) -> None:
    enforce(filled, {right for right in granted() if right[2] != missing})
    cluster, task = await running(filled)
    try:
        await until(lambda: named(missing) in state_of(cluster), 20.0, what=state_of(cluster))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def named(resource: str) -> str:
    """How a message names a resource."""
    return {"scaledjobs": "scaledjobs.keda.sh"}.get(resource, resource.partition("/")[0])


def test_every_example_can_be_read() -> None:
    """The kind of each example's target is one whose scale the scaler may read."""
    scales = {right[2] for right in granted() if right[2].endswith("/scale")}
    for path in EXAMPLES:
        spec = documents(path)[0]["spec"]
        if "scaleTargetRef" in spec:
            kind = spec["scaleTargetRef"].get("kind", "Deployment")
            assert f"{kind.lower()}s/scale" in scales
