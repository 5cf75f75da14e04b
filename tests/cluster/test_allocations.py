"""What the kubelet lists becomes allocations: every spelling of ids that was seen in the wild."""

from __future__ import annotations

import logging
import random

import pytest

from accelscale.model import Allocation, Claim, Device
from accelscale.nvidia.backend import NvidiaBackend
from accelscale.testing import FakeBackend
from accelscale_server.allocations import (
    device_of_cdi_names,
    listed,
    owned_by_any,
    resolved,
    shared_devices,
    single_holders,
)
from cluster.kubelet_stand_in import answer, claim, pod

GPU = "nvidia.com/gpu"
UUID = "11111111-2222-3333-4444-555555555555"
OTHER = "11111111-2222-3333-4444-555555555556"
INSTANCE = "8c4c5a27-0000-1111-2222-333333333333"

NVIDIA = NvidiaBackend()
OTHERS = FakeBackend(name="others", vendor="others")
BACKENDS = (NVIDIA, OTHERS)


def card(uuid: str, minor: int) -> Device:
    attributes = {"minor_number": str(minor)}
    return Device(f"GPU-{uuid}", "Card", "nvidia", "nvidia", attributes=attributes)


def instance(name: str, parent: str, number: int) -> Device:
    attributes = {"gpu_instance_id": str(number), "compute_instance_id": "0"}
    return Device(name, "Slice", "nvidia", "nvidia", parent=parent, attributes=attributes)


CARDS = (card(UUID, 0), card(OTHER, 1))
PARTED = (
    card("aaaa", 0),
    instance(f"MIG-{INSTANCE}", "GPU-aaaa", 7),
    instance("MIG-third", "GPU-aaaa", 3),
    instance("MIG-12aa7c89", "GPU-aaaa", 12),
    card("bbbb", 1),
)


def allocations(*pods, devices=CARDS, backends=BACKENDS) -> tuple[Allocation, ...]:
    return resolved(listed(answer(*pods), "node-a", owned_by_any(backends)), backends, devices)


def devices_of(*pods, devices=CARDS) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    for allocation in allocations(*pods, devices=devices):
        found.setdefault(allocation.pod, []).append(allocation.device_id)
    return found


def test_an_allocation_says_who_where_and_what() -> None:
    (found,) = allocations(pod("web-0", (GPU, [f"GPU-{UUID}::3"])))
    assert found == Allocation(
        device_id=f"GPU-{UUID}",
        node="node-a",
        namespace="shop",
        pod="web-0",
        container="main",
        resource=GPU,
        allocated_id=f"GPU-{UUID}::3",
    )


def test_time_sliced_ids_lead_to_the_card_which_two_pods_share() -> None:
    found = allocations(
        pod("a", (GPU, [f"GPU-{UUID}::0"])),
        pod("b", (GPU, [f"GPU-{UUID}::3"])),
        pod("c", (GPU, [f"GPU-{OTHER}"])),
    )
    assert [each.device_id for each in found] == [f"GPU-{UUID}", f"GPU-{UUID}", f"GPU-{OTHER}"]
    assert shared_devices(found) == {f"GPU-{UUID}"}
    assert single_holders(found) == {f"GPU-{OTHER}": ("shop", "c", "main")}


def test_two_shares_in_one_container_are_one_device_that_nobody_shares() -> None:
    found = allocations(pod("a", (GPU, [f"GPU-{UUID}::0", f"GPU-{UUID}::1"])))
    assert [each.device_id for each in found] == [f"GPU-{UUID}"]
    assert not shared_devices(found)


def test_the_same_pod_name_in_two_namespaces_is_two_pods() -> None:
    found = allocations(
        pod("web-0", (GPU, [f"GPU-{UUID}::0"]), namespace="a"),
        pod("web-0", (GPU, [f"GPU-{UUID}::1"]), namespace="b"),
    )
    assert [(each.namespace, each.device_id) for each in found] == [
        ("a", f"GPU-{UUID}"),
        ("b", f"GPU-{UUID}"),
    ]
    assert shared_devices(found) == {f"GPU-{UUID}"}


def test_a_suffix_is_taken_off_only_where_a_known_device_remains() -> None:
    unknown = "GPU-99999999-0000-0000-0000-000000000000-1"
    found = devices_of(
        pod("a", (GPU, [f"GPU-{UUID}-0"])),
        pod("b", (GPU, [f"GPU-{OTHER}"])),
        pod("c", (GPU, [unknown])),
    )
    assert found == {"a": [f"GPU-{UUID}"], "b": [f"GPU-{OTHER}"], "c": [None]}


@pytest.mark.parametrize(
    ("allocated_id", "device_id"),
    [
        ("nvidia0", "GPU-aaaa"),
        ("nvidia0/gi7", f"MIG-{INSTANCE}"),
        ("nvidia0/vgpu1", "GPU-aaaa"),
        ("nvidia0/gi3/vgpu0", "MIG-third"),
        ("nvidia1", "GPU-bbbb"),
        ("nvidia10", None),
        (f"MIG-{INSTANCE}", f"MIG-{INSTANCE}"),
        (f"MIG-{INSTANCE}::2", f"MIG-{INSTANCE}"),
        ("MIG-GPU-aaaa/12/0", "MIG-12aa7c89"),
        ("12aa7c89", "MIG-12aa7c89"),
        ("12aa7c89-ffff", None),
        ("", None),
    ],
)
def test_ids_of_partitions_and_of_other_plugins(allocated_id: str, device_id: str | None) -> None:
    assert devices_of(pod("a", (GPU, [allocated_id])), devices=PARTED) == {"a": [device_id]}


