"""What is taken from XRT's reports, and what is not believed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from accelscale.model import Reason
from accelscale_fpga.files import Absent, UnreadableError
from accelscale_fpga.xrt import (
    CardReport,
    ComputeUnit,
    Presence,
    card_report,
    number,
    parse,
    presences,
    truth,
)
from drivers.xrt.tool import bank, compute_unit, host_entry, memory, regions, thermals

CARD = "0000:65:00.1"


def report(**parts: Any) -> CardReport:
    document = {"devices": [{"device_id": CARD, **parts}]}
    return card_report(parse(json.dumps(document)), CARD, 5.0)


def absent(value: object) -> Absent:
    assert isinstance(value, Absent)
    return value


def test_a_healthy_card() -> None:
    found = report(
        electrical={"power_consumption_watts": "22.471234", "power_consumption_max_watts": "225"},
        thermals=thermals(
            PCB_Top_Front=("80", "true"), FPGA=("46", "true"), FPGA_HBM=("41", "true")
        ),
        mem_topology=memory([bank("HBM[0]", "0x0", "0x10000000", "4096")]),
        dynamic_regions=regions(compute_unit("vadd:vadd_1", "7", "START")),
        device_status="HEALTHY",
    )
    assert found.values == {
        "temperature_celsius": 46.0,
        "memory_temperature_celsius": 41.0,
        "power_watts": 22.471234,
        "memory_total_bytes": float(0x10000000),
        "memory_used_bytes": 4096.0,
    }
    assert found.units == (ComputeUnit("vadd:vadd_1", 7, running=True),)
    assert (found.design, found.hangs, found.time) == ("5475-A", False, 5.0)


def test_the_text_false_is_not_true() -> None:
    found = report(thermals=thermals(FPGA=("39", "true"), FPGA_HBM=("0", "false")))
    assert found.values["temperature_celsius"] == 39.0
    hbm = absent(found.values["memory_temperature_celsius"])
    assert (hbm.reason, "not present" in hbm.detail) == (Reason.NOT_SUPPORTED, True)


@pytest.mark.parametrize("present", ["false", "False", False, "no"])
def test_a_sensor_that_is_not_present_has_no_value_whatever_it_shows(present: object) -> None:
    found = report(thermals=thermals(FPGA=("39", present)))
    assert isinstance(found.values["temperature_celsius"], Absent)


@pytest.mark.parametrize(
    "value", ["N/A", "[N/A]", "ERR!", "", "NA", None, "nan", "1e3", "0x30", True]
)
def test_text_that_is_no_decimal_number_is_refused(value: object) -> None:
    found = report(
        thermals=thermals(FPGA=(value, "true")), electrical={"power_consumption_watts": value}
    )
    assert absent(found.values["temperature_celsius"]).reason is Reason.ERROR
    assert absent(found.values["power_watts"]).reason is Reason.ERROR


def test_zero_beside_an_error_message_is_no_value() -> None:
    sensor = {**thermals(FPGA=("0", "true"))[0], "error_msg": "no such node"}
    electrical = {"power_consumption_watts": "0", "error_msg": "no xmc"}
    found = report(thermals=[sensor], electrical=electrical)
    assert "no such node" in absent(found.values["temperature_celsius"]).detail
    assert "no xmc" in absent(found.values["power_watts"]).detail


def test_zero_watts_is_no_measurement() -> None:
    found = report(electrical={"power_consumption_watts": "0.000000"})
    assert absent(found.values["power_watts"]).reason is Reason.OUT_OF_RANGE


def test_memory_is_that_of_banks_which_the_design_can_use() -> None:
    banks = [
        bank("DDR[0]", "0x4000000000", "0x400000000", "100", type="MEM_DDR4"),
        bank("DDR[1]", "0x5000000000", "0x400000000", "0", type="MEM_DDR4", enabled="false"),
        bank("PLRAM[0]", "0x3000000000", "0x20000", "50", type="MEM_DRAM"),
        bank("HOST[0]", "0x2000000000", "0x400000000", "9999", type="MEM_DDR4"),
    ]
    found = report(mem_topology=memory(banks))
    assert found.values["memory_total_bytes"] == float(0x400000000)
    assert found.values["memory_used_bytes"] == 100.0


def test_groups_of_banks_are_not_counted_beside_their_banks() -> None:
    banks = [bank(f"HBM[{i}]", hex(i << 28), "0x10000000", "10") for i in range(2)]
    groups = [bank("MBG[0,1]", "0x0", "0x20000000", "25"), bank("MBG", "0x0", "0x20000000", "25")]
    found = report(mem_topology=memory(banks, groups))
    assert found.values["memory_total_bytes"] == float(0x20000000)
    assert found.values["memory_used_bytes"] == 25.0


@pytest.mark.parametrize("topology", [memory([]), {"error_msg": "icap busy"}, None])
def test_without_a_design_there_is_no_memory_figure(topology: object) -> None:
    found = report(mem_topology=topology)
    assert isinstance(found.values["memory_total_bytes"], Absent)
    assert isinstance(found.values["memory_used_bytes"], Absent)


@pytest.mark.parametrize(
    ("bits", "running"),
    [("IDLE", False), ("DONE,IDLE", False), ("START", True), ("", None), ("RESTART", None)],
)
def test_whether_a_compute_unit_runs(bits: str, running: bool | None) -> None:
    found = report(dynamic_regions=regions(compute_unit("k:k_1", "1", bits)))
    assert found.units == (ComputeUnit("k:k_1", 1, running),)


def test_no_design_is_no_unit_and_a_broken_report_is_none() -> None:
    assert report(dynamic_regions=regions()).units == ()
    assert isinstance(report().units, Absent)
    broken = [{"error_msg": "kds is down", "compute_units": ""}]
    assert "kds is down" in absent(report(dynamic_regions=broken).units).detail
    assert isinstance(report(dynamic_regions=regions(compute_unit("k", "N/A"))).units, Absent)


def test_a_hanging_card_says_so() -> None:
    assert report(device_status="HANG").hangs


def test_the_list_of_cards() -> None:
    document = {
        "system": {
            "host": {
                "devices": [
                    host_entry(CARD, shell="xilinx_u55c"),
                    host_entry("0000:17:00.1", ready="false"),
                    host_entry("0000:18:00.1", ready=True),
                    {"bdf": "0000:19:00.1", "vbnv": None},
                    {"no": "address"},
                    "text",
                ]
            }
        }
    }
    assert presences(document) == {
        CARD: Presence(ready=True, shell="xilinx_u55c"),
        "0000:17:00.1": Presence(ready=False, shell="xilinx_u55c"),
        "0000:18:00.1": Presence(ready=True, shell="xilinx_u55c"),
        "0000:19:00.1": Presence(ready=None, shell=""),
    }
    assert presences({"system": {"host": {"devices": ""}}}) == {}


@pytest.mark.parametrize("text", ["", "Warning: Device is not ready", "[]", "3", "{" * 100_000])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        parse(text)
    assert caught.value.absent.reason is Reason.ERROR


@pytest.mark.parametrize("devices", [None, [], "", [{"device_id": "0000:66:00.1"}], [{}, {}], [3]])
def test_a_report_about_no_card_or_another_is_refused(devices: object) -> None:
    with pytest.raises(UnreadableError, match="not about"):
        card_report({"devices": devices}, CARD, 0.0)


def test_numbers_and_truths() -> None:
    assert [number(text, "x") for text in ("39", " 39.5 ", "-3", 7, 7.5)] == [39, 39.5, -3, 7, 7.5]
    assert [truth(text) for text in ("true", "YES", True, "false", "no", "maybe", None, 1)] == [
        True,
        True,
        True,
        False,
        False,
        None,
        None,
        None,
    ]
