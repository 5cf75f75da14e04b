"""Readiness and liveness, asked as Kubernetes and gRPC clients ask."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from accelscale.errors import BackendError
from accelscale.model import Reason
from accelscale.testing import FakeBackend
from accelscale_server.addresses import Address
from accelscale_server.config import ServeConfig
from accelscale_server.judgement import HOPELESS_PASSES
from accelscale_server.serve import running_server

UTILIZATION = "utilization_percent"
READINESS = ["", "externalscaler.ExternalScaler"]


class Probe:
    def __init__(self, server) -> None:
        self.stub = health_pb2_grpc.HealthStub(server.channel)
        self.server = server

    async def check(self, service: str) -> str:
        request = health_pb2.HealthCheckRequest(service=service)
        answer = await self.stub.Check(request, timeout=5)
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    async def becomes(self, service: str, status: str) -> None:
        async def is_so() -> bool:
            return await self.check(service) == status

        await self.server.until(is_so)

    def watch(self, service: str):
        return self.stub.Watch(health_pb2.HealthCheckRequest(service=service))


async def status_from(stream) -> str:
    answer = await asyncio.wait_for(stream.read(), 10)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


async def passes(server, number: int) -> None:
    """Wait until that many snapshots have come."""
    sequence = server.monitor.sequence

    async def enough() -> bool:
        return server.monitor.sequence >= sequence + number

    await server.until(enough)


@pytest.mark.parametrize("service", [*READINESS, "liveness"])
async def test_serving_while_devices_are_read(start, service: str) -> None:
    probe = Probe(await start(FakeBackend({"a": {UTILIZATION: 60.0}})))
    await probe.becomes(service, "SERVING")


async def test_an_unknown_service_is_not_found(start) -> None:
    probe = Probe(await start(FakeBackend({"a": {UTILIZATION: 60.0}})))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await probe.check("no.such.Service")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "'liveness'" in caught.value.details()


async def test_a_missing_driver_is_not_ready_and_alive_and_is_picked_up(
    start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "accelscale_server.health")
    fake = FakeBackend({"a": {UTILIZATION: 60.0}})
    fake.break_open(BackendError("no driver library was found", reason=Reason.NOT_SUPPORTED))
    probe = Probe(await start(fake, settle=False))
    await probe.becomes("", "NOT_SERVING")
    assert await probe.check("liveness") == "SERVING"

    async def told() -> bool:
        return any(record.getMessage() == "not ready" for record in caplog.records)

    await probe.server.until(told)
    fake.mend()
    await probe.becomes("", "SERVING")
    texts = [(record.getMessage(), getattr(record, "why", None)) for record in caplog.records]
    assert texts == [("not ready", "fake: no driver library was found"), ("ready", None)]


async def test_a_lost_device_is_not_ready_and_alive(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}})
    probe = Probe(await start(fake))
    await probe.becomes("", "SERVING")
    fake.lose("a")
    await probe.becomes("", "NOT_SERVING")
    await passes(probe.server, HOPELESS_PASSES + 5)
    assert await probe.check("liveness") == "SERVING"  # it comes back without a restart
    fake.restore("a")
    await probe.becomes("", "SERVING")


async def test_one_readable_device_is_enough(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}, "b": {UTILIZATION: 60.0}})
    probe = Probe(await start(fake))
    fake.lose("a")
    await passes(probe.server, 5)
    await probe.becomes("", "SERVING")


async def test_a_hanging_driver_is_not_ready_and_alive(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}}, isolates_devices=False)
    other = FakeBackend({"b": {UTILIZATION: 60.0}}, name="other")
    probe = Probe(await start(fake, other, deadline=0.2))
    fake.hang()
    await passes(probe.server, HOPELESS_PASSES + 5)
    assert await probe.check("") == "SERVING"  # the other one answers
    other.hang()
    await probe.becomes("", "NOT_SERVING")
    await asyncio.sleep(HOPELESS_PASSES * 0.05 + 1.2)
    assert await probe.check("liveness") == "SERVING"
    assert (await probe.server.spec()).targetSizeFloat == 70


async def test_a_replaced_driver_wants_a_restart_and_may_heal_without(
    start, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}})
    probe = Probe(await start(fake))
    assert await probe.check("liveness") == "SERVING"
    text = "driver/library version mismatch: restart the pod"
    mismatch = BackendError(text, reason=Reason.ERROR, code=18, needs_restart=True)
    for breaking in (fake.break_read, fake.break_devices, fake.break_open):
        breaking(mismatch)
    await probe.becomes("liveness", "NOT_SERVING")
    await probe.becomes("", "NOT_SERVING")
    error = await probe.server.until_refused(grpc.StatusCode.UNAVAILABLE)
    assert text in error.details()
    assert f"fake: {text}" in [getattr(record, "why", "") for record in caplog.records]
    fake.mend()
    await probe.becomes("liveness", "SERVING")
    await probe.becomes("", "SERVING")


async def test_a_fault_that_was_there_from_the_start_wants_no_restart(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}})
    fake.break_open(BackendError("version mismatch", reason=Reason.ERROR, needs_restart=True))
    probe = Probe(await start(fake, settle=False))
    await probe.becomes("", "NOT_SERVING")
    await probe.server.until_refused(grpc.StatusCode.UNAVAILABLE)
    assert await probe.check("liveness") == "SERVING"


@pytest.mark.parametrize("where", ["readings", "driver"])
async def test_nothing_but_unexplained_errors_wants_a_restart_after_a_while(
    start, where: str
) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}, "b": {UTILIZATION: 60.0}})
    probe = Probe(await start(fake))
    unknown = BackendError("Unknown Error", reason=Reason.ERROR, code=999)
    if where == "readings":
        for device_id in ("a", "b"):
            for metric in fake.metrics:
                fake.fail(device_id, metric, Reason.ERROR, detail="Unknown Error")
    else:
        for breaking in (fake.break_read, fake.break_devices, fake.break_open):
            breaking(unknown)
    await probe.becomes("", "NOT_SERVING")
    assert await probe.check("liveness") == "SERVING"  # not at once
    error = await probe.server.until_refused(grpc.StatusCode.UNAVAILABLE)
    assert "Unknown Error" in error.details()
    await probe.becomes("liveness", "NOT_SERVING")


async def test_errors_of_one_device_among_several_want_no_restart(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}, "b": {UTILIZATION: 60.0}})
    probe = Probe(await start(fake))
    for metric in fake.metrics:
        fake.fail("a", metric, Reason.ERROR)
    await passes(probe.server, HOPELESS_PASSES + 10)
    assert await probe.check("liveness") == "SERVING"


async def test_watchers_see_every_change_whoever_leaves(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}})
    probe = Probe(await start(fake))
    await probe.becomes("", "SERVING")
    leaving, staying = probe.watch(""), probe.watch("")
    assert [await status_from(leaving), await status_from(staying)] == ["SERVING"] * 2
    leaving.cancel()
    fake.lose("a")
    assert await status_from(staying) == "NOT_SERVING"
    fake.restore("a")
    assert await status_from(staying) == "SERVING"
    unknown = probe.watch("no.such.Service")
    assert await status_from(unknown) == "SERVICE_UNKNOWN"
    for stream in (staying, unknown):
        stream.cancel()


async def test_on_shutdown_watchers_learn_it_and_end_with_ok(start) -> None:
    outer = await start(FakeBackend({"a": {UTILIZATION: 60.0}}))
    config = ServeConfig(listen=Address("127.0.0.1", 0), grace=30.0)
    async with asyncio.timeout(20):
        async with running_server(config, outer.monitor) as address:
            channel = grpc.aio.insecure_channel(address)
            stub = health_pb2_grpc.HealthStub(channel)
            streams = [
                stub.Watch(health_pb2.HealthCheckRequest(service=name))
                for name in (*READINESS, "liveness")
            ]
            assert [await status_from(stream) for stream in streams] == ["SERVING"] * 3
        for stream in streams:
            if stream is not streams[-1]:  # a stop is nothing that a restart would heal
                assert await status_from(stream) == "NOT_SERVING"
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() is grpc.StatusCode.OK
        await channel.close()
