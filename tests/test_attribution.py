from __future__ import annotations

import pytest
from attrs import evolve

from accelscale.attribution import counted_devices, node_workload
from accelscale.errors import NoDataError, NotFoundError, UnsupportedError
from accelscale.model import Device, Failure, Reason, Replica, Snapshot, Workload
from fleets import NOW, trigger

CARD_A = Device("GPU-aaaa", "Big", "nvidia", "nvidia", pci_address="0000:1b:00.0", node="n1")
CARD_B = Device("GPU-bbbb", "Big", "nvidia", "nvidia", pci_address="000f:01:00.0", node="n1")
OTHER = Device("0000:03:00.0", "Red", "amd", "amd", pci_address="0000:03:00.0", node="n2")
SLICES = tuple(
    Device(f"MIG-{n}", "Slice", "nvidia", "nvidia", parent="GPU-aaaa", pci_address="0000:1b:00.0")
    for n in range(2)
)


def snapshot(
    *devices: Device,
    lacking: dict[str, str] | None = None,
    mode: dict[str, str] | None = None,
    problems: dict[str, str] | None = None,
) -> Snapshot:
    """``lacking`` devices never have the metric named, ``mode`` ones do not have it at present."""
    failures = {
        (device_id, metric): Failure(
            device_id, metric, Reason.NOT_SUPPORTED, "not on this model", permanent=permanent
        )
        for found, permanent in ((lacking, True), (mode, False))
        for device_id, metric in (found or {}).items()
    }
    return Snapshot(NOW, 1, 1.0, devices, failures=failures, problems=problems or {})


def counted(seen: Snapshot, **keys: str) -> list[str]:
    workload = node_workload(trigger(scope="node", **keys), seen)
    assert all(replica.devices == (replica.name,) for replica in workload.replicas)
    return [replica.name for replica in workload.replicas]


def test_every_device_is_a_replica() -> None:
    assert counted(snapshot(CARD_A, CARD_B, OTHER)) == ["GPU-aaaa", "GPU-bbbb", "0000:03:00.0"]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"vendor": "amd"}, ["0000:03:00.0"]),
        ({"vendor": "NVIDIA"}, ["GPU-aaaa", "GPU-bbbb"]),
        ({"node": "n2"}, ["0000:03:00.0"]),
        ({"devices": "GPU-bbbb"}, ["GPU-bbbb"]),
        ({"devices": "gpu-BBBB,GPU-bbbb"}, ["GPU-bbbb"]),
        ({"devices": "0000000F:01:00.0"}, ["GPU-bbbb"]),
        ({"devices": "GPU-bbbb,GPU-aaaa"}, ["GPU-bbbb", "GPU-aaaa"]),
    ],
)
def test_keys_narrow_the_devices(keys: dict[str, str], expected: list[str]) -> None:
    assert counted(snapshot(CARD_A, CARD_B, OTHER), **keys) == expected


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"devices": "GPU-x"}, "no device GPU-x; devices seen: .*GPU-aaaa, GPU-bbbb"),
        ({"devices": "GPU-aaaa,GPU-x"}, "no device GPU-x"),
        ({"vendor": "intel"}, "no device of vendor intel; vendors seen: amd, nvidia"),
        ({"node": "n3"}, "no node n3; nodes seen: n1, n2"),
    ],
)
def test_what_does_not_exist_is_named_with_what_does(keys: dict[str, str], words: str) -> None:
    with pytest.raises(NotFoundError, match=words):
        counted(snapshot(CARD_A, CARD_B, OTHER), **keys)


def test_while_a_backend_cannot_read_what_it_would_show_may_exist() -> None:
    seen = snapshot(OTHER, problems={"nvidia": "driver not loaded"})
    for keys in ({"devices": "GPU-aaaa"}, {"vendor": "nvidia"}):
        with pytest.raises(NoDataError, match="nvidia: driver not loaded"):
            counted(seen, **keys)


def test_while_a_backend_that_was_asked_for_shows_nothing_nobody_knows_what_counts() -> None:
    seen = evolve(
        snapshot(OTHER, problems={"nvidia": "driver not loaded"}),
        unseen_vendors=frozenset({"nvidia"}),
    )
    with pytest.raises(NoDataError, match="devices of nvidia are not known yet"):
        counted(seen)
    assert counted(seen, vendor="amd") == ["0000:03:00.0"]
    assert counted(seen, devices="0000:03:00.0") == ["0000:03:00.0"]
    assert counted(seen, missing="ignore") == ["0000:03:00.0"]


