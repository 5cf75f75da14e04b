from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from accelscale.errors import (
    AccelscaleError,
    ForbiddenError,
    NoDataError,
    NotFoundError,
    UnsupportedError,
)
from accelscale.model import Allocation, Claim, Device, Workload
from accelscale.trigger import MetricType, parse_trigger
from accelscale_server.api_server import ApiServer
from accelscale_server.cluster import Cluster
from accelscale_server.scales import ScalePace
from accelscale_server.watching import Pace
from cluster.waiting import until
from kubernetes.api_server import ApiServerStandIn
from kubernetes.objects import (
    Object,
    endpoint,
    endpoint_slice,
    external,
    pod,
    resource_slice,
    scalable,
    scaled_job,
    scaled_object,
)
from kubernetes.semantics import Resource

PACE = Pace(first_pause=0.02, longest_pause=0.1, refused_pause=0.05)
SCALE_PACE = ScalePace(refresh=0.1, refused=0.05, failed=0.02, longest=0.05, spacing=0.0)
TRIGGER = parse_trigger({"profile": "vllm"})
StartCluster = Callable[..., Awaitable[Cluster]]


@pytest.fixture
async def start_cluster(api_server: ApiServerStandIn) -> AsyncIterator[StartCluster]:
    """Starts what a scaler knows of a cluster."""
    async with AsyncExitStack() as stack:

        async def start(namespaces: Sequence[str] = (), **options: Any) -> Cluster:
            api = ApiServer(api_server.kubeconfig(), answer_seconds=5.0)
            paces: dict[str, Any] = {"pace": PACE, "scale_pace": SCALE_PACE}
            cluster = Cluster(api, namespaces, **{**paces, **options})
            task = asyncio.create_task(cluster.run())

            async def end() -> None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

            stack.push_async_callback(end)
            return cluster

        yield start


def own_device(node: str, namespace: str, name: str) -> Sequence[Allocation]:
    device = f"{node}/GPU-{namespace}-{name}"
    return (Allocation(device, node, namespace, name, "server", "nvidia.com/gpu"),)


def answer(
    cluster: Cluster, name: str = "web", namespace: str = "shop", **keys: str
) -> Workload | AccelscaleError:
    trigger = parse_trigger({"profile": "vllm", **keys})
    try:
        return cluster.workload(namespace, name, trigger, own_device)
    except AccelscaleError as error:
        return error


async def known(
    cluster: Cluster, name: str = "web", namespace: str = "shop", **keys: str
) -> Workload:
    """The workload, once it is known."""
    await until(
        lambda: isinstance(answer(cluster, name, namespace, **keys), Workload),
        what=lambda: str(answer(cluster, name, namespace, **keys)),
    )
    found = answer(cluster, name, namespace, **keys)
    assert isinstance(found, Workload)
    return found


async def refused(cluster: Cluster, name: str = "web", **keys: str) -> AccelscaleError:
    """The error, once it is no longer that nothing is known yet."""
    await until(lambda: not isinstance(answer(cluster, name, **keys), NoDataError))
    found = answer(cluster, name, **keys)
    assert isinstance(found, AccelscaleError)
    return found


def names(found: Workload | AccelscaleError) -> list[str]:
    """The replicas, or what stands in their place."""
    return [r.name for r in found.replicas] if isinstance(found, Workload) else [str(found)]


def deploy(
    api_server: ApiServerStandIn, name: str = "web", namespace: str = "shop", replicas: int = 2
) -> None:
    """A Deployment with its pods and a ScaledObject."""
    api_server.put("scaledobjects", scaled_object(name, namespace))
    api_server.put("deployments", scalable(name, namespace, replicas=replicas))
    for number in range(replicas):
        node = f"node-{number}"
        made = pod(f"{name}-{number}", namespace, labels={"app": name}, node=node)
        api_server.put("pods", made)


