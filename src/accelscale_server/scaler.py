"""``accelscale scaler``: answers KEDA for the workloads of a cluster.

Every replica of the scaler watches every agent and holds the whole picture, so any of them answers
any call, and none leads.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from accelscale.errors import ConfigurationError, Fault
from accelscale.plugins import load_plugins
from accelscale_server._proto.accelscale.v1.introspection_pb2_grpc import (
    add_IntrospectionServicer_to_server,
)
from accelscale_server._proto.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server
from accelscale_server.agent_tls import connecting
from accelscale_server.beat import Beat
from accelscale_server.changes import Changes
from accelscale_server.config import Off
from accelscale_server.discovery import Discovery
from accelscale_server.evaluations import Evaluations
from accelscale_server.explain import INTROSPECTION, Introspection
from accelscale_server.fleet import Fleet
from accelscale_server.judgement import OPENING, Judgement
from accelscale_server.server import Parts, Server, Service, run, until_signalled
from accelscale_server.servicer import SERVICE, ExternalScaler
from accelscale_server.subjects import Subjects
from accelscale_server.whereabouts import Endpoints
from accelscale_server.workloads import Workloads

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from accelscale_server.cluster import Cluster
    from accelscale_server.config import ScalerConfig

SCOPES = ("workload", "node", "cluster")

SETTLING = 10.0
"""Seconds after which a scaler is ready though it has not heard of every agent."""

ISOLATED = 15.0
"""Seconds without any agent after which calls had better go to another replica."""

COLLECTED_EVERY = 600.0
"""Seconds between two looks for garbage among everything that is known. In a large cluster one
takes a tenth of a second, in which no call is answered; Python by itself looks every few seconds
while agents come and pods go."""


class ScalerJudge:
    """Ready once the picture is whole: all agents tried, all ScaledObjects read.

    From then on a scaler without agents or API server is still ready, since the reasons that it
    gives are better than no answer; but not one that reaches none of its agents for `ISOLATED`
    seconds, for another replica may reach them.
    """

    def __init__(self, fleet: Fleet, discovery: Discovery, cluster: Cluster | None) -> None:
        self._fleet = fleet
        self._discovery = discovery
        self._cluster = cluster
        self._started = time.monotonic()
        self._settled = False

    def __call__(self) -> Judgement:
        """Look at the connections of now."""
        why = self._isolated() if self._settled else self._unsettled()
        self._settled = self._settled or why is None
        return Judgement(why)

    def _unsettled(self) -> str | None:
        if self._cluster is not None and not self._cluster.ready:
            return self._cluster.problem or OPENING
        if not self._discovery.settled:
            return self._discovery.problem or OPENING
        trying = any(stream.state == "connecting" for stream in self._fleet.streams.values())
        if trying and time.monotonic() - self._started < SETTLING:
            return OPENING
        return None

    def _isolated(self) -> str | None:
        streams = [s for s in self._fleet.streams.values() if not s.retired]
        now = time.monotonic()
        if not streams or any(s.state != "gone" or now - s.since < ISOLATED for s in streams):
            return None
        return f"none of {len(streams)} agents can be reached: {streams[0].detail}"


def scaler(config: ScalerConfig) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status, as `run` describes it."""

    def serving() -> None:
        asyncio.run(until_signalled(lambda: scaler_server(config), config.grace))

    return run(config, serving)


def scaler_server(config: ScalerConfig) -> Server:
    """A scaler, made within the event loop that it will run in.

    Raises:
        ConfigurationError: options are missing, or do not go together.
    """
    cluster = _cluster(config)
    if config.agents is None:
        raise ConfigurationError([Fault("--agents", None, "is required")], subject="configuration")
    fleet, changes = Fleet(connecting(config)), Changes()
    beat = Beat(lambda: changes.waiters)
    fleet.subscribe(beat.note)
    if cluster is not None:
        cluster.subscribe(beat.note)
    discovery = Discovery(config.agents, fleet.set_addresses, cluster)
    evaluations = Evaluations(Workloads(fleet, cluster, beat))
    metric_type_of = None if cluster is None else cluster.metric_type
    subjects = Subjects(load_plugins().extra_metrics(), SCOPES, metric_type_of)
    introspection = Introspection(subjects, evaluations, fleet, cluster)

    def families() -> Iterable[Family]:
        from accelscale_server.scaler_metrics import scaler_families

        return scaler_families(evaluations, fleet, cluster)

    running = (beat, fleet, discovery, cluster)
    keda = ExternalScaler(subjects, evaluations, changes)
    parts = Parts(
        changes=changes,
        services=(
            Service(SERVICE, keda, add_ExternalScalerServicer_to_server),
            Service(INTROSPECTION, introspection, add_IntrospectionServicer_to_server),
        ),
        subscribe=beat.subscribe,
        judge=ScalerJudge(fleet, discovery, cluster),
        families=families,
        tasks=(_collect_seldom, *(part.run for part in running if part is not None)),
    )
    return Server(config, parts)


async def _collect_seldom() -> None:
    """Take care of garbage that refers to itself, of which there is little."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 1_000_000)
    while True:
        await asyncio.sleep(COLLECTED_EVERY)
        gc.collect()


def _cluster(config: ScalerConfig) -> Cluster | None:
    if config.kubeconfig is Off.OFF:
        if isinstance(config.agents, Endpoints):
            problem = "endpoints are known by Kubernetes, and --kubeconfig is off"
            raise ConfigurationError([Fault("--agents", None, problem)], subject="configuration")
        return None
    # Imported here because a scaler without Kubernetes needs no client of it.
    from accelscale_server.api_server import ApiServer
    from accelscale_server.cluster import Cluster

    return Cluster(ApiServer(config.kubeconfig), config.namespace)
