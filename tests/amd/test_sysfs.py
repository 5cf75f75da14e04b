"""Cards in one piece, read from files alone."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from accelscale.model import Reason
from amd.conftest import FIRST, SECOND, Results, failure_of
from amd.trees import GIBIBYTE, Tree

Read = Callable[..., Results]


def test_a_healthy_card(tree: Tree, results: Read) -> None:
    card = tree.card(FIRST)
    tree.process(4711, queues=[1001])
    found = results()
    assert {metric: value for (_, metric), value in found.items()} == {
        "utilization_percent": 50,
        "memory_bandwidth_utilization_percent": 20,
        "memory_used_bytes": 40 * GIBIBYTE,
        "memory_total_bytes": 192 * GIBIBYTE,
        "temperature_celsius": 60,
        "memory_temperature_celsius": 45,
        "slowdown_temperature_celsius": 100,
        "power_watts": 300,
        "power_limit_watts": 750,
        "energy_joules_total": 1,
        "throttled_power_seconds_total": 0,
        "throttled_thermal_seconds_total": 0,
        "sm_clock_megahertz": 2100,
        "memory_clock_megahertz": 1300,
        "interconnect_receive_bytes_total": 30 * 1024,
        "interconnect_transmit_bytes_total": 3 * 1024,
        "ecc_uncorrected_errors_total": 0,
        "process_count": 1,
        "amd_video_utilization_percent": 2,
    }
    assert {device for device, _ in found} == {card.address}


def test_the_limit_is_in_microwatts(tree: Tree, results: Read) -> None:
    tree.card(FIRST).sensor("power1_cap", 750_000_000)
    assert results("power_limit_watts")[FIRST, "power_limit_watts"] == 750


@pytest.mark.parametrize(
    ("average", "momentary", "watts"),
    [
        (94_000_000, None, 94),
        (None, 717_000_000, 717),
        (0, 717_000_000, 717),
        ("N/A", None, None),
        ("N/A", 0, None),
        ("N/A", 717_000_000, 717),
    ],
)
def test_each_generation_fills_another_power_field(
    tree: Tree, results: Read, average: object, momentary: object, watts: float | None
) -> None:
    card = tree.card(FIRST)
    card.sensor("power1_average", average)
    card.sensor("power1_input", momentary)
    result = results("power_watts")[FIRST, "power_watts"]
    if watts is None:
        assert failure_of(result).detail
    else:
        assert result == watts


@pytest.mark.parametrize("average", [None, 0])
def test_no_power_sensor_is_no_zero(tree: Tree, results: Read, average: object) -> None:
    tree.card(FIRST).sensor("power1_average", average)
    failure = failure_of(results("power_watts")[FIRST, "power_watts"])
    assert failure.reason is Reason.NOT_SUPPORTED
    assert not failure.permanent


def test_the_second_die_has_no_power(tree: Tree, results: Read) -> None:
    first = tree.card(FIRST, device="0x740c")
    second = tree.card(SECOND, device="0x740c")
    for name in ("power1_average", "power1_cap"):
        second.sensor(name, 0)
    first.table((1, 3), energy_accumulator=65536)
    second.table((1, 3), energy_accumulator=0)
    found = results("power_watts", "power_limit_watts", "energy_joules_total")
    assert found[FIRST, "power_watts"] == 300
    assert found[FIRST, "energy_joules_total"] == 1  # this firmware's unit is published
    for metric in ("power_watts", "power_limit_watts", "energy_joules_total"):
        failure = failure_of(found[SECOND, metric])
        assert failure.reason is Reason.NOT_SUPPORTED
        assert failure.permanent
        assert "first one only" in failure.detail


@pytest.mark.parametrize(
    ("revision", "device", "known"),
    [
        ((1, 3), "0x744c", False),  # a Radeon
        ((1, 3), "0x740f", True),  # an MI210
        ((1, 4), "0x74a1", True),
        ((1, 8), "0x75a0", True),
    ],
)
def test_energy_only_where_its_unit_is_published(
    tree: Tree, results: Read, revision: tuple[int, int], device: str, known: bool
) -> None:
    card = tree.card(FIRST, device=device)
    card.table(revision, energy_accumulator=3 * 65536)
    result = results("energy_joules_total")[FIRST, "energy_joules_total"]
    if known:
        assert result == 3
    else:
        failure = failure_of(result)
        assert failure.reason is Reason.NOT_SUPPORTED
        assert failure.permanent
        assert "unit" in failure.detail


def test_a_table_of_an_unknown_revision(tree: Tree, results: Read) -> None:
    card = tree.card(FIRST)
    card.write_bytes("gpu_metrics", bytes([0, 1, 1, 42]) + bytes(252))
    found = results()
    for metric in (
        "energy_joules_total",
        "throttled_power_seconds_total",
        "throttled_thermal_seconds_total",
        "interconnect_receive_bytes_total",
        "amd_video_utilization_percent",
    ):
        failure = failure_of(found[FIRST, metric])
        assert failure.reason is Reason.NOT_SUPPORTED
        assert "1.42" in failure.detail
    assert found[FIRST, "utilization_percent"] == 50


def test_no_link_is_no_zero(tree: Tree, results: Read) -> None:
    card = tree.card(FIRST)
    card.table((1, 6), xgmi_link_width=0, xgmi_read_data_acc=[0] * 8, xgmi_write_data_acc=[0] * 8)
    metric = "interconnect_receive_bytes_total"
    assert failure_of(results(metric)[FIRST, metric]).reason is Reason.NOT_SUPPORTED
    card.table((1, 6), xgmi_link_width=16, xgmi_read_data_acc=[0] * 8, xgmi_write_data_acc=[0] * 8)
    assert results(metric)[FIRST, metric] == 0  # links that have carried nothing yet


def test_junction_before_edge(tree: Tree, results: Read) -> None:
    card = tree.card(FIRST)
    for name in ("temp2_label", "temp2_input", "temp2_crit"):
        card.sensor(name, None)
    card.sensor("temp1_crit", 95_000)
    found = results("temperature_celsius", "slowdown_temperature_celsius")
    assert found[FIRST, "temperature_celsius"] == 50
    assert found[FIRST, "slowdown_temperature_celsius"] == 95


@pytest.mark.parametrize("millidegrees", [0, 990_000])
def test_no_temperature_is_no_number(tree: Tree, results: Read, millidegrees: int) -> None:
    tree.card(FIRST).sensor("temp2_input", millidegrees)
    failure = failure_of(results("temperature_celsius")[FIRST, "temperature_celsius"])
    assert failure.reason is Reason.OUT_OF_RANGE


@pytest.mark.parametrize("text", ["", "N/A", "65535", "4294967295", "-1", "101"])
def test_what_is_no_percentage(tree: Tree, results: Read, text: str) -> None:
    tree.card(FIRST).write("gpu_busy_percent", text)
    failure = failure_of(results("utilization_percent")[FIRST, "utilization_percent"])
    assert failure.reason in {Reason.ERROR, Reason.OUT_OF_RANGE}


@pytest.mark.parametrize(
    ("number", "reason", "words"),
    [
        (errno.EACCES, Reason.PERMISSION, "DAC_READ_SEARCH"),
        (errno.EPERM, Reason.ERROR, "reset"),
        (errno.EOPNOTSUPP, Reason.NOT_SUPPORTED, "lacks the sensor"),
        (errno.EINVAL, Reason.NOT_SUPPORTED, "lacks the sensor"),
        (errno.ENODEV, Reason.LOST, "gone"),
        (errno.EBUSY, Reason.TIMEOUT, "busy"),
        (errno.ETIME, Reason.TIMEOUT, "in time"),
        (errno.EIO, Reason.ERROR, "Input/output"),
    ],
)
def test_what_the_kernel_refuses(
    tree: Tree,
    results: Read,
    kernel_error: Callable[[Path, int], None],
    number: int,
    reason: Reason,
    words: str,
) -> None:
    card = tree.card(FIRST)
    kernel_error(card.folder / "gpu_busy_percent", number)
    found = results("utilization_percent", "memory_used_bytes")
    failure = failure_of(found[FIRST, "utilization_percent"])
    assert (failure.reason, failure.code) == (reason, number)
    assert words in failure.detail
    assert not failure.permanent
    assert found[FIRST, "memory_used_bytes"] == 40 * GIBIBYTE


def test_a_missing_file_is_final_only_while_the_driver_has_the_card(
    tree: Tree, results: Read
) -> None:
    card = tree.card(FIRST)
    card.write("mem_busy_percent", None)
    metric = "memory_bandwidth_utilization_percent"
    assert failure_of(results(metric)[FIRST, metric]).permanent
    (card.folder / "drm").rename(card.folder / "drm-gone")
    device_failure = failure_of(results(metric)[FIRST, metric])
    assert not device_failure.permanent


def test_uncorrected_errors_that_are_no_number(tree: Tree, results: Read) -> None:
    card = tree.card(FIRST, ras__umc_err_count="ue: 7\nce: 1")
    metric = "ecc_uncorrected_errors_total"
    assert results(metric)[FIRST, metric] == 7
    card.write("ras/umc_err_count", "query failed")
    assert failure_of(results(metric)[FIRST, metric]).reason is Reason.ERROR


def test_processes_hold_memory_or_a_queue(tree: Tree, results: Read) -> None:
    tree.card(FIRST)
    tree.card(SECOND)
    tree.process(1, vram={1001: 5, 1002: 0})
    tree.process(2, vram={1001: 0, 1002: 0}, queues=[1002])
    tree.process(3, vram={1001: 0, 1002: 0})  # has opened the driver, and uses neither
    tree.process(4, vram={1001: 9, 1002: 9})
    found = results("process_count")
    assert found[FIRST, "process_count"] == 2
    assert found[SECOND, "process_count"] == 2


def test_processes_that_the_kernel_does_not_show(tree: Tree, results: Read) -> None:
    tree.card(FIRST)
    failure = failure_of(results("process_count")[FIRST, "process_count"])
    assert failure.reason is Reason.NOT_SUPPORTED


def test_a_card_without_sensors(tree: Tree, results: Read) -> None:
    """A virtual function has no hwmon."""
    tree.card(FIRST, hwmon=None)
    found = results()
    for metric in ("temperature_celsius", "power_watts", "sm_clock_megahertz"):
        failure = failure_of(found[FIRST, metric])
        assert failure.reason is Reason.NOT_SUPPORTED
        assert failure.permanent
    assert found[FIRST, "utilization_percent"] == 50


def test_a_card_without_a_memory_sensor(tree: Tree, results: Read) -> None:
    card = tree.card(FIRST)
    card.sensor("temp3_label", None)
    metric = "memory_temperature_celsius"
    failure = failure_of(results(metric)[FIRST, metric])
    assert failure.permanent
    assert "mem" in failure.detail


def test_an_apu_has_no_energy_counter(tree: Tree, results: Read) -> None:
    tree.card(FIRST).write_bytes("gpu_metrics", bytes([120, 0, 2, 2]) + bytes(116))
    metric = "energy_joules_total"
    assert failure_of(results(metric)[FIRST, metric]).permanent


def test_two_dies_whose_limit_cannot_be_seen(tree: Tree, results: Read) -> None:
    card = tree.card(FIRST, device="0x7408")
    card.sensor("power1_average", 0)
    card.sensor("power1_cap", None)
    failure = failure_of(results("power_watts")[FIRST, "power_watts"])
    assert not failure.permanent  # it may be the first die, for a moment without a reading


def test_a_card_that_the_compute_driver_does_not_show(tree: Tree, results: Read) -> None:
    card = tree.card(FIRST)
    for node in (tree.root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties"):
        node.write_text("")  # as for a device that the container may not use
    tree.process(1, queues=[1001])
    failure = failure_of(results("process_count")[FIRST, "process_count"])
    assert failure.reason is Reason.NOT_SUPPORTED
    assert card.address == FIRST


def test_a_bug_of_ours_spoils_one_metric(
    tree: Tree, results: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.card(FIRST)
    monkeypatch.setattr("accelscale_amd.sysfs.processes_on", None)
    found = results()
    failure = failure_of(found[FIRST, "process_count"])
    assert (failure.reason, failure.permanent) == (Reason.ERROR, False)
    assert "TypeError" in failure.detail
    assert found[FIRST, "utilization_percent"] == 50
