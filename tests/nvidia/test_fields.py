"""The batched readings: each item has an error, a type and a union with garbage of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from accelscale.model import Failure, Reason
from drivers.nvml.state import FakeNvml

Results = Mapping[tuple[str, str], float | Failure]
Read = Callable[..., Results]

CARD = "GPU-aaaa"

FIELDS = {
    "power_watts": 185,
    "power_limit_watts": 190,
    "energy_joules_total": 191,
    "memory_temperature_celsius": 82,
    "throttled_power_seconds_total": 74,
    "throttled_thermal_seconds_total": 75,
    "pcie_receive_bytes_total": 198,
    "pcie_transmit_bytes_total": 197,
    "interconnect_receive_bytes_total": 139,
    "interconnect_transmit_bytes_total": 138,
}
WITH_OLDER_CALL = {
    "power_watts": "nvmlDeviceGetPowerUsage",
    "power_limit_watts": "nvmlDeviceGetEnforcedPowerLimit",
    "energy_joules_total": "nvmlDeviceGetTotalEnergyConsumption",
    "throttled_power_seconds_total": "nvmlDeviceGetViolationStatus",
    "throttled_thermal_seconds_total": "nvmlDeviceGetViolationStatus",
}
STILL = {
    "memory_temperature": 71,
    "energy_mj": 9_000_000,
    "violation_power_ns": 2_000_000_000,
    "violation_thermal_ns": 1_000_000_000,
    "pcie_receive_bytes": 600,
    "pcie_transmit_bytes": 500,
    "nvlink_receive_kib": 4,
    "nvlink_transmit_kib": 3,
}


def failure(results: Results, metric: str) -> Failure:
    found = results[CARD, metric]
    assert isinstance(found, Failure), f"{metric} is {found}"
    return found


def test_all_fields_come_in_one_call(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD).write()
    read(["memory_temperature_celsius"])
    before = fake_nvml.calls()["nvmlDeviceGetFieldValues"]
    read(["memory_temperature_celsius"])
    each_look = fake_nvml.calls()["nvmlDeviceGetFieldValues"] - before - 1
    read(list(FIELDS))
    calls = fake_nvml.calls()
    assert calls["nvmlDeviceGetFieldValues"] == before + 2 * each_look + 2
    assert not set(WITH_OLDER_CALL.values()) & set(calls)


@pytest.mark.parametrize("metric", FIELDS)
def test_a_failed_item_spoils_no_other(metric: str, fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD, **STILL).write()
    healthy = read(list(FIELDS))
    fake_nvml.set(CARD, {f"field_error.{FIELDS[metric]}": "NO_PERMISSION"}).write()
    results = read(list(FIELDS))
    assert failure(results, metric).reason is Reason.PERMISSION
    assert "NVML_FI_DEV_" in failure(results, metric).detail
    others = {key: value for key, value in healthy.items() if key != (CARD, metric)}
    assert {key: value for key, value in results.items() if key != (CARD, metric)} == others


@pytest.mark.parametrize("type_name", ["uint", "ulong", "ull", "sll", "sint", "ushort"])
def test_the_member_of_its_type_is_read_and_no_garbage(
    type_name: str, fake_nvml: FakeNvml, read: Read
) -> None:
    """icl-utk-edu/papi#564: the rest of the union made 5e18 of it."""
    fake_nvml.device(CARD, memory_temperature=71)
    fake_nvml.set(CARD, {"field_type.82": type_name}).write()
    assert read(["memory_temperature_celsius"]) == {(CARD, "memory_temperature_celsius"): 71.0}


def test_a_fraction_is_read(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD, memory_temperature=71.25).set(CARD, {"field_type.82": "double"}).write()
    assert read(["memory_temperature_celsius"]) == {(CARD, "memory_temperature_celsius"): 71.25}


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_what_is_not_finite_is_no_reading(value: str, fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD, memory_temperature=value).set(CARD, {"field_type.82": "double"}).write()
    absent = failure(read(), "memory_temperature_celsius")
    assert absent.reason in {Reason.OUT_OF_RANGE, Reason.NOT_SUPPORTED}


