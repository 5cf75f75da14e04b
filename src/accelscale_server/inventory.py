"""What a node has and who holds it, as agents tell it: made anew only when something changed."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from attrs import frozen

from accelscale_server._proto.accelscale.v1 import agent_pb2 as pb
from accelscale_server.allocations import resolved, shared_devices

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from accelscale.backend import Backend
    from accelscale.model import Allocation, Device, Snapshot
    from accelscale_server.kubelet import Kubelet

logger = logging.getLogger("accelscale_server.kubelet")


@frozen
class Inventory:
    """The devices of a node in the order that indexes refer to, and those that pods share."""

    revision: int
    devices: tuple[Device, ...]
    shared: frozenset[str]
    message: pb.Inventory


class Inventories:
    """Makes the inventory of this node from snapshots and from what the kubelet says."""

    def __init__(self, backends: Sequence[Backend], kubelet: Kubelet, node: str) -> None:
        self._backends = backends
        self._kubelet = kubelet
        self._node = node
        self._instance = uuid.uuid4().hex
        self._revision = 0
        self._made_of: tuple[object, ...] = ()
        self._unresolved: frozenset[tuple[str, str]] = frozenset()
        self._inventory: Inventory | None = None

    def of(self, snapshot: Snapshot) -> Inventory:
        """The inventory now: the one of before where nothing has changed."""
        made_of = (
            self._kubelet.revision,
            snapshot.devices,
            snapshot.intervals,
            snapshot.problems,
            snapshot.unseen_vendors,
        )
        if self._inventory is None or made_of != self._made_of:
            self._made_of = made_of
            self._inventory = self._made(snapshot)
        return self._inventory

    def _made(self, snapshot: Snapshot) -> Inventory:
        self._revision += 1
        allocations = resolved(self._kubelet.allocations, self._backends, snapshot.devices)
        if snapshot.devices:
            self._note_unresolved(allocations)
        message = pb.Inventory(
            revision=self._revision,
            node=self._node,
            instance=self._instance,
            interval_seconds=snapshot.interval,
            intervals=snapshot.intervals,
            devices=[_device(device) for device in snapshot.devices],
            allocations=[_allocation(allocation) for allocation in allocations],
            allocations_problem=self._kubelet.problem or "",
            problems=snapshot.problems,
            unseen_vendors=sorted(snapshot.unseen_vendors),
        )
        return Inventory(self._revision, snapshot.devices, shared_devices(allocations), message)

    def _note_unresolved(self, allocations: Iterable[Allocation]) -> None:
        """Say once of each id of ours that nobody knows the device it means."""
        unresolved = frozenset(
            (allocation.resource, allocation.allocated_id)
            for allocation in allocations
            if allocation.resource and allocation.device_id is None
        )
        for resource, allocated_id in sorted(unresolved - self._unresolved):
            text = "an allocated id is of no known device"
            logger.warning(text, extra={"resource": resource, "id": allocated_id})
        self._unresolved = unresolved


def _device(device: Device) -> pb.Device:
    return pb.Device(
        id=device.id,
        name=device.name,
        vendor=device.vendor,
        backend=device.backend,
        parent=device.parent or "",
        pci_address=device.pci_address or "",
        problem=device.problem or "",
        problem_detail=device.problem_detail,
        attributes=device.attributes,
    )


def _allocation(allocation: Allocation) -> pb.Allocation:
    claim = allocation.claim
    return pb.Allocation(
        namespace=allocation.namespace,
        pod=allocation.pod,
        container=allocation.container,
        resource=allocation.resource,
        device_id=allocation.device_id or "",
        allocated_id=allocation.allocated_id,
        claim=pb.Claim(driver=claim.driver, pool=claim.pool, device=claim.device)
        if claim is not None
        else None,
    )
