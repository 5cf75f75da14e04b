from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from accelscale.errors import NoDataError, UnsupportedError
from accelscale.model import Allocation, Claim, Device, Replica
from accelscale_server.claims import ClaimedDevice
from accelscale_server.pods import Pod, PodWire, pod_record
from accelscale_server.replicas import Holdings, group_replicas, leaders, pod_replicas
from kubernetes.objects import Object, pod

GPU = Device("node-a/GPU-0", "H200", "nvidia", "nvidia", node="node-a")
CLAIM = Claim("gpu.nvidia.com", "node-a", "gpu-0")
NIC = Claim("nic.example.com", "node-a", "eth0")


def record(value: Object) -> Pod:
    return pod_record(msgspec.json.decode(msgspec.json.encode(value), type=PodWire))


def holds(
    device_id: str | None,
    container: str = "server",
    resource: str = "nvidia.com/gpu",
    claim: Claim | None = None,
) -> Allocation:
    resource = "" if claim is not None else resource
    return Allocation(device_id, "node-a", "shop", "web", container, resource, "the-id", claim)


def holdings(
    *allocations: Allocation, claimed: ClaimedDevice | str = "ResourceSlices are out of sight"
) -> Holdings:
    return Holdings(lambda *_: allocations, lambda node: (GPU,), lambda claim: claimed)


def the_replica(value: Object, held: Holdings, container: str | None = None) -> Replica:
    (replica,) = pod_replicas([record(value)], held, container)
    return replica


def test_a_pod_with_the_devices_of_all_its_containers() -> None:
    held = holdings(holds("node-a/GPU-0"), holds("node-a/GPU-1", "proxy"), holds("node-a/GPU-0"))
    both = pod("web", containers=("server", "proxy"))
    assert the_replica(both, held) == Replica("web", ("node-a/GPU-0", "node-a/GPU-1"))
    assert the_replica(both, held, "proxy") == Replica("web", ("node-a/GPU-1",))


def test_whether_it_is_and_was_ready_is_told() -> None:
    held = holdings(holds("node-a/GPU-0"))
    loading = pod("web", ready=False, ready_since="2026-01-31T12:00:00Z")
    assert the_replica(loading, held) == Replica("web", ("node-a/GPU-0",), False, False)
    failing = pod("web", ready=False)
    assert the_replica(failing, held) == Replica("web", ("node-a/GPU-0",), False, True)


def test_a_pod_that_is_not_placed_yet_holds_nothing() -> None:
    made = the_replica(pod("web", node=None, phase="Pending"), holdings())
    assert made == Replica("web", (), False, False, "is not scheduled yet")


def test_a_pod_that_still_starts_may_hold_nothing() -> None:
    assert the_replica(pod("web", phase="Pending"), holdings()) == Replica("web", (), False, False)


def test_where_nobody_knows_what_it_holds_the_reason_is_told() -> None:
    def unknown(node: str, namespace: str, name: str) -> Sequence[Allocation]:
        raise NoDataError(f"no agent of {node} was heard")

    held = Holdings(unknown, lambda node: (), lambda claim: "")
    made = the_replica(pod("web"), held)
    assert made == Replica("web", (), True, True, "no agent of node-a was heard")


def test_a_running_pod_without_an_accelerator_is_an_error_that_names_it() -> None:
    with pytest.raises(UnsupportedError, match="pod shop/web on node-a holds no accelerator; give"):
        the_replica(pod("web"), holdings())
    held = holdings(holds("node-a/GPU-0"))
    with pytest.raises(UnsupportedError, match="holds no accelerator in container proxy;"):
        the_replica(pod("web", containers=("server", "proxy")), held, "proxy")


def test_a_container_that_the_pod_does_not_have_is_an_error_that_names_those_it_has() -> None:
    with pytest.raises(UnsupportedError, match="shop/web has no container srver; it has server"):
        the_replica(pod("web"), holdings(), "srver")


def test_an_id_that_nobody_knows_is_a_device_that_is_not_known() -> None:
    held = holdings(holds("node-a/GPU-0"), holds(None))
    made = the_replica(pod("web"), held)
    assert made.devices == ("node-a/GPU-0",)
    assert made.problem == "nvidia.com/gpu the-id is of no known device of its node"


