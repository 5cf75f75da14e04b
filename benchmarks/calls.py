"""Latency and throughput of a call, beside a bare grpc.aio echo in the same run.

The two take turns in short rounds, so that a noisy machine is noisy for both.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc

from accelscale_server._proto import externalscaler_pb2 as pb
from accelscale_server._proto import externalscaler_pb2_grpc as rpc
from benchmarks import processes
from benchmarks.report import line, percentile

PER_SECOND = 200
IN_FLIGHT = 16
TRIGGER = {
    "scalerAddress": "accelscale.example.svc:6000",
    "metric": "utilization_percent",
    "threshold": "70",
    "window": "1s",
}


def run(rounds: int = 4, seconds: float = 3.0) -> None:
    """Measure and print."""
    with (
        processes.fake_driver(),
        processes.server() as (_, ours),
        processes.echo() as (_, bare),
    ):
        asyncio.run(_compare({"ours": ours, "echo": bare}, rounds, seconds))


async def _compare(addresses: dict[str, str], rounds: int, seconds: float) -> None:
    latencies: dict[str, list[float]] = {name: [] for name in addresses}
    rates: dict[str, list[float]] = {name: [] for name in addresses}
    channels = {
        name: grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])
        for name, address in addresses.items()
    }
    stubs = {name: rpc.ExternalScalerStub(channel) for name, channel in channels.items()}
    for stub in stubs.values():
        await _closed_loop(stub, 1.0)
    for _ in range(rounds):
        for name, stub in stubs.items():
            latencies[name] += await _paced(stub, seconds)
        for name, stub in stubs.items():
            rates[name].append(await _closed_loop(stub, seconds / 2))
    for channel in channels.values():
        await channel.close()
    p99 = {name: percentile(values, 99) for name, values in latencies.items()}
    best = {name: max(values) for name, values in rates.items()}
    line(
        "calls",
        budget={"p99_ratio": 3.0, "min_throughput_ratio": 0.6},
        calls_per_second=PER_SECOND,
        p50_ms=1000 * percentile(latencies["ours"], 50),
        p99_ms=1000 * p99["ours"],
        echo_p50_ms=1000 * percentile(latencies["echo"], 50),
        echo_p99_ms=1000 * p99["echo"],
        p99_ratio=p99["ours"] / p99["echo"],
        throughput_per_second=best["ours"],
        echo_throughput_per_second=best["echo"],
        throughput_ratio=best["ours"] / best["echo"],
    )


def _request() -> pb.GetMetricsRequest:
    reference = pb.ScaledObjectRef(name="vllm", namespace="serving", scalerMetadata=TRIGGER)
    return pb.GetMetricsRequest(
        scaledObjectRef=reference, metricName="accelscale-utilization-percent"
    )


async def _paced(stub: Any, seconds: float) -> list[float]:
    """Calls at a fixed rate, whether or not the ones before have been answered."""
    loop = asyncio.get_running_loop()
    start, latencies, tasks = loop.time(), [], []

    async def call() -> None:
        begun = time.perf_counter()
        await stub.GetMetrics(_request(), timeout=10)
        latencies.append(time.perf_counter() - begun)

    for number in range(int(PER_SECOND * seconds)):
        await asyncio.sleep(max(0.0, start + number / PER_SECOND - loop.time()))
        tasks.append(asyncio.create_task(call()))
    await asyncio.gather(*tasks)
    return latencies


async def _closed_loop(stub: Any, seconds: float) -> float:
    """Calls a second with a fixed number in flight."""
    end, done = time.perf_counter() + seconds, 0

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await stub.GetMetrics(_request(), timeout=10)
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return done / (time.perf_counter() - started)