def test_foreign_resources_are_left_out() -> None:
    found = devices_of(
        pod("renamed", ("nvidia.com/gpu.shared", [f"GPU-{UUID}::1"])),
        pod("parted", ("nvidia.com/mig-1g.10gb", [f"MIG-{INSTANCE}"])),
        pod("other", ("others.example/card", ["card-0"])),
        pod("network", ("vendor.example/nic", ["0"]), ("nvidia.com/hostdev", [f"GPU-{UUID}"])),
        devices=(*CARDS, *PARTED, Device("card-0", "Other", "others", "others")),
    )
    assert found == {
        "renamed": [f"GPU-{UUID}"],
        "parted": [f"MIG-{INSTANCE}"],
        "other": ["card-0"],
    }


def test_a_backend_is_asked_about_its_own_devices_only() -> None:
    found = devices_of(pod("a", ("others.example/card", [f"GPU-{UUID}"])), devices=CARDS)
    assert found == {"a": [None]}


def test_partitions_at_one_pci_address_stay_apart() -> None:
    parts = tuple(
        Device(f"xcp-{n}", "Part", "others", "others", pci_address="0000:19:00.0") for n in (0, 1)
    )
    found = devices_of(
        pod("a", ("others.example/part", ["xcp-0"])),
        pod("b", ("others.example/part", ["xcp-1"])),
        devices=parts,
    )
    assert found == {"a": ["xcp-0"], "b": ["xcp-1"]}


def test_a_resource_listed_several_times_counts_each_device_once() -> None:
    first, second = f"GPU-{UUID}", f"GPU-{OTHER}"
    found = devices_of(pod("a", (GPU, [first]), (GPU, [second]), (GPU, [first])))
    assert found == {"a": [first, second]}


def test_two_containers_of_a_pod_may_hold_one_device() -> None:
    found = allocations(
        pod("a", (GPU, [f"GPU-{UUID}"]), container="init"),
        pod("a", (GPU, [f"GPU-{UUID}"]), container="main"),
    )
    assert [each.container for each in found] == ["init", "main"]
    assert not shared_devices(found)
    assert single_holders(found) == {f"GPU-{UUID}": ("shop", "a", "")}


def test_a_claim_is_passed_on_in_the_words_of_its_driver() -> None:
    found = allocations(
        pod("a", claims=[claim("gpu.example.com", "node-a", "gpu-3", ["example.com/gpu=3"])])
    )
    assert found == (
        Allocation(
            device_id=None,
            node="node-a",
            namespace="shop",
            pod="a",
            container="main",
            allocated_id="example.com/gpu=3",
            claim=Claim("gpu.example.com", "node-a", "gpu-3"),
        ),
    )


def test_two_claims_of_one_container_are_two_unknown_devices() -> None:
    both = [claim("gpu.example.com", "node-a", f"gpu-{n}") for n in (0, 1)]
    found = allocations(pod("a", claims=both))
    assert [each.claim.device for each in found if each.claim] == ["gpu-0", "gpu-1"]
    assert [each.device_id for each in found] == [None, None]


def test_a_claim_of_which_only_the_name_is_known_is_not_lost() -> None:
    nameless = claim()
    del nameless.claim_resources[:]
    (found,) = allocations(pod("a", claims=[nameless]))
    assert (found.device_id, found.claim, found.allocated_id) == (None, None, "shop/gpu")
    (found,) = allocations(pod("a", claims=[claim(cdi=["example.com/gpu=0"])]))
    assert (found.device_id, found.claim, found.allocated_id) == (None, None, "example.com/gpu=0")


@pytest.mark.parametrize(
    ("names", "device_id"),
    [
        (f"example.com/gpu=GPU-{UUID}", f"GPU-{UUID}"),
        (f"example.com/gpu=gpu-{UUID}", f"GPU-{UUID}"),
        (f"k8s.example.com/claim=77-GPU-{OTHER}-0", f"GPU-{OTHER}"),
        (f"example.com/gpu=GPU-{UUID},example.com/ctl=control", f"GPU-{UUID}"),
        (f"example.com/gpu=GPU-{UUID},example.com/gpu=GPU-{OTHER}", None),
        (f"example.com/gpu=GPU-{UUID}5", None),
        (f"GPU-{UUID}/gpu=0", None),
        ("example.com/gpu=0", None),
        ("example.com/gpu=all", None),
        ("", None),
    ],
)
def test_a_cdi_name_counts_where_it_holds_the_id_of_one_device(
    names: str, device_id: str | None
) -> None:
    found = device_of_cdi_names(names, CARDS)
    assert (found and found.id) == device_id
    (allocation,) = allocations(pod("a", claims=[claim("d", "p", "gpu-0", names.split(","))]))
    assert allocation.device_id == device_id
    assert allocation.claim == Claim("d", "p", "gpu-0")


def test_the_order_of_the_kubelet_does_not_matter() -> None:
    pods = [pod(f"p-{n}", (GPU, [f"GPU-{UUID}::{n}", f"GPU-{OTHER}::{n}"])) for n in range(6)]
    pods.append(pod("claims", claims=[claim("d", "p", f"g{n}", ["b=1", "a=2"]) for n in range(3)]))
    expected = allocations(*pods)
    for seed in range(5):
        random.Random(seed).shuffle(pods)
        assert allocations(*pods) == expected


def test_a_plugin_that_fails_spoils_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeBackend):
        def owns_resource(self, resource: str) -> bool:
            if resource.startswith("broken.example/"):
                return True
            raise RuntimeError("no idea")

        def device_of(self, allocated_id, devices):
            raise RuntimeError("no idea either")

    backends = (Broken(name="broken"), NVIDIA)
    found = allocations(
        pod("a", (GPU, [f"GPU-{UUID}"])), pod("b", ("broken.example/x", ["0"])), backends=backends
    )
    assert [each.device_id for each in found] == [f"GPU-{UUID}", None]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
