"""Whose devices count: the fleet and the cluster, put together for the trigger that asks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from accelscale.attribution import MOST_KNOWN, counted_devices, node_workload
from accelscale.engine import MOST_NAMED, evaluate, failed_evaluation
from accelscale.errors import AccelscaleError, NoDataError, NotFoundError, UnsupportedError
from accelscale.model import Reason, Workload

if TYPE_CHECKING:
    from accelscale.engine import Evaluation
    from accelscale.model import Allocation, Device, Snapshot
    from accelscale.trigger import Trigger
    from accelscale_server.beat import Beat
    from accelscale_server.cluster import Cluster
    from accelscale_server.fleet import Fleet

FIRST_ANSWER = 1.5
"""Seconds that what a ScaledObject asks for first may be under way from agents and API server."""


class Workloads:
    """The fleet and the cluster as what is evaluated: the workload of who asks decides."""

    names_matter = True
    first_answer_seconds = FIRST_ANSWER

    def __init__(self, fleet: Fleet, cluster: Cluster | None, beat: Beat) -> None:
        self._fleet = fleet
        self._cluster = cluster
        self._beat = beat

    @property
    def sequence(self) -> int:
        """That of the beat, which follows the news of fleet and cluster."""
        return self._beat.sequence

    def evaluate(self, namespace: str, name: str, trigger: Trigger) -> Evaluation:
        """The trigger over the replicas of the ScaledObject's scale target, or all devices."""
        try:
            if trigger.scope == "workload":
                workload, snapshot = self._workload(namespace, name, trigger)
            else:
                workload, snapshot = self._devices(trigger)
        except AccelscaleError as error:
            unknown = Workload(name, (), namespace, trigger.scope)
            return failed_evaluation(trigger, unknown, error, time.monotonic())
        return evaluate(trigger, snapshot, workload)

    def _workload(self, namespace: str, name: str, trigger: Trigger) -> tuple[Workload, Snapshot]:
        if self._cluster is None:
            raise UnsupportedError(
                "scope workload needs Kubernetes, and this scaler runs with --kubeconfig off"
            )
        workload = self._cluster.workload(
            namespace, name, trigger, self._allocations_of, self._devices_of
        )
        held = dict.fromkeys(d for replica in workload.replicas for d in replica.devices)
        nodes = {device_id.partition("/")[0] for device_id in held}
        self._fleet.want(trigger.wanted_series, nodes)
        snapshot = self._fleet.snapshot(held, trigger.wanted_series)
        return counted_devices(trigger, workload, snapshot), snapshot

    def _devices(self, trigger: Trigger) -> tuple[Workload, Snapshot]:
        """Each device of a node or of the cluster; what was never heard of is no data."""
        fleet = self._fleet
        unheard = fleet.unheard
        nodes: Iterable[str] = fleet.nodes if trigger.node is None else {trigger.node}
        if trigger.node is not None and trigger.node not in fleet.nodes:
            raise _unknown_node(trigger.node, fleet, unheard)
        if trigger.node is None and unheard and trigger.missing != "ignore":
            shown = [f"{address}: {why}" for address, why in list(unheard.items())[:MOST_NAMED]]
            text = f"nothing was heard yet from {len(unheard)} agents: {'; '.join(shown)}"
            raise NoDataError(text, reason=Reason.STALE)
        fleet.want(trigger.wanted_series, None if trigger.node is None else nodes)
        devices = [device for node in nodes for device in fleet.nodes[node].devices]
        snapshot = fleet.snapshot(devices, trigger.wanted_series)
        unseen = {name: fleet.nodes[name].unseen() for name in nodes}
        snapshot = evolve(
            snapshot,
            unseen_vendors=frozenset(vendor for vendors in unseen.values() for vendor in vendors),
            problems={
                f"{vendor} of {name}": why
                for name, vendors in unseen.items()
                for vendor, why in vendors.items()
            },
        )
        return node_workload(trigger, snapshot), snapshot

    def _allocations_of(self, node: str, namespace: str, pod: str) -> Sequence[Allocation]:
        return self._fleet.allocations(node, namespace, pod)

    def _devices_of(self, node: str) -> Iterable[Device]:
        known = self._fleet.nodes.get(node)
        return () if known is None else known.devices.values()


def _unknown_node(node: str, fleet: Fleet, unheard: Iterable[str]) -> AccelscaleError:
    names = sorted(fleet.nodes)
    shown = ", ".join(names[:MOST_KNOWN]) or "none"
    more = f" and {len(names) - MOST_KNOWN} more" if len(names) > MOST_KNOWN else ""
    text = f"no agent of node {node} was heard; nodes known: {shown}{more}"
    if unheard:
        return NoDataError(text, reason=Reason.STALE)
    return NotFoundError(text)
