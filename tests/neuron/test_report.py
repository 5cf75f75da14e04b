"""What is taken from a line of neuron-monitor, and what is not believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accelscale.model import Reason
from accelscale_neuron.chips import Absent, Chip
from accelscale_neuron.report import Report, parse, total_bytes, used_bytes, utilization_percent
from drivers.neuron.tool import process, report


def chips(*indices: int, cores: int | None = 2) -> list[Chip]:
    return [Chip(f"neuron{index}", "Inferentia2", index, cores, Path("/x")) for index in indices]


TWO = chips(0, 1)


def parsed(line: object) -> Report:
    return parse(json.dumps(line).encode(), 1.0)


def busy(line: object, on: list[Chip] = TWO) -> list[float | Absent]:
    return [utilization_percent(parsed(line), chip, on) for chip in on]


def used(line: object, on: list[Chip] = TWO) -> list[float | Absent]:
    return [used_bytes(parsed(line), chip, on) for chip in on]


def reasons(answers: list[float | Absent]) -> set[Reason | float]:
    return {one.reason if isinstance(one, Absent) else one for one in answers}


def test_a_chip_is_as_busy_as_its_cores_are_on_average() -> None:
    line = report(process({"0": 80, "1": 40.5, "3": 10}, {"0": 100, "1": 20, "3": 5}))
    assert busy(line) == [60.25, 5.0]
    assert used(line) == [120.0, 5.0]
    assert total_bytes(parsed(line)) == 34_359_738_368.0


def test_processes_add_up() -> None:
    line = report(process({"0": 30}, {"0": 1}), process({"0": 50, "1": 0}, {"0": 2, "1": 4}))
    assert busy(line) == [40.0, 0.0]
    assert used(line) == [7.0, 0.0]


def test_without_a_process_the_chips_are_idle() -> None:
    assert busy(report()) == [0.0, 0.0]
    assert used(report()) == [0.0, 0.0]


def test_one_chip_has_all_the_memory_also_where_it_is_not_broken_down() -> None:
    one = process({"0": 1}, {"0": 77})
    del one["report"]["memory_used"]["neuron_runtime_used_bytes"]["usage_breakdown"]
    line = report(one, neuron_device_count=1)
    assert used(line, chips(0)) == [77.0]
    assert reasons(used(report(one))) == {Reason.ERROR}


@pytest.mark.parametrize("value", ["42", "N/A", None, True, [1], {}, float("nan"), float("inf")])
def test_what_is_no_number_spoils_the_sum(value: object) -> None:
    line = report(process({"0": 5}, {"0": 1}), process({"1": value}, {"1": value}))
    assert reasons(busy(line)) == {Reason.ERROR}
    assert reasons(used(line)) == {Reason.ERROR}


@pytest.mark.parametrize("value", [-1, 100.5, 1e9])
def test_absurd_utilisation_is_out_of_range(value: float) -> None:
    assert reasons(busy(report(process({"0": value, "2": value})))) == {Reason.OUT_OF_RANGE}


def test_an_error_of_one_process_leaves_the_sum_unknown() -> None:
    healthy = process({"0": 5}, {"0": 1})
    ill: Any = process({"1": 5}, {"1": 1}, error="process is gone")
    assert reasons(busy(report(healthy, ill))) == {Reason.ERROR}
    ill = process({"1": 5}, {"1": 1})
    ill["report"]["neuroncore_counters"]["error"] = "no counters"
    assert reasons(busy(report(healthy, ill))) == {Reason.ERROR}
    assert used(report(healthy, ill)) == [2.0, 0.0]
    assert "no counters" in str(busy(report(healthy, ill))[0])


@pytest.mark.parametrize("broken", [{"neuron_runtime_data": None}, {"neuron_runtime_data": [3]}])
def test_a_line_without_the_list_of_processes_is_not_idle(broken: dict[str, Any]) -> None:
    assert reasons(busy({**report(), **broken})) == {Reason.ERROR}
    line = report()
    del line["neuron_runtime_data"]
    assert reasons(busy(line)) == {Reason.ERROR}


@pytest.mark.parametrize(
    "hardware",
    [
        {"error": "the driver is not running"},
        {"neuron_device_count": 0},
        {"neuroncore_per_device_count": "2"},
        {"neuron_device_count": 3},  # the driver shows two
        {"neuron_device_count": 1},
    ],
)
def test_hardware_that_is_not_what_the_driver_shows(hardware: dict[str, Any]) -> None:
    assert reasons(busy(report(process({"0": 1}), **hardware))) == {Reason.ERROR}


def test_cores_that_do_not_exist_or_have_no_number() -> None:
    assert reasons(busy(report(process({"4": 1})))) == {Reason.ERROR}
    assert reasons(busy(report(process({"-1": 1})))) == {Reason.ERROR}
    assert reasons(busy(report(process({"x": 1})))) == {Reason.ERROR}


def test_chips_that_are_not_numbered_through_get_no_cores() -> None:
    """With chip 1 lost, nobody says whether core 2 is on chip 1 or on chip 2."""
    assert reasons(busy(report(process({"2": 50})), chips(0, 2))) == {Reason.ERROR}


def test_logical_cores_are_counted_only_where_that_is_certain() -> None:
    line = report(process({"5": 60}), logical_neuroncore_config=2, neuroncore_per_device_count=4)
    assert busy(line, chips(0, 1, cores=8)) == [0.0, 15.0]
    for cores in (4, None):
        assert reasons(busy(line, chips(0, 1, cores=cores))) == {Reason.NOT_SUPPORTED}


def test_an_older_tool_tells_no_size() -> None:
    line = report()
    del line["neuron_hardware_info"]["neuron_device_memory_size"]
    assert reasons([total_bytes(parsed(line))]) == {Reason.NOT_SUPPORTED}
    assert busy(line) == [0.0, 0.0]


@pytest.mark.parametrize("line", [b"", b"hello", b"[]", b"3", b'{"a":', b"[" * 100_000, b"\xff"])
def test_what_is_no_report_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(line, 0.0)
