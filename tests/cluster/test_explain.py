"""Why a number is what it is, told so that a newcomer understands it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from accelscale_server._proto.accelscale.v1 import agent_pb2
from accelscale_server._proto.accelscale.v1 import introspection_pb2 as pb
from accelscale_server._proto.accelscale.v1.introspection_pb2_grpc import IntrospectionStub
from accelscale_server.explain_command import lines_of
from cluster.stage import Scaler, Stage
from cluster.waiting import until
from kubernetes.api_server import ApiServerStandIn
from kubernetes.objects import external, scaled_object


@pytest.fixture
async def stage(api_server: ApiServerStandIn) -> AsyncIterator[Stage]:
    """Two nodes."""
    stage = Stage(api_server)
    await stage.node("node-a")
    await stage.node("node-b")
    yield stage
    await stage.close()


STARTING = {"ready": False, "ready_since": "2026-01-31T12:00:00Z"}


async def told(scaler: Scaler, name: str = "web") -> list[str]:
    """The lines of the first explanation, with ages made equal."""
    (explanation, *_) = (await scaler.explain(name)).explanations
    lines = [re.sub(r"\b\d+\.\d s\b", "0.1 s", line) for line in lines_of(explanation, "shop/web")]
    return [re.sub(r" {2,}", "  ", line) for line in lines]


async def command(*arguments: str) -> tuple[int, str, str]:
    """Run the command line in a process of its own."""
    process = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "accelscale", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return process.returncode, process.stdout, process.stderr


async def test_ten_lines_and_a_table_tell_it_all(stage: Stage) -> None:
    stage.workload("web", replicas=4)
    stage.fleet("web", {"node-a": [95.0, 95.0]})
    for number in (2, 3):
        stage.agents["node-b"].values[f"web-{number}"] = 0.0
        stage.pod(f"web-{number}", "node-b", [f"web-{number}"], **STARTING)
    scaler = await stage.scaler()
    assert await scaler.value("web") == 280.0
    lines = await told(scaler)
    assert lines[:9] == [
        "trigger  shop/web: accelscale-utilization-percent",
        "counted  the devices that the pods of Deployment shop/web hold",
        (
            "metric  utilization_percent (mean over 15 s); mean over the devices of a replica,"
            " sum over replicas (metricType AverageValue)"
        ),
        "value  280: exactly that at which nothing changes",
        "threshold  70 per replica",
        "active  yes: 95 is above 0",
        (
            "replicas  2 of 4 report: counting what is silent turns the direction round, so nothing"
            " is to change: web-2: still starting; web-3: still starting"
        ),
        "HPA  sees 4 replicas, 2 Ready, of 0 to 100, and asks for 4",
        "",
    ]
    assert lines[9:] == [
        "REPLICA  READY  VALUE  COUNTS  DEVICE  NODE  READS  AGE",
        "web-0  yes  95  95  Toy web-0  node-a  95  0.1 s",
        "web-1  yes  95  95  Toy web-1  node-a  95  0.1 s",
        "web-2  starting  -  0  Toy web-2  node-b  0  0.1 s",
        "web-3  starting  -  0  Toy web-3  node-b  0  0.1 s",
    ]


async def test_a_silent_node_and_a_shared_card_are_shown(stage: Stage) -> None:
    stage.agents["node-a"].values.update({"x": 80.0, "y": 40.0})
    stage.agents["node-a"].absent["y"] = agent_pb2.Absence(reason="lost", detail="fell off the bus")
    stage.workload("web", replicas=4)
    for number in range(2):
        stage.pod(f"web-{number}", "node-a", ["x"])
    stage.pod("web-2", "node-a", ["y"])
    stage.pod("web-3", "far-away")
    scaler = await stage.scaler()
    assert await scaler.value("web") == 220.0
    lines = await told(scaler)
    assert "value  220 = 40 + 40 + 70 + 70" in lines
    assert (
        "replicas  2 of 4 report: what is silent counts the threshold: web-2: node-a/y is lost"
        " (fell off the bus); web-3: no agent of far-away was heard"
    ) in lines
    assert lines[-4:] == [
        "web-0  yes  40  40  Toy x  node-a  80 (shared, 50% counts)  0.1 s",
        "web-1  yes  40  40  Toy x  node-a  80 (shared, 50% counts)  0.1 s",
        "web-2  yes  -  70  Toy y  node-a  lost (fell off the bus)",
        "web-3  yes  -  70  not known  no agent of far-away was heard",
    ]


async def test_what_cannot_be_answered_is_explained_too(stage: Stage) -> None:
    agent = stage.agents["node-a"]
    agent.values["x"] = 0.0
    agent.uncovered.add("x")
    stage.workload("web")
    stage.pod("web-0", "node-a", ["x"])
    scaler = await stage.scaler()
    await scaler.refusal("web")
    lines = await told(scaler)
    assert "value  0" in lines
    assert any(line.startswith("active  unknown: UNAVAILABLE: ") for line in lines)
    assert lines[-1] == "web-0  yes  0  0  Toy x  node-a  0 (history too short)  0.1 s"
    agent.absent["x"] = agent_pb2.Absence(reason="lost")
    await scaler.becomes_refused("web", "UNAVAILABLE")
    lines = await told(scaler)
    assert any(line.startswith("value  none: UNAVAILABLE: no fresh utilization") for line in lines)
    assert "HPA  sees 1 replicas, 1 Ready, of 0 to 100, and keeps them for want of a value" in lines


async def test_wrong_metadata_are_explained_without_what_may_be_secret(stage: Stage) -> None:
    stage.workload("web")
    scaler = await stage.scaler()
    await scaler.refusal("web", threshold="much", apiToken="hunter2")
    answer = await scaler.explain("web")
    (explanation,) = answer.explanations
    assert explanation.error.code == "INVALID_ARGUMENT"
    assert dict(explanation.metadata) == {"metric": "utilization_percent", "threshold": "much"}
    lines = list(lines_of(explanation, "shop/web"))
    assert lines[0] == "trigger    shop/web: metric, threshold"
    assert lines[1].startswith("value      none: INVALID_ARGUMENT: trigger metadata: ")


async def test_a_scaler_that_nobody_has_asked_reads_the_scaled_object(stage: Stage) -> None:
    stage.workload("web", metric_type="Value")
    stage.fleet("web", {"node-a": [60.0]})
    scaler = await stage.scaler()

    async def known() -> bool:
        (explanation,) = (await scaler.explain("web")).explanations
        return explanation.HasField("value")

    await until(known)
    lines = await told(scaler)
    assert "value  60" in lines
    assert lines[2].endswith("mean over replicas (metricType Value)")


async def test_all_triggers_of_an_object_are_explained_and_warned_of(stage: Stage) -> None:
    stage.workload("web")
    first = external(None, metric="utilization_percent", threshold="95")
    second = external(None, metric="power_watts", threshold="300")
    for trigger in (first, second):
        del trigger["metadata"]["profile"]
    stage.api.put("scaledobjects", scaled_object("web", triggers=(first, second)))
    stage.fleet("web", {"node-a": [60.0]})
    scaler = await stage.scaler()
    answer = await scaler.explain("web")
    names = [each.metric_name for each in answer.explanations]
    assert names == ["accelscale-utilization-percent", "accelscale-power-watts"]
    text = "\n".join(lines_of(answer.explanations[0], "shop/web"))
    assert "warning    threshold 95 can never scale out" in text


async def test_nobody_of_that_name(stage: Stage) -> None:
    scaler = await stage.scaler()
    with pytest.raises(grpc.aio.AioRpcError, match="no ScaledObject shop/nobody") as caught:
        await scaler.explain("nobody")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_the_command_prints_a_table_or_json(stage: Stage) -> None:
    stage.workload("web", replicas=2)
    stage.fleet("web", {"node-a": [90.0], "node-b": [10.0]})
    scaler = await stage.scaler()
    assert await scaler.value("web") == 100.0
    asked = ("explain", scaler.address, "--name", "web", "--namespace", "shop")
    status, out, err = await command(*asked)
    assert (status, err) == (0, "")
    assert "value      100 = 90 + 10" in out
    status, out, err = await command(*asked, "--json")
    assert (status, err) == (0, "")
    (record,) = json.loads(out)
    assert (record["value"], record["active"], record["fill"]) == (100.0, True, "none")
    assert [replica["devices"][0]["node"] for replica in record["replicas"]] == ["node-a", "node-b"]
    status, out, err = await command("explain", scaler.address, "--name", "nobody")
    assert (status, out) == (1, "")
    assert err.startswith("accelscale: NOT_FOUND: no ScaledObject default/nobody")


async def test_the_command_says_where_no_scaler_listens(stage: Stage) -> None:
    agent = stage.agents["node-a"].address
    status, _, err = await command("explain", agent, "--name", "web")
    assert status == 1
    assert "what listens there is no scaler" in err


async def test_top_shows_the_fleet(stage: Stage) -> None:
    stage.agents["node-a"].values.update({"x": 42.0})
    stage.agents["node-b"].values.update({"y": 7.0})
    stage.pod("web-0", "node-a", ["x"])
    scaler = await stage.scaler()
    await asyncio.sleep(0.2)
    status, out, err = await command("top", "--scaler", scaler.address, "--once")
    assert (status, err) == (0, "")
    lines = [line.split(" ", 2)[2] for line in out.splitlines()]
    assert [line.split()[:2] for line in lines] == [
        ["node-a/x", "utilization_percent=42"],
        ["node-b/y", "utilization_percent=7"],
    ]
    status, _, err = await command("top", "--scaler", scaler.address, "--backend", "fake")
    assert status == 2
    assert "names backends of this machine" in err


async def test_the_fleet_tells_nodes_pods_and_what_is_wrong(stage: Stage) -> None:
    stage.agents["node-a"].values.update({"x": 42.0, "y": 1.0})
    stage.agents["node-a"].absent["y"] = agent_pb2.Absence(reason="lost")
    stage.agents["node-a"].problem = "kubelet.sock: permission denied"
    stage.pod("web-0", "node-a", ["x"])
    stage.pod("web-1", "node-a", ["x"])
    await stage.agents["node-b"].stop()
    scaler = await stage.scaler()
    async with grpc.aio.insecure_channel(scaler.address) as channel:
        stub: Any = IntrospectionStub(channel)

        async def heard() -> bool:
            return bool((await stub.Fleet(pb.FleetRequest(), timeout=5)).nodes[0].name)

        await until(heard)
        answer = await stub.Fleet(pb.FleetRequest(metrics=["utilization_percent"]), timeout=5)
        first, second = answer.nodes
        assert (first.name, first.state, first.address) == (
            "node-a",
            "connected",
            stage.agents["node-a"].address,
        )
        assert first.detail == "allocations are not known: kubelet.sock: permission denied"
        assert [(d.id, dict(d.values), dict(d.reasons)) for d in first.devices] == [
            ("x", {"utilization_percent": 42.0}, {}),
            ("y", {}, {"utilization_percent": "lost"}),
        ]
        assert list(first.devices[0].pods) == ["shop/web-0", "shop/web-1"]
        assert (second.name, second.address) == ("", stage.agents["node-b"].address)
        assert second.state in ("connecting", "gone")
        await stage.agents["node-a"].stop()

        async def gone() -> bool:
            return (await stub.Fleet(pb.FleetRequest(), timeout=5)).nodes[0].state == "gone"

        await until(gone)
