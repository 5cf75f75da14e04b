from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from accelscale.model import Claim, Device
from accelscale_server.claims import (
    ClaimedDevice,
    PoolSlice,
    ResourceSliceWire,
    SliceStore,
    device_of,
    pool_slice_record,
)
from kubernetes.objects import resource_slice

NVIDIA, AMD = "gpu.nvidia.com", "gpu.amd.com"
GPU = Device("GPU-aaaa", "H200", "nvidia", "nvidia", pci_address="0000:1b:00.0")
MIG = Device("MIG-bbbb", "H200 1g", "nvidia", "nvidia", parent=GPU.id, pci_address="0000:1b:00.0")
CARD = Device("0000:19:00.0", "MI300X", "amd", "amd", pci_address="0000:19:00.0")
PARTITIONS = tuple(
    Device(
        f"0000:19:00.0/{number}",
        "MI300X partition",
        "amd",
        "amd",
        parent=CARD.id,
        pci_address=CARD.pci_address,
        attributes={"render_node": f"renderD{128 + number}"},
    )
    for number in (0, 1)
)
NODE = (GPU, MIG, CARD, *PARTITIONS)


def a_slice(
    driver: str,
    devices: Mapping[str, Mapping[str, Any]],
    *,
    pool: str = "node-a",
    generation: int = 1,
    basic: bool = False,
) -> PoolSlice:
    made = resource_slice("s", driver, pool, devices, generation=generation, basic=basic)
    return pool_slice_record(msgspec.json.decode(msgspec.json.encode(made), type=ResourceSliceWire))


@pytest.mark.parametrize("basic", [False, True])
@pytest.mark.parametrize(
    ("driver", "name", "attributes", "meant"),
    [
        (NVIDIA, "gpu-0", {"type": "gpu", "uuid": "GPU-AAAA", "index": 0}, GPU),
        (NVIDIA, "gpu-0", {"type": "gpu", "gpu.nvidia.com/uuid": "GPU-aaaa"}, GPU),
        (NVIDIA, "mig-0", {"type": "mig", "uuid": "MIG-bbbb", "parentUUID": "GPU-aaaa"}, MIG),
        # Cut on demand: the slice is published before there is a UUID.
        (NVIDIA, "gpu-0-mig-1g10gb-0", {"type": "mig", "parentUUID": "GPU-aaaa"}, None),
        (
            NVIDIA,
            "gpu-0-mig-1g10gb-0",
            {"type": "mig", "resource.kubernetes.io/pciBusID": "0000:1b:00.0"},
            None,
        ),
        (NVIDIA, "gpu-7", {"type": "gpu", "uuid": "GPU-gone"}, None),
        (AMD, "gpu-0-128", {"type": "amdgpu", "pciAddr": "0000:19:00.0"}, CARD),
        (AMD, "g", {"type": "amdgpu", "resource.kubernetes.io/pciBusID": "0000:19:00.0"}, CARD),
        (
            AMD,
            "gpu-0-129",
            {"type": "amdgpu-partition", "resource.kubernetes.io/pciBusID": "0000:19:00.0"},
            PARTITIONS[1],
        ),
        (AMD, "gpu-0-cpx-nps4", {"type": "amdgpu-partition", "pciAddr": "0000:19:00.0"}, None),
        ("nic.example.com", "eth0", {"resource.kubernetes.io/pciBusID": "0000:ff:00.0"}, None),
        ("nic.example.com", "eth1", {}, None),
    ],
)
def test_what_a_slice_says_of_a_device_leads_to_it(
    driver: str, name: str, attributes: Mapping[str, Any], meant: Device | None, basic: bool
) -> None:
    claimed = a_slice(driver, {name: attributes}, basic=basic).devices[name]
    assert device_of(claimed, NODE) == meant


def test_ids_among_all_nodes_are_understood() -> None:
    there = Device("node-a/GPU-aaaa", "H200", "nvidia", "nvidia", node="node-a")
    legacy = Device("node-a/MIG-GPU-aaaa/12/0", "MIG", "nvidia", "nvidia", node="node-a")
    assert device_of(ClaimedDevice(uuid="gpu-AAAA"), (there, legacy)) == there
    assert device_of(ClaimedDevice(uuid="MIG-GPU-aaaa/12/0"), (there, legacy)) == legacy


def test_where_two_devices_could_be_meant_it_is_none() -> None:
    twins = (GPU, Device("GPU-cccc", "H200", "nvidia", "nvidia", pci_address=GPU.pci_address))
    assert device_of(ClaimedDevice(pci_address="0000:1b:00.0"), twins) is None


def test_claims_are_found_by_driver_pool_and_device() -> None:
    store = SliceStore()
    store.put(("", "a"), a_slice(NVIDIA, {"gpu-0": {"uuid": "GPU-a"}}))
    store.put(("", "b"), a_slice(NVIDIA, {"gpu-0": {"uuid": "GPU-b"}}, pool="node-b"))
    store.put(("", "c"), a_slice(AMD, {"gpu-0": {"uuid": "GPU-c"}}))
    found = store.device(Claim(NVIDIA, "node-b", "gpu-0"))
    assert found is not None
    assert found.uuid == "GPU-b"
    assert store.device(Claim(NVIDIA, "node-a", "gpu-1")) is None
    assert store.device(Claim("other", "node-a", "gpu-0")) is None
    store.drop(("", "b"))
    assert store.device(Claim(NVIDIA, "node-b", "gpu-0")) is None


def test_the_newest_generation_of_a_pool_counts() -> None:
    store = SliceStore()
    claim = Claim(NVIDIA, "node-a", "gpu-0")
    store.put(("", "new"), a_slice(NVIDIA, {"gpu-0": {"uuid": "GPU-new"}}, generation=2))
    store.put(("", "old"), a_slice(NVIDIA, {"gpu-0": {"uuid": "GPU-old"}}, generation=1))
    assert store.device(claim) == ClaimedDevice(uuid="GPU-new")
    store.put(("", "new"), a_slice(NVIDIA, {"gpu-1": {"uuid": "GPU-1"}}, generation=2))
    assert store.device(claim) == ClaimedDevice(uuid="GPU-old")  # the rest is still to come
