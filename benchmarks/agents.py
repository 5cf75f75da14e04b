# ruff: noqa: N802 - gRPC gives the calls their names
"""The load on a scaler: many agents in one process, and the Kubernetes API with their pods.

Every agent has an address of its own on the loopback interface (127.0.0.0/8) and speaks the real
protocol: its inventory on open, then the values of the series that it is asked for, once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc

from accelscale_server._proto.accelscale.v1 import agent_pb2 as pb
from accelscale_server._proto.accelscale.v1 import agent_pb2_grpc as rpc
from benchmarks.processes import ROOT

sys.path.insert(0, str(ROOT / "tests"))

from kubernetes.api_server import ApiServerStandIn
from kubernetes.objects import external, pod, scalable, scaled_object

DEVICES = 8
INTERVAL = 1.0
NAMESPACES = 10
TRIGGER = {"metric": "utilization_percent", "threshold": "70"}
WINDOWS = ("15s", "30s", "60s", "300s")
"""Triggers differ in their windows, so that agents have several series to send."""


def address_of(number: int, port: int) -> str:
    """The address of an agent."""
    return f"127.1.{number // 250}.{number % 250 + 1}:{port}"


def metadata_of(number: int) -> dict[str, str]:
    """The trigger of a workload."""
    return {**TRIGGER, "window": WINDOWS[number % len(WINDOWS)], "idleAfter": "10m"}


def namespace_of(number: int) -> str:
    """Where a workload lives."""
    return f"team-{number % NAMESPACES}"


class Agents(rpc.AgentServicer):
    """All of them; each stream is the next agent, for it cannot be seen at which address it came.

    ``sent`` counts the bytes of all messages.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.sent = 0
        self.messages = 0
        self._free = iter(itertools.cycle(range(count)))

    async def Watch(self, requests: AsyncIterator[pb.WatchRequest], context: Any) -> None:
        """The stream of one agent."""
        number = next(self._free)
        wanted: list[pb.Series] = []
        asked = asyncio.Event()

        async def listen() -> None:
            async for request in requests:
                wanted[:] = request.series
                asked.set()

        listening = asyncio.create_task(listen())
        try:
            message: pb.WatchResponse | None = pb.WatchResponse(inventory=self._inventory(number))
            await asyncio.sleep(0)
            while True:
                message = message or pb.WatchResponse()
                message.values.CopyFrom(_values(number, wanted))
                self.sent += message.ByteSize()
                self.messages += 1
                await context.write(message)
                message = None
                # Agents tick when they started, which is not all at once.
                phase = number / self.count * INTERVAL
                now = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(INTERVAL - (now - phase) % INTERVAL):
                        await asked.wait()
                asked.clear()
        finally:
            listening.cancel()

    def _inventory(self, number: int) -> pb.Inventory:
        devices = [f"GPU-{number:08x}-0000-0000-0000-{index:012x}" for index in range(DEVICES)]
        return pb.Inventory(
            revision=1,
            node=f"node-{number}",
            instance=f"instance-{number}",
            interval_seconds=INTERVAL,
            devices=[
                pb.Device(id=each, name="NVIDIA H100 80GB HBM3", vendor="nvidia", backend="nvidia")
                for each in devices
            ],
            allocations=[
                pb.Allocation(
                    namespace=namespace_of(workload),
                    pod=f"web-{workload}-{index}",
                    container="server",
                    resource="nvidia.com/gpu",
                    device_id=devices[index],
                    allocated_id=devices[index],
                )
                for index in range(DEVICES)
                for workload in [(number - index) % self.count]
            ],
        )


def _values(number: int, wanted: list[pb.Series]) -> pb.Values:
    now = time.monotonic()
    load = [float((7 * number + 13 * index + int(now)) % 100) for index in range(DEVICES)]
    times, places, flags = [now - 0.01] * DEVICES, range(DEVICES), [1] * DEVICES
    return pb.Values(
        inventory=1,
        sent_at=now,
        series=[
            pb.SeriesValues(id=one.id, device=places, value=load, sampled_at=times, flags=flags)
            for one in wanted
        ],
    )


def fill(api: ApiServerStandIn, count: int) -> None:
    """As many workloads as agents, each with a pod on each of the nodes after its own."""
    for number in range(count):
        name, namespace = f"web-{number}", namespace_of(number)
        trigger = external(None, **metadata_of(number))
        del trigger["metadata"]["profile"]
        api.put("deployments", scalable(name, namespace, replicas=DEVICES))
        api.put("scaledobjects", scaled_object(name, namespace, triggers=(trigger,)))
        for index in range(DEVICES):
            node = f"node-{(number + index) % count}"
            labels = {"app": name}
            api.put("pods", pod(f"{name}-{index}", namespace, labels=labels, node=node))


@contextlib.contextmanager
def kubernetes(count: int) -> Iterator[Path]:
    """An API server with the workloads; gives a kubeconfig."""
    with tempfile.TemporaryDirectory() as folder:
        api = ApiServerStandIn(Path(folder))
        api.start()
        try:
            fill(api, count)
            yield api.kubeconfig()
        finally:
            api.stop()


async def serve(count: int) -> None:
    """Be the load until SIGTERM; lines on standard output say where, and how much was sent."""
    agents = Agents(count)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    rpc.add_AgentServicer_to_server(agents, server)
    port = server.add_insecure_port("0.0.0.0:0")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    with kubernetes(count) as kubeconfig:
        await server.start()
        _say(kubeconfig=str(kubeconfig), port=port)
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await ended.wait()
            _say(sent=agents.sent, messages=agents.messages)
        await server.stop(0)


def _say(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
