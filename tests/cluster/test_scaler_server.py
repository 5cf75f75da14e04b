"""The scaler as a server: its options, TLS towards agents, health, metrics, log and end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from accelscale.errors import ConfigurationError
from accelscale_server import scaler as scaler_module
from accelscale_server._proto import externalscaler_pb2
from accelscale_server._proto.accelscale.v1 import agent_pb2
from accelscale_server._proto.accelscale.v1 import agent_pb2_grpc as rpc
from accelscale_server._proto.externalscaler_pb2_grpc import ExternalScalerStub
from accelscale_server.addresses import Address
from accelscale_server.agent_tls import connecting
from accelscale_server.config import Off, ScalerConfig, load
from accelscale_server.fleet import Fleet
from accelscale_server.scaler import scaler_server
from accelscale_server.whereabouts import Endpoints, Listed
from cluster.agent_stand_in import AgentStandIn
from cluster.stage import METADATA, Stage
from cluster.waiting import until
from kubernetes.api_server import ApiServerStandIn
from server.certificates import Issued, authority, signed


@pytest.fixture
async def stage(api_server: ApiServerStandIn) -> AsyncIterator[Stage]:
    """A cluster without nodes."""
    stage = Stage(api_server)
    yield stage
    await stage.close()


# Options.


def test_options_of_a_scaler(tmp_path: Path) -> None:
    flags = {
        "agents": "kubernetes:accelscale/agents",
        "kubeconfig": "off",
        "namespace": ["a", "b"],
        "agents_ca": str(tmp_path / "ca"),
    }
    config = load(ScalerConfig, flags, {})
    assert config.agents == Endpoints("accelscale", "agents")
    assert config.kubeconfig is Off.OFF
    assert config.namespace == ("a", "b")
    assert load(ScalerConfig, {}, {}).metrics_listen == Address("::", 9464)
    assert load(ScalerConfig, {"kubeconfig": "/k"}, {}).kubeconfig == Path("/k")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"agents": "x"}, r"--agents='x': must be HOST:PORT"),
        ({"agents_cert": "c"}, r"--agents-ca: is required .*--agents-key: is required with"),
        ({"agents_server_name": "n"}, r"--agents-ca: is required with --agents-server-name"),
        ({"agents_key": "k", "agents_ca": "a"}, r"--agents-cert: is required with --agents-key"),
        ({"namespace": ["a,"]}, r"--namespace='a,': must be names"),
    ],
)
def test_faults_of_options(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load(ScalerConfig, flags, {})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kubeconfig": Off.OFF}, "--agents: is required"),
        (
            {"kubeconfig": Off.OFF, "agents": Endpoints("a", "b")},
            "--agents: endpoints are known by Kubernetes",
        ),
        ({"agents": Listed(("a:1",))}, "--kubeconfig: is required outside of a pod"),
        ({"agents": Listed(("a:1",)), "kubeconfig": Path("/no/such")}, "--kubeconfig.*/no/such"),
    ],
)
async def test_options_that_do_not_go_together(
    options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigurationError, match=words):
        scaler_server(ScalerConfig(**options))


# TLS towards agents.


@pytest.fixture(scope="module")
def ours() -> Issued:
    """The authority of agents and scalers."""
    return authority("ours")


@pytest.fixture
async def secure_agent(ours: Issued) -> AsyncIterator[str]:
    """An agent with TLS that wants to see a certificate; its address."""
    issued = signed("agent", ours)
    pairs = [(issued.key_pem, issued.cert_pem)]
    credentials = grpc.ssl_server_credentials(pairs, ours.cert_pem, require_client_auth=True)
    server = grpc.aio.server()
    rpc.add_AgentServicer_to_server(AgentStandIn("a", {"x": 50.0}), server)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


def files(folder: Path, ours: Issued, name: str = "scaler") -> dict[str, Path]:
    """The TLS options of a scaler, with files."""
    folder.mkdir(exist_ok=True)
    cert, key = signed(name, ours).write(folder)
    ca = folder / "ca.crt"
    ca.write_bytes(ours.cert_pem)
    return {"agents_ca": ca, "agents_cert": cert, "agents_key": key}


async def state_after_a_try(address: str, config: ScalerConfig) -> str:
    """What becomes of the stream to an agent."""
    fleet = Fleet(connecting(config))
    fleet.set_addresses([address])
    try:
        stream = fleet.streams[address]
        await until(lambda: stream.state != "connecting")
        return stream.state
    finally:
        await fleet.close()


async def test_agents_may_want_tls_both_ways(
    secure_agent: str, ours: Issued, tmp_path: Path
) -> None:
    options = {**files(tmp_path, ours), "agents_server_name": "localhost"}
    assert await state_after_a_try(secure_agent, ScalerConfig(**options)) == "connected"
    assert await state_after_a_try(secure_agent, ScalerConfig()) == "gone"
    del options["agents_cert"], options["agents_key"]
    assert await state_after_a_try(secure_agent, ScalerConfig(**options)) == "gone"
    foreign = {**files(tmp_path / "theirs", authority("theirs")), "agents_server_name": "localhost"}
    assert await state_after_a_try(secure_agent, ScalerConfig(**foreign)) == "gone"
    named = {**files(tmp_path, ours), "agents_server_name": "elsewhere"}
    assert await state_after_a_try(secure_agent, ScalerConfig(**named)) == "gone"


async def test_certificates_are_read_again_for_every_connection(
    secure_agent: str, ours: Issued, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accelscale_server.agent_stream.FIRST_PAUSE", 0.05)
    options = {**files(tmp_path, authority("theirs")), "agents_server_name": "localhost"}
    fleet = Fleet(connecting(ScalerConfig(**options)))
    fleet.set_addresses([secure_agent])
    stream = fleet.streams[secure_agent]
    await until(lambda: stream.state == "gone")
    options["agents_ca"].unlink()
    await until(lambda: "ca.crt" in stream.detail)
    files(tmp_path, ours)
    await until(lambda: stream.state == "connected")
    await fleet.close()


def test_files_that_cannot_be_used_are_named_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"--agents-ca=.*none.*cannot be read"):
        connecting(ScalerConfig(agents_ca=tmp_path / "none"))


# Health.


async def health(address: str, service: str = "") -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=service)
        return int((await stub.Check(request, timeout=5)).status)


SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def test_without_any_agent_a_scaler_is_ready(stage: Stage) -> None:
    stage.workload("web", replicas=0)
    scaler = await stage.scaler(agents=Listed(()))
    assert await health(scaler.address) == SERVING
    assert await health(scaler.address, "externalscaler.ExternalScaler") == SERVING
    assert await scaler.value("web") == 0.0


async def test_a_scaler_is_not_ready_before_it_has_read_the_scaled_objects(
    stage: Stage, api_server: ApiServerStandIn
) -> None:
    api_server.hanging = True
    await stage.node("a", {"x": 50.0})
    config = ScalerConfig(
        listen=Address("127.0.0.1", 0),
        metrics_listen=None,
        agents=Listed((stage.agents["a"].address,)),
        kubeconfig=api_server.kubeconfig(),
    )
    server = scaler_server(config)
    await server.start()
    try:
        await asyncio.sleep(0.5)
        assert await health(str(server.address)) == NOT_SERVING
        assert await health(str(server.address), "liveness") == SERVING
        api_server.hanging = False
        api_server.drop_connections()

        async def ready() -> bool:
            return await health(str(server.address)) == SERVING

        await until(ready, 20.0)
    finally:
        await server.stop(1.0)


async def test_a_scaler_that_reaches_no_agent_leaves_calls_to_another(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaler_module, "ISOLATED", 0.5)
    await stage.node("a", {"x": 50.0})
    await stage.node("b", {"x": 50.0})
    scaler = await stage.scaler()
    await stage.agents["a"].stop()
    await asyncio.sleep(2.0)
    assert await health(scaler.address) == SERVING
    await stage.agents["b"].stop()

    async def becomes(status: int) -> None:
        async def settled() -> bool:
            return await health(scaler.address) == status

        await until(settled)

    await becomes(NOT_SERVING)
    assert await health(scaler.address, "liveness") == SERVING
    await stage.agents["a"].start()
    await becomes(SERVING)


# Log and metrics.


async def test_the_log_says_who_is_silent_once(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    agent = await stage.node("a", {"x": 50.0, "y": 50.0})
    stage.workload("web", replicas=2)
    stage.pod("web-0", "a", ["x"])
    stage.pod("web-1", "a", ["y"])
    scaler = await stage.scaler()
    caplog.set_level(logging.INFO, "accelscale_server.verdicts")
    assert await scaler.value("web") == 100.0
    agent.absent["y"] = agent_pb2.Absence(reason="lost", detail="fell off the bus")
    await scaler.becomes(120.0, "web")
    for _ in range(5):
        await scaler.value("web")
    lines = [r for r in caplog.records if r.name == "accelscale_server.verdicts"]
    first, held = lines
    assert (first.getMessage(), first.levelname) == ("verdict", "INFO")
    assert (held.getMessage(), held.levelname) == ("verdict", "WARNING")
    assert vars(held)["why"] == (
        "1 of 2 report: what is silent counts the threshold: web-1: a/y is lost (fell off the bus)"
    )
    del agent.absent["y"]
    await scaler.becomes(100.0, "web")
    assert len([r for r in caplog.records if r.name == "accelscale_server.verdicts"]) == 3


async def test_doubts_follow_the_metric_type_that_the_scaled_object_has(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.node("a", {"x": 50.0})
    stage.workload("web", metric_type="Value", replicaAggregation="mean")
    stage.pod("web-0", "a", ["x"])
    scaler = await stage.scaler()
    keys = {"replicaAggregation": "mean"}
    assert await scaler.value("web", **keys) == 50.0
    assert "doubtful trigger" not in caplog.text
    stage.workload("web", metric_type="AverageValue", replicaAggregation="mean")

    async def doubted() -> bool:
        await scaler.value("web", **keys)
        return "doubtful trigger" in caplog.text

    await until(doubted)
    for _ in range(3):
        await scaler.value("web", **keys)
    (record,) = [r for r in caplog.records if r.getMessage() == "doubtful trigger"]
    assert "divides by the replicas once more" in vars(record)["why"]


def families(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


async def test_prometheus_sees_agents_and_watches(stage: Stage) -> None:
    await stage.node("a", {"x": 50.0})
    await stage.node("b", {"x": 50.0, "y": 1.0})
    stage.workload("web")
    stage.pod("web-0", "a", ["x"])
    scaler = await stage.scaler(metrics_listen=Address("127.0.0.1", 0))
    assert await scaler.value("web") == 50.0
    assert scaler.server is not None
    found = await asyncio.to_thread(families, str(scaler.server.metrics_address))
    states = {s.labels["state"]: s.value for s in found["accelscale_agents"].samples}
    assert states == {"connecting": 0.0, "connected": 2.0, "gone": 0.0}
    devices = {s.labels["node"]: s.value for s in found["accelscale_devices"].samples}
    assert devices == {"a": 1.0, "b": 2.0}
    series = {s.labels["node"]: s.value for s in found["accelscale_series"].samples}
    assert series == {"a": 1.0, "b": 0.0}
    assert found["accelscale_agent_messages"].samples[0].value > 1
    objects = {s.labels["objects"]: s.value for s in found["accelscale_kubernetes_objects"].samples}
    assert objects["scaledobjects.keda.sh"] == 1.0
    assert found["accelscale_evaluations"].samples[0].value >= 1


# The process.


class ScalerProcess:
    """``accelscale scaler`` as a process of its own, where a proxy is set that leads nowhere."""

    def __init__(self, *arguments: str) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ACCELSCALE_")}
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy"):
            inherited[name] = "http://127.0.0.1:1"
        inherited["no_proxy"] = "127.0.0.1" if "--kubeconfig" in arguments else ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "accelscale", "scaler", *arguments],
            env=inherited,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def wait_for(self, pattern: str) -> re.Match[str]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if match := re.search(pattern, line):
                return match
        raise AssertionError("".join(self.lines))

    def end(self) -> tuple[int, str]:
        _, rest = self.process.communicate(timeout=20)
        return self.process.returncode, "".join(self.lines) + rest


@pytest.fixture
def start_scaler() -> Iterator[Any]:
    started: list[ScalerProcess] = []

    def start(*arguments: str) -> ScalerProcess:
        listen = ("--listen", "127.0.0.1:0", "--metrics-listen", "off", "--grace", "2")
        started.append(ScalerProcess(*listen, *arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


async def test_it_answers_until_it_is_told_to_stop_and_streams_end_well(
    stage: Stage, api_server: ApiServerStandIn, start_scaler: Any
) -> None:
    agent = await stage.node("a", {"x": 50.0})
    stage.workload("web")
    stage.pod("web-0", "a", ["x"])
    config = ("--agents", agent.address, "--kubeconfig", str(api_server.kubeconfig()))
    process = start_scaler(*config, "--log-format", "json")
    line = await asyncio.to_thread(process.wait_for, '"listening"')
    address = json.loads(line.string)["address"]
    reference = externalscaler_pb2.ScaledObjectRef(
        name="web", namespace="shop", scalerMetadata=METADATA
    )
    async with grpc.aio.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        stub: Any = ExternalScalerStub(channel)
        stream = stub.StreamIsActive(reference)
        assert (await asyncio.wait_for(stream.read(), 10)).result is True
        process.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(stream.read(), 10) is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
    status, log = await asyncio.to_thread(process.end)
    assert status == 0
    assert "Traceback" not in log
    assert all(json.loads(line) for line in log.splitlines())


async def test_it_refuses_to_start_with_one_line(start_scaler: Any) -> None:
    process = start_scaler("--kubeconfig", "off")
    status, log = await asyncio.to_thread(process.end)
    assert (status, log) == (1, "accelscale: configuration: --agents: is required\n")