async def test_the_pods_of_the_workload_that_asked(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server, "web")
    deploy(api_server, "other")
    cluster = await start_cluster()
    workload = await known(cluster)
    assert (workload.name, workload.namespace, workload.scope) == (
        "Deployment shop/web",
        "shop",
        "workload",
    )
    assert [(replica.name, replica.devices) for replica in workload.replicas] == [
        ("web-0", ("node-0/GPU-shop-web-0",)),
        ("web-1", ("node-1/GPU-shop-web-1",)),
    ]
    assert cluster.replicas("shop", "web") == (2, 2)
    assert cluster.bounds("shop", "web") == (0, 100)


async def test_pods_of_the_same_name_in_another_namespace_are_none_of_it(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    for namespace in ("a", "b"):
        deploy(api_server, "web", namespace, replicas=1)
    cluster = await start_cluster()
    (replica,) = (await known(cluster, namespace="b")).replicas
    assert replica.devices == ("node-0/GPU-b-web-0",)
    watched = {state.objects for state in cluster.states()}
    assert watched == {"scaledobjects.keda.sh", "scaledjobs.keda.sh", "pods in namespace b"}


async def test_what_nobody_asks_about_costs_nothing(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    for number in range(20):
        deploy(api_server, f"w{number}", f"ns{number}")
    cluster = await start_cluster()
    await until(lambda: cluster.ready)
    await asyncio.sleep(0.1)
    assert {asked.plural for asked in api_server.requests} == {"scaledobjects", "scaledjobs"}


async def test_no_question_leads_to_a_call(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server)
    cluster = await start_cluster(scale_pace=ScalePace(refresh=600.0))
    await known(cluster)
    await until(lambda: api_server.watching == ["pods", "scaledjobs", "scaledobjects"])
    asked = len(api_server.requests)
    for _ in range(500):
        answer(cluster)
        cluster.metric_type("shop", "web", {})
        cluster.replicas("shop", "web")
        await asyncio.sleep(0)
    assert len(api_server.requests) == asked


async def test_every_change_is_told(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server)
    cluster = await start_cluster()
    await known(cluster)
    told: list[int] = []
    unsubscribe = cluster.subscribe(lambda: told.append(cluster.sequence))
    before = cluster.sequence
    api_server.put("pods", pod("web-2", labels={"app": "web"}))
    await until(lambda: len(told) > 0)
    assert told[0] > before
    assert names(await known(cluster)) == ["web-0", "web-1", "web-2"]
    unsubscribe()
    unsubscribe()
    count = len(told)
    api_server.delete("pods", "shop", "web-2")
    await until(lambda: names(answer(cluster)) == ["web-0", "web-1"])
    assert len(told) == count


async def test_who_is_no_replica(api_server: ApiServerStandIn, start_cluster: StartCluster) -> None:
    deploy(api_server, replicas=1)
    labels = {"app": "web"}
    api_server.put(
        "pods",
        pod("done", labels=labels, phase="Succeeded"),
        pod("failed", labels=labels, phase="Failed"),
        pod("leaving", labels=labels, deleted=True),
        pod("loading", labels=labels, ready=False, ready_since="2026-01-31T12:00:00Z"),
        pod("pending", labels=labels, node=None, phase="Pending"),
    )
    cluster = await start_cluster()
    workload = await known(cluster)
    assert [(r.name, r.ready, r.was_ready, r.problem) for r in workload.replicas] == [
        ("loading", False, False, ""),
        ("pending", False, False, "is not scheduled yet"),
        ("web-0", True, True, ""),
    ]
    # The HPA multiplies by Ready pods, and takes one that is leaving for such a one.
    assert cluster.replicas("shop", "web") == (3, 2)


async def test_no_pods_are_a_number_only_where_none_are_wanted(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    api_server.put("scaledobjects", scaled_object("web"))
    api_server.put("deployments", scalable("web", replicas=0))
    cluster = await start_cluster()
    assert (await known(cluster)).replicas == ()
    api_server.put("deployments", scalable("web", replicas=3))
    await until(lambda: isinstance(answer(cluster), NoDataError))
    assert "Deployment shop/web wants 3 replicas, and has no pod that" in str(answer(cluster))
    api_server.put("pods", pod("web-0", labels={"app": "web"}))
    assert names(await known(cluster)) == ["web-0"]
    # A rollout that ends all old pods before it makes new ones leaves none for a while.
    api_server.put("pods", pod("web-0", labels={"app": "web"}, deleted=True))
    await until(lambda: isinstance(answer(cluster), NoDataError))


async def test_a_scale_that_does_not_fit_the_pods_is_read_again_soon(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server, replicas=1)
    seldom = ScalePace(refresh=600.0, failed=0.02, spacing=0.0)
    cluster = await start_cluster(scale_pace=seldom)
    await known(cluster)
    api_server.put("deployments", scalable("web", replicas=0))
    api_server.delete("pods", "shop", "web-0")
    await until(lambda: names(answer(cluster)) == [])
    api_server.put("deployments", scalable("web", replicas=1))
    api_server.put("pods", pod("web-1", labels={"app": "web"}))
    await until(lambda: names(answer(cluster)) == ["web-1"])
    api_server.delete("pods", "shop", "web-1")
    await until(lambda: "wants 1 replicas" in str(answer(cluster)))


async def test_pods_are_narrowed_by_labels_and_node(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server)
    labels = {"app": "web", "tier": "gold"}
    api_server.put("pods", pod("web-9", labels=labels, node="node-9"))
    cluster = await start_cluster()
    assert names(await known(cluster, podSelector="tier in (gold,silver)")) == ["web-9"]
    assert names(await known(cluster, podSelector="!tier", node="node-1")) == ["web-1"]
    found = answer(cluster, podSelector="tier=iron", node="node-1")
    assert isinstance(found, NotFoundError)
    assert "podSelector=tier=iron and node=node-1 selects none of the pods of Dep" in str(found)
    assert "which are web-0, web-1, web-9" in str(found)


async def test_a_pod_without_an_accelerator_is_named(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server)
    cluster = await start_cluster()
    await known(cluster)

    def one_without(node: str, namespace: str, name: str) -> Sequence[Allocation]:
        return own_device(node, namespace, name) if name == "web-0" else ()

    with pytest.raises(UnsupportedError, match="pod shop/web-1 on node-1 holds no accelerator"):
        cluster.workload("shop", "web", TRIGGER, one_without)
    found = answer(cluster, container="proxy")
    assert "pod shop/web-0 has no container proxy; it has server" in str(found)


async def test_a_pod_that_may_be_gone_is_silent_rather_than_without_an_accelerator(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server)
    cluster = await start_cluster()
    await known(cluster)
    api_server.go_away()
    await until(lambda: "pods" in str(cluster.problem))

    def one_left(node: str, namespace: str, name: str) -> Sequence[Allocation]:
        return own_device(node, namespace, name) if name == "web-0" else ()

    workload = cluster.workload("shop", "web", TRIGGER, one_left)
    assert [replica.problem.partition(":")[0] for replica in workload.replicas] == [
        "",
        "holds no device that is known, and may be gone",
    ]


async def test_the_groups_of_a_leader_worker_set(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    lws = "leaderworkerset.sigs.k8s.io"
    target = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "llm"}
    api_server.put("scaledobjects", scaled_object("llm", target=target))
    selector = f"{lws}/name=llm,{lws}/worker-index=0"
    api_server.put(
        "leaderworkersets", scalable("llm", replicas=2, status={"hpaPodSelector": selector})
    )
    for group in range(2):
        for worker in range(4):
            labels = {
                f"{lws}/name": "llm",
                f"{lws}/group-index": str(group),
                f"{lws}/worker-index": str(worker),
            }
            name = f"llm-{group}" if worker == 0 else f"llm-{group}-{worker}"
            api_server.put("pods", pod(name, labels=labels))
    cluster = await start_cluster()
    workload = await known(cluster, "llm")
    assert names(workload) == ["llm-0", "llm-1"]
    assert [len(replica.devices) for replica in workload.replicas] == [4, 4]
    assert cluster.replicas("shop", "llm") == (2, 2)
    assert names(await known(cluster, "llm", podSelector=f"{lws}/worker-index=0")) == [
        "llm-0",
        "llm-1",
    ]


async def test_a_kind_of_somebody_else_with_a_scale(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    api_server.serve(Resource("example.com", "v1", "services4ai", "Service4AI", scalable=True))
    target = {"apiVersion": "example.com/v1", "kind": "Service4AI", "name": "web"}
    api_server.put("scaledobjects", scaled_object("web", target=target))
    api_server.put("services4ai", scalable("web", status={"selector": "app=web,!canary"}))
    api_server.put("pods", pod("a", labels={"app": "web"}))
    api_server.put("pods", pod("b", labels={"app": "web", "canary": "1"}))
    assert names(await known(await start_cluster())) == ["a"]


async def test_a_scale_without_a_selector_selects_nothing_rather_than_everything(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    target = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web"}
    api_server.put("scaledobjects", scaled_object("web", target=target))
    api_server.put("rollouts", scalable("web", status={"selector": " "}))
    api_server.put("pods", pod("stranger"))
    cluster = await start_cluster()
    await until(lambda: "tells no selector" in str(answer(cluster)))
    assert isinstance(answer(cluster), NoDataError)


async def test_the_pods_of_a_scaled_jobs_jobs(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    api_server.put("scaledjobs", scaled_job("jobs"))
    cluster = await start_cluster()
    assert (await known(cluster, "jobs")).replicas == ()
    labels = {"scaledjob.keda.sh/name": "jobs"}
    api_server.put("pods", pod("jobs-x", labels=labels), pod("jobs-y"))
    await until(lambda: names(answer(cluster, "jobs")) == ["jobs-x"])
    api_server.put("pods", pod("jobs-x", labels=labels, phase="Succeeded"))
    await until(lambda: names(answer(cluster, "jobs")) == [])


async def test_of_two_with_one_name_the_one_that_asks_outside_is_meant(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server)
    cron: Object = {"type": "cron", "metadata": {}}
    api_server.put("scaledobjects", scaled_object("web", triggers=(cron,)))
    api_server.put("scaledjobs", scaled_job("web"))
    api_server.put("pods", pod("job", labels={"scaledjob.keda.sh/name": "web"}))
    cluster = await start_cluster()
    assert names(await known(cluster)) == ["job"]
    api_server.put("scaledobjects", scaled_object("web"))
    await until(lambda: names(answer(cluster)) == ["web-0", "web-1"])


async def test_a_changed_target_is_followed(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server)
    cluster = await start_cluster()
    await known(cluster)
    api_server.put("statefulsets", scalable("db", labels={"app": "db"}))
    api_server.put("pods", pod("db-0", labels={"app": "db"}))
    target = {"kind": "StatefulSet", "name": "db"}
    api_server.put("scaledobjects", scaled_object("web", target=target))
    await until(lambda: "StatefulSet" in getattr(answer(cluster), "name", ""))
    assert names(await known(cluster)) == ["db-0"]
    api_server.delete("scaledobjects", "shop", "web")
    await until(lambda: isinstance(answer(cluster), NotFoundError))


async def test_what_does_not_exist_is_not_found_once_that_is_known(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    api_server.hanging = True
    cluster = await start_cluster()
    assert isinstance(answer(cluster), NoDataError)
    assert cluster.replicas("shop", "web") is None
    assert cluster.bounds("shop", "web") is None
    with pytest.raises(NoDataError):
        cluster.metric_type("shop", "web", {})
    api_server.hanging = False
    found = await refused(cluster)
    assert isinstance(found, NotFoundError)
    assert str(found) == "no ScaledObject or ScaledJob shop/web"
    assert cluster.metric_type("shop", "web", {}) is None
    assert {asked.plural for asked in api_server.requests} == {"scaledobjects", "scaledjobs"}
    api_server.put("scaledobjects", scaled_object("web"))
    await until(lambda: "scale target Deployment shop/web does not exist" in str(answer(cluster)))


async def test_the_metric_type_that_keda_applies(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    one, other = external("Value"), external(metric="power_watts", threshold="300")
    api_server.put("scaledobjects", scaled_object("web", triggers=(one, other)))
    cluster = await start_cluster(limit=0.1)
    await until(lambda: cluster.ready)
    assert cluster.metric_type("shop", "web", one["metadata"]) is MetricType.VALUE
    assert cluster.metric_type("shop", "web", other["metadata"]) is MetricType.AVERAGE_VALUE
    assert cluster.metric_type("shop", "web", {"metric": "other"}) is None
    api_server.go_away()
    await until(lambda: isinstance(answer(cluster), NoDataError))
    assert cluster.metric_type("shop", "web", one["metadata"]) is MetricType.VALUE


@pytest.mark.parametrize(
    ("verb", "plural", "named"),
    [
        ("list", "scaledobjects", "scaledobjects.keda.sh: its account needs the rights to list"),
        ("list", "pods", "pods in namespace shop: its account needs the rights to list and to"),
        ("get", "deployments/scale", "needs the right to get deployments/scale of API group apps"),
    ],
)
async def test_each_right_that_is_missing_is_named(
    api_server: ApiServerStandIn, start_cluster: StartCluster, verb: str, plural: str, named: str
) -> None:
    deploy(api_server)
    api_server.forbidden = {(verb, plural)}
    cluster = await start_cluster()
    found = await refused(cluster)
    assert isinstance(found, ForbiddenError)
    assert named in str(found)
    assert cluster.ready
    api_server.forbidden = set()
    await known(cluster)


async def test_without_the_right_to_scaled_objects_the_metric_type_is_what_is_written(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    api_server.forbidden = {("list", "scaledobjects")}
    cluster = await start_cluster()
    await until(lambda: cluster.ready)
    assert cluster.metric_type("shop", "web", external("Value")["metadata"]) is None
    assert "scaledobjects.keda.sh: scaledobjects is forbidden" in str(cluster.problem)


@pytest.mark.parametrize("lacking", ["right", "resource"])
async def test_scaled_objects_do_not_need_scaled_jobs(
    api_server: ApiServerStandIn, start_cluster: StartCluster, lacking: str
) -> None:
    deploy(api_server)
    if lacking == "right":
        api_server.forbidden = {("list", "scaledjobs")}
    else:
        api_server.withdraw("scaledjobs")
    cluster = await start_cluster()
    await known(cluster)
    found = await refused(cluster, "other")
    assert isinstance(found, NotFoundError)
    assert ("may not see scaledjobs.keda.sh" in str(found)) is (lacking == "right")


async def test_only_the_namespaces_that_it_was_given_are_looked_at(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server, namespace="a")
    deploy(api_server, namespace="b")
    deploy(api_server, namespace="c")
    cluster = await start_cluster(("a", "b"))
    await known(cluster, namespace="b")
    found = answer(cluster, namespace="c")
    assert isinstance(found, ForbiddenError)
    assert str(found) == "this scaler serves the namespaces a, b, not c"
    assert cluster.metric_type("c", "web", {}) is None
    namespaced = ("api/v1/namespaces/", "apis/keda.sh/v1alpha1/namespaces/", "apis/apps/v1/names")
    assert all(asked.path.lstrip("/").startswith(namespaced) for asked in api_server.requests)


async def test_an_outage_leaves_what_was_known_and_then_nothing_but_never_no_pods(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server)
    cluster = await start_cluster(limit=1.0)
    await known(cluster)
    api_server.go_away()
    seen: list[object] = []
    until_then = time.monotonic() + 1.5
    while time.monotonic() < until_then:
        found = answer(cluster)
        seen.append(len(found.replicas) if isinstance(found, Workload) else type(found))
        await asyncio.sleep(0.02)
    assert set(seen) == {2, NoDataError}
    assert seen == sorted(seen, key=lambda each: each is NoDataError)
    assert "from the API server for" in str(answer(cluster))
    api_server.delete("pods", "shop", "web-1")
    api_server.put("deployments", scalable("web", replicas=1))
    api_server.storage.compact()
    api_server.come_back()
    assert names(await known(cluster)) == ["web-0"]
    await until(lambda: cluster.problem is None)


async def test_a_namespace_that_nobody_asks_about_any_more_is_watched_no_longer(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server)
    cluster = await start_cluster(kept=0.3)
    await until(lambda: isinstance(answer(cluster), Workload) and "pods" in api_server.watching)
    await until(lambda: "pods" not in api_server.watching)
    assert {state.objects for state in cluster.states()} == {
        "scaledobjects.keda.sh",
        "scaledjobs.keda.sh",
    }
    await known(cluster)


async def test_claims_are_resolved_by_the_slices_of_the_driver(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    deploy(api_server, replicas=1)
    pool = resource_slice("s", "gpu.nvidia.com", "node-0", {"gpu-0": {"uuid": "GPU-abc"}})
    api_server.put("resourceslices", pool)
    cluster = await start_cluster()
    await known(cluster)
    assert api_server.count("list", "resourceslices") == 0
    gpu = Device("node-0/GPU-abc", "H200", "nvidia", "nvidia", node="node-0")

    def claimed(device: str) -> Callable[[str, str, str], Sequence[Allocation]]:
        claim = Claim("gpu.nvidia.com", "node-0", device)
        return lambda node, namespace, name: (
            Allocation(None, node, namespace, name, "server", "", "cdi", claim),
        )

    def replica(device: str) -> Any:
        held, devices = claimed(device), lambda node: [gpu]
        return cluster.workload("shop", "web", TRIGGER, held, devices).replicas[0]

    assert "ResourceSlices have not been read yet" in replica("gpu-0").problem
    await until(lambda: replica("gpu-0").devices == ("node-0/GPU-abc",))
    assert "no ResourceSlice of pool node-0 has it" in replica("gpu-1").problem


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
async def test_older_versions_of_slices_are_understood(
    api_server: ApiServerStandIn, start_cluster: StartCluster, version: str
) -> None:
    deploy(api_server, replicas=1)
    api_server.withdraw("resourceslices")
    api_server.serve(
        Resource("resource.k8s.io", version, "resourceslices", "ResourceSlice", namespaced=False)
    )
    devices: Mapping[str, Mapping[str, str]] = {"gpu-0": {"uuid": "GPU-abc"}}
    basic = version == "v1beta1"
    made = resource_slice("s", "gpu.nvidia.com", "node-0", devices, basic=basic)
    api_server.put("resourceslices", made)
    await claimed_device(await start_cluster(), "GPU-abc")


async def claimed_device(cluster: Cluster, uuid: str) -> None:
    gpu = Device(f"node-0/{uuid}", "H200", "nvidia", "nvidia", node="node-0")
    claim = Claim("gpu.nvidia.com", "node-0", "gpu-0")
    await known(cluster)
    await until(
        lambda: (
            cluster.workload(
                "shop",
                "web",
                TRIGGER,
                lambda node, ns, name: (
                    Allocation(None, node, ns, name, "server", "", "cdi", claim),
                ),
                lambda node: [gpu],
            )
            .replicas[0]
            .devices
            == (gpu.id,)
        )
    )


@pytest.mark.parametrize(
    ("lacking", "why"),
    [
        ("right", "may not see resourceslices.resource.k8s.io: its account needs the rights"),
        ("resource", "the API server has no resource.k8s.io that is understood"),
    ],
)
async def test_a_claim_that_cannot_be_resolved_says_why(
    api_server: ApiServerStandIn, start_cluster: StartCluster, lacking: str, why: str
) -> None:
    deploy(api_server, replicas=1)
    slices = api_server.storage.resource("resourceslices")
    if lacking == "right":
        api_server.forbidden = {("list", "resourceslices")}
    else:
        api_server.withdraw("resourceslices")
    cluster = await start_cluster()
    await known(cluster)
    claim = Claim("gpu.nvidia.com", "node-0", "gpu-0")

    def problem() -> str:
        held = lambda node, ns, name: (  # noqa: E731
            Allocation(None, node, ns, name, "server", "", "cdi", claim),
        )
        return cluster.workload("shop", "web", TRIGGER, held).replicas[0].problem

    await until(lambda: why in problem())
    api_server.forbidden = set()
    api_server.serve(slices)
    api_server.put(
        "resourceslices",
        resource_slice("s", "gpu.nvidia.com", "node-0", {"gpu-0": {"uuid": "GPU-abc"}}),
    )
    await claimed_device(cluster, "GPU-abc")


async def test_the_agents_behind_a_service(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    cluster = await start_cluster()
    with pytest.raises(NoDataError, match="have not been read yet"):
        cluster.agents("accelscale", "agents")
    one = endpoint_slice("s1", "accelscale", "agents", endpoint("10.0.0.1", "node-a"))
    api_server.put("endpointslices", one, endpoint_slice("x", "accelscale", "other"))
    await until(lambda: known_agents(cluster) == {"10.0.0.1:6001"})
    assert cluster.agent_nodes("accelscale", "agents") == {"10.0.0.1:6001": "node-a"}
    two = endpoint_slice("s2", "accelscale", "agents", endpoint("10.0.0.2", "node-b"))
    api_server.put("endpointslices", two)
    await until(lambda: known_agents(cluster) == {"10.0.0.1:6001", "10.0.0.2:6001"})
    api_server.go_away()
    await until(lambda: cluster.problem is not None)
    assert known_agents(cluster) == {"10.0.0.1:6001", "10.0.0.2:6001"}


def known_agents(cluster: Cluster) -> frozenset[str] | None:
    try:
        return cluster.agents("accelscale", "agents")
    except AccelscaleError:
        return None


async def test_the_right_to_see_the_agents_is_named(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    api_server.forbidden = {("list", "endpointslices")}
    cluster = await start_cluster()
    assert known_agents(cluster) is None
    await until(lambda: "endpointslices" in str(cluster.problem))
    with pytest.raises(ForbiddenError, match=r"endpointslices\.discovery\.k8s\.io in namespace"):
        cluster.agents("accelscale", "agents")


async def test_it_can_be_run_again_after_a_fault_of_ours(
    api_server: ApiServerStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(api_server)
    cluster = Cluster(ApiServer(api_server.kubeconfig()), pace=PACE, scale_pace=SCALE_PACE)
    fault = asyncio.Event()

    async def fail() -> None:
        await fault.wait()
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as broken:
        broken.setattr(cluster, "_tidy", fail)
        first = asyncio.create_task(cluster.run())
        await known(cluster)
        fault.set()
        with pytest.raises(ExceptionGroup, match="unhandled errors"):
            await first
    again = asyncio.create_task(cluster.run())
    api_server.put("pods", pod("web-2", labels={"app": "web"}))
    await until(lambda: names(answer(cluster)) == ["web-0", "web-1", "web-2"])
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


async def test_answers_stay_right_while_pods_churn_and_the_server_fails(
    api_server: ApiServerStandIn, start_cluster: StartCluster
) -> None:
    """One pod is always there; whatever else happens, it is in every answer."""
    deploy(api_server, replicas=1)
    cluster = await start_cluster()
    await known(cluster)
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            name = f"extra-{number % 7}"
            if ("shop", name) in api_server.objects("pods"):
                api_server.delete("pods", "shop", name)
            else:
                api_server.put("pods", pod(name, labels={"app": "web"}))
            if number % 20 == 0:
                api_server.drop_connections()
            if number % 33 == 0:
                api_server.storage.compact()
            time.sleep(0.004)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(150):
            found = answer(cluster)
            assert isinstance(found, Workload), found
            assert "web-0" in names(found)
            await asyncio.sleep(0.01)
    finally:
        stop.set()
        await asyncio.to_thread(thread.join)
    expected = sorted(name for (_, name) in api_server.objects("pods"))
    await until(lambda: names(answer(cluster)) == expected)
