"""The whole way: the fake driver, the real binding, a server process, and KEDA's own calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import psutil
import pytest

from accelscale.metrics import METRICS, Kind
from accelscale_server._proto import externalscaler_pb2 as pb
from accelscale_server._proto import externalscaler_pb2_grpc as rpc
from drivers.nvml.state import GIBIBYTE, FakeNvml, counter

A, B = "GPU-aaaa", "GPU-bbbb"
PATIENCE = 20.0

# What the healthy card of the fake driver must read as, by metric.
EXPECTED = {
    "utilization_percent": 37.0,
    "memory_bandwidth_utilization_percent": 12.0,
    "memory_used_bytes": 20.0 * GIBIBYTE,
    "memory_total_bytes": 80.0 * GIBIBYTE,
    "memory_used_percent": 25.0,
    "temperature_celsius": 61.0,
    "memory_temperature_celsius": 70.0,
    "slowdown_temperature_celsius": 87.0,
    "thermal_headroom_celsius": 26.0,
    "power_watts": 350.0,
    "power_limit_watts": 700.0,
    "power_used_percent": 50.0,
    "energy_rate_watts": 350.0,
    "throttled_percent": 25.0,
    "sm_clock_megahertz": 1980.0,
    "memory_clock_megahertz": 2619.0,
    "pcie_receive_bytes_per_second": 2e6,
    "pcie_transmit_bytes_per_second": 1e6,
    "interconnect_receive_bytes_per_second": 2048e3,
    "interconnect_transmit_bytes_per_second": 1024e3,
    "encoder_utilization_percent": 11.0,
    "decoder_utilization_percent": 22.0,
    "process_count": 2.0,
}
RATES = {name for name, metric in METRICS.items() if "rate" in str(metric.derivation)}


def card(**changes: object) -> dict[str, object]:
    return {
        "utilization_gpu": 37,
        "utilization_memory": 12,
        "temperature": 61,
        "memory_temperature": 70,
        "encoder": 11,
        "decoder": 22,
        "processes_compute": "10:1000 11:none",
        "violation_power_ns": counter(0, 0.25e9),
        "violation_thermal_ns": counter(0, 0.125e9),
        **changes,
    }


@pytest.fixture
def driver(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path / "nvml.state")


class Server:
    """A server process over the fake driver, and KEDA's calls to it."""

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self.process = process
        self.channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])
        self.stub = rpc.ExternalScalerStub(self.channel)

    def value(self, **metadata: str) -> float | tuple[str, str]:
        """The value, or status and message."""
        reference = self._reference(metadata)
        try:
            (spec,) = self.stub.GetMetricSpec(reference, timeout=5).metricSpecs
            request = pb.GetMetricsRequest(scaledObjectRef=reference, metricName=spec.metricName)
            (metric,) = self.stub.GetMetrics(request, timeout=5).metricValues
        except grpc.RpcError as error:
            return error.code().name, error.details()
        return float(metric.metricValueFloat)

    def active(self, **metadata: str) -> bool | tuple[str, str]:
        try:
            return bool(self.stub.IsActive(self._reference(metadata), timeout=5).result)
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def until(self, wanted: Callable[[float | tuple[str, str]], bool], **metadata: str) -> object:
        deadline = time.monotonic() + PATIENCE
        while not wanted(found := self.value(**metadata)):
            assert time.monotonic() < deadline, f"still {found}"
            time.sleep(0.02)
        return found

    def until_status(self, status: str, *words: str, **metadata: str) -> None:
        self.until(
            lambda found: (
                isinstance(found, tuple)
                and found[0] == status
                and all(word in found[1] for word in words)
            ),
            **metadata,
        )

    def _reference(self, metadata: dict[str, str]) -> pb.ScaledObjectRef:
        wanted = {"threshold": "70", "windowStatistic": "last", **metadata}
        if metadata.get("metric", "").startswith("throttled"):
            wanted["threshold"] = "50"
        return pb.ScaledObjectRef(name="web", namespace="ns", scalerMetadata=wanted)


