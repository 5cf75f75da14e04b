"""Which device a dynamic resource claim means, by the ResourceSlice of its driver.

The kubelet tells a claim as driver, pool and device (``gpu-0``); the slices of that pool hold the
device's UUID or PCI address. NVIDIA's driver publishes ``uuid``, also of a static MIG device, but
not of one that is cut on demand; AMD's publishes the PCI address, and for a partition that of its
card, with the number of its render node in the name (``gpu-0-129``). In doubt there is no device:
a partition is never taken for its card.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec
from attrs import field, frozen

from accelscale.model import Claim, Device, normal_pci_address
from accelscale_server.watching import Collection, Key, Store, Wire

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")
"""Versions of the API that are understood, the best first."""

ACCELERATOR_DRIVERS = re.compile(r"(gpu|mig|npu|tpu|gaudi|neuron)\..+")
"""Drivers whose devices are accelerators also while it is not known which; others may be of
network cards or processors."""

_ADDRESSES = ("pciBusID", "pciAddr", "pciAddress")
_RENDER_NODE = re.compile(r"gpu-[0-9]+-([0-9]+)")


@frozen
class ClaimedDevice:
    """What a slice tells of a device. A ``part`` of a card has the card's PCI address."""

    uuid: str | None = None
    pci_address: str | None = None
    render_node: str | None = None
    part: bool = False


@frozen
class PoolSlice:
    """Some devices of a pool; those of an older ``generation`` are replaced soon."""

    driver: str
    pool: str
    generation: int
    devices: Mapping[str, ClaimedDevice] = field(hash=False)


class _Attribute(msgspec.Struct):
    string: str | None = None
    version: str | None = None


class _Basic(msgspec.Struct):
    attributes: dict[str, _Attribute] | None = None


class _Device(msgspec.Struct):
    name: str
    attributes: dict[str, _Attribute] | None = None
    basic: _Basic | None = None  # v1beta1 and before


class _Pool(msgspec.Struct):
    name: str
    generation: int = 0


class _SliceSpec(msgspec.Struct):
    driver: str
    pool: _Pool
    devices: list[_Device] | None = None


class ResourceSliceWire(Wire):
    """A ResourceSlice as it arrives."""

    spec: _SliceSpec


def resource_slices(version: str) -> Collection:
    """The ResourceSlices of the cluster."""
    return Collection(GROUP, version, "resourceslices")


def pool_slice_record(wire: ResourceSliceWire) -> PoolSlice:
    """What is kept of a slice: devices that can be told apart."""
    spec = wire.spec
    devices = {device.name: _claimed(device) for device in spec.devices or ()}
    return PoolSlice(spec.driver, spec.pool.name, spec.pool.generation, devices)


def _claimed(device: _Device) -> ClaimedDevice:
    attributes = device.attributes or (device.basic and device.basic.attributes) or {}
    texts = {name.rpartition("/")[2]: value.string for name, value in attributes.items()}
    kind = texts.get("type") or ""
    part = "partition" in kind or "mig" in kind
    match = _RENDER_NODE.fullmatch(device.name) if part else None
    address = next((texts[name] for name in _ADDRESSES if texts.get(name)), None)
    return ClaimedDevice(
        uuid=texts.get("uuid") or None,
        pci_address=normal_pci_address(address) if address else None,
        render_node=f"renderD{match[1]}" if match else None,
        part=part,
    )


class SliceStore(Store[PoolSlice]):
    """All slices, found by driver and pool."""

    def __init__(self) -> None:
        super().__init__()
        self._by_pool: defaultdict[tuple[str, str], dict[Key, PoolSlice]] = defaultdict(dict)

    def noted(self, key: Key, old: PoolSlice | None, new: PoolSlice | None) -> None:
        """Keep the index current."""
        if old is not None:
            del self._by_pool[old.driver, old.pool][key]
        if new is not None:
            self._by_pool[new.driver, new.pool][key] = new

    def device(self, claim: Claim) -> ClaimedDevice | None:
        """What the newest slice of its pool tells of a claim's device, or None."""
        slices = self._by_pool.get((claim.driver, claim.pool), {}).values()
        for each in sorted(slices, key=lambda each: -each.generation):
            if claim.device in each.devices:
                return each.devices[claim.device]
        return None


def device_of(claimed: ClaimedDevice, devices: Iterable[Device]) -> Device | None:
    """The one device of a node that is meant, or None.

    Ids may be those among all nodes, NODE/ID.
    """
    found = [device for device in devices if _is(claimed, device)]
    return found[0] if len(found) == 1 else None


def _is(claimed: ClaimedDevice, device: Device) -> bool:
    if claimed.uuid is not None:
        return device.id.removeprefix(f"{device.node}/").lower() == claimed.uuid.lower()
    if claimed.pci_address is None or device.pci_address != claimed.pci_address:
        return False
    if not claimed.part:
        return device.parent is None
    wanted = claimed.render_node
    return wanted is not None and device.attributes.get("render_node") == wanted
