"""Real servers on the loopback interface, over fake devices, with real gRPC clients."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from attrs import frozen

from accelscale.monitor import Monitor, open_monitor
from accelscale.testing import FakeBackend
from accelscale_server._proto import externalscaler_pb2 as pb
from accelscale_server._proto.externalscaler_pb2_grpc import ExternalScalerStub
from accelscale_server.addresses import Address
from accelscale_server.config import ServeConfig
from accelscale_server.serve import running_server

TRIGGER = {"metric": "utilization_percent", "threshold": "70", "window": "0.1s"}
PLUGIN = Path(__file__).parent / "plugin"


@frozen
class Loopback:
    """A running server and a client of it."""

    address: str
    monitor: Monitor
    channel: grpc.aio.Channel
    scaler: Any

    def ref(self, metadata: Mapping[str, str] | None = None, **keys: str) -> pb.ScaledObjectRef:
        """A ScaledObject with this trigger; TRIGGER with some keys changed by default."""
        metadata = {**TRIGGER, **keys} if metadata is None else metadata
        return pb.ScaledObjectRef(name="web", namespace="shop", scalerMetadata=metadata)

    async def spec(self, **keys: str) -> pb.MetricSpec:
        """What GetMetricSpec answers, which is exactly one."""
        (spec,) = (await self.scaler.GetMetricSpec(self.ref(**keys), timeout=5)).metricSpecs
        return spec

    async def value(self, name: str | None = None, **keys: str) -> pb.MetricValue:
        """What GetMetrics answers, which is exactly one."""
        if name is None:
            name = keys.get("metricName", "accelscale-utilization-percent")
        request = pb.GetMetricsRequest(scaledObjectRef=self.ref(**keys), metricName=name)
        (value,) = (await self.scaler.GetMetrics(request, timeout=5)).metricValues
        return value

    async def active(self, **keys: str) -> bool:
        """What IsActive answers."""
        return bool((await self.scaler.IsActive(self.ref(**keys), timeout=5)).result)

    async def until(self, condition: Callable[[], Awaitable[bool]], seconds: float = 10.0) -> None:
        """Wait for a condition, looking again and again."""
        async with asyncio.timeout(seconds):
            while not await condition():  # noqa: ASYNC110 - what we wait for sets no event
                await asyncio.sleep(0.02)

    async def becomes(self, active: bool, **keys: str) -> None:
        """Wait until IsActive gives this answer; until then it may say that it cannot tell."""

        async def settled() -> bool:
            try:
                return await self.active(**keys) is active
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            return False

        await self.until(settled)

    async def until_refused(self, code: grpc.StatusCode, **keys: str) -> grpc.aio.AioRpcError:
        """Wait until GetMetrics ends with this status, and give the error."""
        found: list[grpc.aio.AioRpcError] = []

        async def refused() -> bool:
            try:
                await self.value(**keys)
            except grpc.aio.AioRpcError as error:
                found.append(error)
                return error.code() is code
            return False

        await self.until(refused)
        return found[-1]


Start = Callable[..., Awaitable[Loopback]]


def plain_channel(address: str, *options: tuple[str, Any]) -> grpc.aio.Channel:
    """A channel with a connection of its own."""
    own = ("grpc.use_local_subchannel_pool", 1)
    return grpc.aio.insecure_channel(address, options=[own, *options])


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts a server over fake backends; everything is stopped at the end."""
    async with AsyncExitStack() as stack:

        async def start(
            *fakes: FakeBackend,
            settle: bool = True,
            interval: float = 0.05,
            deadline: float = 2.0,
            **options: Any,
        ) -> Loopback:
            monitor = stack.enter_context(open_monitor(fakes, interval=interval, deadline=deadline))
            for fake in fakes:
                stack.callback(fake.unhang)
            if settle:
                assert await asyncio.to_thread(monitor.wait, 10.0, 3)
            config = ServeConfig(**{"listen": Address("127.0.0.1", 0), "grace": 2.0, **options})
            address = await stack.enter_async_context(running_server(config, monitor))
            channel = await stack.enter_async_context(plain_channel(address))
            return Loopback(address, monitor, channel, ExternalScalerStub(channel))

        yield start


class ServeProcess:
    """``accelscale serve`` as a process of its own, with the fake backend of a real plugin."""

    def __init__(self, *arguments: str, environ: Mapping[str, str] | None = None) -> None:
        search = os.pathsep.join([str(PLUGIN), *sys.path])
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ACCELSCALE_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "accelscale", "serve", *arguments],
            env={**inherited, "PYTHONPATH": search, **(environ or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read standard error up to the line that matches."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            match = re.search(pattern, line)
            if match:
                return match
        raise AssertionError(f"no line with {pattern!r}; it wrote: {''.join(self.lines)}")

    def address(self) -> str:
        """Where it listens."""
        return self.wait_for(r"listening .*address=(\S+)")[1]

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self, seconds: float = 20.0) -> tuple[int, str]:
        """Wait for the end: the exit status, and all of standard error."""
        _, rest = self.process.communicate(timeout=seconds)
        return self.process.returncode, "".join(self.lines) + rest


@pytest.fixture
def serve_process() -> Iterator[Callable[..., ServeProcess]]:
    """Starts ``accelscale serve``; what still runs at the end is killed."""
    started: list[ServeProcess] = []

    def start(*arguments: str, environ: Mapping[str, str] | None = None) -> ServeProcess:
        started.append(ServeProcess(*arguments, environ=environ))
        return started[-1]

    yield start
    for serving in started:
        if serving.process.poll() is None:
            serving.process.kill()
            serving.process.communicate()
        for pipe in (serving.process.stdout, serving.process.stderr):
            if pipe is not None:
                pipe.close()