def address_in(log: Path) -> str:
    """The address that the server says it listens on."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            if '"listening"' in line:
                return str(json.loads(line)["address"])
        time.sleep(0.02)
    raise AssertionError(f"the server did not start: {log.read_text()}")


@pytest.fixture
def serve(driver: FakeNvml, nvml_library: Path) -> Iterator[Callable[[], Server]]:
    started: list[Server] = []

    def start() -> Server:
        driver.write()
        command = [sys.executable, "-m", "accelscale", "serve", "--backend", "nvidia"]
        command += ["--listen", "127.0.0.1:0", "--interval", "0.1", "--log-format", "json"]
        log = driver.path.with_suffix(f".log{len(started)}")
        with log.open("w") as stream:
            process = subprocess.Popen(
                command, env={**os.environ, **driver.environment(nvml_library)}, stderr=stream
            )
        started.append(Server(process, address_in(log)))
        return started[-1]

    yield start
    for server in started:
        server.channel.close()
        server.process.terminate()
        assert server.process.wait(timeout=15) == 0


def test_every_metric_arrives_as_the_driver_has_it(
    driver: FakeNvml, serve: Callable[[], Server]
) -> None:
    gauges = {name for name, metric in METRICS.items() if metric.kind is Kind.GAUGE}
    never = gauges - EXPECTED.keys()
    driver.device(A, **card())  # type: ignore[arg-type]
    server = serve()
    server.until(lambda found: found == 37.0, metric="utilization_percent")
    for name, expected in EXPECTED.items():
        tolerance = 0.2 if name in RATES else 1e-6
        server.until(
            lambda found, e=expected, t=tolerance: (  # type: ignore[misc]
                isinstance(found, float) and found == pytest.approx(e, rel=t)
            ),
            metric=name,
        )
    for name in never:
        found = server.value(metric=name)
        assert isinstance(found, tuple), f"{name} gave {found}"
        assert found[0] == "FAILED_PRECONDITION", f"{name}: {found}"
        assert "NVIDIA H100" in found[1]


def test_the_list_of_devices_agrees_with_the_driver(driver: FakeNvml, nvml_library: Path) -> None:
    driver.device(A, **card()).device(B, bare=True, name="Bare", encoder=5).write()  # type: ignore[arg-type]
    done = subprocess.run(
        [sys.executable, "-m", "accelscale", "devices", "--backend", "nvidia", "--json"],
        env={**os.environ, **driver.environment(nvml_library)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    full, bare = json.loads(done.stdout)["devices"]
    assert full["id"] == A
    for name, expected in EXPECTED.items():
        tolerance = 0.2 if name in RATES else 1e-6
        assert full["metrics"][name] == pytest.approx(expected, rel=tolerance), name
    for device in (full, bare):
        assert set(device["metrics"]).isdisjoint(device["failures"])
        assert set(device["metrics"]) | set(device["failures"]) >= set(METRICS)
    assert bare["metrics"] == {"encoder_utilization_percent": 5.0}
    assert set(bare["failures"].values()) == {"not_supported"}


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        ("NOT_SUPPORTED", "UNAVAILABLE", "not_supported"),  # it gave the metric before
        ("NO_PERMISSION", "UNAVAILABLE", "permission"),
        ("GPU_IS_LOST", "UNAVAILABLE", "lost"),
        ("RESET_REQUIRED", "UNAVAILABLE", "reset_required"),
        ("UNKNOWN", "UNAVAILABLE", "error"),
    ],
)
def test_a_failing_card_answers_no_number(
    driver: FakeNvml, serve: Callable[[], Server], error: str, status: str, word: str
) -> None:
    driver.device(A, **card()).device(B, **card(utilization_gpu=80))  # type: ignore[arg-type]
    server = serve()
    server.until(lambda found: found == 117.0, metric="utilization_percent")
    driver.fail(error, device=A).write()
    server.until_status(status, word, metric="utilization_percent", devices=A)
    assert server.value(metric="utilization_percent", devices=B) == 80.0
    assert server.active(metric="utilization_percent", devices=A) is not False
    driver.fail(None, device=A).write()
    server.until(lambda found: found == 37.0, metric="utilization_percent", devices=A)


def test_one_failing_call_spoils_nothing_else(
    driver: FakeNvml, serve: Callable[[], Server]
) -> None:
    driver.device(A, **card())  # type: ignore[arg-type]
    driver.set(A, {"field_error.185": "UNKNOWN"})
    server = serve()
    server.until(lambda found: found == 37.0, metric="utilization_percent")
    server.until_status("UNAVAILABLE", "error", metric="power_watts")
    server.until_status("UNAVAILABLE", "error", metric="power_used_percent")
    assert server.value(metric="temperature_celsius") == 61.0


@pytest.mark.parametrize("power", [3_700_000, 4_294_967_295])
def test_an_absurd_reading_answers_no_number(
    driver: FakeNvml, serve: Callable[[], Server], power: int
) -> None:
    driver.device(A, **card(power_mw=power))  # type: ignore[arg-type]
    server = serve()
    server.until_status("UNAVAILABLE", "out_of_range", metric="power_watts")
    driver.set(A, power_mw=69_437).write()
    server.until(lambda found: found == 69.437, metric="power_watts")


def test_a_hung_card_leaves_the_others_fresh_and_calls_answering(
    driver: FakeNvml, serve: Callable[[], Server]
) -> None:
    driver.device(A, **card()).device(B, **card())  # type: ignore[arg-type]
    server = serve()
    server.until(lambda found: found == 74.0, metric="utilization_percent")
    driver.hang(device=A).write()
    for load in (50, 60, 70):
        driver.set(B, utilization_gpu=load).write()
        server.until(lambda found, n=load: found == n, metric="utilization_percent", devices=B)  # type: ignore[misc]
    server.until_status("UNAVAILABLE", "timeout", metric="utilization_percent", devices=A)
    assert psutil.Process(server.process.pid).num_threads() < 40
    driver.resume(device=A).write()
    server.until(lambda found: found == 37.0, metric="utilization_percent", devices=A)


def test_the_spec_is_answered_with_every_card_lost(
    driver: FakeNvml, serve: Callable[[], Server]
) -> None:
    driver.device(A, **card())  # type: ignore[arg-type]
    server = serve()
    server.until(lambda found: found == 37.0, metric="utilization_percent")
    driver.lose(A).write()
    server.until_status("UNAVAILABLE", "lost", metric="utilization_percent")
    reference = pb.ScaledObjectRef(
        scalerMetadata={"metric": "utilization_percent", "threshold": "0.5"}
    )
    (spec,) = server.stub.GetMetricSpec(reference, timeout=5).metricSpecs
    assert (spec.targetSizeFloat, spec.targetSize) == (0.5, 1)
    driver.restore(A).write()
    server.until(lambda found: found == 37.0, metric="utilization_percent")


def test_a_card_in_mig_mode_says_so_and_does_not_look_idle(
    driver: FakeNvml, serve: Callable[[], Server]
) -> None:
    driver.device(A, **card(mig_mode=1))  # type: ignore[arg-type]
    server = serve()
    server.until_status("UNAVAILABLE", "not_supported", "MIG", metric="utilization_percent")
    found = server.active(metric="utilization_percent")
    assert isinstance(found, tuple)
    assert found[0] == "UNAVAILABLE"


def test_ten_thousand_polls_leave_nothing_behind(
    driver: FakeNvml, serve: Callable[[], Server]
) -> None:
    driver.device(A, **card())  # type: ignore[arg-type]
    server = serve()
    server.until(lambda found: found == 37.0, metric="utilization_percent")
    process = psutil.Process(server.process.pid)
    for _ in range(300):
        server.value(metric="utilization_percent")
    time.sleep(0.5)
    before = process.num_fds(), process.num_threads(), process.memory_info().rss
    for number in range(3400):
        assert server.value(metric="utilization_percent", activationThreshold=str(number)) == 37.0
        assert server.active(metric="utilization_percent") is True
    after = process.num_fds(), process.num_threads(), process.memory_info().rss
    assert after[0] - before[0] <= 5
    assert after[1] - before[1] <= 2
    assert after[2] - before[2] < 20 * 2**20
    calls = driver.calls()
    assert calls["initialised"] - calls.get("shut down", 0) == 1
