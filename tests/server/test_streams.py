"""StreamIsActive and StreamMetricSpec, as KEDA's external-push triggers use them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import grpc
import pytest

from accelscale.model import Reason
from accelscale.testing import FakeBackend
from accelscale_server.addresses import Address
from accelscale_server.config import ServeConfig
from accelscale_server.serve import running_server

UTILIZATION = "utilization_percent"
Code = grpc.StatusCode
LAST = {"windowStatistic": "last", "activationThreshold": "10"}


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def read(stream, seconds: float = 10.0):
    return await asyncio.wait_for(stream.read(), seconds)


async def test_the_state_on_open_and_every_change(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}})
    server = await start(fake)
    stream = server.scaler.StreamIsActive(server.ref(**LAST))
    assert (await read(stream)).result is True
    for value, active in ((0.0, False), (60.0, True), (10.0, False), (10.1, True)):
        fake.set("a", UTILIZATION, value)
        assert (await read(stream)).result is active
    stream.cancel()


async def test_a_state_that_stays_is_sent_once(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}})
    server = await start(fake)
    stream = server.scaler.StreamIsActive(server.ref(**LAST))
    assert (await read(stream)).result is True
    sequence = server.monitor.sequence
    fake.set("a", UTILIZATION, 70.0)

    async def some_passes() -> bool:
        return server.monitor.sequence > sequence + 5

    await server.until(some_passes)
    fake.set("a", UTILIZATION, 0.0)
    assert (await read(stream)).result is False  # and not a second True before it
    stream.cancel()


async def test_without_data_nothing_is_sent_and_the_next_change_is(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}})
    server = await start(fake)
    stream = server.scaler.StreamIsActive(server.ref(**LAST))
    assert (await read(stream)).result is True
    fake.lose("a")
    await server.until_refused(Code.UNAVAILABLE, **LAST)
    pending = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0.3)
    assert not pending.done()
    fake.set("a", UTILIZATION, 0.0)
    fake.restore("a")
    assert (await asyncio.wait_for(pending, 20)).result is False
    stream.cancel()


async def test_a_stream_opened_without_data_waits_for_them(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}})
    fake.fail("a", UTILIZATION, Reason.TIMEOUT)
    server = await start(fake)
    stream = server.scaler.StreamIsActive(server.ref(**LAST))
    pending = asyncio.ensure_future(stream.read())
    await server.until_refused(Code.UNAVAILABLE, **LAST)
    assert not pending.done()
    fake.set("a", UTILIZATION, 60.0)
    assert (await asyncio.wait_for(pending, 10)).result is True
    stream.cancel()


@pytest.mark.parametrize("name", ["StreamIsActive", "StreamMetricSpec"])
async def test_bad_metadata_ends_a_stream(start, name: str) -> None:
    server = await start(FakeBackend({"a": {UTILIZATION: 60.0}}))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read(getattr(server.scaler, name)(server.ref(threshold="80%")))
    assert caught.value.code() is Code.INVALID_ARGUMENT
    assert "threshold='80%'" in caught.value.details()


async def test_the_spec_stream_agrees_with_the_call(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}})
    server = await start(fake)
    stream = server.scaler.StreamMetricSpec(server.ref(threshold="55.5"))
    sent = await read(stream)
    assert sent == await server.scaler.GetMetricSpec(server.ref(threshold="55.5"), timeout=5)
    assert len(sent.metricSpecs) == 1
    pending = asyncio.ensure_future(stream.read())
    fake.lose("a")
    await server.until_refused(Code.UNAVAILABLE)
    assert not pending.done()  # neither an end nor an empty list
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending


async def test_streams_end_with_ok_on_shutdown(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}, "b": {UTILIZATION: 60.0}})
    outer = await start(fake)
    config = ServeConfig(listen=Address("127.0.0.1", 0), grace=30.0)
    async with asyncio.timeout(20):
        async with running_server(config, outer.monitor) as address:
            channel = grpc.aio.insecure_channel(address)
            scaler = type(outer.scaler)(channel)
            streams = [scaler.StreamIsActive(outer.ref(**LAST)) for _ in range(5)]
            streams += [scaler.StreamMetricSpec(outer.ref()) for _ in range(5)]
            waiting = scaler.StreamIsActive(outer.ref(devices="GPU-7"))
            for stream in streams:
                await read(stream)
        # Left: the server has stopped, far within its grace.
        for stream in (*streams, waiting):
            assert await read(stream) is grpc.aio.EOF
            assert await stream.code() is Code.OK
        await channel.close()


async def test_cancelled_streams_leave_nothing_behind(start) -> None:
    server = await start(FakeBackend({"a": {UTILIZATION: 60.0}}), max_streams=600)

    async def quiet() -> bool:
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        return len(tasks) <= tasks_before

    warm = server.scaler.StreamIsActive(server.ref())
    await read(warm)
    warm.cancel()
    await server.active()
    await asyncio.sleep(0.2)
    tasks_before = len([t for t in asyncio.all_tasks() if t is not asyncio.current_task()])
    threads_before = threading.active_count()
    descriptors_before = open_descriptors()
    for name in ("StreamIsActive", "StreamMetricSpec"):
        streams = [getattr(server.scaler, name)(server.ref()) for _ in range(250)]
        await asyncio.gather(*(read(stream) for stream in streams))
        for stream in streams:
            stream.cancel()
    await server.until(quiet, 5.0)
    assert threading.active_count() <= threads_before
    assert open_descriptors() <= descriptors_before + 2
    assert await server.active() is True
