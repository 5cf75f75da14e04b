"""An external scaler that answers what a test wrote down, over a real loopback connection."""

# ruff: noqa: N802 - gRPC gives the calls their names
from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from accelscale_server._proto import externalscaler_pb2 as messages
from accelscale_server._proto import externalscaler_pb2_grpc as services


class ScriptedScaler(services.ExternalScalerServicer):
    """Change its attributes; ``calls`` lists what was asked, in order."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.specs: list[tuple[str, int, float]] = [("accelscale-utilization", 70, 70.0)]
        self.values: list[tuple[str, int, float]] = [("ignored", 133, 132.5)]
        self.active = True
        self.events: list[bool] = []
        self.ends_stream = True
        self.errors: dict[str, tuple[grpc.StatusCode, str]] = {}
        self.delay_seconds = 0.0
        self.calls: list[str] = []
        self.references: list[Any] = []
        self._closing = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        services.add_ExternalScalerServicer_to_server(self, self._server)
        if credentials is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            self.port = self._server.add_secure_port("127.0.0.1:0", credentials)

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def __enter__(self) -> ScriptedScaler:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.stop(None).wait()

    def _asked(self, call: str, reference: Any, context: grpc.ServicerContext) -> None:
        self.calls.append(call)
        self.references.append(reference)
        if self.delay_seconds:
            self._closing.wait(self.delay_seconds)
        if call in self.errors:
            context.abort(*self.errors[call])

    def GetMetricSpec(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._asked("GetMetricSpec", request, context)
        specs = [
            messages.MetricSpec(metricName=name, targetSize=whole, targetSizeFloat=floating)
            for name, whole, floating in self.specs
        ]
        return messages.GetMetricSpecResponse(metricSpecs=specs)

    def GetMetrics(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._asked(f"GetMetrics {request.metricName}", request.scaledObjectRef, context)
        values = [
            messages.MetricValue(metricName=name, metricValue=whole, metricValueFloat=floating)
            for name, whole, floating in self.values
        ]
        return messages.GetMetricsResponse(metricValues=values)

    def IsActive(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._asked("IsActive", request, context)
        return messages.IsActiveResponse(result=self.active)

    def StreamIsActive(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        self._asked("StreamIsActive", request, context)
        for event in self.events:
            yield messages.IsActiveResponse(result=event)
        while not self.ends_stream and context.is_active() and not self._closing.is_set():
            time.sleep(0.02)
