"""The server's life: bind, answer, and stop without hurting anyone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
from attrs import evolve
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_reflection.v1alpha import reflection

from accelscale.errors import AccelscaleError
from accelscale.monitor import open_monitor
from accelscale_server import logs
from accelscale_server._proto.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server
from accelscale_server.addresses import Address, BindError, bindable
from accelscale_server.admission import Admission
from accelscale_server.changes import Changes
from accelscale_server.evaluations import Evaluations
from accelscale_server.figures import CallFigures
from accelscale_server.health import Health
from accelscale_server.servicer import SERVICE, ExternalScaler
from accelscale_server.subjects import Subjects
from accelscale_server.tls import Certificates

if TYPE_CHECKING:
    from accelscale.monitor import Monitor
    from accelscale_server.config import ServeConfig
    from accelscale_server.telemetry import MetricsEndpoint

logger = logging.getLogger(logs.LIFECYCLE)

SCOPES = ("node",)
"""What one machine can answer for: it knows no pods."""

UNARY_CALLS = 1024
"""Calls that may be in progress beside the streams; each takes well under a millisecond."""

MOST_CONNECTIONS = 512
LARGEST_MESSAGE = 1024 * 1024
LEAST_PING_SECONDS = 5.0
"""Clients may ping every 10 s; this leaves room for pings that arrive early."""

JUDGED_EVERY = 1.0
"""Seconds after which health is judged even if no pass has ended: a driver may hang."""


class Server:
    """One gRPC server over one monitor, for one event loop. `start` it, then `stop` it once.

    ``address`` and ``metrics_address`` are those of the configuration until `start` has bound them.

    Raises:
        ConfigurationError: the TLS files cannot be used.
    """

    def __init__(self, config: ServeConfig, monitor: Monitor) -> None:
        self._config = config
        self._monitor = monitor
        self._certificates = certificates_of(config)
        self._calls = CallFigures()
        self._changes = Changes()
        self._health = Health(monitor)
        self._evaluations = Evaluations(monitor)
        self._endpoint: MetricsEndpoint | None = None
        self._judging: asyncio.Task[None] | None = None
        self._server = grpc.aio.server(
            interceptors=[Admission(config.max_streams, self._calls)],
            options=_options(config),
            maximum_concurrent_rpcs=config.max_streams + UNARY_CALLS,
        )
        subjects = Subjects(monitor.metrics, SCOPES)
        add_ExternalScalerServicer_to_server(  # type: ignore[no-untyped-call]
            ExternalScaler(subjects, self._evaluations, self._changes), self._server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE, HEALTH_SERVICE, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
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
        self._unsubscribe = self._monitor.subscribe(self._changes.announce)
        self._health.judge()
        self._judging = asyncio.create_task(self._judge(), name="accelscale-health")
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
        if self._judging is not None:
            self._judging.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._judging
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
        from accelscale_server.telemetry import MetricsEndpoint, Observed, registry_of

        observed = Observed(self._monitor, self._calls, self._evaluations, self._certificates)
        self._endpoint = MetricsEndpoint(self._config.metrics_listen, registry_of(observed))
        return self._endpoint.address

    async def _close_metrics(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await asyncio.to_thread(endpoint.close)

    async def _judge(self) -> None:
        """Keep the health current: after each pass, and when passes fail to end."""
        going_on = True
        while going_on:
            count = self._changes.count
            try:
                self._health.judge()
            except Exception:
                logger.exception("health could not be judged")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(JUDGED_EVERY):
                    going_on = await self._changes.after(count)


def certificates_of(config: ServeConfig) -> Certificates | None:
    """The TLS files of the configuration, read, or None where it names none.

    Raises:
        ConfigurationError: they cannot be used.
    """
    if config.tls_cert is None or config.tls_key is None:
        return None
    return Certificates(config.tls_cert, config.tls_key, config.tls_client_ca)


@asynccontextmanager
async def running_server(config: ServeConfig, monitor: Monitor) -> AsyncIterator[str]:
    """A server over a monitor, for as long as the block runs; gives its address."""
    server = Server(config, monitor)
    await server.start()
    try:
        yield str(server.address)
    finally:
        await server.stop(config.grace)


def serve(config: ServeConfig) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status.

    0 after a stop on request, also a hurried one; 1 when the server could not start, which one
    line on standard error explains.
    """
    logs.configure(config.log_format, config.log_level)
    try:
        certificates_of(config)
        bindable(config.listen)
        with open_monitor(config.backend or None, interval=config.interval) as monitor:
            asyncio.run(_serve(config, monitor))
    except (AccelscaleError, BindError) as error:
        sys.stderr.write(f"accelscale: {error}\n")
        return 1
    return 0


async def _serve(config: ServeConfig, monitor: Monitor) -> None:
    asked, asked_again = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (asked_again if asked.is_set() else asked).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    server = Server(config, monitor)
    await server.start()
    await asked.wait()
    logger.info("stopping", extra={"grace_seconds": config.grace})
    stopping = asyncio.create_task(server.stop(config.grace))
    hurry = asyncio.create_task(asked_again.wait())
    await asyncio.wait({stopping, hurry}, return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not stopping.done():
        logger.warning("stopping at once: asked a second time")
        await server.stop_at_once()
    await stopping
    logger.info("stopped")


def _options(config: ServeConfig) -> list[tuple[str, int]]:
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