def test_a_device_that_cannot_be_identified_may_be_the_one() -> None:
    nameless = Device(
        "nvidia-unidentified-1",
        "unidentified",
        "nvidia",
        "nvidia",
        problem=Reason.LOST,
        attributes={"identified": "no"},
    )
    with pytest.raises(NoDataError, match="may be it") as caught:
        counted(snapshot(CARD_A, nameless), devices="GPU-x")
    assert caught.value.reason is Reason.LOST


def test_no_device_at_all_is_no_data_with_what_was_tried() -> None:
    with pytest.raises(NoDataError, match="no accelerator found yet"):
        counted(snapshot())
    with pytest.raises(NoDataError, match=r"no accelerator found\. nvidia: no library"):
        counted(snapshot(problems={"nvidia": "no library"}))


def test_a_metric_that_the_hardware_never_has_names_model_and_reason() -> None:
    lacking = {"GPU-aaaa": "utilization_percent", "GPU-bbbb": "utilization_percent"}
    with pytest.raises(UnsupportedError, match="Big: not on this model"):
        counted(snapshot(CARD_A, CARD_B, lacking=lacking))


def test_a_device_that_never_has_the_metric_does_not_stand_in_the_way_of_others() -> None:
    lacking = {"0000:03:00.0": "utilization_percent"}
    assert counted(snapshot(CARD_A, OTHER, lacking=lacking)) == ["GPU-aaaa"]


def test_partitions_stand_for_their_card_where_they_have_the_metric() -> None:
    assert counted(snapshot(CARD_A, CARD_B, *SLICES)) == ["GPU-bbbb", "MIG-0", "MIG-1"]


def test_the_card_stands_for_its_partitions_where_they_lack_the_metric() -> None:
    lacking = {slice_.id: "utilization_percent" for slice_ in SLICES}
    assert counted(snapshot(CARD_A, *SLICES, lacking=lacking)) == ["GPU-aaaa"]
    assert counted(snapshot(CARD_A, *SLICES, mode=lacking)) == ["GPU-aaaa"]


def test_partitions_count_without_their_card_in_sight() -> None:
    assert counted(snapshot(*SLICES)) == ["MIG-0", "MIG-1"]


def test_what_is_named_one_by_one_counts_as_written() -> None:
    assert counted(snapshot(CARD_A, *SLICES), devices="GPU-aaaa,MIG-1") == ["GPU-aaaa", "MIG-1"]
    assert counted(snapshot(CARD_A, *SLICES), devices="0000:1b:00.0") == ["GPU-aaaa"]


def test_of_many_names_and_problems_some_are_shown() -> None:
    many = [Device(f"card-{n:02}", "Toy", "toy", "toy") for n in range(25)]
    with pytest.raises(NotFoundError, match="card-19 and 5 more"):
        counted(snapshot(*many), devices="card-99")
    with pytest.raises(NoDataError, match=r"a-2: silent; and 2 more$"):
        counted(
            snapshot(*many, problems=dict.fromkeys(map("a-{}".format, range(5)), "silent")),
            devices="x",
        )


def test_the_workload_of_scope_cluster_is_the_cluster() -> None:
    assert node_workload(trigger(scope="cluster"), snapshot(CARD_A)).name == "the cluster"
    assert node_workload(trigger(scope="node", node="n1"), snapshot(CARD_A)).name == "n1"


# The devices of a workload. In a fleet a device's id begins with its node.

LEFT = Device("n1/GPU-aaaa", "Big", "nvidia", "nvidia", node="n1", pci_address="0000:1b:00.0")
RIGHT = Device("n2/0000:03:00.0", "Red", "amd", "amd", node="n2", pci_address="0000:03:00.0")


def web(**pods: str) -> Workload:
    """Pods with the devices that they hold, separated by spaces."""
    replicas = tuple(Replica(name, tuple(devices.split())) for name, devices in pods.items())
    return Workload("web", replicas, "shop", "workload")


def held(workload: Workload, seen: Snapshot, **keys: str) -> dict[str, tuple[str, ...]]:
    found = counted_devices(trigger(scope="workload", **keys), workload, seen)
    assert (found.name, found.namespace, found.scope) == ("web", "shop", "workload")
    return {replica.name: replica.devices for replica in found.replicas}


BOTH = web(a="n1/GPU-aaaa", b="n2/0000:03:00.0")


