"""The life of every server: bind, answer, and stop without hurting anyone.

What ``serve``, ``agent`` and ``scaler`` have in common is here; what tells them apart is in their
`Parts`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

import grpc
from attrs import evolve, frozen
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_reflection.v1alpha import reflection

from accelscale.errors import AccelscaleError
from accelscale_server import logs
from accelscale_server.addresses import Address, BindError, bindable
from accelscale_server.admission import Admission
from accelscale_server.figures import CallFigures
from accelscale_server.health import Health
from accelscale_server.tls import Certificates

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from accelscale_server.changes import Changes
    from accelscale_server.config import ServerConfig
    from accelscale_server.judgement import Judgement
    from accelscale_server.telemetry import MetricsEndpoint

logger = logging.getLogger(logs.LIFECYCLE)

UNARY_CALLS = 1024
"""Calls that may be in progress beside the streams; each takes well under a millisecond."""

MOST_CONNECTIONS = 512
LARGEST_MESSAGE = 1024 * 1024
LEAST_PING_SECONDS = 5.0
"""Clients may ping every 10 s; this leaves room for pings that arrive early."""

JUDGED_EVERY = 1.0
"""Seconds after which health is judged even if nothing has changed: a driver may hang."""

RESTARTED_AFTER = 1.0
"""Seconds until a background task that failed is begun again."""


@frozen
class Service:
    """A gRPC service: its full name, its servicer, and the generated function that adds it."""

    name: str
    servicer: Any
    add: Callable[[Any, grpc.aio.Server], None]


@frozen
class Parts:
    """What tells one kind of server from another.

    ``changes`` wakes the streams; ``subscribe`` has a callback called on every change of what the
    answers stand on, and returns undo. ``judge`` says how the server is doing, ``families`` gives
    its metrics beside those of the calls. ``tasks`` run from start to stop.
    """

    changes: Changes
    services: tuple[Service, ...]
    subscribe: Callable[[Callable[[], None]], Callable[[], None]]
    judge: Callable[[], Judgement]
    families: Callable[[], Iterable[Family]]
    tasks: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()


class Server:
    """One gRPC server for one event loop. `start` it, then `stop` it once.

    ``address`` and ``metrics_address`` are those of the configuration until `start` has bound them.

    Raises:
        ConfigurationError: the TLS files cannot be used.
    """

    def __init__(self, config: ServerConfig, parts: Parts) -> None:
        self._config = config
        self._parts = parts
        self._changes = parts.changes
        self._certificates = certificates_of(config)
        self._calls = CallFigures()
        names = [service.name for service in parts.services]
        self._health = Health(parts.judge, names)
        self._endpoint: MetricsEndpoint | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._server = grpc.aio.server(
            interceptors=[Admission(config.max_streams, self._calls)],
            options=_options(config),
            maximum_concurrent_rpcs=config.max_streams + UNARY_CALLS,
        )
        for service in parts.services:
            service.add(service.servicer, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflected = (*names, HEALTH_SERVICE, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(reflected, self._server)
        self.address = config.listen
        self.metrics_address = config.metrics_listen

    async def start(self) -> None:
        """Bind the addresses and begin to answer.

        Raises:
            BindError: one cannot be listened on; nothing stays open then.
        """
        self.metrics_address = self._open_metrics()
        try:
            self.address = self._bind()
        except BindError:
            await self._close_metrics()
            raise
        self._unsubscribe = self._parts.subscribe(self._changes.announce)
        self._health.judge()
        for task in (self._judge, *self._parts.tasks):
            self._tasks.append(asyncio.create_task(_again_and_again(task)))
        await self._server.start()
        tls = "off" if self._certificates is None else "on"
        logger.info("listening", extra={"address": str(self.address), "tls": tls})
        if self.metrics_address is not None:
            logger.info("serving metrics", extra={"address": str(self.metrics_address)})

    async def stop(self, grace: float) -> None:
        """Stop: not ready first, streams end with OK, calls in progress get ``grace`` seconds.

        An OK end is what keeps KEDA from backing off before it connects to the next replica.
        """
        self._health.stop()
        self._unsubscribe()
        self._changes.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.stop(grace)
        await self._close_metrics()

    async def stop_at_once(self) -> None:
        """Cancel whatever `stop` still waits for."""
        await self._server.stop(None)
        await self._close_metrics()

    def _bind(self) -> Address:
        address = bindable(self._config.listen)
        try:
            if self._certificates is None:
                port = self._server.add_insecure_port(str(address))
            else:
                port = self._server.add_secure_port(str(address), self._certificates.credentials())
        except RuntimeError as error:  # gRPC's only word for a port that was taken since
            raise BindError(f"cannot listen on {address}: {error}") from error
        return evolve(address, port=port)

    def _open_metrics(self) -> Address | None:
        if self._config.metrics_listen is None:
            return None
        # Imported here because a server without metrics starts faster without it.
        from accelscale_server.telemetry import MetricsEndpoint, registry_of, server_families

        own = lambda: server_families(self._calls, self._certificates)  # noqa: E731
        registry = registry_of(own, self._parts.families)
        self._endpoint = MetricsEndpoint(self._config.metrics_listen, registry)
        return self._endpoint.address

    async def _close_metrics(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await asyncio.to_thread(endpoint.close)

    async def _judge(self) -> None:
        """Keep the health current: after each change, and when changes fail to come."""
        while True:
            count = self._changes.count
            self._health.judge()
            try:
                async with asyncio.timeout(JUDGED_EVERY):
                    if not await self._changes.after(count):
                        return
            except TimeoutError:
                continue


async def _again_and_again(task: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A background task that outlives its own faults."""
    while True:
        try:
            return await task()
        except Exception:
            logger.exception("a background task failed and is begun again")
        await asyncio.sleep(RESTARTED_AFTER)