@pytest.mark.parametrize("type_name", ["uint", "sint", "ushort", "sll"])
def test_all_bits_set_stands_for_no_value_in_every_width(
    type_name: str, fake_nvml: FakeNvml, read: Read
) -> None:
    fake_nvml.device(CARD, memory_temperature=-1)
    fake_nvml.set(CARD, {"field_type.82": type_name}).write()
    assert failure(read(), "memory_temperature_celsius").reason is Reason.OUT_OF_RANGE


def test_an_unknown_type_is_an_error(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD).set(CARD, {"field_value_type.191": 42}).write()
    results = read()
    assert failure(results, "energy_joules_total").reason is Reason.ERROR
    assert "42" in failure(results, "energy_joules_total").detail
    assert results[CARD, "memory_temperature_celsius"] == 50.0


def test_a_pcie_counter_of_32_bits_is_not_used(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD).set(CARD, {"field_type.197": "uint", "field_type.198": "uint"}).write()
    results = read()
    for metric in ("pcie_receive_bytes_total", "pcie_transmit_bytes_total"):
        absent = failure(results, metric)
        assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, True)
        assert "32 bits" in absent.detail


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "INVALID_ARGUMENT", "FUNCTION_NOT_FOUND"])
@pytest.mark.parametrize("metric", WITH_OLDER_CALL)
def test_the_older_call_takes_the_place_of_an_unknown_field(
    metric: str, error: str, fake_nvml: FakeNvml, read: Read
) -> None:
    fake_nvml.device(CARD, **STILL).write()
    expected = read([metric])
    fake_nvml.set(CARD, {f"field_error.{FIELDS[metric]}": error}).write()
    assert read([metric]) == expected
    assert fake_nvml.calls()[WITH_OLDER_CALL[metric]] == 1


@pytest.mark.parametrize("metric", sorted(FIELDS.keys() - WITH_OLDER_CALL.keys()))
def test_an_unknown_field_without_older_call_is_not_supported(
    metric: str, fake_nvml: FakeNvml, read: Read
) -> None:
    fake_nvml.device(CARD).set(CARD, {f"field_error.{FIELDS[metric]}": "INVALID_ARGUMENT"}).write()
    absent = failure(read(), metric)
    assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, True)


def test_a_failed_item_is_not_replaced_by_the_older_call(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD).set(CARD, {"field_error.191": "UNKNOWN"}).write()
    assert failure(read(), "energy_joules_total").reason is Reason.ERROR
    assert "nvmlDeviceGetTotalEnergyConsumption" not in fake_nvml.calls()


def test_a_driver_without_fields_gives_what_the_older_calls_give(
    fake_nvml: FakeNvml, read: Read
) -> None:
    fake_nvml.device(CARD, **STILL).fail("FUNCTION_NOT_FOUND", "nvmlDeviceGetFieldValues").write()
    results = read(list(FIELDS))
    given = {metric for (_, metric), value in results.items() if isinstance(value, float)}
    assert given == set(WITH_OLDER_CALL)
    assert results[CARD, "energy_joules_total"] == 9000.0
    assert failure(results, "memory_temperature_celsius").reason is Reason.NOT_SUPPORTED


def test_a_failed_batch_fails_all_its_fields_for_that_reason(
    fake_nvml: FakeNvml, read: Read
) -> None:
    fake_nvml.device(CARD).fail("TIMEOUT", "nvmlDeviceGetFieldValues").write()
    results = read()
    assert {failure(results, metric).reason for metric in FIELDS} == {Reason.TIMEOUT}
    assert results[CARD, "utilization_percent"] == 50.0


def test_a_card_without_links_has_no_link_traffic(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD, nvlink_receive_kib=None, nvlink_transmit_kib=None).write()
    absent = failure(read(), "interconnect_receive_bytes_total")
    assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, True)