@pytest.mark.parametrize(
    "keys",
    [
        {"vendor": "amd"},
        {"node": "n2"},
        {"devices": "0000:03:00.0"},
        {"devices": "n2/0000:03:00.0"},
        {"devices": "00000000:03:00.0,GPU-x"},
    ],
)
def test_keys_leave_the_replicas_that_hold_such_devices(keys: dict[str, str]) -> None:
    assert held(BOTH, snapshot(LEFT, RIGHT), **keys) == {"b": ("n2/0000:03:00.0",)}


def test_without_keys_all_devices_of_a_workload_count() -> None:
    assert held(BOTH, snapshot(LEFT, RIGHT)) == {"a": ("n1/GPU-aaaa",), "b": ("n2/0000:03:00.0",)}
    assert held(web(), snapshot()) == {}


def test_of_a_replica_the_devices_count_that_the_keys_leave() -> None:
    workload = web(a="n1/GPU-aaaa n2/0000:03:00.0")
    assert held(workload, snapshot(LEFT, RIGHT), vendor="nvidia") == {"a": ("n1/GPU-aaaa",)}


def test_a_device_that_is_not_known_may_be_the_one_that_is_meant() -> None:
    assert held(BOTH, snapshot(LEFT), vendor="amd") == {"b": ("n2/0000:03:00.0",)}


def test_a_replica_of_which_nothing_is_known_stays_and_is_silent() -> None:
    unknown = Replica("c", (), problem="no agent of n3 was heard")
    starting = Replica("d", (), was_ready=False)
    workload = Workload("web", (*BOTH.replicas, unknown, starting), "shop", "workload")
    found = counted_devices(trigger(scope="workload", node="n1"), workload, snapshot(LEFT, RIGHT))
    assert [replica.name for replica in found.replicas] == ["a", "c", "d"]


def test_keys_that_leave_nothing_are_answered_with_what_there_is() -> None:
    with pytest.raises(
        NotFoundError, match=r"vendor=intel leaves none .* of web, which are n1/GPU-aaaa \(nvidia\)"
    ):
        held(BOTH, snapshot(LEFT, RIGHT), vendor="intel")
    many = web(a=" ".join(f"n1/card-{n}" for n in range(5)))
    cards = [Device(f"n1/card-{n}", "Toy", "toy", "toy", node="n1") for n in range(4)]
    assert held(many, snapshot(*cards), node="n9") == {"a": ("n1/card-4",)}
    cards.append(Device("n1/card-4", "Toy", "toy", "toy", node="n1"))
    with pytest.raises(
        NotFoundError, match=r"node=n9, devices=x leaves .* n1/card-2 \(toy\) and 2 more"
    ):
        held(many, snapshot(*cards), node="n9", devices="x")


def test_a_device_that_never_has_the_metric_counts_only_if_its_replica_has_no_other() -> None:
    lacking = {RIGHT.id: "utilization_percent"}
    seen = snapshot(LEFT, RIGHT, lacking=lacking)
    assert held(web(a="n1/GPU-aaaa n2/0000:03:00.0"), seen) == {"a": ("n1/GPU-aaaa",)}
    assert held(BOTH, seen) == {"a": ("n1/GPU-aaaa",), "b": ("n2/0000:03:00.0",)}


def test_a_workload_that_can_never_have_the_metric_is_told_so() -> None:
    lacking = {LEFT.id: "utilization_percent", RIGHT.id: "utilization_percent"}
    seen = snapshot(LEFT, RIGHT, lacking=lacking)
    with pytest.raises(
        UnsupportedError, match="Big: not on this model; Red: not on this model"
    ) as caught:
        held(BOTH, seen)
    assert caught.value.reason is Reason.NOT_SUPPORTED
    unknown = Replica("c", (), problem="no agent of n3 was heard")
    workload = Workload("web", (*BOTH.replicas, unknown))
    assert len(counted_devices(trigger(), workload, seen).replicas) == 3


def test_a_device_is_shared_by_the_replicas_that_hold_it_and_have_been_ready() -> None:
    card = ("n1/GPU-aaaa",)
    replicas = (
        Replica("a", card),
        Replica("b", (*card, "n2/0000:03:00.0")),
        Replica("starting", card, ready=False, was_ready=False),
    )
    seen = snapshot(LEFT, RIGHT)
    found = counted_devices(trigger(), Workload("web", replicas), seen).replicas
    assert [dict(replica.shares) for replica in found[:2]] == [{"n1/GPU-aaaa": 0.5}] * 2
    alone = counted_devices(trigger(), Workload("web", replicas[1:]), seen).replicas
    assert [dict(replica.shares) for replica in alone] == [{}, {}]
