"""What a scaler costs that watches many agents and answers for many ScaledObjects.

As many ScaledObjects as agents, of eight pods each; every one is polled as KEDA and the HPA do by
default: three calls every 30 and every 15 seconds. All runs over the loopback interface, and load
and scaler share the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil
from attrs import define, field

from accelscale_server._proto import externalscaler_pb2 as pb
from accelscale_server._proto import externalscaler_pb2_grpc as rpc
from benchmarks import agents, processes
from benchmarks.report import line, percentile

COUNTS = (10, 100, 1000)
SECONDS = 20.0
ROUNDS = 5
POLLING_INTERVAL = 30.0
HPA_PERIOD = 15.0
NAME = "accelscale-utilization-percent"


@define
class Load:
    """The load process, and how many bytes it has sent by when."""

    process: subprocess.Popen[str]
    kubeconfig: str
    port: int
    sent: list[tuple[float, int, int]] = field(factory=list)


def run(counts: tuple[int, ...] = COUNTS) -> None:
    """Measure and print, for each number of agents."""
    for count in counts:
        with _load(count) as load, _scaler(count, load) as (process, address):
            asyncio.run(_measure(count, load, process, address))


async def _measure(count: int, load: Load, process: subprocess.Popen[bytes], address: str) -> None:
    options = [("grpc.enable_http_proxy", 0)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stub = rpc.ExternalScalerStub(channel)
        started = time.perf_counter()
        await _until_all_answer(stub, count)
        settled = time.perf_counter() - started
        watched = psutil.Process(process.pid)
        refused: list[str] = []
        sent, before, begun = load.sent[-1], watched.cpu_times(), time.perf_counter()
        rounds = [await _poll(stub, count, SECONDS / ROUNDS, refused) for _ in range(ROUNDS)]
        core_percent, elapsed = _spent(watched, before, begun)
        seconds, bytes_sent, messages = (b - a for a, b in zip(sent, load.sent[-1], strict=True))
        resident = watched.memory_info().rss
        pushed = await _core_percent_with_streams(stub, count, watched)
        line(
            "fleet",
            budget={"core_percent": 100.0, "resident_mib": 400.0, "p99_ms": 20.0}
            if count == max(COUNTS)
            else None,
            agents=count,
            devices=agents.DEVICES * count,
            scaled_objects=count,
            settled_seconds=settled,
            calls_per_second=sum(map(len, rounds)) / elapsed,
            core_percent=core_percent,
            core_percent_per_agent=core_percent / count,
            core_percent_with_a_stream_each=pushed,
            resident_mib=resident / 2**20,
            # The median of the rounds, for whatever else the machine does falls into some of them.
            p50_ms=1000 * percentile([percentile(each, 50) for each in rounds], 50),
            p99_ms=1000 * percentile([percentile(each, 99) for each in rounds], 50),
            bytes_per_agent_per_second=bytes_sent / seconds / count,
            messages_per_second=messages / seconds,
            refused=len(refused),
            **({"first_refusal": refused[0]} if refused else {}),
        )


def _spent(watched: psutil.Process, before: Any, begun: float) -> tuple[float, float]:
    """The share of a core that was spent since then, in percent, and the seconds."""
    after, elapsed = watched.cpu_times(), time.perf_counter() - begun
    spent = (after.user - before.user) + (after.system - before.system)
    return 100 * spent / elapsed, elapsed


async def _core_percent_with_streams(stub: Any, count: int, watched: psutil.Process) -> float:
    """What it costs to keep a StreamIsActive open for every ScaledObject, in place of polls."""
    streams = [stub.StreamIsActive(_ref(number)) for number in range(count)]
    await asyncio.gather(*(stream.read() for stream in streams))
    before, begun = watched.cpu_times(), time.perf_counter()
    await asyncio.sleep(SECONDS / 2)
    percent, _ = _spent(watched, before, begun)
    for stream in streams:
        stream.cancel()
    return percent


async def _until_all_answer(stub: Any, count: int, seconds: float = 60.0) -> None:
    """Ask each ScaledObject until it has a value."""
    limit = asyncio.Semaphore(50)
    end = time.perf_counter() + seconds

    async def one(number: int) -> None:
        while True:
            async with limit:
                try:
                    await stub.GetMetrics(_metrics_request(number), timeout=10)
                except grpc.aio.AioRpcError as error:
                    if time.perf_counter() > end:
                        sys.exit(f"no answer within {seconds:g} s: {error.details()}")
                else:
                    return
            await asyncio.sleep(0.2)

    await asyncio.gather(*(one(number) for number in range(count)))


async def _poll(stub: Any, count: int, seconds: float, refused: list[str]) -> list[float]:
    """Poll as KEDA's operator and the HPA do, at the pace of both; how long each call took."""
    durations: list[float] = []
    per_second = count / POLLING_INTERVAL + count / HPA_PERIOD
    loop = asyncio.get_running_loop()
    start, tasks = loop.time(), []

    async def poll(number: int) -> None:
        ref, metrics = _ref(number), _metrics_request(number)
        for call, request in (
            (stub.GetMetricSpec, ref),
            (stub.GetMetrics, metrics),
            (stub.IsActive, ref),
        ):
            begun = time.perf_counter()
            try:
                await call(request, timeout=10)
            except grpc.aio.AioRpcError as error:
                refused.append(f"{error.code().name}: {error.details()}")
            durations.append(time.perf_counter() - begun)

    for turn in range(max(1, int(per_second * seconds))):
        await asyncio.sleep(max(0.0, start + turn / per_second - loop.time()))
        tasks.append(asyncio.create_task(poll(turn % count)))
    await asyncio.gather(*tasks)
    return durations


def _ref(number: int) -> pb.ScaledObjectRef:
    return pb.ScaledObjectRef(
        name=f"web-{number}",
        namespace=agents.namespace_of(number),
        scalerMetadata=agents.metadata_of(number),
    )


def _metrics_request(number: int) -> pb.GetMetricsRequest:
    return pb.GetMetricsRequest(scaledObjectRef=_ref(number), metricName=NAME)


@contextmanager
def _load(count: int) -> Iterator[Load]:
    command = [sys.executable, "-m", "benchmarks.agents", str(count)]
    process = subprocess.Popen(command, cwd=processes.ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    load = Load(process, **json.loads(process.stdout.readline()))

    def listen() -> None:
        assert process.stdout is not None
        for text in process.stdout:
            figures = json.loads(text)
            load.sent.append((time.perf_counter(), figures["sent"], figures["messages"]))

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    try:
        yield load
    finally:
        process.terminate()
        process.wait(timeout=30)
        listening.join(timeout=10)


@contextmanager
def _scaler(count: int, load: Load) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    address = f"127.0.0.1:{processes.free_port()}"
    where = ",".join(agents.address_of(number, load.port) for number in range(count))
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "scaler.toml"
        config.write_text(f'agents = "{where}"\nkubeconfig = "{load.kubeconfig}"\n')
        command = [sys.executable, "-m", "accelscale", "scaler", "--config", str(config)]
        command += ["--listen", address, "--metrics-listen", "off", "--log-level", "warning"]
        environ = {k: v for k, v in os.environ.items() if not k.startswith("ACCELSCALE_")}
        process = subprocess.Popen(command, cwd=processes.ROOT, env=environ)
        try:
            processes.wait_until_answering(address)
            yield process, address
        finally:
            process.terminate()
            process.wait(timeout=30)


if __name__ == "__main__":
    run(tuple(int(text) for text in sys.argv[1:]) or COUNTS)
