"""Which devices count: from a trigger's selection to the replicas of a workload. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from attrs import evolve

from accelscale.errors import NoDataError, NotFoundError, UnsupportedError
from accelscale.model import (
    Device,
    Reason,
    Replica,
    Snapshot,
    Workload,
    normal_pci_address,
)
from accelscale.trigger import Trigger

MOST_NAMED = 3
"""Devices of a workload, or problems, that an error names."""

MOST_KNOWN = 20
"""Names to choose from that an error lists."""


def node_workload(trigger: Trigger, snapshot: Snapshot) -> Workload:
    """Each device that the trigger selects, as one replica: scopes node and cluster.

    Devices that never have the metric are left out while others have it, and of a card and its
    partitions only those count that have the metric.

    Raises:
        NoDataError: no device has been seen, or a backend that could hold it cannot read.
        NotFoundError: the trigger names a device, vendor or node that does not exist.
        UnsupportedError: none of the devices can ever give the metric.
    """
    selected = select_devices(trigger, snapshot)
    capable = [device for device in selected if not lacks(snapshot, device.id, trigger.metric)]
    if not capable:
        text = _unsupported_text(trigger, selected, snapshot)
        raise UnsupportedError(text, reason=Reason.NOT_SUPPORTED)
    counted = _without_double_count(trigger, snapshot, capable)
    replicas = tuple(Replica(device.id, (device.id,)) for device in counted)
    everything = "the cluster" if trigger.scope == "cluster" else "this node"
    return Workload(trigger.node or everything, replicas, scope=trigger.scope)


def counted_devices(trigger: Trigger, workload: Workload, snapshot: Snapshot) -> Workload:
    """The workload with those of its devices that count for the trigger, and its shares of them.

    ``snapshot`` holds the devices of the workload as far as they are known. A replica all of whose
    devices the trigger leaves out is left out, and so is a device that never has the metric where
    others of its replica do. A device that several replicas hold is shared equally by those that
    have been Ready.

    Raises:
        NotFoundError: the trigger leaves none of the devices.
        UnsupportedError: none of the devices can ever give the metric.
    """
    known = {device.id: device for device in snapshot.devices}
    replicas = []
    for replica in workload.replicas:
        chosen = tuple(d for d in replica.devices if _wanted(trigger, d, known.get(d)))
        if chosen or replica.problem or not replica.devices:
            capable = tuple(d for d in chosen if not lacks(snapshot, d, trigger.metric))
            counted = capable or chosen
            same = counted == replica.devices
            replicas.append(replica if same else evolve(replica, devices=counted))
    if workload.replicas and not replicas:
        raise NotFoundError(_nothing_left(trigger, workload, known))
    _require(trigger, replicas, snapshot, known)
    return evolve(workload, replicas=_with_shares(replicas))


def select_devices(trigger: Trigger, snapshot: Snapshot) -> tuple[Device, ...]:
    """The devices that ``devices``, ``vendor`` and ``node`` of the trigger leave.

    Raises:
        NoDataError, NotFoundError: as `node_workload`.
    """
    devices = snapshot.devices
    if not devices:
        raise NoDataError(_nothing_seen(snapshot), reason=Reason.ERROR)
    if trigger.node is not None:
        devices = tuple(device for device in devices if device.node == trigger.node)
        _need_seen(devices, snapshot, f"node {trigger.node}", "nodes")
    if trigger.vendor is not None:
        devices = tuple(device for device in devices if device.vendor == trigger.vendor)
        _need_seen(devices, snapshot, f"device of vendor {trigger.vendor}", "vendors")
    if trigger.devices:
        return _named(trigger.devices, devices, snapshot)
    unseen = {v for v in snapshot.unseen_vendors if trigger.vendor in (None, v)}
    if unseen and trigger.missing != "ignore":
        raise NoDataError(
            f"the devices of {', '.join(sorted(unseen))} are not known yet. {_problems(snapshot)}",
            reason=Reason.ERROR,
        )
    return devices


def _wanted(trigger: Trigger, device_id: str, device: Device | None) -> bool:
    """Whether the keys of the trigger leave this device; one that is not known may be meant."""
    if device is None:
        return True
    if trigger.node is not None and device.node != trigger.node:
        return False
    if trigger.vendor is not None and device.vendor != trigger.vendor:
        return False
    return not trigger.devices or any(_is_called(device, text) for text in trigger.devices)


def _nothing_left(trigger: Trigger, workload: Workload, known: Mapping[str, Device]) -> str:
    keys = {"node": trigger.node, "vendor": trigger.vendor, "devices": ",".join(trigger.devices)}
    written = ", ".join(f"{key}={text}" for key, text in keys.items() if text)
    held = dict.fromkeys(d for replica in workload.replicas for d in replica.devices)
    texts = [f"{d} ({known[d].vendor})" if d in known else d for d in held]
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    shown = ", ".join(texts[:MOST_NAMED])
    return f"{written} leaves none of the devices of {workload.name}, which are {shown}{more}"


def _require(
    trigger: Trigger,
    replicas: Collection[Replica],
    snapshot: Snapshot,
    known: Mapping[str, Device],
) -> None:
    held = dict.fromkeys(d for replica in replicas for d in replica.devices)
    if not held or any(replica.problem for replica in replicas):
        return
    if all(lacks(snapshot, d, trigger.metric) for d in held):
        devices = [known[d] for d in held if d in known]
        raise UnsupportedError(
            _unsupported_text(trigger, devices, snapshot), reason=Reason.NOT_SUPPORTED
        )


def _with_shares(replicas: Collection[Replica]) -> tuple[Replica, ...]:
    """A figure of a device that replicas share is divided among those that can report."""
    holders = Counter(d for replica in replicas if replica.was_ready for d in replica.devices)
    if max(holders.values(), default=0) < 2:
        return tuple(replicas)
    return tuple(
        evolve(replica, shares={d: 1 / holders[d] for d in replica.devices if holders[d] > 1})
        for replica in replicas
    )


def lacks(snapshot: Snapshot, device_id: str, metric: str) -> bool:
    """Whether this device can never give the metric."""
    failure = snapshot.failure(device_id, metric)
    return failure is not None and failure.permanent


def _named(
    wanted: Collection[str], devices: tuple[Device, ...], snapshot: Snapshot
) -> tuple[Device, ...]:
    found = []
    for text in dict.fromkeys(wanted):
        matches = [device for device in devices if _is_called(device, text)]
        _need_seen(matches, snapshot, f"device {text}", "devices")
        found.extend(matches)
    return tuple(dict.fromkeys(found))


def _is_called(device: Device, text: str) -> bool:
    """Whether this is a name of the device: its id, with or without the node, or its address."""
    spellings = {text.lower(), normal_pci_address(text)}
    own = device.id.removeprefix(f"{device.node}/")
    return (
        device.id.lower() in spellings
        or own.lower() in spellings
        or normal_pci_address(own) in spellings
        or (device.pci_address in spellings and device.parent is None)
    )


def _need_seen(found: Collection[Device], snapshot: Snapshot, what: str, kind: str) -> None:
    """Something must have been found; but what cannot be read at present may well exist."""
    if found:
        return
    seen = {_NAMES[kind](device) for device in snapshot.devices}
    names = sorted(name for name in seen if name)
    more = f" and {len(names) - MOST_KNOWN} more" if len(names) > MOST_KNOWN else ""
    text = f"no {what}; {kind} seen: {', '.join(names[:MOST_KNOWN]) or 'none'}{more}"
    if snapshot.problems:
        raise NoDataError(f"{text}. {_problems(snapshot)}", reason=Reason.ERROR)
    nameless = [d for d in snapshot.devices if d.attributes.get("identified") == "no"]
    if nameless:
        lost = f"{nameless[0].id}, which cannot be identified now, may be it"
        raise NoDataError(f"{text}; {lost}", reason=nameless[0].problem)
    raise NotFoundError(text)


_NAMES: Mapping[str, Callable[[Device], str | None]] = {
    "devices": lambda device: device.id,
    "vendors": lambda device: device.vendor,
    "nodes": lambda device: device.node,
}


def _without_double_count(
    trigger: Trigger, snapshot: Snapshot, devices: list[Device]
) -> list[Device]:
    """Either a card or its partitions: the partitions where they have the metric."""
    if trigger.devices:
        return devices  # named one by one: what the user wrote is what counts
    split = {
        device.parent
        for device in devices
        if device.parent is not None and _gives(snapshot, device.id, trigger.metric)
    }
    ids = {device.id for device in devices}
    return [
        device
        for device in devices
        if device.id not in split
        and (device.parent is None or device.parent in split or device.parent not in ids)
    ]


def _gives(snapshot: Snapshot, device_id: str, metric: str) -> bool:
    failure = snapshot.failure(device_id, metric)
    return failure is None or failure.reason is not Reason.NOT_SUPPORTED


def _unsupported_text(trigger: Trigger, devices: Collection[Device], snapshot: Snapshot) -> str:
    texts = {}
    for device in devices:
        failure = snapshot.failure(device.id, trigger.metric)
        detail = failure.detail if failure is not None else ""
        texts[device.name] = f"{device.name}: {detail or Reason.NOT_SUPPORTED}"
    return f"{trigger.metric} is not_supported here: {'; '.join(texts.values())}"


def _nothing_seen(snapshot: Snapshot) -> str:
    if snapshot.problems:
        return f"no accelerator found. {_problems(snapshot)}"
    return "no accelerator found yet"


def _problems(snapshot: Snapshot) -> str:
    texts = [f"{name}: {text}" for name, text in sorted(snapshot.problems.items())]
    more = [f"and {len(texts) - MOST_NAMED} more"] if len(texts) > MOST_NAMED else []
    return "; ".join(texts[:MOST_NAMED] + more)
