"""What Prometheus scrapes."""

from __future__ import annotations

import asyncio
import re
import socket
import urllib.error
import urllib.request

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

import accelscale
from accelscale.metrics import METRICS, Kind, Metric
from accelscale.model import Device, Reason, Sample, Snapshot
from accelscale.testing import FakeBackend
from accelscale_server.addresses import Address, BindError, bindable
from accelscale_server.config import ServeConfig
from accelscale_server.device_metrics import device_families, prometheus_name
from accelscale_server.serve import local_server
from accelscale_server.server import Server
from accelscale_server.telemetry import MOST_SCRAPES

UTILIZATION = "utilization_percent"
SERVICE = "externalscaler.ExternalScaler"


class Scrape:
    """One scrape, parsed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {f.name: f for f in text_string_to_metric_families(text)}
        self.samples = [s for f in self.families.values() for s in f.samples]

    def value(self, name: str, **labels: str) -> float | None:
        found = [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) <= 1, found
        return found[0] if found else None


def fetch(address: object, path: str = "/metrics") -> tuple[str, str]:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as response:
        return response.read().decode(), response.headers["Content-Type"]


@pytest.fixture
async def scrape(start):
    """Starts a server with metrics over fakes: gives it, and a function that scrapes it."""
    servers: list[Server] = []

    async def serving(*fakes: FakeBackend):
        outer = await start(*fakes)
        local = Address("127.0.0.1", 0)
        server = local_server(ServeConfig(listen=local, metrics_listen=local), outer.monitor)
        await server.start()
        servers.append(server)
        channel = grpc.aio.insecure_channel(str(server.address))
        scaler = type(outer.scaler)(channel)
        inner = type(outer)(str(server.address), outer.monitor, channel, scaler)

        async def scrape() -> Scrape:
            text, _ = await asyncio.to_thread(fetch, server.metrics_address)
            return Scrape(text)

        return inner, scrape

    yield serving
    for server in servers:
        await server.stop(0)


async def test_calls_are_counted_by_method_and_status(scrape) -> None:
    server, look = await scrape(FakeBackend({"a": {UTILIZATION: 60.0}}))
    for _ in range(3):
        await server.spec()
    for name in ("no-such", "other"):
        with pytest.raises(grpc.aio.AioRpcError):
            await server.value(name)
    with pytest.raises(grpc.aio.AioRpcError):
        await server.active(threshold="x")
    streams = [server.scaler.StreamIsActive(server.ref()) for _ in range(2)]
    for stream in streams:
        await asyncio.wait_for(stream.read(), 5)
    seen = await look()
    handled = "accelscale_rpc_handled_total"
    assert seen.value(handled, method=f"{SERVICE}/GetMetricSpec", code="OK") == 3
    assert seen.value(handled, method=f"{SERVICE}/GetMetrics", code="NOT_FOUND") == 2
    assert seen.value(handled, method=f"{SERVICE}/IsActive", code="INVALID_ARGUMENT") == 1
    assert seen.value(handled, method=f"{SERVICE}/StreamIsActive") is None
    duration = "accelscale_rpc_duration_seconds"
    assert seen.value(f"{duration}_count", method=f"{SERVICE}/GetMetricSpec") == 3
    assert seen.value(f"{duration}_bucket", method=f"{SERVICE}/GetMetricSpec", le="2.5") == 3
    assert seen.value(f"{duration}_sum", method=f"{SERVICE}/GetMetricSpec") > 0
    opened = "accelscale_streams_open"
    assert seen.value(opened, method=f"{SERVICE}/StreamIsActive") == 2
    assert seen.value("accelscale_evaluations_total") >= 1
    for stream in streams:
        stream.cancel()

    async def over() -> bool:
        seen = await look()
        cancelled = seen.value(handled, method=f"{SERVICE}/StreamIsActive", code="CANCELLED")
        return seen.value(opened, method=f"{SERVICE}/StreamIsActive") == 0 and cancelled == 2

    await server.until(over)


async def test_collecting_is_described_by_backend(scrape) -> None:
    working = FakeBackend({"a": {UTILIZATION: 60.0}})
    broken = FakeBackend(name="broken")
    broken.break_probe("no library")
    _, look = await scrape(working, broken)
    seen = await look()
    assert seen.value("accelscale_backend_ready", backend="fake") == 1
    assert seen.value("accelscale_backend_ready", backend="broken") == 0
    assert seen.value("accelscale_collections_total", backend="fake") >= 3
    assert seen.value("accelscale_collections_failed_total", backend="broken") >= 1
    assert 0 <= seen.value("accelscale_snapshot_age_seconds", backend="fake") < 5
    assert seen.value("accelscale_snapshot_age_seconds", backend="broken") is None
    assert seen.value("accelscale_collection_duration_seconds", backend="fake") > 0
    assert seen.value("accelscale_driver_timeouts_total", backend="fake") == 0
    assert seen.value("accelscale_build_info", version=accelscale.__version__) == 1
    assert seen.value("process_resident_memory_bytes") > 0
    assert not any(name.startswith("python_") for name in seen.families)  # a registry of our own


async def test_devices_in_base_units(scrape) -> None:
    fake = FakeBackend(name="nvidia")
    fake.add(
        "GPU-1",
        {
            UTILIZATION: 63.0,
            "sm_clock_megahertz": 1410.0,
            "memory_used_bytes": 4e9,
            "energy_joules_total": 1000.0,
            "temperature_celsius": 61.0,
        },
        name='NVIDIA "H100"',
    )
    fake.add("MIG-1", {UTILIZATION: 0.0}, parent="GPU-1", attributes={"type": "other"})
    _, look = await scrape(fake)
    seen = await look()
    prefix = "accelscale_device_"
    assert seen.value(f"{prefix}utilization_ratio", hw_id="GPU-1") == 0.63
    assert seen.value(f"{prefix}utilization_ratio", hw_id="MIG-1") == 0.0  # idle, and known to be
    assert seen.value(f"{prefix}sm_clock_hertz", hw_id="GPU-1") == 1.41e9
    assert seen.value(f"{prefix}memory_used_bytes", hw_id="GPU-1") == 4e9
    assert seen.value(f"{prefix}energy_joules_total", hw_id="GPU-1") == 1000.0
    assert seen.value(f"{prefix}temperature_celsius", hw_id="GPU-1") == 61.0
    labels = {
        s.labels["hw_id"]: s.labels for s in seen.families[f"{prefix}utilization_ratio"].samples
    }
    assert labels == {
        "GPU-1": {
            "hw_id": "GPU-1",
            "hw_name": 'NVIDIA "H100"',
            "hw_type": "gpu",
            "hw_vendor": "nvidia",
            "hw_parent": "",
        },
        "MIG-1": {
            "hw_id": "MIG-1",
            "hw_name": "Fake MIG-1",
            "hw_type": "other",
            "hw_vendor": "nvidia",
            "hw_parent": "GPU-1",
        },
    }


async def test_what_cannot_be_read_is_no_series_but_counted(scrape) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0, "power_watts": 90.0}, "b": {UTILIZATION: 50.0}})
    server, look = await scrape(fake)
    fake.fail("a", UTILIZATION, Reason.PERMISSION)
    fake.lose("b")
    prefix = "accelscale_device_"

    async def gone() -> bool:
        return (await look()).value(f"{prefix}status", hw_id="b", hw_state="failed") == 1

    await server.until(gone)
    seen = await look()
    assert f"{prefix}utilization_ratio" not in seen.families
    assert seen.value(f"{prefix}power_watts", hw_id="a") == 90.0
    missing = f"{prefix}missing_readings"
    assert seen.value(missing, hw_id="a", reason="permission") == 1
    assert seen.value(missing, hw_id="b", reason="lost") > 10
    assert seen.value(f"{prefix}status", hw_id="a", hw_state="ok", reason="") == 1
    assert seen.value(f"{prefix}status", hw_id="b", hw_state="failed", reason="lost") == 1
    assert "NaN" not in seen.text


@pytest.mark.parametrize(
    ("backend", "attributes", "kind"),
    [("amd", {}, "gpu"), ("host", {}, "cpu"), ("fpga", {}, "fpga"), ("fpga", {"type": "x"}, "x")],
)
def test_types_of_devices(backend: str, attributes: dict[str, str], kind: str) -> None:
    device = Device("a", "A", "acme", backend, attributes=attributes)
    sample = Sample("a", UTILIZATION, 50.0, 0.0)
    snapshot = Snapshot(0.0, 1, 1.0, (device,), {("a", UTILIZATION): sample})
    family = next(iter(device_families(snapshot, METRICS)))
    assert [(s.value, s.labels["hw_type"]) for s in family.samples] == [(0.5, kind)]


def test_names_follow_the_base_units_of_prometheus() -> None:
    names = [prometheus_name(metric)[0] for metric in METRICS.values()]
    assert len(set(names)) == len(METRICS)
    for name, metric in zip(names, METRICS.values(), strict=True):
        assert re.fullmatch(r"accelscale_device_[a-z][a-z0-9_]*", name)
        assert not re.search(r"percent|mega|milli|kilo|minutes|_ms\b", name), name
        assert name.endswith("_total") == (metric.kind is Kind.COUNTER), name


@pytest.mark.parametrize(
    ("metric", "name", "factor"),
    [
        (Metric("acme_load_percent", "percent", ""), "acme_load_ratio", 0.01),
        (Metric("acme_load", "percent", ""), "acme_load_ratio", 0.01),
        (Metric("acme_clock_megahertz", "megahertz", ""), "acme_clock_hertz", 1e6),
        (Metric("acme_jobs", "jobs", "", kind=Kind.COUNTER), "acme_jobs_total", 1.0),
        (Metric("acme_queue", "jobs", ""), "acme_queue", 1.0),
    ],
)
def test_names_of_a_plugins_metrics(metric: Metric, name: str, factor: float) -> None:
    assert prometheus_name(metric) == (f"accelscale_device_{name}", factor)


async def test_the_endpoint_knows_one_path_and_both_formats(start) -> None:
    outer = await start(FakeBackend({"a": {UTILIZATION: 60.0}}))
    local = Address("127.0.0.1", 0)
    server = local_server(ServeConfig(listen=local, metrics_listen=local), outer.monitor)
    await server.start()
    try:
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            await asyncio.to_thread(fetch, server.metrics_address, "/")
        caught.value.close()

        def openmetrics() -> str:
            accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
            url = f"http://{server.metrics_address}/metrics"
            with urllib.request.urlopen(
                urllib.request.Request(url, headers=accept), timeout=5
            ) as response:
                assert response.headers["Content-Type"].startswith("application/openmetrics-text")
                return response.read().decode()

        assert (await asyncio.to_thread(openmetrics)).endswith("# EOF\n")
    finally:
        await server.stop(0)


async def test_connections_that_ask_nothing_are_bounded(start) -> None:
    outer = await start(FakeBackend({"a": {UTILIZATION: 60.0}}))
    local = Address("127.0.0.1", 0)
    server = local_server(ServeConfig(listen=local, metrics_listen=local), outer.monitor)
    await server.start()
    target = (server.metrics_address.host, server.metrics_address.port)
    try:
        idle = [socket.create_connection(target, timeout=10) for _ in range(MOST_SCRAPES)]
        with socket.create_connection(target, timeout=10) as refused:
            assert await asyncio.to_thread(refused.recv, 1) == b""
        for connection in idle:
            connection.close()

        async def answers() -> bool:
            try:
                await asyncio.to_thread(fetch, server.metrics_address)
            except OSError:
                return False
            return True

        await outer.until(answers)
    finally:
        await server.stop(0)


@pytest.mark.parametrize("which", ["listen", "metrics_listen"])
async def test_a_port_in_use_is_one_clear_line_and_leaves_nothing_open(start, which: str) -> None:
    outer = await start(FakeBackend({"a": {UTILIZATION: 60.0}}))
    taken = Address("127.0.0.1", int(outer.address.rpartition(":")[2]))
    free = Address("127.0.0.1", unused_port())
    other = "listen" if which == "metrics_listen" else "metrics_listen"
    server = local_server(ServeConfig(**{which: taken, other: free}), outer.monitor)
    with pytest.raises(BindError, match=f"cannot listen on {taken}: address in use"):
        await server.start()
    assert bindable(free) == free


def unused_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])