def test_a_claim_is_resolved_by_what_is_published() -> None:
    held = holdings(holds(None, claim=CLAIM), claimed=ClaimedDevice(uuid="GPU-0"))
    assert the_replica(pod("web"), held) == Replica("web", ("node-a/GPU-0",))


@pytest.mark.parametrize(
    ("claimed", "why"),
    [
        ("the scaler may not see resourceslices", "the scaler may not see resourceslices"),
        (ClaimedDevice(uuid="GPU-9"), "names no device that the node's agent reads"),
        (ClaimedDevice(), "names no device that the node's agent reads"),
    ],
)
def test_a_claim_that_is_not_resolved_says_why(claimed: ClaimedDevice | str, why: str) -> None:
    made = the_replica(pod("web"), holdings(holds(None, claim=CLAIM), claimed=claimed))
    assert made.devices == ()
    assert made.problem.startswith("claimed device gpu-0 of gpu.nvidia.com is not resolved: ")
    assert why in made.problem


def test_a_claimed_network_card_is_no_lacking_accelerator() -> None:
    held = holdings(holds("node-a/GPU-0"), holds(None, claim=NIC))
    assert the_replica(pod("web"), held) == Replica("web", ("node-a/GPU-0",))


def test_a_claim_that_may_be_anything_is_told_where_there_is_nothing_else() -> None:
    made = the_replica(pod("web"), holdings(holds(None, claim=NIC)))
    assert made.problem.startswith("claimed device eth0 of nic.example.com is not resolved")
    made = the_replica(pod("web"), holdings(holds(None, resource="")))
    assert made.problem == "claim the-id is of no known device of its node"


def member(index: int, worker: int, **changes: object) -> Pod:
    name = f"llm-{index}" if worker == 0 else f"llm-{index}-{worker}"
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "llm",
        "leaderworkerset.sigs.k8s.io/group-index": str(index),
        "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
    }
    return record(pod(name, labels=labels, **changes))  # type: ignore[arg-type]


def own_device(node: str, namespace: str, name: str) -> Sequence[Allocation]:
    return (Allocation(f"{node}/GPU-{name}", node, namespace, name, "server", "nvidia.com/gpu"),)


OWN = Holdings(own_device, lambda node: (), lambda claim: "")


def test_the_pods_of_a_group_are_one_replica() -> None:
    members = [member(10, 1), member(10, 0), member(2, 0), member(2, 1)]
    assert list(group_replicas(members, OWN, None)) == [
        Replica("llm-2", ("node-a/GPU-llm-2", "node-a/GPU-llm-2-1")),
        Replica("llm-10", ("node-a/GPU-llm-10-1", "node-a/GPU-llm-10")),
    ]
    assert [each.name for each in leaders(members)] == ["llm-10", "llm-2"]


def test_a_group_is_ready_as_its_leader_is() -> None:
    loading = "2026-01-31T12:00:00Z"
    (group,) = group_replicas([member(0, 0), member(0, 1, ready=False)], OWN, None)
    assert (group.ready, group.was_ready) == (True, True)
    members = [member(0, 0, ready=False, ready_since=loading), member(0, 1)]
    (group,) = group_replicas(members, OWN, None)
    assert (group.ready, group.was_ready) == (False, False)
    (group,) = group_replicas([member(3, 1)], OWN, None)
    assert (group.name, group.ready, group.was_ready) == ("group 3", False, False)


def test_what_is_not_known_of_one_pod_is_not_known_of_its_group() -> None:
    members = [member(0, 0), member(0, 1, node=None, phase="Pending")]
    (group,) = group_replicas(members, OWN, None)
    assert group.devices == ("node-a/GPU-llm-0",)
    assert group.problem == "pod llm-0-1: is not scheduled yet"


def test_a_container_that_only_the_leader_has_is_that_of_the_group() -> None:
    leader = member(0, 0, containers=("head",))
    held = Holdings(
        lambda node, namespace, name: (Allocation("d", node, namespace, name, "head", "r"),),
        lambda node: (),
        lambda claim: "",
    )
    (group,) = group_replicas([leader, member(0, 1)], held, "head")
    assert (group.devices, group.problem) == (("d",), "")
    with pytest.raises(UnsupportedError, match="llm-0 has no container tail; it has head"):
        list(group_replicas([leader, member(0, 1)], held, "tail"))
