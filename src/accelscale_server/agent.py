# ruff: noqa: N802 - gRPC gives the calls their names
"""``accelscale agent``: tells the scalers what the devices of this node do and who holds them."""

from __future__ import annotations

import asyncio
import math
import platform
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field

from accelscale.monitor import open_monitor
from accelscale_server._proto.accelscale.v1 import agent_pb2 as pb
from accelscale_server._proto.accelscale.v1.agent_pb2_grpc import (
    AgentServicer,
    add_AgentServicer_to_server,
)
from accelscale_server.allocations import owned_by_any
from accelscale_server.changes import Changes
from accelscale_server.judgement import OPENING, Judgement, MonitorJudge
from accelscale_server.kubelet import Kubelet
from accelscale_server.packing import Packing, Wanted, wanted_by
from accelscale_server.server import Parts, Server, Service, run, until_signalled
from accelscale_server.servicer import answering

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from accelscale.monitor import Monitor
    from accelscale_server.config import AgentConfig

SERVICE = "accelscale.v1.Agent"

QUIET_SECONDS = 5.0
"""Seconds after which values are sent although no pass has ended, with the reasons of now; the
interval where that is longer."""

_Context = Any  # grpc.aio.ServicerContext, which is generic for the type checker alone


def agent(config: AgentConfig) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status, as `run` describes it."""

    def serving() -> None:
        backends, node = config.backend or None, node_name(config)
        with open_monitor(backends, interval=config.interval, node=node) as monitor:
            asyncio.run(until_signalled(lambda: agent_server(config, monitor), config.grace))

    return run(config, serving)


def node_name(config: AgentConfig) -> str:
    """The name that this node has in Kubernetes, as far as we are told."""
    return config.node_name or platform.node() or "unknown"


def agent_server(config: AgentConfig, monitor: Monitor) -> Server:
    """An agent over a monitor, made within the event loop that it will run in."""
    changes, node = Changes(), node_name(config)
    kubelet = Kubelet(
        config.pod_resources_socket,
        node,
        owned_by_any(monitor.backends),
        changes.announce,
        period=config.pod_resources_interval,
    )
    servicer = Agent(monitor, Packing(monitor, kubelet, node), changes)

    def families() -> Iterator[Family]:
        from accelscale_server.agent_metrics import agent_families

        return agent_families(monitor, kubelet)

    parts = Parts(
        changes=changes,
        services=(Service(SERVICE, servicer, add_AgentServicer_to_server),),
        subscribe=monitor.subscribe,
        judge=AgentJudge(monitor),
        families=families,
        tasks=(kubelet.run,),
    )
    return Server(config, parts)


class AgentJudge:
    """Ready once every backend has been tried: what cannot be read then is an answer, too.

    An agent that were not ready while its driver is away could not tell the scalers why.
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._of_monitor = MonitorJudge(monitor)

    def __call__(self) -> Judgement:
        """Look at the backends of now."""
        opening = any(state.phase == OPENING for state in self._monitor.states())
        return Judgement(OPENING if opening else None, self._of_monitor().hopeless)


@define
class _Watcher:
    """One stream: what it wants, what it was sent."""

    wanted: tuple[Wanted, ...] = ()
    asked: asyncio.Event = field(factory=asyncio.Event)
    sent_revision: int = 0
    sent_pass: int = 0
    sent_at: float = -math.inf


class Agent(AgentServicer):
    """The stream that every scaler holds open to every agent.

    Nothing is queued: a scaler that takes messages slowly gets the newest state each time.
    """

    def __init__(self, monitor: Monitor, packing: Packing, changes: Changes) -> None:
        self._monitor = monitor
        self._packing = packing
        self._changes = changes
        self._quiet_seconds = max(QUIET_SECONDS, monitor.interval)

    @answering
    async def Watch(self, request: AsyncIterator[pb.WatchRequest], context: _Context) -> None:
        """The inventory on open and when it changed, the wanted values on every pass."""
        with self._watching() as watcher:
            listening = asyncio.create_task(self._listen(request, watcher))
            try:
                await self._tell(watcher, context)
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    @contextmanager
    def _watching(self) -> Iterator[_Watcher]:
        watcher = _Watcher()
        try:
            yield watcher
        finally:
            self._packing.change_interest(watcher.wanted, ())

    async def _listen(self, requests: AsyncIterator[pb.WatchRequest], watcher: _Watcher) -> None:
        """Each request replaces the list of the one before; no more of them ends nothing."""
        async for request in requests:
            wanted = wanted_by(request, self._monitor.metrics)
            self._packing.change_interest(watcher.wanted, wanted)
            watcher.wanted = wanted
            watcher.asked.set()

    async def _tell(self, watcher: _Watcher, context: _Context) -> None:
        while not self._changes.stopping:
            count = self._changes.count
            message = self._message(watcher)
            if message is not None:
                await context.write(message)
            await self._something_new(count, watcher)

    def _message(self, watcher: _Watcher) -> pb.WatchResponse | None:
        """What this stream has not been told yet, or None."""
        now = time.monotonic()
        packing = self._packing
        inventory = packing.refresh(force=now - watcher.sent_at >= self._quiet_seconds)
        message = pb.WatchResponse()
        if inventory.revision != watcher.sent_revision:
            message.inventory.CopyFrom(inventory.message)
        elif packing.pass_count == watcher.sent_pass and not watcher.asked.is_set():
            return None
        watcher.asked.clear()
        message.values.CopyFrom(packing.values(watcher.wanted))
        watcher.sent_revision = inventory.revision
        watcher.sent_pass = packing.pass_count
        watcher.sent_at = now
        return message

    async def _something_new(self, count: int, watcher: _Watcher) -> None:
        """Wait for a change, a request or the end, but not for ever."""
        waiting = {
            asyncio.ensure_future(self._changes.after(count)),
            asyncio.ensure_future(watcher.asked.wait()),
        }
        try:
            await asyncio.wait(
                waiting, timeout=self._quiet_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in waiting:
                task.cancel()
