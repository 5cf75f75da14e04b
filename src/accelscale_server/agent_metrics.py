"""What an agent has for Prometheus: its devices with the pods that hold them, and the kubelet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from accelscale_server.allocations import resolved, single_holders
from accelscale_server.device_metrics import HOLDER_LABELS, device_families
from accelscale_server.telemetry import backend_families

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from accelscale.model import Allocation
    from accelscale.monitor import Monitor
    from accelscale_server.kubelet import Kubelet


def agent_families(monitor: Monitor, kubelet: Kubelet) -> Iterator[Family]:
    """Everything beside the calls; made in the thread of the scrape."""
    snapshot = monitor.snapshot()
    allocations = resolved(kubelet.allocations, monitor.backends, snapshot.devices)
    yield from backend_families(monitor.states())
    yield from device_families(snapshot, monitor.metrics, single_holders(allocations))
    yield from _allocation_families(allocations)
    yield from _kubelet_families(kubelet)


def _allocation_families(allocations: Iterable[Allocation]) -> Iterator[Family]:
    held = GaugeMetricFamily(
        "accelscale_device_allocation",
        "1 for each container that holds the device; hw_id is empty where it is not known which.",
        labels=("hw_id", *HOLDER_LABELS, "resource", "id"),
    )
    rows = {
        (a.device_id or "", a.namespace, a.pod, a.container, a.resource, a.allocated_id): None
        for a in allocations
    }
    for row in rows:
        held.add_metric(row, 1)
    yield held


def _kubelet_families(kubelet: Kubelet) -> Iterator[Family]:
    lists = CounterMetricFamily(
        "accelscale_kubelet_lists", "Questions to the kubelet, by status.", labels=["code"]
    )
    for code, count in list(kubelet.lists.items()):
        lists.add_metric([code], count)
    yield lists
    yield GaugeMetricFamily(
        "accelscale_allocations_known",
        "Whether it is known which pod holds which device.",
        value=kubelet.problem is None,
    )
    if kubelet.answered is not None:
        yield GaugeMetricFamily(
            "accelscale_allocations_age_seconds",
            "Time since the kubelet last answered.",
            value=max(0.0, time.monotonic() - kubelet.answered),
        )
