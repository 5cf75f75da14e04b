"""What a scaler has for Prometheus: its agents, what it asks of them, and its watches."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from accelscale_server.telemetry import evaluations_family

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from accelscale_server.cluster import Cluster
    from accelscale_server.evaluations import Evaluations
    from accelscale_server.fleet import Fleet


def scaler_families(
    evaluations: Evaluations, fleet: Fleet, cluster: Cluster | None
) -> Iterator[Family]:
    """Everything beside the calls; made in the thread of the scrape."""
    yield evaluations_family(evaluations)
    yield from _fleet_families(fleet)
    if cluster is not None:
        yield from _cluster_families(cluster)


def _fleet_families(fleet: Fleet) -> Iterator[Family]:
    streams, nodes = list(fleet.streams.values()), list(fleet.nodes.values())
    agents = GaugeMetricFamily(
        "accelscale_agents", "Addresses of agents, by the state of the stream.", labels=["state"]
    )
    counts = Counter(stream.state for stream in streams)
    for state in ("connecting", "connected", "gone"):
        agents.add_metric([state], counts[state])
    yield agents
    yield CounterMetricFamily(
        "accelscale_agent_messages",
        "Messages of the agents that are known now.",
        value=sum(stream.messages for stream in streams),
    )
    now = time.monotonic()
    age = GaugeMetricFamily(
        "accelscale_agent_age_seconds", "Time since the node's agent was heard.", labels=["node"]
    )
    devices = GaugeMetricFamily("accelscale_devices", "Devices of the node.", labels=["node"])
    series = GaugeMetricFamily(
        "accelscale_series", "Series that are wanted of the node.", labels=["node"]
    )
    for node in nodes:
        age.add_metric([node.name], max(0.0, now - node.received))
        devices.add_metric([node.name], len(node.devices))
        series.add_metric([node.name], len(node.interest))
    yield from (age, devices, series)


def _cluster_families(cluster: Cluster) -> Iterator[Family]:
    labels = ["objects"]
    objects = GaugeMetricFamily(
        "accelscale_kubernetes_objects", "Objects that are known of a watch.", labels=labels
    )
    synced = GaugeMetricFamily(
        "accelscale_kubernetes_synced", "Whether the objects have been listed.", labels=labels
    )
    age = GaugeMetricFamily(
        "accelscale_kubernetes_age_seconds", "Time since the watch was heard.", labels=labels
    )
    lists = CounterMetricFamily(
        "accelscale_kubernetes_lists", "How often all objects were listed.", labels=labels
    )
    for state in cluster.states():
        name = [state.objects]
        objects.add_metric(name, state.count)
        synced.add_metric(name, state.synced)
        if math.isfinite(state.age):
            age.add_metric(name, state.age)
        lists.add_metric(name, state.lists)
    yield from (objects, synced, age, lists)
