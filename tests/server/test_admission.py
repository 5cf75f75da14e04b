"""Limits on streams, and the counts of what was called."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from accelscale.testing import FakeBackend
from accelscale_server._proto import externalscaler_pb2 as pb

Code = grpc.StatusCode


def one() -> FakeBackend:
    return FakeBackend({"a": {"utilization_percent": 60.0}})


async def test_streams_beyond_the_limit_are_refused_and_calls_are_not(start) -> None:
    server = await start(one(), max_streams=3)
    health = health_pb2_grpc.HealthStub(server.channel)
    streams = [server.scaler.StreamIsActive(server.ref()) for _ in range(2)]
    streams.append(health.Watch(health_pb2.HealthCheckRequest()))
    for stream in streams:
        assert await asyncio.wait_for(stream.read(), 5) is not grpc.aio.EOF
    for call in (
        server.scaler.StreamIsActive(server.ref()),
        server.scaler.StreamMetricSpec(server.ref()),
        health.Watch(health_pb2.HealthCheckRequest()),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(call.read(), 5)
        assert caught.value.code() is Code.RESOURCE_EXHAUSTED
        assert "3 streams are open, which is the limit (--max-streams)" in caught.value.details()
    assert await server.active() is True
    streams.pop().cancel()

    async def admitted() -> bool:
        stream = server.scaler.StreamMetricSpec(server.ref())
        try:
            await asyncio.wait_for(stream.read(), 5)
        except grpc.aio.AioRpcError:
            return False
        streams.append(stream)
        return True

    await server.until(admitted)
    for stream in streams:
        stream.cancel()


async def test_many_streams_leave_room_for_calls(start) -> None:
    server = await start(one(), max_streams=1000)
    streams = [server.scaler.StreamIsActive(server.ref()) for _ in range(1000)]
    await asyncio.gather(*(asyncio.wait_for(stream.read(), 20) for stream in streams))
    for _ in range(20):
        assert await server.active() is True  # each within its deadline of 5 s
    for stream in streams:
        stream.cancel()


async def test_too_large_a_message_is_refused(start) -> None:
    server = await start(one())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await server.spec(devices="x" * (1024 * 1024))
    assert caught.value.code() is Code.RESOURCE_EXHAUSTED
    assert await server.active() is True


async def test_an_unknown_method_is_unimplemented(start) -> None:
    server = await start(one())
    call = server.channel.unary_unary("/externalscaler.ExternalScaler/Guess")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"", timeout=5)
    assert caught.value.code() is Code.UNIMPLEMENTED


async def test_no_bytes_that_are_no_message_harm(start) -> None:
    server = await start(one())
    call = server.channel.unary_unary("/externalscaler.ExternalScaler/IsActive")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"\xff\xff\xff", timeout=5)
    assert caught.value.code() in (Code.INTERNAL, Code.UNKNOWN)
    assert await server.active() is True


async def test_reflection_lists_the_services_and_describes_them(start) -> None:
    server = await start(one())
    stub = reflection_pb2_grpc.ServerReflectionStub(server.channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(
            file_containing_symbol="externalscaler.ExternalScaler"
        ),
    ]
    listed, described = [
        answer async for answer in stub.ServerReflectionInfo(iter(requests), timeout=5)
    ]
    assert {service.name for service in listed.list_services_response.service} == {
        "externalscaler.ExternalScaler",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    assert described.file_descriptor_response.file_descriptor_proto == [pb.DESCRIPTOR.serialized_pb]
