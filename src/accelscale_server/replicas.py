"""Pods to replicas: the devices that each holds, or why they are not known. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from attrs import frozen

from accelscale.errors import NoDataError, UnsupportedError
from accelscale.model import Allocation, Claim, Device, Replica
from accelscale_server.claims import ACCELERATOR_DRIVERS, ClaimedDevice, device_of
from accelscale_server.pods import Pod

AllocationsOf = Callable[[str, str, str], Sequence[Allocation]]
"""What a pod holds, by node, namespace and name; raises NoDataError where that is not known."""

DevicesOf = Callable[[str], Iterable[Device]]
"""The devices of a node."""

GROUP_SET = "LeaderWorkerSet"
GROUP_SET_NAME = "leaderworkerset.sigs.k8s.io/name"
_GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
_LEADER = "0"


@frozen
class Holdings:
    """Who holds what.

    ``claimed`` gives what is published of a claimed device, or why that is not known. ``outdated``
    says why pods may be gone without our knowing it, if so.
    """

    allocations_of: AllocationsOf
    devices_of: DevicesOf
    claimed: Callable[[Claim], ClaimedDevice | str]
    outdated: str = ""

    def of(self, pod: Pod, container: str | None) -> tuple[tuple[str, ...], str]:
        """The devices that a pod, or one container of it, holds; and why others are not known.

        Raises:
            UnsupportedError: the pod runs, and is known to hold none.
        """
        _require_container(pod, container)
        if pod.node is None:
            return (), "is not scheduled yet"
        try:
            allocations = self.allocations_of(pod.node, pod.namespace, pod.name)
        except NoDataError as error:
            return (), str(error)
        found, problem = self._resolved(
            each for each in allocations if container is None or each.container == container
        )
        if not found and not problem and pod.running:
            if self.outdated:
                return (), f"holds no device that is known, and may be gone: {self.outdated}"
            raise UnsupportedError(_without_device(pod, container))
        return found, problem

    def _resolved(self, allocations: Iterable[Allocation]) -> tuple[tuple[str, ...], str]:
        """The devices of these allocations, and why others are not known."""
        found: dict[str, None] = {}
        problems: dict[str, None] = {}
        doubts: dict[str, None] = {}
        for allocation in allocations:
            device_id, problem = self._device(allocation)
            if device_id is not None:
                found[device_id] = None
            elif _is_accelerator(allocation):
                problems[problem] = None
            else:
                doubts[problem] = None
        if not found and not problems:
            # What may be a network card is only of interest where there is nothing else.
            problems = doubts
        return tuple(found), "; ".join(problems)

    def _device(self, allocation: Allocation) -> tuple[str | None, str]:
        """The device of an allocation, or why it is not known."""
        if allocation.device_id is not None:
            return allocation.device_id, ""
        claim = allocation.claim
        if claim is None:
            what = allocation.resource or "claim"
            return None, f"{what} {allocation.allocated_id} is of no known device of its node"
        claimed = self.claimed(claim)
        if isinstance(claimed, ClaimedDevice):
            device = device_of(claimed, self.devices_of(allocation.node))
            if device is not None:
                return device.id, ""
            claimed = "its ResourceSlice names no device that the node's agent reads"
        return None, f"claimed device {claim.device} of {claim.driver} is not resolved: {claimed}"


def _is_accelerator(allocation: Allocation) -> bool:
    """Agents pass on extended resources that are accelerators alone, but claims of all drivers."""
    if allocation.claim is not None:
        return ACCELERATOR_DRIVERS.fullmatch(allocation.claim.driver) is not None
    return bool(allocation.resource)


def pod_replicas(
    pods: Iterable[Pod], holdings: Holdings, container: str | None
) -> Iterator[Replica]:
    """Each pod as one replica.

    Raises:
        UnsupportedError: a pod holds no accelerator.
    """
    for pod in pods:
        devices, problem = holdings.of(pod, container)
        yield Replica(pod.name, devices, pod.ready, pod.was_ready, problem)


def group_replicas(
    pods: Iterable[Pod], holdings: Holdings, container: str | None
) -> Iterator[Replica]:
    """Each group of a LeaderWorkerSet as one replica, Ready or not as its leader is.

    The HPA counts leaders, by the selector in the set's scale. With ``container`` only the pods
    that have such a container count: leader and workers may be made of different ones.

    Raises:
        UnsupportedError: a pod holds no accelerator, or no pod has the container.
    """
    groups: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        groups[pod.labels.get(_GROUP_INDEX, "")].append(pod)
    for index in sorted(groups, key=lambda text: (len(text), text)):
        members = groups[index]
        having = [p for p in members if container is None or container in p.containers]
        held = [(pod, holdings.of(pod, container)) for pod in having or members]
        leader = next(iter(leaders(members)), None)
        yield Replica(
            leader.name if leader is not None else f"group {index}",
            tuple(dict.fromkeys(device for _, (devices, _) in held for device in devices)),
            leader is not None and leader.ready,
            leader is not None and leader.was_ready,
            "; ".join(f"pod {pod.name}: {problem}" for pod, (_, problem) in held if problem),
        )


def leaders(pods: Iterable[Pod]) -> list[Pod]:
    """The pods that lead a group."""
    return [pod for pod in pods if pod.labels.get(_WORKER_INDEX) == _LEADER]


def _require_container(pod: Pod, container: str | None) -> None:
    if container is not None and container not in pod.containers:
        raise UnsupportedError(
            f"pod {pod.namespace}/{pod.name} has no container {container}; it has"
            f" {', '.join(pod.containers) or 'none'}"
        )


def _without_device(pod: Pod, container: str | None) -> str:
    where = "" if container is None else f" in container {container}"
    return (
        f"pod {pod.namespace}/{pod.name} on {pod.node} holds no accelerator{where}; give it one in"
        " its resource limits, or leave it out with podSelector"
    )
