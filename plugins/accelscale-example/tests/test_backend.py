"""Values, reasons and names of the example backend."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from trees import Results, Tree

from accelscale.errors import BackendError
from accelscale.model import Failure, Reason
from accelscale_example import ExampleBackend
from accelscale_example.backend import ROOT_VARIABLE

CARD, OTHER = "0000:17:00.0", "0000:5e:00.0"


def test_every_value_is_in_the_unit_of_the_table(
    tree: Tree, results: Callable[..., Results]
) -> None:
    tree.card(0, CARD)
    assert results() == {
        (CARD, "utilization_percent"): 40.0,
        (CARD, "memory_used_bytes"): 4 * 2.0**30,
        (CARD, "memory_total_bytes"): 32 * 2.0**30,
        (CARD, "temperature_celsius"): 61.5,
        (CARD, "power_watts"): 120.0,
        (CARD, "energy_joules_total"): pytest.approx(987.654321),
        (CARD, "ecc_uncorrected_errors_total"): 0.0,
        (CARD, "example_queue_length"): 3.0,
    }


@pytest.mark.parametrize(
    ("metric", "file", "content", "reason"),
    [
        ("utilization_percent", "busy_percent", "N/A", Reason.ERROR),
        ("utilization_percent", "busy_percent", "", Reason.ERROR),
        ("utilization_percent", "busy_percent", "4e1", Reason.ERROR),
        ("utilization_percent", "busy_percent", 65535, Reason.OUT_OF_RANGE),
        ("power_watts", "power_microwatts", None, Reason.NOT_SUPPORTED),
        ("power_watts", "power_microwatts", 0, Reason.NOT_SUPPORTED),
        ("temperature_celsius", "temperature_millicelsius", 0, Reason.NOT_SUPPORTED),
        ("temperature_celsius", "power/runtime_status", "suspended", Reason.STALE),
        ("temperature_celsius", "state", "hung", Reason.RESET_REQUIRED),
        ("temperature_celsius", "state", "firmware failed", Reason.ERROR),
        ("temperature_celsius", "state", None, Reason.LOST),
    ],
)
def test_what_is_no_reading_is_a_failure_with_the_true_reason(
    tree: Tree,
    results: Callable[..., Results],
    metric: str,
    file: str,
    content: object,
    reason: Reason,
) -> None:
    folder = tree.card(0, CARD)
    tree.write(f"{folder}/{file}", content)
    failure = results(metric)[CARD, metric]
    assert isinstance(failure, Failure)
    assert failure.reason is reason
    assert failure.detail


def test_zero_of_an_idle_card_is_a_number(tree: Tree, results: Callable[..., Results]) -> None:
    tree.card(0, CARD, busy_percent=0, queue_length=0)
    assert results("utilization_percent", "example_queue_length") == {
        (CARD, "utilization_percent"): 0.0,
        (CARD, "example_queue_length"): 0.0,
    }


def test_a_sleeping_card_is_not_read(tree: Tree, results: Callable[..., Results]) -> None:
    folder = tree.card(0, CARD)
    tree.write(f"{folder}/power/runtime_status", "suspended")
    pipe = tree.root / folder / "busy_percent"
    pipe.unlink()
    os.mkfifo(pipe)  # who opens it to read it hangs
    failure = results("utilization_percent")[CARD, "utilization_percent"]
    assert isinstance(failure, Failure)
    assert failure.reason is Reason.STALE


def test_a_partition_has_its_own_figures_and_none_of_the_card(
    tree: Tree, results: Callable[..., Results]
) -> None:
    folder = tree.card(0, CARD)
    tree.partition(folder, 1, busy_percent=70)
    found = results("utilization_percent", "memory_total_bytes", "power_watts")
    assert found[f"{CARD}/1", "utilization_percent"] == 70.0
    assert found[f"{CARD}/1", "memory_total_bytes"] == 16 * 2.0**30
    assert found[CARD, "power_watts"] == 120.0
    failure = found[f"{CARD}/1", "power_watts"]
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.permanent) == (Reason.NOT_SUPPORTED, True)


def test_devices_are_known_by_address_and_stay_listed_when_lost(tree: Tree) -> None:
    first = tree.card(1, CARD)
    tree.card(0, OTHER)
    backend = ExampleBackend(tree.root)
    backend.open()
    card, other = backend.devices()
    assert (card.id, card.pci_address, card.problem) == (CARD, CARD, None)
    assert card.attributes == {"serial_number": "EX4K-0017-3391"}
    tree.take_off_the_bus(1, first)
    lost, still = backend.devices()
    assert (lost.id, lost.problem) == (CARD, Reason.LOST)
    assert still == other
    (reading,) = backend.read([lost], ["power_watts"])
    assert [failure.reason for failure in reading.failures] == [Reason.LOST]


def test_partitions_come_and_go(tree: Tree) -> None:
    folder = tree.card(0, CARD)
    backend = ExampleBackend(tree.root)
    backend.open()
    assert [device.id for device in backend.devices()] == [CARD]
    part = tree.partition(folder, 0)
    whole, partition = backend.devices()
    assert (partition.id, partition.parent) == (f"{CARD}/0", whole.id)
    assert partition.name == "Example 4000, partition 0"
    for file in (tree.root / part).iterdir():
        file.unlink()
    (tree.root / part).rmdir()
    assert [device.id for device in backend.devices()] == [CARD]


def test_probe_says_what_is_missing(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    assert ROOT_VARIABLE in ExampleBackend().probe().reason
    monkeypatch.setenv(ROOT_VARIABLE, str(tree.root))
    probe = ExampleBackend().probe()
    assert not probe.viable
    assert "nothing in" in probe.reason
    with pytest.raises(BackendError, match="nothing in") as caught:
        ExampleBackend().open()
    assert caught.value.reason is Reason.NOT_SUPPORTED
    tree.card(0, CARD)
    tree.write("sys/module/example_accel/version", "2.7")
    probe = ExampleBackend().probe()
    assert (probe.viable, probe.version) == (True, "2.7")
    assert probe.reason.startswith("1 cards and partitions in ")


def test_names_in_a_cluster(tree: Tree) -> None:
    folder = tree.card(0, CARD)
    tree.partition(folder, 0)
    backend = ExampleBackend(tree.root)
    backend.open()
    card, partition = devices = backend.devices()
    assert backend.owns_resource("example.com/accelerator")
    assert not backend.owns_resource("example.com/accelerators")
    for spelling, device in {
        CARD: card,
        "00000000:17:00.0": card,
        "17:00.0": card,
        f"{CARD.upper()}/0": partition,
        f"{CARD}/7": None,
        "card0": None,
    }.items():
        assert backend.device_of(spelling, devices) == device
