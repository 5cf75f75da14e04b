"""Power: whose it is, and when it is not believed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from accelscale.model import Failure, Reason
from drivers.nvml.state import FakeNvml

Results = Mapping[tuple[str, str], float | Failure]
Read = Callable[..., Results]

CARD = "GPU-aaaa"
WITHOUT_FIELDS = {f"field_error.{number}": "NOT_SUPPORTED" for number in (185, 190, 191)}
POWER = ("power_watts", "power_limit_watts", "energy_joules_total")


def failure(results: Results, metric: str) -> Failure:
    found = results[CARD, metric]
    assert isinstance(found, Failure), f"{metric} is {found}"
    return found


class TestSuperchip:
    """ml-energy/zeus#242: one module holds a processor and a GPU, and calls mean the module."""

    values: Mapping[str, int] = {
        "power_mw": 400_000,
        "power_limit_mw": 700_000,
        "energy_mj": 5_000_000,
        "module_power_mw": 650_000,
        "module_power_limit_mw": 1_000_000,
        "module_energy_mj": 9_000_000,
    }

    def test_the_figures_are_those_of_the_gpu(self, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(CARD, name="NVIDIA GH200 480GB", **self.values).write()
        assert read(POWER) == {
            (CARD, "power_watts"): 400.0,
            (CARD, "power_limit_watts"): 700.0,
            (CARD, "energy_joules_total"): 5000.0,
        }

    def test_a_driver_without_the_fields_gives_those_of_the_module(
        self, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD, name="NVIDIA GH200 480GB", **self.values)
        fake_nvml.set(CARD, WITHOUT_FIELDS).write()
        assert read(POWER) == {
            (CARD, "power_watts"): 650.0,
            (CARD, "power_limit_watts"): 1000.0,
            (CARD, "energy_joules_total"): 9000.0,
        }


class TestOlderDrivers:
    def test_once_found_lacking_the_fields_are_not_asked_for_again(
        self, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD).set(CARD, WITHOUT_FIELDS).write()
        read(POWER)
        before = fake_nvml.calls()
        for _ in range(3):
            results = read(POWER)
        after = fake_nvml.calls()
        assert results[CARD, "power_watts"] == 350.0
        looks = 3  # each asks for the recovery action
        assert after["nvmlDeviceGetFieldValues"] == before["nvmlDeviceGetFieldValues"] + looks
        assert after["nvmlDeviceGetPowerUsage"] == before["nvmlDeviceGetPowerUsage"] + 3

    def test_a_new_life_of_the_card_may_have_them(self, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(CARD, module_power_mw=650_000).set(CARD, WITHOUT_FIELDS).write()
        assert read(["power_watts"])[CARD, "power_watts"] == 650.0
        fake_nvml.set(CARD, dict.fromkeys(WITHOUT_FIELDS)).restore(CARD).write()
        assert read(["power_watts"])[CARD, "power_watts"] == 350.0

    def test_a_card_without_either_lacks_it(self, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(CARD, power_mw=None, power_limit_mw=None, energy_mj=None).write()
        results = read(POWER)
        for metric in POWER:
            absent = failure(results, metric)
            assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, True)


class TestBelief:
    """flightlessmango/MangoHud#2144: success with impossible figures."""

    @pytest.mark.parametrize("milliwatts", [3_700_000, 4294967295, 1_400_001])
    def test_far_above_the_limit_is_no_reading(
        self, milliwatts: int, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD, power_mw=milliwatts, power_limit_mw=700_000).write()
        assert failure(read(["power_watts"]), "power_watts").reason is Reason.OUT_OF_RANGE

    @pytest.mark.parametrize("milliwatts", [69437, 1_400_000])
    def test_up_to_twice_the_limit_is_one(
        self, milliwatts: int, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD, power_mw=milliwatts, power_limit_mw=700_000).write()
        assert read(["power_watts"]) == {(CARD, "power_watts"): milliwatts / 1000}

    @pytest.mark.parametrize("fields", [{}, WITHOUT_FIELDS])
    @pytest.mark.parametrize("limit", [None, 0, 4294967295])
    def test_without_a_known_limit_two_kilowatts_are_the_bound(
        self, limit: int | None, fields: dict[str, str], fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD, power_mw=1_999_000, power_limit_mw=limit).set(CARD, fields).write()
        assert read()[CARD, "power_watts"] == 1999.0
        fake_nvml.set(CARD, power_mw=2_001_000).write()
        assert failure(read(), "power_watts").reason is Reason.OUT_OF_RANGE

    @pytest.mark.parametrize("error", ["UNKNOWN", "NO_PERMISSION"])
    def test_a_limit_that_fails_spoils_no_power(
        self, error: str, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD).set(CARD, {"field_error.190": error}).write()
        assert read(["power_watts"]) == {(CARD, "power_watts"): 350.0}

    def test_the_limit_is_asked_for_once_where_nobody_reads_it(
        self, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD).set(CARD, WITHOUT_FIELDS).write()
        for _ in range(3):
            read(["power_watts"])
        assert fake_nvml.calls()["nvmlDeviceGetEnforcedPowerLimit"] == 1
