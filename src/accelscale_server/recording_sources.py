"""What ``accelscale record --from`` records: the passes of agents, or the fleet of a scaler.

Both give gauges only; running totals have no windows, and what is made of them (rates) is a gauge.
From agents every reading comes with its own time. A scaler tells the newest values and how long ago
its agent spoke, which is coarser; but it can be reached where agents cannot.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from attrs import evolve

from accelscale.errors import AccelscaleError, NoDataError
from accelscale.lab.sources import Observed, Source, Wanted
from accelscale.metrics import METRICS, Kind
from accelscale.model import Failure, Reason, Sample, Series
from accelscale_server._proto.accelscale.v1 import introspection_pb2 as pb
from accelscale_server._proto.accelscale.v1.introspection_pb2_grpc import IntrospectionStub
from accelscale_server.beat import Beat
from accelscale_server.explain_command import ask, open_channel
from accelscale_server.fleet import Fleet
from accelscale_server.fleet_view import snapshot_of
from accelscale_server.poll import target
from accelscale_server.report import fleet_id

PATIENCE = 10.0
"""Seconds in which an agent must have said something, or a scaler have answered."""

BEAT = 0.02
"""Seconds between two looks at what agents sent: less than any interval of theirs."""

LOOK_AT_LEAST = 0.5
"""Seconds between two looks where nothing was heard, so that a silence is seen."""


@contextmanager
def agents(addresses: str, wanted: Wanted, stop: threading.Event) -> Iterator[Source]:
    """The passes of the agents at these addresses, which are separated by commas."""
    passes: queue.SimpleQueue[Observed | AccelscaleError] = queue.SimpleQueue()
    targets = [target(address.strip()) for address in addresses.split(",")]
    watching = threading.Thread(
        target=lambda: asyncio.run(_watch(targets, wanted, stop, passes)), name="agents"
    )
    watching.start()
    try:
        yield _until_stopped(passes, watching, stop)
    finally:
        stop.set()
        watching.join()


def _until_stopped(
    passes: queue.SimpleQueue[Observed | AccelscaleError],
    watching: threading.Thread,
    stop: threading.Event,
) -> Source:
    while not stop.is_set():
        try:
            found = passes.get(timeout=LOOK_AT_LEAST)
        except queue.Empty:
            if watching.is_alive():
                continue
            return
        if isinstance(found, AccelscaleError):
            raise found
        yield found


async def _watch(
    targets: list[str],
    wanted: Wanted,
    stop: threading.Event,
    passes: queue.SimpleQueue[Observed | AccelscaleError],
) -> None:
    fleet, news = Fleet(), asyncio.Event()
    beat = Beat(lambda: 0, quickest=BEAT)
    fleet.subscribe(beat.note)
    beat.subscribe(news.set)
    fleet.set_addresses(targets)
    series = [Series(name, 0.0, "last") for name in gauges(wanted)]
    begun = time.monotonic()
    try:
        while not stop.is_set():
            fleet.want(series)
            try:
                async with asyncio.timeout(LOOK_AT_LEAST):
                    await news.wait()
            except TimeoutError:
                pass  # what is silent now is told as well
            news.clear()
            if fleet.nodes:
                passes.put(_observed(fleet, series))
            elif time.monotonic() - begun > PATIENCE:
                reasons = (f"{address}: {why}" for address, why in fleet.unheard.items())
                passes.put(NoDataError(f"no agent was heard: {'; '.join(reasons)}"))
                return
    finally:
        await fleet.close()


def _observed(fleet: Fleet, series: Iterable[Series]) -> Observed:
    """All that the agents told, each reading as a sample with its time, or as a failure."""
    ids = [device_id for node in fleet.nodes.values() for device_id in node.devices]
    seen = fleet.snapshot(ids, series)
    samples: dict[tuple[str, str], Sample] = {}
    failures: dict[tuple[str, str], Failure] = {}
    for (device_id, one), found in seen.series.items():
        key = (device_id, one.metric)
        failure = found if isinstance(found, Failure) else seen.failures.get(key)
        if failure is not None:
            # The words of a silence hold its age, and would be news after every pass.
            failures[key] = evolve(failure, detail="") if _is_silence(failure) else failure
        elif not isinstance(found, Failure):
            samples[key] = Sample(*key, found.value, found.time, found.shared)
    holders = frozenset(
        (allocation.device_id, namespace, pod, allocation.container)
        for node in fleet.nodes.values()
        for namespace, pod, allocation in node.allocations()
        if allocation.device_id is not None
    )
    return Observed(evolve(seen, samples=samples, failures=failures, series={}), holders)


def _is_silence(failure: Failure) -> bool:
    return failure.reason is Reason.STALE


@contextmanager
def scaler(address: str, wanted: Wanted, stop: threading.Event) -> Iterator[Source]:
    """What a scaler tells of its fleet, once every interval."""
    with open_channel(target(address), None) as channel:
        yield _asked(IntrospectionStub(channel), wanted, stop)  # type: ignore[no-untyped-call]


def _asked(stub: IntrospectionStub, wanted: Wanted, stop: threading.Event) -> Source:
    request = pb.FleetRequest(metrics=gauges(wanted))
    latest: dict[tuple[str, str], Sample] = {}
    number = 0
    while not stop.is_set():
        begun = time.monotonic()
        try:
            answer = ask(stub.Fleet, request, PATIENCE)
        except AccelscaleError:
            if not number:
                raise
            stop.wait(wanted.interval)  # a gap in the recording, which nothing fills
            continue
        number += 1
        seen = snapshot_of(answer, number)
        # What is told without being newer is as old as before: ages come rounded by the network.
        for key, sample in seen.samples.items():
            known = latest.get(key)
            if known is None or sample.time - known.time > 0.5 * wanted.interval:
                latest[key] = sample
        samples = {key: latest[key] for key in seen.samples}
        yield Observed(
            evolve(seen, samples=samples, interval=wanted.interval), frozenset(_holders(answer))
        )
        stop.wait(max(0.0, wanted.interval - (time.monotonic() - begun)))


def _holders(answer: pb.FleetResponse) -> Iterator[tuple[str, str, str, str]]:
    for node in answer.nodes:
        for device in node.devices:
            for name in device.pods:
                namespace, _, pod = name.partition("/")
                yield fleet_id(node.name, device.id), namespace, pod, ""


def gauges(wanted: Wanted) -> tuple[str, ...]:
    """The metrics to ask for."""
    every = (row.name for row in METRICS.values() if row.kind is Kind.GAUGE)
    return wanted.metrics or tuple(every)
