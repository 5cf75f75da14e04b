"""A scaler's answers: the number of the workload that asked, over all nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from accelscale_server._proto.accelscale.v1 import agent_pb2
from cluster.stage import METADATA, Stage, replicas_asked
from kubernetes.api_server import ApiServerStandIn
from kubernetes.objects import (
    external,
    pod,
    resource_slice,
    scalable,
    scaled_job,
    scaled_object,
)


@pytest.fixture
async def stage(api_server: ApiServerStandIn) -> AsyncIterator[Stage]:
    """A cluster without nodes."""
    stage = Stage(api_server)
    yield stage
    await stage.close()


async def two_nodes(stage: Stage) -> None:
    """Node a is at 90, node b at 10."""
    await stage.node("a")
    await stage.node("b")


async def test_the_first_answer_of_all_is_right(stage: Stage) -> None:
    await two_nodes(stage)
    stage.workload("web", replicas=2)
    stage.fleet("web", {"a": [90.0], "b": [10.0]})
    scaler = await stage.scaler()
    answers = await scaler.poll("web")
    assert (answers.values[0].number, answers.active) == (100.0, True)
    assert (answers.specs[0].name, answers.specs[0].number) == (
        "accelscale-utilization-percent",
        70.0,
    )


async def test_each_workload_gets_the_figures_of_its_own_pods_from_every_replica(
    stage: Stage,
) -> None:
    await two_nodes(stage)
    for name, loads in {
        "left": {"a": [90.0]},
        "right": {"b": [10.0]},
        "both": {"a": [90.0], "b": [10.0]},
    }.items():
        stage.workload(name)
        stage.fleet(name, loads)
    scalers = [await stage.scaler() for _ in range(2)]
    for scaler in (*scalers, *reversed(scalers)):
        values = [await scaler.value(name) for name in ("left", "right", "both")]
        assert values == [90.0, 10.0, 100.0]


async def test_namespaces_are_kept_apart(stage: Stage) -> None:
    await two_nodes(stage)
    for namespace, loads in {"one": {"a": [90.0]}, "two": {"b": [10.0]}}.items():
        stage.workload("web", namespace)
        stage.fleet("web", loads, namespace)
    # The same device ids, pods and names on both sides.
    scaler = await stage.scaler()
    assert await scaler.value("web", "one") == 90.0
    assert await scaler.value("web", "two") == 10.0
    assert (await scaler.refusal("web", "three")).code == "NOT_FOUND"


@pytest.mark.parametrize(
    ("replicas", "load", "asked"),
    [
        (1, 95.0, 2),
        (2, 60.0, 2),
        (8, 95.0, 11),
        (10, 20.0, 3),
        (20, 70.0, 20),
        (20, 95.0, 28),
        (50, 40.0, 29),
        (50, 100.0, 72),
    ],
)
async def test_the_hpa_comes_to_the_right_replicas_on_uneven_nodes(
    stage: Stage, replicas: int, load: float, asked: int
) -> None:
    loads: dict[str, list[float]] = {"a": [], "b": [], "c": []}
    for node in loads:
        await stage.node(node)
    for number in range(replicas):
        loads["a" if number == 0 else "b" if number < 4 else "c"].append(load)
    for name, metric_type in (("sum", "AverageValue"), ("mean", "Value")):
        stage.workload(name, metric_type=metric_type, replicas=replicas)
        stage.fleet(name, loads)
    scaler = await stage.scaler()
    total, mean = await scaler.value("sum"), await scaler.value("mean")
    assert total == pytest.approx(load * replicas)
    assert mean == pytest.approx(load)
    assert replicas_asked(total, 70.0, replicas) == asked
    assert replicas_asked(mean, 70.0, replicas, "Value") == asked


async def test_the_metric_type_comes_from_the_scaled_object_and_follows_it(stage: Stage) -> None:
    await two_nodes(stage)
    stage.workload("web", metric_type="Value")
    stage.fleet("web", {"a": [90.0], "b": [10.0]})
    scaler = await stage.scaler()
    assert await scaler.value("web") == 50.0
    stage.workload("web", metric_type="AverageValue")
    await scaler.becomes(100.0, "web")


@pytest.mark.parametrize("metric_type", ["AverageValue", "Value"])
async def test_pods_that_still_load_leave_the_replicas_as_they_are(
    stage: Stage, metric_type: str
) -> None:
    await two_nodes(stage)
    stage.workload("web", metric_type=metric_type, replicas=8)
    stage.fleet("web", {"a": [95.0] * 4, "b": [95.0] * 4})
    for number in range(4, 8):
        stage.agents["b"].values[f"web-{number}"] = 0.0
        stage.pod(
            f"web-{number}", "b", [f"web-{number}"], ready=False, ready_since="2026-01-31T12:00:00Z"
        )
    scaler = await stage.scaler()
    value = await scaler.value("web")
    assert replicas_asked(value, 70.0, 8, metric_type, ready=4) == 8


async def test_a_pod_that_waits_for_a_node_is_a_replica_that_is_silent(stage: Stage) -> None:
    await two_nodes(stage)
    stage.workload("web", replicas=2)
    stage.fleet("web", {"a": [60.0]})
    stage.pod("web-9", None, phase="Pending")
    scaler = await stage.scaler()
    assert await scaler.value("web") == 130.0


async def test_no_pods_are_a_true_zero(stage: Stage) -> None:
    await two_nodes(stage)
    stage.workload("web", replicas=0)
    scaler = await stage.scaler()
    answers = await scaler.poll("web")
    assert (answers.values[0].number, answers.active) == (0.0, False)


async def test_one_card_that_four_pods_share_counts_once(stage: Stage) -> None:
    agent = await stage.node("a", {"card": 70.0})
    agent.shared.add("card")
    stage.workload("web", replicas=4)
    for number in range(4):
        stage.pod(f"web-{number}", "a", ["card"])
    stage.workload("other")
    stage.pod("other-0", "a", ["card"])
    scaler = await stage.scaler()
    watts = {"metric": "power_watts", "threshold": "50"}
    assert await scaler.value("web", **watts) == 70.0
    assert await scaler.value("web") == 70.0
    assert await scaler.value("other", **watts) == 70.0
    (explained, *_) = (await scaler.explain("web")).explanations
    assert [replica.value for replica in explained.replicas] == [17.5] * 4
    assert all(replica.devices[0].shared for replica in explained.replicas)


async def test_the_devices_of_a_replica_make_one_value_on_whatever_nodes(stage: Stage) -> None:
    await two_nodes(stage)
    stage.agents["a"].values.update({"x": 80.0, "y": 40.0})
    stage.agents["b"].values.update({"x": 20.0})
    stage.workload("web", replicas=2)
    stage.pod("web-0", "a", ["x", "y"])
    stage.pod("web-1", "b", ["x"])
    scaler = await stage.scaler()
    assert await scaler.value("web") == 80.0
    assert await scaler.value("web", aggregation="max") == 100.0
    assert await scaler.value("web", metric="power_watts") == 140.0


async def test_a_trigger_may_mean_some_of_the_devices(stage: Stage) -> None:
    await two_nodes(stage)
    stage.workload("web", replicas=3)
    stage.fleet("web", {"a": [90.0], "b": [10.0, 30.0]})
    scaler = await stage.scaler()
    assert await scaler.value("web", node="b") == 40.0
    assert await scaler.value("web", devices="web-2") == 30.0
    assert await scaler.value("web", vendor="toy") == 130.0
    refused = await scaler.refusal("web", vendor="nvidia")
    assert refused.code == "NOT_FOUND"
    assert "vendor=nvidia leaves none of the devices of Deployment" in str(refused)


async def test_a_pod_without_an_accelerator_is_named(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accelscale_server.fleet.NOT_YET_LISTED", 2.5)
    await two_nodes(stage)
    stage.workload("web", replicas=2)
    stage.fleet("web", {"a": [60.0]})
    stage.pod("web-1", "b")
    scaler = await stage.scaler()
    assert await scaler.value("web") == 130.0  # its kubelet may list it soon
    await asyncio.sleep(1.5)
    refused = await scaler.refusal("web")
    assert refused.code == "FAILED_PRECONDITION"
    assert "pod shop/web-1 on b holds no accelerator" in str(refused)


async def test_a_pod_on_a_node_without_an_agent_is_silent_and_says_which_node(stage: Stage) -> None:
    await two_nodes(stage)
    stage.workload("web", replicas=2)
    stage.fleet("web", {"a": [60.0]})
    stage.pod("web-1", "far-away")
    scaler = await stage.scaler()
    assert await scaler.value("web") == 130.0
    refused = await scaler.refusal("web", missing="error")
    assert refused.code == "UNAVAILABLE"
    assert "web-1: no agent of far-away was heard" in str(refused)


async def test_a_pod_that_moved_is_where_kubernetes_says(stage: Stage) -> None:
    await two_nodes(stage)
    stage.agents["a"].values["x"] = 90.0
    stage.agents["b"].values["y"] = 20.0
    stage.workload("web")
    stage.pod("web-0", "a", ["x"])
    scaler = await stage.scaler()
    assert await scaler.value("web") == 90.0
    # Its old node is cut off and still tells that it holds the pod.
    stage.agents["a"].silent = True
    stage.pod("web-0", "b", ["y"])
    await scaler.becomes(20.0, "web")


async def test_a_metric_that_the_hardware_never_has_is_refused_for_good(stage: Stage) -> None:
    agent = await stage.node("a", {"x": 90.0})
    agent.absent["x"] = agent_pb2.Absence(
        reason="not_supported", detail="never on a Toy", permanent=True
    )
    stage.workload("web")
    stage.pod("web-0", "a", ["x"])
    scaler = await stage.scaler()
    refused = await scaler.refusal("web")
    assert refused.code == "FAILED_PRECONDITION"
    assert "Toy: never on a Toy" in str(refused)


async def test_an_idle_verdict_waits_for_a_history_that_covers_the_window(stage: Stage) -> None:
    agent = await stage.node("a", {"x": 0.0})
    agent.uncovered.add("x")
    stage.workload("web")
    stage.pod("web-0", "a", ["x"])
    scaler = await stage.scaler()
    refused = await scaler.refusal("web")
    assert (refused.code, str(refused).partition(":")[0]) == ("UNAVAILABLE", "IsActive")
    agent.uncovered.clear()
    await scaler.becomes(0.0, "web")
    assert (await scaler.poll("web")).active is False


async def test_scope_cluster_is_every_device_once(stage: Stage) -> None:
    await two_nodes(stage)
    stage.agents["a"].values.update({f"x{n}": 90.0 for n in range(8)})
    stage.agents["b"].values["x0"] = 10.0
    scaler = await stage.scaler()
    assert await scaler.value("any", scope="cluster") == 730.0
    mean = {"scope": "cluster", "metricType": "Value"}
    assert await scaler.value("any", **mean) == pytest.approx(81.11, abs=0.01)
    p95 = {"scope": "cluster", "replicaAggregation": "p95"}
    assert await scaler.value("any", **p95) == 90.0
    assert await scaler.value("any", scope="node", node="b") == 10.0
    refused = await scaler.refusal("any", scope="node", node="z")
    assert refused.code == "NOT_FOUND"
    assert "no agent of node z was heard; nodes known: a, b" in str(refused)


async def test_scope_node_needs_to_know_which(stage: Stage) -> None:
    await two_nodes(stage)
    scaler = await stage.scaler()
    refused = await scaler.refusal("any", scope="node")
    assert refused.code == "INVALID_ARGUMENT"
    assert "node: is required with scope node" in str(refused)


async def test_scope_cluster_is_not_known_while_an_agent_was_never_heard(stage: Stage) -> None:
    await two_nodes(stage)
    stage.agents["a"].values["x"] = 50.0
    await stage.agents["b"].stop()
    scaler = await stage.scaler()
    refused = await scaler.refusal("any", scope="cluster")
    assert refused.code == "UNAVAILABLE"
    assert "nothing was heard yet from 1 agents: 127.0.0.1:" in str(refused)
    assert await scaler.value("any", scope="cluster", missing="ignore") == 50.0
    assert (await scaler.refusal("any", scope="node", node="b")).code == "UNAVAILABLE"


async def test_scope_cluster_is_not_known_while_the_cards_of_a_node_were_never_seen(
    stage: Stage,
) -> None:
    await two_nodes(stage)
    stage.agents["a"].values["x"] = 50.0
    stage.agents["b"].unseen = {"green": "the driver is not loaded"}
    scaler = await stage.scaler()
    refused = await scaler.refusal("any", scope="cluster")
    assert refused.code == "UNAVAILABLE"
    assert "the devices of green are not known yet. green of b: the driver" in str(refused)
    assert await scaler.value("any", scope="cluster", vendor="toy") == 50.0
    assert await scaler.value("any", scope="cluster", missing="ignore") == 50.0
    assert await scaler.value("any", scope="node", node="a") == 50.0
    stage.agents["b"].unseen = {}
    stage.agents["b"].values["y"] = 20.0
    stage.agents["b"].renew()
    await scaler.becomes(70.0, "any", scope="cluster")


async def test_without_kubernetes_there_are_devices_but_no_workloads(stage: Stage) -> None:
    from accelscale_server.config import Off

    await stage.node("a", {"x": 50.0})
    scaler = await stage.scaler(kubeconfig=Off.OFF)
    assert await scaler.value("any", scope="cluster") == 50.0
    refused = await scaler.refusal("any")
    assert refused.code == "FAILED_PRECONDITION"
    assert "--kubeconfig off" in str(refused)


async def test_a_stream_tells_the_activity_as_it_changes(stage: Stage) -> None:
    from accelscale.trigger import MetricType
    from accelscale_server.client import Request, ScalerClient

    agent = await stage.node("a", {"x": 0.0})
    stage.workload("web")
    stage.pod("web-0", "a", ["x"])
    scaler = await stage.scaler()
    request = Request("web", "shop", METADATA, MetricType.AVERAGE_VALUE)
    async with ScalerClient(scaler.address, None, 10.0) as client:
        events = client.events(request)
        assert await asyncio.wait_for(anext(events), 10) is False
        agent.values["x"] = 50.0
        assert await asyncio.wait_for(anext(events), 10) is True
        await events.aclose()


async def test_two_scaled_objects_of_one_name_do_not_share_an_answer(stage: Stage) -> None:
    await two_nodes(stage)
    stage.api.put("deployments", scalable("w1", "one"), scalable("w2", "two"))
    for namespace, target in (("one", "w1"), ("two", "w2")):
        trigger = external(None, **METADATA)
        del trigger["metadata"]["profile"]
        written = scaled_object("same", namespace, target={"name": target}, triggers=(trigger,))
        stage.api.put("scaledobjects", written)
    stage.fleet("w1", {"a": [90.0]}, "one")
    stage.fleet("w2", {"b": [10.0]}, "two")
    scaler = await stage.scaler()
    both = await asyncio.gather(*(scaler.value("same", ns) for ns in ("one", "two") * 5))
    assert both == [90.0, 10.0] * 5


GROUPS = "leaderworkerset.sigs.k8s.io"


def group(stage: Stage, number: int, *places: tuple[str, str, float]) -> None:
    """A group of a LeaderWorkerSet: node, device and load of each of its pods, the leader first."""
    for worker, (node, device, load) in enumerate(places):
        agent = stage.agents[node]
        agent.values[device] = load
        name = f"llm-{number}" if worker == 0 else f"llm-{number}-{worker}"
        labels = {
            f"{GROUPS}/name": "llm",
            f"{GROUPS}/group-index": str(number),
            f"{GROUPS}/worker-index": str(worker),
        }
        stage.api.put("pods", pod(name, labels=labels, node=node))
        agent.pods[f"shop/{name}"] = (device,)
        agent.renew()


async def test_the_pods_of_a_group_are_one_replica_and_none_of_them_is_missed(
    stage: Stage,
) -> None:
    await two_nodes(stage)
    status = {"hpaPodSelector": f"{GROUPS}/name=llm,{GROUPS}/worker-index=0"}
    stage.api.put("leaderworkersets", scalable("llm", replicas=2, status=status))
    trigger = external(None, **METADATA)
    del trigger["metadata"]["profile"]
    target = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "llm"}
    stage.api.put("scaledobjects", scaled_object("llm", target=target, triggers=(trigger,)))
    group(stage, 0, ("a", "x0", 20.0), ("b", "y0", 100.0))
    group(stage, 1, ("a", "x1", 60.0), ("b", "y1", 60.0))
    scaler = await stage.scaler()
    assert await scaler.value("llm") == 120.0
    # The node of the busy workers is cut off: what is left of each group seems idler, and counts
    # as if the missing card carried the threshold.
    stage.agents["b"].absent = {device: agent_pb2.Absence(reason="lost") for device in ("y0", "y1")}
    await scaler.becomes(45.0 + 65.0, "llm")
    (explained, *_) = (await scaler.explain("llm")).explanations
    assert [(r.name, r.value, r.counted) for r in explained.replicas] == [
        ("llm-0", 20.0, 45.0),
        ("llm-1", 60.0, 65.0),
    ]


async def test_the_pods_of_a_scaled_job_count(stage: Stage) -> None:
    await two_nodes(stage)
    trigger = external(None, **METADATA)
    del trigger["metadata"]["profile"]
    stage.api.put("scaledjobs", scaled_job("train", "shop", trigger))
    for number, node in enumerate(("a", "b")):
        agent = stage.agents[node]
        agent.values["x"] = 40.0 + number
        name = f"train-{number}"
        labels = {"scaledjob.keda.sh/name": "train"}
        stage.api.put("pods", pod(name, labels=labels, node=node))
        agent.pods[f"shop/{name}"] = ("x",)
        agent.renew()
    scaler = await stage.scaler()
    assert await scaler.value("train") == 81.0


async def test_a_claimed_device_is_found_by_its_slice(stage: Stage) -> None:
    agent = await stage.node("a", {"GPU-aaaa": 60.0, "GPU-bbbb": 30.0})
    agent.claims["shop/web-0"] = ("gpu.nvidia.com", "a", "gpu-1")
    agent.claims["shop/web-1"] = ("gpu.nvidia.com", "a", "gpu-7")
    devices = {"gpu-0": {"uuid": "GPU-aaaa"}, "gpu-1": {"uuid": "GPU-bbbb"}}
    stage.api.put("resourceslices", resource_slice("a-gpus", "gpu.nvidia.com", "a", devices))
    stage.workload("web")
    stage.pod("web-0", "a")
    scaler = await stage.scaler()
    await scaler.becomes(30.0, "web")
    stage.pod("web-1", "a")
    await scaler.becomes(100.0, "web")
    (explained, *_) = (await scaler.explain("web")).explanations
    assert "claimed device gpu-7 of gpu.nvidia.com is not resolved" in explained.summary
