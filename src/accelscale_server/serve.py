"""``accelscale serve``: answers KEDA for the devices of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from accelscale.monitor import open_monitor
from accelscale_server._proto.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server
from accelscale_server.changes import Changes
from accelscale_server.evaluations import Evaluations
from accelscale_server.judgement import MonitorJudge
from accelscale_server.server import Parts, Server, Service, run, until_signalled
from accelscale_server.servicer import SERVICE, ExternalScaler
from accelscale_server.subjects import Subjects

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from accelscale.engine import Evaluation
    from accelscale.monitor import Monitor
    from accelscale.trigger import Trigger
    from accelscale_server.config import ServeConfig

SCOPES = ("node",)
"""What one machine can answer for: it knows no pods."""


class LocalDevices:
    """The devices of this machine as what is evaluated: the same for whoever asks."""

    names_matter = False
    first_answer_seconds = 0.0

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    @property
    def sequence(self) -> int:
        """That of the monitor."""
        return self._monitor.sequence

    def evaluate(self, namespace: str, name: str, trigger: Trigger) -> Evaluation:
        """The trigger over the devices that it selects; each is a replica."""
        return self._monitor.evaluate(trigger)


def serve(config: ServeConfig) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status, as `run` describes it."""

    def serving() -> None:
        with open_monitor(config.backend or None, interval=config.interval) as monitor:
            asyncio.run(until_signalled(lambda: local_server(config, monitor), config.grace))

    return run(config, serving)


def local_server(config: ServeConfig, monitor: Monitor) -> Server:
    """A server over a monitor, made within the event loop that it will run in."""
    changes, evaluations = Changes(), Evaluations(LocalDevices(monitor))
    servicer = ExternalScaler(Subjects(monitor.metrics, SCOPES), evaluations, changes)

    def families() -> Iterator[Family]:
        from accelscale_server import telemetry

        yield telemetry.evaluations_family(evaluations)
        yield from telemetry.monitor_families(monitor)

    parts = Parts(
        changes=changes,
        services=(Service(SERVICE, servicer, add_ExternalScalerServicer_to_server),),
        subscribe=monitor.subscribe,
        judge=MonitorJudge(monitor),
        families=families,
    )
    return Server(config, parts)


@asynccontextmanager
async def running_server(config: ServeConfig, monitor: Monitor) -> AsyncIterator[str]:
    """A server over a monitor, for as long as the block runs; gives its address."""
    server = local_server(config, monitor)
    await server.start()
    try:
        yield str(server.address)
    finally:
        await server.stop(config.grace)
