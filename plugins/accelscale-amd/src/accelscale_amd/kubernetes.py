"""What Kubernetes calls AMD GPUs: as AMD's device plugin has it (ROCm/k8s-device-plugin).

A card is ``amd.com/gpu`` with its PCI address as id. A split card's first partition goes by that
address too, the others by the names of their devices, such as ``amdgpu_xcp_3``. Where cards are
split in different ways the resource is named by the way, such as ``amd.com/cpx_nps4``. Time slices
of one device end in ``-slice-`` and a number. Passed-through cards (``gpu_pf``, ``gpu_vf``) belong
to virtual machines, and their load is not seen from here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from accelscale.model import Device, normal_pci_address

_RESOURCE = re.compile(r"amd\.com/(gpu|(spx|dpx|tpx|qpx|cpx)_nps[1248])")
_SLICE = re.compile(r"-slice-[0-9]+")


def is_gpu_resource(resource: str) -> bool:
    """Whether the resource is made of GPUs; ``amd.com/xilinx_…`` is made of FPGAs."""
    return _RESOURCE.fullmatch(resource) is not None


def device_of(allocated_id: str, devices: Sequence[Device]) -> Device | None:
    """The device that the kubelet means."""
    exact = next((device for device in devices if device.id == allocated_id), None)
    if exact is not None:
        return exact
    head, separator, number = allocated_id.rpartition("-slice-")
    wanted = head if separator and _SLICE.fullmatch(separator + number) else allocated_id
    spellings = {wanted.lower(), normal_pci_address(wanted)}
    split = {device.parent for device in devices if device.parent is not None}
    for device in devices:
        name = device.attributes.get("kubelet_id") or device.pci_address
        if device.id not in split and name in spellings:
            return device
    return None
