"""What Kubernetes calls NVIDIA devices: resource names, and the ids that device plugins hand out.

========================= =============================================================
``GPU-uuid``, ``MIG-uuid`` NVIDIA's plugin
``GPU-uuid::3``            the same, time-sliced or under MPS (NVIDIA/dcgm-exporter#151)
``GPU-uuid-3``             other sharing schemes (Project-HAMi/HAMi#112)
``MIG-GPU-uuid/7/0``       MIG under drivers before 470: GPU and compute instance of a card
``nvidia0``                GKE's plugin: the minor number (NVIDIA/dcgm-exporter#97)
``nvidia0/gi7``            ... a MIG instance of it, by its GPU instance
``nvidia0/gi7/vgpu1``      ... shared, with or without MIG
========================= =============================================================

A suffix is taken off only where a known device remains: UUIDs are full of dashes and digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from accelscale.model import Device

_RESOURCE = re.compile(r"nvidia\.com/(gpu|mig-[a-z0-9.+-]+?)(\.shared)?")
_SHARE = re.compile(r"(.+?)(?:::\d+|-\d+|/vgpu\d+)")
_GKE = re.compile(r"nvidia(\d+)(?:/gi(\d+))?")
_OLD_MIG = re.compile(r"MIG-(GPU-.+)/(\d+)/(\d+)")


def owns_resource(resource: str) -> bool:
    """Whether an extended resource consists of GPUs or their MIG instances."""
    return _RESOURCE.fullmatch(resource) is not None


def device_of(allocated_id: str, devices: Sequence[Device]) -> Device | None:
    """The device that a device plugin means by an id, or None if it is not among these.

    MIG instances are told by ``parent`` and the attributes ``gpu_instance_id`` and
    ``compute_instance_id``, cards by ``minor_number``.
    """
    found = _exact(allocated_id, devices)
    if found is None and (share := _SHARE.fullmatch(allocated_id)):
        found = _exact(share[1], devices)
    return found


def _exact(allocated_id: str, devices: Sequence[Device]) -> Device | None:
    names = {allocated_id, f"GPU-{allocated_id}", f"MIG-{allocated_id}"}
    for device in devices:
        if device.id in names:
            return device
    if match := _OLD_MIG.fullmatch(allocated_id):
        return _instance(devices, match[1], match[2], match[3])
    if match := _GKE.fullmatch(allocated_id):
        card = _card_of_minor(devices, match[1])
        if card is None or match[2] is None:
            return card
        return _instance(devices, card.id, match[2], None)
    return None


def _card_of_minor(devices: Sequence[Device], minor: str) -> Device | None:
    for device in devices:
        if device.parent is None and device.attributes.get("minor_number") == minor:
            return device
    return None


def _instance(
    devices: Sequence[Device], parent: str, gpu_instance: str, compute_instance: str | None
) -> Device | None:
    """The one instance that fits; None where several do, since a wrong one is worse."""
    fitting = [
        device
        for device in devices
        if device.parent == parent
        and device.attributes.get("gpu_instance_id") == gpu_instance
        and compute_instance in {None, device.attributes.get("compute_instance_id")}
    ]
    return fitting[0] if len(fitting) == 1 else None
