"""A client that asks an external scaler what KEDA asks, in KEDA's order, on one channel.

For each spec of GetMetricSpec KEDA calls GetMetrics, then IsActive; an error of either counts as no
metric. Of a number's two fields the float wins where it is above 0. Names in the replies are
ignored, and several values of one metric are added up (kedacore/keda,
``pkg/scalers/external_scaler.go``).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Any

import grpc
import typer
from attrs import frozen

from accelscale.cli.options import one_line
from accelscale.errors import AccelscaleError
from accelscale.hpa import desired_replicas
from accelscale.trigger import MetricType
from accelscale.values import one_of
from accelscale_server._proto import externalscaler_pb2 as messages
from accelscale_server._proto import externalscaler_pb2_grpc as services

_CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),  # a proxy meant for the web would take over local calls
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)


class CallError(AccelscaleError):
    """A call failed: its name, the name of its gRPC status, the server's text."""

    def __init__(self, call: str, code: str, message: str) -> None:
        super().__init__(f"{call}: {code}: {message}")
        self.code = code
        self.message = message

    def record(self) -> dict[str, Any]:
        """Its form in JSON."""
        return {"error": {"code": self.code, "message": self.message}}


@frozen
class Request:
    """The trigger of a ScaledObject, as KEDA sends it."""

    name: str
    namespace: str
    metadata: dict[str, str]
    metric_type: MetricType

    @classmethod
    def of(
        cls, name: str, namespace: str, pairs: Sequence[str], metric_type: str | None
    ) -> Request:
        """From ``KEY=VALUE`` texts.

        KEDA does not tell a scaler the metric type, so what ``metric_type`` says goes into the
        metadata too, unless ``metricType`` is there already.
        """
        metadata: dict[str, str] = {}
        for pair in pairs:
            key, separator, value = pair.partition("=")
            if not separator or not key:
                raise typer.BadParameter(f"{pair!r} must be KEY=VALUE", param_hint="-m")
            if key in metadata:
                raise typer.BadParameter(f"{key!r} is there twice", param_hint="-m")
            metadata[key] = value
        text = metric_type or metadata.get("metricType") or MetricType.AVERAGE_VALUE
        try:
            chosen = MetricType(one_of(MetricType)(text))
        except ValueError as error:
            if metric_type is not None:
                raise typer.BadParameter(f"{text!r} {error}", param_hint="--metric-type") from None
            chosen = MetricType.AVERAGE_VALUE  # the scaler is to say what it thinks of it
        if metric_type is not None:
            metadata.setdefault("metricType", chosen)
        return cls(name, namespace, metadata, chosen)

    def message(self) -> messages.ScaledObjectRef:
        """The message that every call carries."""
        return messages.ScaledObjectRef(
            name=self.name, namespace=self.namespace, scalerMetadata=self.metadata
        )


@frozen
class Named:
    """A metric's name with its target or its value."""

    name: str
    number: float


@frozen
class Answers:
    """What one poll brought."""

    specs: tuple[Named, ...]
    values: tuple[Named, ...]
    active: bool

    def record(self) -> dict[str, Any]:
        """Its form in JSON."""
        return {
            "spec": [{"name": spec.name, "target": spec.number} for spec in self.specs],
            "values": [{"name": value.name, "value": value.number} for value in self.values],
            "active": self.active,
        }


@frozen
class HorizontalPodAutoscaler:
    """The HPA to imagine behind KEDA: how it compares, and how many replicas it sees."""

    metric_type: MetricType
    replicas: int
    ready: int | None = None

    def desired(self, value: float, target: float) -> int:
        """The replicas that it would ask for, before its limits and its stabilisation."""
        return desired_replicas(
            value,
            target,
            metric_type=self.metric_type,
            current=self.replicas,
            ready=self.ready,
        )


class ScalerClient:
    """A channel to one external scaler, as an asynchronous context manager.

    ``timeout`` is for all calls of one poll together; ``durations`` gathers the seconds of each.
    """

    def __init__(
        self, target: str, credentials: grpc.ChannelCredentials | None, timeout: float
    ) -> None:
        self.target = target
        self.timeout = timeout
        self.durations: list[float] = []
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options=_CHANNEL_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options=_CHANNEL_OPTIONS)
        self._stub: Any = services.ExternalScalerStub(self._channel)  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> ScalerClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._channel.close()

    async def poll(self, request: Request) -> Answers:
        """All calls of one poll.

        Raises:
            CallError: one of them failed, or its answer is one that KEDA cannot use.
        """
        end = time.monotonic() + self.timeout
        scaled_object = request.message()
        reply = await self._call("GetMetricSpec", scaled_object, end)
        specs = tuple(
            Named(spec.metricName, _number(spec.targetSizeFloat, spec.targetSize, "GetMetricSpec"))
            for spec in reply.metricSpecs
        )
        if not specs:
            raise CallError("GetMetricSpec", "UNKNOWN", "the scaler gave no metric spec")
        values: list[Named] = []
        active = False
        for spec in specs:
            asked = messages.GetMetricsRequest(scaledObjectRef=scaled_object, metricName=spec.name)
            found = (await self._call("GetMetrics", asked, end)).metricValues
            if not found:
                raise CallError("GetMetrics", "UNKNOWN", f"no value of {spec.name}")
            numbers = [
                _number(each.metricValueFloat, each.metricValue, "GetMetrics") for each in found
            ]
            values.append(Named(spec.name, math.fsum(numbers)))
            active |= bool((await self._call("IsActive", scaled_object, end)).result)
        return Answers(specs, tuple(values), active)

    async def events(self, request: Request) -> AsyncGenerator[bool, None]:
        """What StreamIsActive sends, until the server ends the stream.

        Raises:
            CallError: the stream broke, or there was no connection within the timeout.
        """
        call = self._stub.StreamIsActive(request.message())
        reading = asyncio.ensure_future(call.read())
        try:
            await asyncio.wait({reading}, timeout=self.timeout)
            if not reading.done() and not self._is_connected:
                raise self._unconnected("StreamIsActive")
            while (event := await reading) is not grpc.aio.EOF:
                yield bool(event.result)
                reading = asyncio.ensure_future(call.read())
        except grpc.aio.AioRpcError as error:
            raise self._failed("StreamIsActive", error) from error
        finally:
            reading.cancel()
            call.cancel()

    async def _call(self, name: str, message: Any, end: float) -> Any:
        started = time.monotonic()
        try:
            method = getattr(self._stub, name)
            return await method(message, timeout=max(end - started, 0.001))
        except grpc.aio.AioRpcError as error:
            raise self._failed(name, error) from error
        finally:
            self.durations.append(time.monotonic() - started)

    def _failed(self, call: str, error: grpc.aio.AioRpcError) -> CallError:
        code, message = error.code(), one_line(error.details() or "no text")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            if not self._is_connected:
                return self._unconnected(call)
            message = f"no answer from {self.target} within {self.timeout:g} s"
        return CallError(call, code.name, message)

    def _unconnected(self, call: str) -> CallError:
        text = f"no connection to {self.target} within {self.timeout:g} s"
        return CallError(call, grpc.StatusCode.UNAVAILABLE.name, text)

    @property
    def _is_connected(self) -> bool:
        return self._channel.get_state() is grpc.ChannelConnectivity.READY


def _number(floating: float, whole: int, call: str) -> float:
    """The field that KEDA takes."""
    number = floating if floating > 0 else float(whole)
    if not math.isfinite(number):
        raise CallError(call, "OUT_OF_RANGE", f"{number} is no number; KEDA would make it 0")
    return number
