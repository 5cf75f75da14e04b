"""How long it takes from a change in the driver to the event on KEDA's push stream."""

from __future__ import annotations

import asyncio
import random
import time

import grpc

from accelscale_server._proto import externalscaler_pb2 as pb
from accelscale_server._proto import externalscaler_pb2_grpc as rpc
from benchmarks import processes
from benchmarks.report import line, percentile

INTERVAL = 0.5
CHANGES = 30


def run() -> None:
    """Measure and print."""
    with (
        processes.fake_driver(devices=1) as driver,
        processes.server("--interval", str(INTERVAL)) as (_, address),
    ):
        delays = asyncio.run(_follow(driver, address))
    line(
        "freshness",
        budget={"worst_ms": 1000 * INTERVAL + 50},
        interval_ms=1000 * INTERVAL,
        changes=len(delays),
        median_ms=1000 * percentile(delays, 50),
        worst_ms=1000 * max(delays),
    )


async def _follow(driver: processes.nvml.FakeNvml, address: str) -> list[float]:
    card = processes.card_id(0)
    metadata = {
        "metric": "utilization_percent",
        "threshold": "70",
        "window": "1s",
        "windowStatistic": "last",
    }
    chance, delays = random.Random(7), []
    async with grpc.aio.insecure_channel(address) as channel:
        stub = rpc.ExternalScalerStub(channel)
        stream = stub.StreamIsActive(pb.ScaledObjectRef(name="x", scalerMetadata=metadata))
        event = await asyncio.wait_for(stream.read(), 10)
        for _ in range(CHANGES):
            busy = not event.result
            driver.set(card, utilization_gpu=80 if busy else 0)
            await asyncio.sleep(chance.uniform(0, INTERVAL))
            changed = time.perf_counter()
            driver.write()
            event = await asyncio.wait_for(stream.read(), 10)
            delays.append(time.perf_counter() - changed)
            assert event.result is busy
        stream.cancel()
    return delays
