"""Connections that ping, vanish, or come in masses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from pathlib import Path

import grpc
import pytest

from accelscale.testing import FakeBackend
from accelscale_server import server as server_module
from accelscale_server._proto import externalscaler_pb2 as pb
from accelscale_server._proto.externalscaler_pb2_grpc import ExternalScalerStub

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PING, GOAWAY, ENHANCE_YOUR_CALM = 6, 7, 11


def frame(kind: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + bytes(4) + payload


async def pinged(address: str, interval: float, count: int) -> list[tuple[int, bytes]]:
    """Ping over a bare HTTP/2 connection without calls; the frames that come back."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    frames: list[tuple[int, bytes]] = []

    async def collect() -> None:
        while header := await reader.read(9):
            header += await reader.readexactly(9 - len(header))
            payload = await reader.readexactly(int.from_bytes(header[:3], "big"))
            frames.append((header[3], payload))

    collecting = asyncio.ensure_future(collect())
    writer.write(PREFACE + frame(4))
    with contextlib.suppress(ConnectionError):  # the server hung up: that is in the frames
        for number in range(count):
            writer.write(frame(PING, struct.pack(">Q", number)))
            await writer.drain()
            await asyncio.sleep(interval)
    writer.close()
    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    return frames


def calmed(frames: list[tuple[int, bytes]]) -> bool:
    """Whether the server hung up because of too many pings."""
    return any(
        kind == GOAWAY and int.from_bytes(payload[4:8], "big") == ENHANCE_YOUR_CALM
        for kind, payload in frames
    )


async def test_pings_at_the_promised_pace_are_no_abuse(
    start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scaled down: the least interval that is tolerated is half of what clients are promised."""
    assert server_module.LEAST_PING_SECONDS * 2 <= 10
    monkeypatch.setattr(server_module, "LEAST_PING_SECONDS", 0.1)
    server = await start(FakeBackend({"a": {"utilization_percent": 60.0}}))
    frames = await pinged(server.address, 0.2, 8)
    assert sum(1 for kind, _ in frames if kind == PING) == 8
    assert not calmed(frames)


async def test_pings_far_beyond_it_are(start) -> None:
    server = await start(FakeBackend({"a": {"utilization_percent": 60.0}}))
    assert calmed(await pinged(server.address, 0.05, 10))
    assert await server.active() is True  # on another connection


def figures(pid: int) -> tuple[int, int]:
    """Resident memory in KiB and open descriptors of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    (resident,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return int(resident), sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def load(address: str, first: int, calls: int, streams: int, resets: int) -> None:
    """Calls with metadata of their own each, streams opened and cancelled, connections reset."""

    def ref(number: int) -> pb.ScaledObjectRef:
        metadata = {
            "metric": "utilization_percent",
            "threshold": f"{10 + number % 80}.{number}",
            "windowStatistic": "last",
        }
        return pb.ScaledObjectRef(name=f"web-{number}", namespace="shop", scalerMetadata=metadata)

    own = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(address, options=own) as channel:
        scaler = ExternalScalerStub(channel)
        for start_at in range(first, first + calls, 50):
            await asyncio.gather(
                *(scaler.IsActive(ref(start_at + n), timeout=10) for n in range(50))
            )
        opened = [scaler.StreamIsActive(ref(first + n)) for n in range(streams)]
        for stream in opened:
            assert (await asyncio.wait_for(stream.read(), 10)).result is True
        for stream in opened:
            stream.cancel()
    host, _, port = address.rpartition(":")
    for _ in range(resets):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(PREFACE + frame(4))
            linger = struct.pack("ii", 1, 0)  # close with a reset
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


async def test_memory_and_descriptors_do_not_grow(serve_process) -> None:
    serving = serve_process(
        "--backend", "fake", "--listen", "127.0.0.1:0", "--interval", "0.2", "--log-level", "error"
    )
    address, pid = serving.address(), serving.process.pid
    await asyncio.sleep(0.5)
    await load(address, 0, 2500, 50, 50)  # more than are remembered
    before = figures(pid)
    await load(address, 10_000, 2500, 100, 100)
    async with asyncio.timeout(10):
        while figures(pid)[1] > before[1] + 5:  # noqa: ASYNC110 - the kernel sets no event
            await asyncio.sleep(0.1)
    assert figures(pid)[0] - before[0] < 20 * 1024
    serving.signal()
    assert (await asyncio.to_thread(serving.end))[0] == 0
