"""Counts every call, and bounds the streams so that they leave room for the others."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from accelscale_server.figures import CallFigures

_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}

_Handler = Any  # grpc.RpcMethodHandler, whose members the stubs do not type
_Context = Any


class Admission(grpc.aio.ServerInterceptor):
    """Stands before every method of every service, health and reflection included."""

    def __init__(self, max_streams: int, figures: CallFigures) -> None:
        self._max_streams = max_streams
        self._figures = figures
        self._admitted: dict[str, _Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """The handler of the method, with our counting around it; made once per method."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:  # no such method: not kept, or strangers could fill the memory
            return None
        admitted = self._admitted.get(method)
        if admitted is None:
            admitted = self._admitted[method] = self._around(method, handler)
        return admitted

    def _around(self, method: str, handler: _Handler) -> _Handler:
        if not handler.response_streaming:
            return grpc.unary_unary_rpc_method_handler(
                self._unary(method, handler.unary_unary),
                handler.request_deserializer,
                handler.response_serializer,
            )
        if handler.request_streaming:
            make, behaviour = grpc.stream_stream_rpc_method_handler, handler.stream_stream
        else:
            make, behaviour = grpc.unary_stream_rpc_method_handler, handler.unary_stream
        generates = inspect.isasyncgenfunction(behaviour)
        around = self._generated if generates else self._written
        return make(
            around(method, behaviour), handler.request_deserializer, handler.response_serializer
        )

    def _unary(
        self, method: str, behaviour: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, context: _Context) -> Any:
            started = time.perf_counter()
            with self._counted(method, context):
                try:
                    return await behaviour(request, context)
                finally:
                    self._figures.took(method, time.perf_counter() - started)

        return call

    def _written(
        self, method: str, behaviour: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, context: _Context) -> None:
            with self._counted(method, context):
                await self._admit(context)
                with self._open(method):
                    await behaviour(request, context)

        return call

    def _generated(
        self, method: str, behaviour: Callable[..., AsyncIterator[Any]]
    ) -> Callable[..., AsyncIterator[Any]]:
        async def call(request: Any, context: _Context) -> AsyncIterator[Any]:
            with self._counted(method, context):
                await self._admit(context)
                with self._open(method):
                    async for response in behaviour(request, context):
                        yield response

        return call

    async def _admit(self, context: _Context) -> None:
        if self._figures.open_streams >= self._max_streams:
            self._figures.refused_streams += 1
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._max_streams} streams are open, which is the limit (--max-streams)",
            )

    @contextmanager
    def _open(self, method: str) -> Iterator[None]:
        self._figures.streams[method] += 1
        try:
            yield
        finally:
            self._figures.streams[method] -= 1

    @contextmanager
    def _counted(self, method: str, context: _Context) -> Iterator[None]:
        """Count the call under the status that it ends with."""
        code = "OK"
        try:
            yield
        except Exception:
            # After an abort the context holds the code; anything else becomes UNKNOWN in gRPC.
            code = _NAMES.get(_number(context.code()), "UNKNOWN")
            raise
        except BaseException:
            code = "CANCELLED"
            raise
        finally:
            self._figures.handled[method, code] += 1


def _number(code: Any) -> int:
    """The number of a status: grpc.aio gives a number, `grpc.StatusCode` or None."""
    return code.value[0] if isinstance(code, grpc.StatusCode) else int(code or 2)
