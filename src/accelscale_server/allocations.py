"""Who holds which device: the kubelet's words turned into allocations. Pure.

The kubelet names pods, containers, resources and ids as device plugins made them up. What an id
means is known by the backend of its vendor alone (`Backend.device_of`); what none of them knows
stays an allocation without a device, so that a pod whose device is not known is never taken for a
pod that holds none.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from accelscale.model import Allocation, Claim

if TYPE_CHECKING:
    from accelscale.backend import Backend
    from accelscale.model import Device
    from accelscale_server._proto.podresources.v1 import podresources_pb2 as pb

logger = logging.getLogger("accelscale_server.kubelet")


def owned_by_any(backends: Sequence[Backend]) -> Callable[[str], bool]:
    """Whether an extended resource consists of devices of one of the backends; remembered."""
    known: dict[str, bool] = {}

    def owned(resource: str) -> bool:
        if resource not in known:
            known[resource] = any(_owns(backend, resource) for backend in backends)
        return known[resource]

    return owned


def listed(
    response: pb.ListPodResourcesResponse, node: str, owned: Callable[[str], bool]
) -> tuple[Allocation, ...]:
    """What the kubelet listed, each once, with no device looked up yet.

    The order is our own, since the kubelet's changes from List to List. Resources that are not
    ``owned`` are left out: the id ``0`` of a network card is no device of ours. Claims are passed
    on whatever their driver, since only ResourceSlices tell what they are.
    """
    found: dict[Allocation, None] = {}
    for pod in response.pod_resources:
        for container in pod.containers:
            holder = Allocation(None, node, pod.namespace, pod.name, container.name)
            found.update(dict.fromkeys(_of_plugins(container, holder, owned)))
            found.update(dict.fromkeys(_of_claims(container, holder)))
    return tuple(sorted(found, key=_place))


def _place(allocation: Allocation) -> tuple[str, ...]:
    claim = allocation.claim or Claim("", "", "")
    return (
        allocation.namespace,
        allocation.pod,
        allocation.container,
        allocation.resource,
        allocation.allocated_id,
        claim.driver,
        claim.pool,
        claim.device,
    )


def _of_plugins(
    container: pb.ContainerResources, holder: Allocation, owned: Callable[[str], bool]
) -> Iterator[Allocation]:
    """One for each id; the kubelet lists a resource once for each NUMA node or device."""
    for devices in container.devices:
        if owned(devices.resource_name):
            for allocated_id in devices.device_ids:
                yield evolve(holder, resource=devices.resource_name, allocated_id=allocated_id)


def _of_claims(container: pb.ContainerResources, holder: Allocation) -> Iterator[Allocation]:
    for dynamic in container.dynamic_resources:
        if not dynamic.claim_resources:
            # A kubelet that names the claim and nothing else: better unknown than not there.
            yield evolve(holder, allocated_id=f"{dynamic.claim_namespace}/{dynamic.claim_name}")
        for claimed in dynamic.claim_resources:
            claim = Claim(claimed.driver_name, claimed.pool_name, claimed.device_name)
            names = ",".join(sorted(cdi.name for cdi in claimed.cdi_devices))
            yield evolve(
                holder,
                allocated_id=names or f"{dynamic.claim_namespace}/{dynamic.claim_name}",
                claim=claim if claim.driver and claim.device else None,
            )


def resolved(
    allocations: Iterable[Allocation], backends: Sequence[Backend], devices: Sequence[Device]
) -> tuple[Allocation, ...]:
    """The allocations with their devices, as far as these backends know them.

    A container that holds several shares of one device holds it once.
    """
    by_backend: defaultdict[str, list[Device]] = defaultdict(list)
    for one in devices:
        by_backend[one.backend].append(one)
    found: dict[tuple[str, ...], Allocation] = {}
    for allocation in allocations:
        if allocation.resource:
            device = _device_of(allocation, backends, by_backend)
        else:
            device = device_of_cdi_names(allocation.allocated_id, devices)
        container = (allocation.namespace, allocation.pod, allocation.container)
        if device is not None:
            allocation = evolve(allocation, device_id=device.id)  # noqa: PLW2901
            found.setdefault((*container, device.id), allocation)
        else:
            claim = str(allocation.claim)
            key = (*container, allocation.resource, allocation.allocated_id, claim)
            found.setdefault(key, allocation)
    return tuple(found.values())


def device_of_cdi_names(names: str, devices: Sequence[Device]) -> Device | None:
    """The one device whose id stands in these CDI names, separated by commas; else None.

    Some drivers put the UUID into the name (``example.com/gpu=GPU-…``), others an index or the
    UID of the claim, from which nothing can be told.
    """
    text = " ".join(name.partition("=")[2] for name in names.split(",")).lower()
    found = {
        device.id: device
        for device in devices
        if re.search(rf"(?<![0-9a-z]){re.escape(device.id.lower())}(?![0-9a-z])", text)
    }
    return next(iter(found.values())) if len(found) == 1 else None


def shared_devices(allocations: Iterable[Allocation]) -> frozenset[str]:
    """The devices that more than one pod holds, by time-slicing or MPS."""
    holders: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for allocation in allocations:
        if allocation.device_id is not None:
            holders[allocation.device_id].add((allocation.namespace, allocation.pod))
    return frozenset(device_id for device_id, pods in holders.items() if len(pods) > 1)


def single_holders(allocations: Iterable[Allocation]) -> dict[str, tuple[str, str, str]]:
    """Namespace, pod and container of each device that one pod holds.

    The container is empty where several containers of the pod hold it.
    """
    allocations = tuple(allocations)
    shared = shared_devices(allocations)
    holders: dict[str, tuple[str, str, str]] = {}
    for allocation in allocations:
        device_id = allocation.device_id
        if device_id is None or device_id in shared:
            continue
        container = "" if device_id in holders else allocation.container
        holders[device_id] = (allocation.namespace, allocation.pod, container)
    return holders


def _device_of(
    allocation: Allocation, backends: Sequence[Backend], by_backend: dict[str, list[Device]]
) -> Device | None:
    for backend in backends:
        if not _owns(backend, allocation.resource):
            continue
        try:
            device = backend.device_of(allocation.allocated_id, by_backend.get(backend.name, ()))
        except Exception:
            logger.exception("%s: device_of(%r) failed", backend.name, allocation.allocated_id)
            continue
        if device is not None:
            return device
    return None


def _owns(backend: Backend, resource: str) -> bool:
    try:
        return backend.owns_resource(resource)
    except Exception:
        logger.exception("%s: owns_resource(%r) failed", backend.name, resource)
        return False
