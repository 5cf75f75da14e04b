"""All agents as one picture: a stream to each, and what they told, looked up from memory."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from accelscale.errors import NoDataError
from accelscale.model import Device, Failure, Reason, Series, SeriesValue, Snapshot
from accelscale_server.agent_stream import AgentStream, Connect, plain
from accelscale_server.interest import KEPT_SECONDS, Interest
from accelscale_server.node import Node
from accelscale_server.recent import Recent

if TYPE_CHECKING:
    from accelscale.model import Allocation
    from accelscale_server.report import Report

logger = logging.getLogger("accelscale_server.fleet")

SWEEP = 5.0
NOT_YET_LISTED = 30.0
"""Seconds that a pod may be unknown to its kubelet's list, which is read every ten or so."""

MOST_WAITING_PODS = 8192


class Fleet:
    """The picture of all nodes. For one event loop; `run` keeps it in order.

    ``sequence`` grows with everything that is heard. Ids of devices are those among all nodes
    (`accelscale_server.report.fleet_id`).
    """

    def __init__(self, connect: Connect = plain) -> None:
        self.nodes: dict[str, Node] = {}
        self.streams: dict[str, AgentStream] = {}
        self.sequence = 0
        self._connect = connect
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._everywhere = Interest()
        self._subscribers: list[Callable[[], None]] = []
        self._waiting: Recent[tuple[str, str, str], float] = Recent(MOST_WAITING_PODS)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have ``callback`` called whenever ``sequence`` has grown; returns undo."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def set_addresses(self, addresses: Collection[str]) -> None:
        """Say where agents are now. A stream to one that is not named goes on while it lives."""
        for address, stream in self.streams.items():
            if address not in addresses:
                stream.retire()
        for address in addresses:
            known = self.streams.get(address)
            if known is not None and not self._tasks[address].done():
                known.keep()
            else:
                self._open(address)

    async def run(self) -> None:
        """Forget what is long gone; ends all streams when cancelled."""
        try:
            while True:
                await asyncio.sleep(SWEEP)
                self._sweep(time.monotonic())
        finally:
            await self.close()

    async def close(self) -> None:
        """End all streams."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self.streams.clear()

    def want(
        self,
        series: Iterable[Series],
        nodes: Iterable[str] | None = None,
        seconds: float = KEPT_SECONDS,
    ) -> bool:
        """Have agents send these series for some time; of all nodes where none is named.

        True if some of them were not wanted yet, so that their values are still to come.
        """
        now, series = time.monotonic(), tuple(series)
        if nodes is None:
            self._everywhere.ask(series, now, seconds)
            nodes = self.nodes
        grown = [
            node
            for node in map(self.nodes.get, nodes)
            if node is not None and node.interest.ask(series, now, seconds)
        ]
        self._ask({node.name for node in grown})
        return bool(grown)

    def snapshot(self, device_ids: Iterable[str], series: Iterable[Series]) -> Snapshot:
        """What is known of these devices; its cost does not depend on the other ones."""
        now, series = time.monotonic(), tuple(series)
        devices: list[Device] = []
        found: dict[tuple[str, Series], SeriesValue | Failure] = {}
        failures: dict[tuple[str, str], Failure] = {}
        intervals = dict.fromkeys((one.metric for one in series), 0.0)
        interval = 0.0
        for device_id in device_ids:
            name = device_id.partition("/")[0]
            node = self.nodes.get(name)
            if node is None:
                text = f"no agent of {name} was heard"
                found.update({(device_id, s): _stale(device_id, s, text) for s in series})
                continue
            speaker = node.speaker(device_id)
            silence = None if speaker and speaker.live else node.silence(device_id, now)
            if speaker is not None:
                inventory = speaker.inventory
                devices.append(inventory.devices[device_id])
                interval = max(interval, inventory.interval)
                for metric, slowest in intervals.items():
                    intervals[metric] = max(slowest, inventory.interval_of(metric))
            for one in series:
                value, failure = node.read(device_id, one)
                if value is None or failure is not None or silence is not None:
                    failure = _why(device_id, one, failure, speaker is not None, silence)
                    failures[device_id, one.metric] = failure
                found[device_id, one] = value or failures[device_id, one.metric]
        return Snapshot(
            time=now,
            sequence=self.sequence,
            interval=interval or 1.0,
            devices=tuple(devices),
            failures=failures,
            series=found,
            intervals={metric: slowest for metric, slowest in intervals.items() if slowest},
        )

    def allocations(self, node: str, namespace: str, pod: str) -> tuple[Allocation, ...]:
        """The devices that a pod on this node holds; none if it is known to hold none.

        Raises:
            NoDataError: that is not known, and why.
        """
        known = self.nodes.get(node)
        if known is None:
            raise NoDataError(f"no agent of {node} was heard", reason=Reason.STALE)
        held = known.held_by(namespace, pod)
        if held:
            return held
        now, key = time.monotonic(), (node, namespace, pod)
        why = known.why_unknown(now)
        since = self._waiting.find(key)
        if why is None and (since is None or now - since < NOT_YET_LISTED):
            why = f"the kubelet of {node} does not list the pod yet"
            if since is None:
                self._waiting.keep(key, now)
        if why is not None:
            raise NoDataError(why, reason=Reason.STALE)
        return ()

    @property
    def unheard(self) -> Mapping[str, str]:
        """The addresses from which no agent is known, each with the reason."""
        return {
            address: stream.detail
            for address, stream in self.streams.items()
            if not stream.retired and (stream.node is None or stream.node not in self.nodes)
        }

    def heard(self, report: Report, before: Report | None) -> None:
        """Take the inventory of an agent; its stream calls this."""
        name = report.inventory.node
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(name)
            now = time.monotonic()
            node.interest.ask(self._everywhere, now)
        node.take(report, before)

    def interest_in(self, node: str) -> Interest | None:
        """What is wanted of a node; its streams ask this."""
        known = self.nodes.get(node)
        return None if known is None else known.interest

    def changed(self) -> None:
        """Note that something was heard; streams call this."""
        self.sequence += 1
        for subscriber in tuple(self._subscribers):
            subscriber()

    def _open(self, address: str) -> None:
        stream = self.streams[address] = AgentStream(address, self, self._connect)
        self._tasks[address] = asyncio.create_task(stream.run())

    def _ask(self, nodes: Collection[str]) -> None:
        if nodes:
            for stream in self.streams.values():
                if stream.node in nodes:
                    stream.ask()

    def _sweep(self, now: float) -> None:
        for address, task in list(self._tasks.items()):
            if task.done():
                if not task.cancelled() and task.exception() is not None:
                    logger.error("a stream failed", exc_info=task.exception())
                    self._open(address)
                elif self.streams[address].retired:
                    del self._tasks[address], self.streams[address]
        self._everywhere.expire(now)
        shrunk = set()
        for name, node in list(self.nodes.items()):
            node.forget(now)
            if not node.reports:
                del self.nodes[name]
                logger.info("a node is forgotten", extra={"node": name})
                self.changed()
            elif node.interest.expire(now):
                shrunk.add(name)
        self._ask(shrunk)


def _stale(device_id: str, series: Series, text: str) -> Failure:
    return Failure(device_id, series.metric, Reason.STALE, text, math.nan)


def _why(
    device_id: str,
    series: Series,
    failure: Failure | None,
    is_told: bool,
    silence: str | None,
) -> Failure:
    """The reason that tells most about a value that is missing or old."""
    if failure is not None and (failure.permanent or silence is None):
        return failure
    if silence is not None:
        return _stale(device_id, series, silence)
    if not is_told:
        text = "its node's agent does not list it"
        return Failure(device_id, series.metric, Reason.LOST, text, math.nan)
    return _stale(device_id, series, "no reading yet")
