from __future__ import annotations

import pytest

from accelscale.attribution import node_workload
from accelscale.errors import NoDataError, NotFoundError, UnsupportedError
from accelscale.model import Device, Failure, Reason, Snapshot
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
        ({"node": "n3"}, "no node n3; known: n1, n2"),
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
