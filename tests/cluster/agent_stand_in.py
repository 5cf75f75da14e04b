# ruff: noqa: N802 - gRPC gives the calls their names
"""An agent that tells what a test wants it to tell, on a clock of its own."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import grpc

from accelscale_server._proto.accelscale.v1 import agent_pb2 as pb
from accelscale_server._proto.accelscale.v1 import agent_pb2_grpc as rpc

_instances = itertools.count(1)


class AgentStandIn(rpc.AgentServicer):
    """Devices with a value each, which stands for every series that is asked for.

    ``claims`` hold driver, pool and device of a pod. ``absent`` holds reasons that stand for a
    value, ``older`` the age of a device's samples, and ``uncovered`` the devices whose history
    does not cover any window. ``clock`` is how much this machine's monotonic clock is ahead of
    ours, ``delay`` how long messages are under way.
    """

    def __init__(
        self,
        node: str,
        values: Mapping[str, float] | None = None,
        pods: Mapping[str, Iterable[str]] | None = None,
        *,
        clock: float = 0.0,
        interval: float = 0.05,
        instance: str = "",
        vendor: str = "toy",
    ) -> None:
        """``pods`` are the devices that each NAMESPACE/NAME holds."""
        self.node = node
        self.vendor = vendor
        self.instance = instance or f"agent-{next(_instances)}"
        self.values = dict(values or {})
        self.pods = {pod: tuple(devices) for pod, devices in (pods or {}).items()}
        self.claims: dict[str, tuple[str, str, str]] = {}
        self.absent: dict[str, pb.Absence] = {}
        self.older: dict[str, float] = {}
        self.uncovered: set[str] = set()
        self.shared: set[str] = set()
        self.names: dict[str, str] = {}
        self.problem = ""
        self.unseen: dict[str, str] = {}
        self.clock = clock
        self.delay = 0.0
        self.interval = interval
        self.told_interval = 1.0
        self.requests: list[pb.WatchRequest] = []
        self.streams = 0
        self.opened = 0
        self.silent = False
        self.refusal: tuple[grpc.StatusCode, str] | None = None
        self._revision = 1
        self._server: grpc.aio.Server | None = None
        self.address = "127.0.0.1:0"

    async def start(self) -> AgentStandIn:
        """Listen; on the port of before, if it was stopped."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        rpc.add_AgentServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(self.address)
        self.address = f"127.0.0.1:{port}"
        await self._server.start()
        return self

    async def stop(self) -> None:
        """Vanish: open streams break off."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def renew(self) -> None:
        """Tell the inventory again, for it has changed."""
        self._revision += 1

    @property
    def asked(self) -> list[tuple[str, float, str]]:
        """The series of the last request."""
        if not self.requests:
            return []
        return [(s.metric, s.window_seconds, s.statistic) for s in self.requests[-1].series]

    async def Watch(self, requests: AsyncIterator[pb.WatchRequest], context: Any) -> None:
        """The inventory when it is new, and the values again and again."""
        if self.refusal is not None:
            await context.abort(*self.refusal)
        wanted: list[pb.Series] = []

        async def listen() -> None:
            async for request in requests:
                self.requests.append(request)
                wanted[:] = request.series

        listening = asyncio.create_task(listen())
        self.streams += 1
        self.opened += 1
        told = 0
        try:
            while True:
                if not self.silent:
                    inventory = self._inventory() if told != self._revision else None
                    message = pb.WatchResponse(inventory=inventory, values=self._values(wanted))
                    told = self._revision
                    await asyncio.sleep(self.delay)
                    await context.write(message)
                await asyncio.sleep(self.interval)
        finally:
            self.streams -= 1
            listening.cancel()

    def _inventory(self) -> pb.Inventory:
        return pb.Inventory(
            revision=self._revision,
            node=self.node,
            instance=self.instance,
            interval_seconds=self.told_interval,
            devices=[
                pb.Device(
                    id=i, name=self.names.get(i, "Toy"), vendor=self.vendor, backend=self.vendor
                )
                for i in self.values
            ],
            allocations=[
                pb.Allocation(
                    namespace=pod.partition("/")[0],
                    pod=pod.partition("/")[2],
                    container="main",
                    resource="toy.example/card",
                    device_id=device if device in self.values else "",
                    allocated_id=device,
                )
                for pod, devices in self.pods.items()
                for device in devices
            ]
            + [
                pb.Allocation(
                    namespace=pod.partition("/")[0],
                    pod=pod.partition("/")[2],
                    container="main",
                    claim=pb.Claim(driver=driver, pool=pool, device=device),
                )
                for pod, (driver, pool, device) in self.claims.items()
            ],
            allocations_problem=self.problem,
            problems={f"backend of {vendor}": why for vendor, why in self.unseen.items()},
            unseen_vendors=self.unseen,
        )

    def _values(self, wanted: Iterable[pb.Series]) -> pb.Values:
        now = time.monotonic() + self.clock
        values = pb.Values(inventory=self._revision, sent_at=now)
        for series in wanted:
            packed = values.series.add(id=series.id)
            for place, (device, value) in enumerate(self.values.items()):
                if device in self.absent:
                    absence = packed.absent.add()
                    absence.CopyFrom(self.absent[device])
                    absence.device = place
                    continue
                packed.device.append(place)
                packed.value.append(value)
                packed.sampled_at.append(now - self.older.get(device, 0.0))
                covered, shared = device not in self.uncovered, device in self.shared
                packed.flags.append(covered | shared << 1)
        return values
