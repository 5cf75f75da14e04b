"""Which devices count: from a trigger's selection to the replicas of a workload. Pure."""

from __future__ import annotations

from collections.abc import Collection

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
        raise UnsupportedError(_unsupported_text(trigger, selected, snapshot))
    counted = _without_double_count(trigger, snapshot, capable)
    replicas = tuple(Replica(device.id, (device.id,)) for device in counted)
    return Workload(trigger.node or "this node", replicas, scope=trigger.scope)


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
        _need(devices, f"node {trigger.node}", {device.node for device in snapshot.devices})
    if trigger.vendor is not None:
        devices = tuple(device for device in devices if device.vendor == trigger.vendor)
        _need_seen(devices, snapshot, f"device of vendor {trigger.vendor}", "vendors")
    if trigger.devices:
        devices = _named(trigger.devices, devices, snapshot)
    return devices


def lacks(snapshot: Snapshot, device_id: str, metric: str) -> bool:
    """Whether this device can never give the metric."""
    failure = snapshot.failure(device_id, metric)
    return failure is not None and failure.permanent


def _named(
    wanted: Collection[str], devices: tuple[Device, ...], snapshot: Snapshot
) -> tuple[Device, ...]:
    found = []
    for text in dict.fromkeys(wanted):
        spellings = {text.lower(), normal_pci_address(text)}
        matches = [
            device
            for device in devices
            if device.id.lower() in spellings
            or normal_pci_address(device.id) in spellings
            or (device.pci_address in spellings and device.parent is None)
        ]
        _need_seen(matches, snapshot, f"device {text}", "devices")
        found.extend(matches)
    return tuple(dict.fromkeys(found))


def _need(found: Collection[object], what: str, names: Collection[str | None]) -> None:
    if not found:
        known = ", ".join(sorted(name for name in names if name)) or "none"
        raise NotFoundError(f"no {what}; known: {known}")


def _need_seen(found: Collection[Device], snapshot: Snapshot, what: str, kind: str) -> None:
    """As `_need`, but while a backend cannot read, what it would show may well exist."""
    if found:
        return
    known = {device.vendor if kind == "vendors" else device.id for device in snapshot.devices}
    text = f"no {what}; {kind} seen: {', '.join(sorted(known))}"
    if snapshot.problems:
        raise NoDataError(f"{text}. {_problems(snapshot)}", reason=Reason.ERROR)
    raise NotFoundError(text)


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
    return [
        device
        for device in devices
        if device.id not in split
        and (device.parent is None or device.parent in split or _orphan(device, devices))
    ]


def _gives(snapshot: Snapshot, device_id: str, metric: str) -> bool:
    failure = snapshot.failure(device_id, metric)
    return failure is None or failure.reason is not Reason.NOT_SUPPORTED


def _orphan(device: Device, devices: list[Device]) -> bool:
    return all(other.id != device.parent for other in devices)


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
    return "; ".join(f"{name}: {text}" for name, text in sorted(snapshot.problems.items()))
