"""``accelscale agent`` as a process: the fake driver, a kubelet stand-in, and a hostile proxy."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from accelscale_server._proto.accelscale.v1.agent_pb2_grpc import AgentStub
from cluster.kubelet_stand_in import KubeletStandIn, pod
from cluster.watch import Watch
from drivers.nvml.state import FakeNvml

GPU = "nvidia.com/gpu"
UTILIZATION = (1, "utilization_percent", 0.5, "last")
PATIENCE = 20.0
PROXY = "http://127.0.0.1:1"  # where nobody listens

AS_NOBODY_SPECIAL = """
import ctypes, os, sys
for capability in (1, 2):  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, in prctl's PR_CAPBSET_DROP
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) != 0:
        sys.exit("cannot give capabilities away")
os.execv(sys.argv[1], sys.argv[1:])
"""


class AgentProcess:
    """An agent process over the fake driver, and what it wrote."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.address = str(self.line("listening")["address"])
        self.metrics = str(self.line("serving metrics")["address"])

    def lines(self) -> list[dict[str, object]]:
        """The lines that are complete; what is no JSON is no line of the log."""
        texts = self.log.read_text().splitlines(keepends=True)
        return [json.loads(text) for text in texts if text[0] == "{" and text[-1] == "\n"]

    def line(self, message: str) -> dict[str, object]:
        """The first line of the log with this message, waited for."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            for line in self.lines():
                if message in line.values():
                    return line
            time.sleep(0.02)
        raise AssertionError(f"no {message!r} in {self.log.read_text()}")

    def scrape(self) -> Scrape:
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=5) as response:
            return Scrape(response.read().decode())

    def scrape_until(self, condition: Callable[[Scrape], object]) -> Scrape:
        end = time.monotonic() + PATIENCE
        while not condition(scrape := self.scrape()):
            assert time.monotonic() < end, scrape.text
            time.sleep(0.05)
        return scrape


class Scrape:
    def __init__(self, text: str) -> None:
        self.text = text
        families = text_string_to_metric_families(text)
        self.samples = [sample for family in families for sample in family.samples]

    def rows(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        return [
            (sample.labels, sample.value)
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float | None:
        rows = self.rows(name, **labels)
        assert len(rows) <= 1, rows
        return rows[0][1] if rows else None


@pytest.fixture
def driver(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "nvml.state")


@pytest.fixture
def agent_process(
    tmp_path: Path, driver: FakeNvml, nvml_library: Path, kubelet_stand_in: KubeletStandIn
) -> Iterator[Callable[..., AgentProcess]]:
    started: list[AgentProcess] = []

    def start(*arguments: str, restricted: bool = False) -> AgentProcess:
        driver.write()
        command = [sys.executable, "-m", "accelscale", "agent", "--backend", "nvidia"]
        command += ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
        command += ["--node-name", "node-a", "--interval", "0.1", "--log-format", "json"]
        command += ["--pod-resources-socket", str(kubelet_stand_in.socket), *arguments]
        if restricted:
            command = [sys.executable, "-c", AS_NOBODY_SPECIAL, *command]
        proxies = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy"), PROXY)
        environment = {**os.environ, **proxies, **driver.environment(nvml_library)}
        environment.pop("no_proxy", None)
        log = tmp_path / f"log{len(started)}"
        with log.open("w") as stream:
            process = subprocess.Popen(command, env=environment, stderr=stream)
        try:
            started.append(AgentProcess(process, log))
        except BaseException:
            process.kill()
            process.wait()
            raise
        return started[-1]

    yield start
    for agent in started:
        if agent.process.poll() is None:
            agent.process.terminate()
            assert agent.process.wait(timeout=15) == 0


def channel_to(agent: AgentProcess) -> grpc.aio.Channel:
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.insecure_channel(agent.address, options=options)


async def test_the_whole_way_of_a_node(
    driver: FakeNvml,
    agent_process: Callable[..., AgentProcess],
    kubelet_stand_in: KubeletStandIn,
) -> None:
    driver.device("GPU-aaaa", utilization_gpu=90).device("GPU-bbbb", utilization_gpu=10)
    kubelet_stand_in.pods = (
        pod("web-0", (GPU, ["GPU-aaaa::0"])),
        pod("web-1", (GPU, ["GPU-aaaa::3"])),
        pod("batch", (GPU, ["nvidia1"]), ("vendor.example/nic", ["0"]), namespace="lab"),
    )
    kubelet_stand_in.start()
    agent = agent_process("--pod-resources-interval", "0.2")
    async with channel_to(agent) as channel:
        watch = Watch(AgentStub(channel).Watch())
        await watch.ask(UTILIZATION)
        await watch.until(lambda w: w.value(1, "GPU-aaaa") == 90 and w.inventory.allocations)
        assert watch.value(1, "GPU-bbbb") == 10
        assert [(a.namespace, a.pod, a.device_id) for a in watch.inventory.allocations] == [
            ("lab", "batch", "GPU-bbbb"),
            ("shop", "web-0", "GPU-aaaa"),
            ("shop", "web-1", "GPU-aaaa"),
        ]
        await watch.until(lambda w: list(w.series(1).flags) == [3, 1])
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "accelscale.v1.Agent", "liveness"):
            request = health_pb2.HealthCheckRequest(service=service)
            answer = await health.Check(request, timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        agent.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while await watch.call.read() is not grpc.aio.EOF:
                pass
            assert await watch.call.code() is grpc.StatusCode.OK
    assert await asyncio.to_thread(agent.process.wait, 10) == 0


def test_metrics_carry_the_pod_and_count_no_device_twice(
    driver: FakeNvml,
    agent_process: Callable[..., AgentProcess],
    kubelet_stand_in: KubeletStandIn,
) -> None:
    for name in ("aaaa", "bbbb", "cccc"):
        driver.device(f"GPU-{name}", power_mw=70_000)
    kubelet_stand_in.pods = (
        *(pod(f"web-{n}", (GPU, [f"GPU-aaaa::{n}"])) for n in range(4)),
        pod("batch", (GPU, ["GPU-bbbb", "GPU-unknown"]), namespace="lab"),
    )
    kubelet_stand_in.start()
    agent = agent_process("--pod-resources-interval", "0.2")
    power = "accelscale_device_power_watts"
    scrape = agent.scrape_until(
        lambda s: len(s.rows(power)) == 3 and s.value("accelscale_allocations_known") == 1
    )
    holders = {
        labels["hw_id"]: tuple(
            labels[f"k8s_{what}_name"] for what in ("namespace", "pod", "container")
        )
        for labels, _ in scrape.rows(power)
    }
    assert holders == {
        "GPU-aaaa": ("", "", ""),  # shared: the allocations below say by whom
        "GPU-bbbb": ("lab", "batch", "main"),
        "GPU-cccc": ("", "", ""),
    }
    assert sum(value for _, value in scrape.rows(power)) == 210
    allocation = "accelscale_device_allocation"
    assert len(scrape.rows(allocation, hw_id="GPU-aaaa")) == 4
    assert scrape.value(allocation, hw_id="", id="GPU-unknown", k8s_pod_name="batch") == 1
    assert scrape.value("accelscale_kubelet_lists_total", code="OK") >= 1
    assert scrape.value("accelscale_allocations_age_seconds") < 60
    assert scrape.value("accelscale_device_status", hw_id="GPU-bbbb", k8s_pod_name="batch") == 1
    assert scrape.value("accelscale_backend_ready", backend="nvidia") == 1


def test_a_socket_that_may_not_be_opened_is_said_once_and_the_devices_go_on(
    driver: FakeNvml,
    agent_process: Callable[..., AgentProcess],
    kubelet_stand_in: KubeletStandIn,
) -> None:
    driver.device("GPU-aaaa", utilization_gpu=90)
    kubelet_stand_in.pods = (pod("web-0", (GPU, ["GPU-aaaa"])),)
    kubelet_stand_in.start()
    if os.geteuid() == 0:
        trial = [sys.executable, "-c", AS_NOBODY_SPECIAL, "/bin/true"]
        if subprocess.run(trial, check=False, capture_output=True, timeout=30).returncode:
            pytest.skip("a superuser who cannot give capabilities away may open every socket")
        os.chown(kubelet_stand_in.socket, 65534, 65534)
    kubelet_stand_in.socket.chmod(0o600 if os.geteuid() == 0 else 0)
    agent = agent_process("--pod-resources-interval", "0.1", restricted=True)
    line = agent.line("allocations cannot be renewed")
    assert str(line["why"]).startswith(f"{kubelet_stand_in.socket}: permission denied")
    scrape = agent.scrape_until(
        lambda s: (s.value("accelscale_kubelet_lists_total", code="UNAVAILABLE") or 0) > 5
    )
    assert scrape.value("accelscale_allocations_known") == 0
    agent.scrape_until(
        lambda s: s.value("accelscale_device_utilization_ratio", hw_id="GPU-aaaa") == 0.9
    )
    said = [line for line in agent.lines() if "permission denied" in str(line)]
    assert len(said) == 1
    kubelet_stand_in.socket.chmod(0o666)
    agent.scrape_until(lambda s: s.value("accelscale_allocations_known") == 1)
    assert agent.scrape().rows("accelscale_device_utilization_ratio", k8s_pod_name="web-0")


async def test_the_kubelet_is_asked_once_per_interval_however_many_ask_the_agent(
    driver: FakeNvml,
    agent_process: Callable[..., AgentProcess],
    kubelet_stand_in: KubeletStandIn,
) -> None:
    driver.device("GPU-aaaa", utilization_gpu=90)
    kubelet_stand_in.pods = (pod("web-0", (GPU, ["GPU-aaaa"])),)
    kubelet_stand_in.start()
    agent = agent_process("--pod-resources-interval", "0.5")
    async with channel_to(agent) as channel:
        watch = Watch(AgentStub(channel).Watch())
        await watch.until(lambda w: w.inventory.allocations)
        kubelet_stand_in.refuse()
        seen = len(kubelet_stand_in.calls)
        for number in range(100):  # 50 calls a second, streams, requests and scrapes
            other = Watch(AgentStub(channel).Watch())
            await other.ask((number, "utilization_percent", 1.0 + number, "max"))
            await other.next()
            await watch.ask(UTILIZATION)
            if number % 10 == 0:
                await asyncio.to_thread(agent.scrape)
            other.call.cancel()
            await asyncio.sleep(0.02)
        async with asyncio.timeout(20):
            while len(kubelet_stand_in.calls) < seen + 3:  # noqa: ASYNC110 - a counter
                await asyncio.sleep(0.02)
        pauses = [b - a for a, b in itertools.pairwise(kubelet_stand_in.calls)]
        assert min(pauses) > 0.9 * 0.5
        await watch.next()
        assert [a.pod for a in watch.inventory.allocations] == ["web-0"]  # the last word counts
        assert watch.inventory.allocations_problem == ""


async def test_a_node_without_a_driver_is_told_and_ready(
    driver: FakeNvml,
    agent_process: Callable[..., AgentProcess],
    kubelet_stand_in: KubeletStandIn,
) -> None:
    driver.library(init="DRIVER_NOT_LOADED")
    kubelet_stand_in.start()
    agent = agent_process()
    async with channel_to(agent) as channel:
        watch = Watch(AgentStub(channel).Watch())
        await watch.until(lambda w: w.inventory.problems)
        assert "nvidia" in watch.inventory.problems
        assert not watch.inventory.devices
        health = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        driver.library(init=None).device("GPU-aaaa", utilization_gpu=33).write()
        await watch.ask(UTILIZATION)
        await watch.until(lambda w: w.value(1, "GPU-aaaa") == 33)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pod-resources-interval", "0"), "--pod-resources-interval='0': must be seconds from"),
        (("--node-name", "a b"), "--node-name='a b': must be a name without spaces"),
        (("--backend", "nvidai"), "nvidai"),
    ],
)
def test_bad_options_are_refused_in_one_line(arguments: tuple[str, ...], words: str) -> None:
    command = [sys.executable, "-m", "accelscale", "agent", "--metrics-listen", "off", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode != 0
    assert words in result.stderr
    assert "Traceback" not in result.stderr
