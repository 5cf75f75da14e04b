"""``accelscale demo``: the whole product on this machine, for half a minute.

It starts a server as a process of its own, polls it as KEDA does, and shows what an HPA would make
of each answer. It puts no load on an accelerator. Where none works it reads the machine's own CPU
instead, says so, and keeps half of the cores busy for a part of the time, so that there is
something to see.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from accelscale.cli.figures import duration
from accelscale.cli.options import print_json, say
from accelscale.errors import BackendError
from accelscale_server.client import CallError, HorizontalPodAutoscaler, Request, ScalerClient
from accelscale_server.demo.picture import Moment, Screen
from accelscale_server.demo.processes import CpuLoad, ServerProcess
from accelscale_server.demo.subject import WINDOW_SECONDS, Subject, choose

START_SECONDS = 20.0
"""Most time until the server has its first full window."""

POLL_SECONDS = 1.0
LOAD_FROM, LOAD_UNTIL = 0.25, 0.65
"""The part of the time in which the CPU is kept busy."""


def run(seconds: float, *, as_json: bool) -> int:
    """Run the demonstration; 0 if every call succeeded."""
    screen = Screen(quiet=as_json)
    screen.say("looking for accelerators …")
    subject = choose()
    for text in subject.description:
        screen.say(text)
    moments, durations = asyncio.run(_demonstrate(subject, screen, seconds))
    record = _record(subject, moments, durations)
    if as_json:
        print_json(record)
    else:
        for line in _summary(record):
            say(line)
    return 1 if record["failed_polls"] or not moments else 0


async def _demonstrate(
    subject: Subject, screen: Screen, seconds: float
) -> tuple[list[Moment], list[float]]:
    """Every poll, and the seconds of every call."""
    with ServerProcess(subject.backend) as server:
        async with ScalerClient(server.address, None, timeout=3.0) as client:
            screen.say(f"server on {server.address}; waiting for a full window of readings …")
            await _wait_until_answering(server, client, subject.request)
            client.durations.clear()
            moments = []
            with screen.live(subject):
                async for moment in _polls(client, subject, seconds):
                    moments.append(moment)
                    screen.show(moment)
            return moments, client.durations


async def _wait_until_answering(
    server: ServerProcess, client: ScalerClient, request: Request
) -> None:
    """Until every call of a poll succeeds, and until the window is full.

    Nobody can call a device idle before that; a busy one is called active at once.
    """
    end = time.monotonic() + START_SECONDS
    full = None
    while True:
        try:
            active = (await client.poll(request)).active
            full = full or time.monotonic() + WINDOW_SECONDS
            if not active or time.monotonic() > full:
                return
        except CallError as error:
            if (status := server.status) is not None:
                raise BackendError(
                    f"the server ended with status {status}: {server.last_words()}"
                ) from error
            if error.code != "UNAVAILABLE" or time.monotonic() > end:
                raise
        await asyncio.sleep(0.1)


async def _polls(client: ScalerClient, subject: Subject, seconds: float) -> AsyncIterator[Moment]:
    hpa = HorizontalPodAutoscaler(subject.request.metric_type, len(subject.devices))
    period = min(POLL_SECONDS, seconds / 4)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        load: CpuLoad | None = None
        for number in range(max(round(seconds / period), 1)):
            await asyncio.sleep(max(started + number * period - time.monotonic(), 0.0))
            passed = time.monotonic() - started
            if subject.stand_in and load is None and passed >= LOAD_FROM * seconds:
                rest = max(LOAD_UNTIL * seconds - passed, 0.0)
                load = stack.enter_context(CpuLoad(rest))
            busy = load is not None and load.running
            try:
                answers = await client.poll(subject.request)
            except CallError as error:
                yield Moment(passed, busy, error=str(error))
                continue
            value, target = answers.values[0].number, answers.specs[0].number
            wanted = hpa.desired(value, target)
            yield Moment(passed, busy, value, target, answers.active, wanted)


def _record(
    subject: Subject, moments: Sequence[Moment], durations: Sequence[float]
) -> dict[str, Any]:
    """What happened, in JSON's terms."""
    values = [moment.value for moment in moments if moment.value is not None]
    replicas = [moment.replicas for moment in moments if moment.replicas is not None]
    errors = [moment.error for moment in moments if moment.error]
    return {
        "backend": subject.backend,
        "stand_in": subject.stand_in,
        "devices": [device.id for device in subject.devices],
        "metadata": subject.request.metadata,
        "polls": len(moments),
        "failed_polls": len(errors),
        "calls": len(durations),
        "errors": errors[:10],
        "value": {"min": min(values), "max": max(values)} if values else None,
        "active_polls": sum(1 for moment in moments if moment.active),
        "replicas": {"min": min(replicas), "max": max(replicas)} if replicas else None,
        "call_seconds": {
            "median": round(statistics.median(durations), 6),
            "max": round(max(durations), 6),
        }
        if durations
        else None,
    }


def _summary(record: dict[str, Any]) -> Iterator[str]:
    failed = f"{record['failed_polls']} polls failed" if record["failed_polls"] else "none failed"
    times = record["call_seconds"]
    speed = f", {duration(times['median'])} each (median)" if times else ""
    yield f"{record['polls']} polls, {record['calls']} calls, {failed}{speed}"
    for error in record["errors"][:3]:
        yield f"  {error}"
    if record["value"]:
        low, high = record["value"]["min"], record["value"]["max"]
        fewest, most = record["replicas"]["min"], record["replicas"]["max"]
        asked = str(most) if fewest == most else f"{fewest} to {most}"
        yield (
            f"value {low:.1f} to {high:.1f}, active in {record['active_polls']} polls;"
            f" an HPA would have asked for {asked} replica{'s' * (asked != '1')}"
        )
    metadata = record["metadata"]
    yield (
        f"try next: accelscale serve --backend {record['backend']}; accelscale poll localhost:6000"
        f" -m metric={metadata['metric']} -m threshold={metadata['threshold']}"
    )