def certificates_of(config: ServerConfig) -> Certificates | None:
    """The TLS files of the configuration, read, or None where it names none.

    Raises:
        ConfigurationError: they cannot be used.
    """
    if config.tls_cert is None or config.tls_key is None:
        return None
    return Certificates(config.tls_cert, config.tls_key, config.tls_client_ca)


def run(config: ServerConfig, serving: Callable[[], None]) -> int:
    """Do ``serving``, which ends at SIGTERM or SIGINT; returns the exit status.

    0 after a stop on request, also a hurried one; 1 when the server could not start, which one
    line on standard error explains.
    """
    logs.configure(config.log_format, config.log_level)
    try:
        certificates_of(config)
        bindable(config.listen)
        serving()
    except (AccelscaleError, BindError) as error:
        sys.stderr.write(f"accelscale: {error}\n")
        return 1
    return 0


async def until_signalled(make: Callable[[], Server], grace: float) -> None:
    """Make a server, and let it answer until SIGTERM or SIGINT; a second one ends the grace."""
    asked, asked_again = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (asked_again if asked.is_set() else asked).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    server = make()
    await server.start()
    await asked.wait()
    logger.info("stopping", extra={"grace_seconds": grace})
    stopping = asyncio.create_task(server.stop(grace))
    hurry = asyncio.create_task(asked_again.wait())
    await asyncio.wait({stopping, hurry}, return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not stopping.done():
        logger.warning("stopping at once: asked a second time")
        await server.stop_at_once()
    await stopping
    for number in (signal.SIGTERM, signal.SIGINT):
        # Drivers are still to be let go of, and one more signal must not cut that short.
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    logger.info("stopped")


def _options(config: ServerConfig) -> list[tuple[str, int]]:
    """gRPC's channel arguments; their meaning is in grpc/impl/channel_arg_names.h."""
    return [
        # Two servers on one port would share its calls without a word (grpc/grpc#16920).
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", LARGEST_MESSAGE),
        ("grpc.max_concurrent_streams", config.max_streams + UNARY_CALLS),
        ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),
        ("grpc.server_handshake_timeout_ms", 10_000),
        # Clients may ping, with calls or without; by itself gRPC takes a ping in less than 5
        # minutes for abuse and closes the connection (grpc/grpc#33661).
        ("grpc.http2.min_ping_interval_without_data_ms", int(1000 * LEAST_PING_SECONDS)),
        ("grpc.keepalive_permit_without_calls", 1),
        # Find out about clients that vanished, whose streams would stay open.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.max_pings_without_data", 0),
    ]
