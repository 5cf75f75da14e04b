"""The ids that device plugins hand out, and the devices that they mean."""

from __future__ import annotations

import pytest

from accelscale.model import Device
from accelscale.nvidia.resources import device_of, owns_resource

U1 = "GPU-11111111-2222-3333-4444-555555555555"
U2 = "GPU-11111111-2222-3333-4444-555555555556"
TEN = "GPU-aaaaaaaa-2222-3333-4444-555555555555"
MIG_3 = "MIG-8c4c5a27-0000-1111-2222-333333333333"
MIG_7 = "MIG-12aa7c89-0000-1111-2222-333333333333"


def device(device_id: str, parent: str | None = None, **attributes: str) -> Device:
    return Device(
        device_id, "NVIDIA A100", "nvidia", "nvidia", parent=parent, attributes=attributes
    )


DEVICES = (
    device(U1, minor_number="0"),
    device(U2, minor_number="1"),
    device(TEN, minor_number="10"),
    device(MIG_3, U1, gpu_instance_id="3", compute_instance_id="0"),
    device(MIG_7, U1, gpu_instance_id="7", compute_instance_id="0"),
)


@pytest.mark.parametrize(
    ("allocated", "expected"),
    [
        (U1, U1),
        (f"{U1}::0", U1),
        (f"{U1}::3", U1),
        (f"{U1}::12", U1),
        (f"{U1}-0", U1),
        (U2, U2),
        ("GPU-99999999-0000-0000-0000-000000000000-1", None),
        ("GPU-99999999-0000-0000-0000-000000000000", None),
        (U1.removeprefix("GPU-"), U1),
        (MIG_3, MIG_3),
        (f"{MIG_3}::1", MIG_3),
        (f"MIG-{U1}/7/0", MIG_7),
        (f"MIG-{U1}/7/1", None),
        (f"MIG-{U1}/12/0", None),
        (MIG_7.removeprefix("MIG-"), MIG_7),
        ("12aa7c89-9999-1111-2222-333333333333", None),
        ("nvidia0", U1),
        ("nvidia1", U2),
        ("nvidia10", TEN),
        ("nvidia2", None),
        ("nvidia00", None),
        ("nvidia0/gi7", MIG_7),
        ("nvidia0/gi3", MIG_3),
        ("nvidia0/gi1", None),
        ("nvidia1/gi7", None),
        ("nvidia0/vgpu1", U1),
        ("nvidia0/gi3/vgpu0", MIG_3),
        ("nvidia0/gi", None),
        ("0", None),
        ("1", None),
        ("", None),
        ("::0", None),
        ("MIG-", None),
        ("GPU-", None),
    ],
)
def test_an_id_means_its_device(allocated: str, expected: str | None) -> None:
    found = device_of(allocated, DEVICES)
    assert (found.id if found else None) == expected


def test_an_ambiguous_instance_is_no_device() -> None:
    second = device("MIG-second", U1, gpu_instance_id="7", compute_instance_id="1")
    assert device_of("nvidia0/gi7", (*DEVICES, second)) is None
    assert device_of(f"MIG-{U1}/7/1", (*DEVICES, second)) is second


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/mig-1g.5gb.me",
        "nvidia.com/mig-1g.10gb+me",
        "nvidia.com/mig-3g.40gb.shared",
    ],
)
def test_resources_of_gpus_are_ours(resource: str) -> None:
    assert owns_resource(resource)


@pytest.mark.parametrize(
    "resource",
    [
        "amd.com/gpu",
        "vendor.example/nic",
        "nvidia.com/hostdev",
        "nvidia.com/gpumem",
        "nvidia.com/mig-",
        "example.com/nvidia.com/gpu",
        "gpu",
        "",
    ],
)
def test_other_resources_are_not(resource: str) -> None:
    assert not owns_resource(resource)
