"""Temperature and power from hardware monitors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from accelscale.model import Reason
from accelscale_fpga.cards import find_cards
from accelscale_fpga.files import Absent, UnreadableError
from accelscale_fpga.sensors import READERS, monitors, sensors_of

if TYPE_CHECKING:
    from fpga.trees import SysTree

CARD = "0000:65:00.1"


def readings(tree: SysTree) -> dict[str, float | Absent]:
    """What every reader says about the one card of the tree."""
    (card,) = find_cards(tree.root)
    sensors = sensors_of(card.folders, monitors(tree.root))
    values: dict[str, float | Absent] = {}
    for metric, read in READERS.items():
        try:
            values[metric] = read(sensors)
        except UnreadableError as error:
            values[metric] = error.absent
    return values


def test_an_intel_card_in_degrees_and_watts(tree: SysTree) -> None:
    tree.intel("0000:3b:00.0")
    values = readings(tree)
    assert values["temperature_celsius"] == 54.0
    assert values["slowdown_temperature_celsius"] == 95.0
    assert values["power_watts"] == 35.5
    assert values["memory_temperature_celsius"] == Absent(
        Reason.NOT_SUPPORTED,
        "none of its sensors is known to be that of the memory: temp1",
        permanent=True,
    )


def test_labels_say_what_a_sensor_measures(tree: SysTree) -> None:
    tree.hwmon(
        4,
        tree.alveo(CARD),
        "xilinx_u55c",
        temp1_label="PCB Top Front",
        temp1_input=81_000,
        temp2_label="FPGA",
        temp2_input=61_000,
        temp3_label="FPGA HBM",
        temp3_input=72_000,
        power1_label="12v pex",
        power1_input=7_000_000,
        power2_label="Total Power",
        power2_input=45_000_000,
    )
    values = readings(tree)
    assert values["temperature_celsius"] == 61.0
    assert values["memory_temperature_celsius"] == 72.0
    assert values["power_watts"] == 45.0


def test_the_whole_board_counts_before_the_chip(tree: SysTree) -> None:
    tree.hwmon(
        7,
        tree.intel("0000:3b:00.0"),
        "n3000bmc",
        power1_label="Board Power",
        power1_input=60_000_000,
    )
    assert readings(tree)["power_watts"] == 60.0


def test_sensors_of_the_management_function_are_the_cards(tree: SysTree) -> None:
    tree.alveo(CARD)
    folder = f"sys/devices/pci0000:00/0000:00:01.0/{CARD[:-1]}0"
    tree.hwmon(4, folder, "xclmgmt_hwmon", temp1_input=50_000)
    assert readings(tree)["temperature_celsius"] == 50.0


def test_a_neighbours_sensors_are_not(tree: SysTree) -> None:
    tree.alveo(CARD)
    tree.hwmon(4, f"sys/devices/pci0000:00/0000:00:01.0/{CARD}0", "other", temp1_input=50_000)
    tree.hwmon(5, "sys/devices/platform/cpu", "coretemp", temp1_input=50_000)
    values = readings(tree)
    assert all(isinstance(value, Absent) for value in values.values())


def test_of_several_unlabelled_sensors_none_is_taken(tree: SysTree) -> None:
    tree.hwmon(4, tree.alveo(CARD), "xrt", temp1_input=50_000, temp2_input=60_000)
    absent = readings(tree)["temperature_celsius"]
    assert isinstance(absent, Absent)
    assert "temp1, temp2" in absent.detail


@pytest.mark.parametrize(
    ("text", "reason"),
    [("0", Reason.OUT_OF_RANGE), ("N/A", Reason.ERROR), ("", Reason.ERROR)],
)
def test_what_is_no_measurement_is_no_number(tree: SysTree, text: str, reason: Reason) -> None:
    tree.hwmon(4, tree.alveo(CARD), "xrt", temp1_input=text, power1_input=text)
    values = readings(tree)
    for metric in ("temperature_celsius", "power_watts"):
        absent = values[metric]
        assert isinstance(absent, Absent)
        assert (absent.reason, absent.permanent) == (reason, False)


def test_an_unreadable_sensor_may_be_the_hottest_one(tree: SysTree) -> None:
    monitor = tree.hwmon(
        4,
        tree.alveo(CARD),
        "x",
        temp1_label="FPGA 0",
        temp1_input=50_000,
        temp2_label="FPGA 1",
        temp2_input=60_000,
    )
    assert readings(tree)["temperature_celsius"] == 60.0
    tree.write(f"{monitor}/temp2_input", "0")  # not fitted
    assert readings(tree)["temperature_celsius"] == 50.0
    tree.write(f"{monitor}/temp2_input", "?")
    assert isinstance(readings(tree)["temperature_celsius"], Absent)
