"""What all servers have in common, tried with parts of its own."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from accelscale_server import server as server_module
from accelscale_server.addresses import Address
from accelscale_server.changes import Changes
from accelscale_server.config import ServerConfig
from accelscale_server.judgement import Judgement
from accelscale_server.server import Parts, Server, Service

LOCAL = ServerConfig(listen=Address("127.0.0.1", 0))


def parts(**changes) -> Parts:
    nothing = {
        "changes": Changes(),
        "services": (),
        "subscribe": lambda callback: lambda: None,
        "judge": Judgement,
        "families": tuple,
    }
    return Parts(**{**nothing, **changes})


async def test_tasks_run_from_start_to_stop() -> None:
    events: list[str] = []

    async def task() -> None:
        events.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            events.append("ended")

    server = Server(LOCAL, parts(tasks=(task,)))
    await server.start()
    await asyncio.sleep(0)
    assert events == ["begun"]
    await server.stop(0)
    assert events == ["begun", "ended"]


async def test_a_task_that_fails_is_begun_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "RESTARTED_AFTER", 0.01)
    attempts, done = [], asyncio.Event()

    async def task() -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise RuntimeError("a fault of ours")
        done.set()

    server = Server(LOCAL, parts(tasks=(task,)))
    await server.start()
    await asyncio.wait_for(done.wait(), 10)
    await server.stop(0)
    assert len(attempts) == 3  # one that has come to its end is not begun again
    assert [r.levelno for r in caplog.records if r.exc_info] == [logging.ERROR] * 2


async def test_a_judge_that_fails_leaves_the_last_judgement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "RESTARTED_AFTER", 0.01)
    broken: list[bool] = []

    def judge() -> Judgement:
        if broken:
            broken.append(True)
            raise RuntimeError("a fault of ours")
        return Judgement()

    changes = Changes()
    services = (Service("some.Service", None, lambda servicer, server: None),)
    server = Server(LOCAL, parts(judge=judge, changes=changes, services=services))
    await server.start()
    broken.append(True)
    async with asyncio.timeout(10):
        while len(broken) < 4:
            changes.announce()
            await asyncio.sleep(0.01)
    async with grpc.aio.insecure_channel(str(server.address)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "some.Service", "liveness"):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
    await server.stop(0)
