"""A stand-in for libtpu's metric service: a real gRPC server on loopback, with bytes of its own.

It writes the messages by hand, so that a mistake in the client's message definitions shows.
"""

from __future__ import annotations

import struct
import threading
from collections import Counter
from concurrent import futures

import grpc

METHOD = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
DUTY = "tpu.runtime.tensorcore.dutycycle.percent"
USED = "tpu.runtime.hbm.memory.usage.bytes"
TOTAL = "tpu.runtime.hbm.memory.total.bytes"
BANDWIDTH = "tpu.runtime.hbm.utilization.percent"


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _part(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def entry(device: int | None, value: float | None) -> bytes:
    """A ``Metric``: without a device it has a name instead, without a value an empty gauge."""
    name = _part(1, b"x") if device is None else b"\x18" + _varint(device)
    attribute = _part(1, b"device-id") + _part(2, name)
    if value is None:
        gauge = b""
    elif isinstance(value, int):
        gauge = b"\x10" + _varint(value)
    else:
        gauge = b"\x09" + struct.pack("<d", value)
    return _part(1, attribute) + _part(3, gauge)


def response(*entries: bytes) -> bytes:
    """A ``MetricResponse``."""
    return _part(1, _part(1, b"name") + _part(2, b"help") + b"".join(_part(3, e) for e in entries))


class FakeLibtpu:
    """The service of a workload; `start` and `stop` are its beginning and end."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.hold = threading.Event()
        self.hold.set()
        self._replies: dict[str, bytes | grpc.StatusCode] = {}
        self._server: grpc.Server | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def say(self, name: str, values: dict[int, float]) -> None:
        """A metric by device id; whole numbers are sent as such."""
        self.reply(name, response(*(entry(device, value) for device, value in values.items())))

    def reply(self, name: str, reply: bytes | grpc.StatusCode) -> None:
        """Raw bytes, or an error."""
        self._replies[name] = reply

    def start(self) -> None:
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        handler = grpc.unary_unary_rpc_method_handler(self._answer)
        service, _, method = METHOD.strip("/").rpartition("/")
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        credentials = grpc.local_server_credentials()
        self.port = self._server.add_secure_port(f"localhost:{self.port}", credentials)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self.hold.set()
            self._server.stop(None).wait()
            self._server = None

    def _answer(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        assert request[:1] == b"\x0a"
        name = request[2:].decode()
        self.calls[name] += 1
        self.hold.wait(30)
        reply = self._replies.get(name, grpc.StatusCode.NOT_FOUND)
        if isinstance(reply, grpc.StatusCode):
            context.abort(reply, "made to fail")
        return reply
