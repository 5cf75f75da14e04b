"""Level Zero Sysman by the real binding, against a loader of our own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from accelscale.model import Reason
from accelscale_intel.files import UnreadableError
from accelscale_intel.rights import Privileges
from accelscale_intel.sysman import LevelZero
from accelscale_intel.sysman_card import SysmanCard
from drivers.levelzero.state import FakeLevelZero, growing
from intel import devices
from intel.devices import GIB, device

ROOT = Privileges(is_root=True, capabilities=(1 << 41) - 1)
NOBODY = Privileges(is_root=False, capabilities=0)

Opener = Callable[..., SysmanCard]


@pytest.fixture
def open_card(fake_levelzero: FakeLevelZero) -> Opener:
    def opened(rights: Privileges = ROOT, **changes: Any) -> SysmanCard:
        fake_levelzero.write(device(**changes))
        zero = LevelZero()
        return SysmanCard(zero, zero.devices()["0000:03:00.0"], rights)

    return opened


def failure(card: SysmanCard, metric: str) -> UnreadableError:
    with pytest.raises(UnreadableError) as caught:
        card.readers[metric]()
    assert caught.value.detail
    return caught.value


def utilization(card: SysmanCard) -> float:
    assert failure(card, "utilization_percent").reason is Reason.NO_PROGRESS
    time.sleep(0.05)
    return card.utilization_percent()


def test_everything_is_read_in_our_units(open_card: Opener) -> None:
    card = open_card()
    values = {
        metric: read()
        for metric, read in card.readers.items()
        if metric
        not in {
            "utilization_percent",
            "energy_joules_total",
            "intel_throttled_seconds_total",
            "pcie_receive_bytes_total",
            "pcie_transmit_bytes_total",
        }
    }
    assert values == {
        "memory_used_bytes": 2 * GIB,
        "memory_total_bytes": 12 * GIB,
        "temperature_celsius": 48.25,
        "memory_temperature_celsius": 61.0,
        "power_limit_watts": 190.0,
        "sm_clock_megahertz": 2400.0,
        "memory_clock_megahertz": 1188.0,
    }
    assert card.energy_joules() == pytest.approx(5000, rel=0.05)  # the card, and no sum
    assert card.throttled_seconds() == pytest.approx(1.0, rel=0.5)
    assert card.readers["pcie_receive_bytes_total"]() >= 10**6
    assert 10**5 <= card.readers["pcie_transmit_bytes_total"]() < 10**6
    assert card.name == "Intel(R) Arc(TM) B580 Graphics"
    assert card.uuid == "86" * 16


def test_the_group_of_all_engines_is_the_utilisation(open_card: Opener) -> None:
    assert utilization(open_card()) == pytest.approx(40.0, abs=0.5)


def test_a_driver_that_averages_over_the_engines_does_not_hide_the_busy_one(
    open_card: Opener,
) -> None:
    clock = growing(0, 1e6)
    engines = [
        {"type": devices.ALL, "active": growing(0, 0.25e6), "timestamp": clock},
        {"type": devices.COMPUTE, "active": growing(0, 1.0e6), "timestamp": clock},
    ]
    assert utilization(open_card(engines=engines)) == pytest.approx(100.0, abs=0.5)


def test_the_unit_of_engine_time_does_not_matter(open_card: Opener) -> None:
    engines = [{"active": growing(0, 4.8e6), "timestamp": growing(0, 19.2e6)}]
    assert utilization(open_card(engines=engines)) == pytest.approx(25.0, abs=0.5)


def test_engines_need_root_and_the_hint_says_so(open_card: Opener) -> None:
    card = open_card(NOBODY, error={"engines": devices.PERMISSION})
    error = failure(card, "utilization_percent")
    assert error.reason is Reason.PERMISSION
    assert error.code == devices.PERMISSION
    assert "CAP_PERFMON" in error.detail
    assert "root" in error.detail
    assert card.memory_used_bytes() == 2 * GIB


def test_engines_that_an_unprivileged_process_does_not_see_are_not_absent(
    open_card: Opener,
) -> None:
    assert failure(open_card(NOBODY, engines=[]), "utilization_percent").reason is Reason.PERMISSION
    assert failure(open_card(ROOT, engines=[]), "utilization_percent").reason is (
        Reason.NOT_SUPPORTED
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [(devices.PERMISSION, Reason.PERMISSION), (0x7FFFFFFE, Reason.ERROR)],
)
def test_one_engine_group_that_cannot_be_read_may_be_the_busy_one(
    open_card: Opener, error: int, reason: Reason
) -> None:
    engines = [*device()["engines"], {"activity": {"error": error}}]
    assert failure(open_card(engines=engines), "utilization_percent").reason is reason


def test_a_group_that_the_driver_does_not_support_is_left_out(open_card: Opener) -> None:
    engines = [*device()["engines"], {"activity": {"error": devices.UNSUPPORTED}}]
    assert utilization(open_card(engines=engines)) == pytest.approx(40.0, abs=0.5)
    engines = [{"activity": {"error": devices.UNSUPPORTED}}]
    error = failure(open_card(engines=engines), "utilization_percent")
    assert error.reason is Reason.NOT_SUPPORTED


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ((100, 1000), (100, 1000), Reason.NO_PROGRESS),
        ((100, 1000), (200, 1000), Reason.NO_PROGRESS),
        ((100, 1000), (50, 2000), Reason.COUNTER_RESET),
        ((100, 1000), (110, 900), Reason.COUNTER_RESET),
        ((100, 1000), (2200, 2000), Reason.OUT_OF_RANGE),
        ((100, 1000), (100, 2000), 0.0),
        ((100, 1000), (1120, 2000), 100.0),
    ],
)
def test_engine_counters_that_misbehave(
    fake_levelzero: FakeLevelZero,
    open_card: Opener,
    first: tuple[int, int],
    second: tuple[int, int],
    reason: Reason | float,
) -> None:
    card = open_card(engines=[{"active": first[0], "timestamp": first[1]}])
    failure(card, "utilization_percent")
    fake_levelzero.write(device(engines=[{"active": second[0], "timestamp": second[1]}]))
    if isinstance(reason, Reason):
        assert failure(card, "utilization_percent").reason is reason
    else:
        assert card.utilization_percent() == reason


def test_no_memory_modules_are_no_empty_memory(open_card: Opener) -> None:
    for metric in ("memory_used_bytes", "memory_total_bytes"):
        error = failure(open_card(memories=[]), metric)
        assert (error.reason, error.permanent) == (Reason.NOT_SUPPORTED, True)


def test_system_memory_is_not_memory_of_the_card(open_card: Opener) -> None:
    memories = [{"size": 64 * GIB, "free": 30 * GIB, "location": "system"}]
    error = failure(open_card(memories=memories), "memory_used_bytes")
    assert (error.reason, error.permanent) == (Reason.NOT_SUPPORTED, True)


@pytest.mark.parametrize(
    ("rights", "reason", "words"),
    [(NOBODY, Reason.PERMISSION, "CAP_PERFMON"), (ROOT, Reason.OUT_OF_RANGE, "never is")],
)
def test_memory_that_is_all_free_is_memory_that_is_not_told(
    open_card: Opener, rights: Privileges, reason: Reason, words: str
) -> None:
    card = open_card(rights, memories=[{"size": 12 * GIB, "free": 12 * GIB}])
    error = failure(card, "memory_used_bytes")
    assert error.reason is reason
    assert words in error.detail
    assert card.memory_total_bytes() == 12 * GIB


@pytest.mark.parametrize("memory", [{"size": 0, "free": 0}, {"size": GIB, "free": 2 * GIB}])
def test_impossible_memory_is_out_of_range(open_card: Opener, memory: dict[str, int]) -> None:
    error = failure(open_card(memories=[memory]), "memory_used_bytes")
    assert error.reason is Reason.OUT_OF_RANGE


def test_the_memories_of_tiles_are_added_up_unless_the_whole_is_listed(open_card: Opener) -> None:
    tiles = [{"size": 64 * GIB, "free": 60 * GIB, "subdevice": tile} for tile in (0, 1)]
    assert open_card(memories=tiles).memory_used_bytes() == 8 * GIB
    whole = {"size": 128 * GIB, "free": 119 * GIB}
    assert open_card(memories=[*tiles, whole]).memory_used_bytes() == 9 * GIB


@pytest.mark.parametrize(
    ("rights", "reason", "words"),
    [
        (NOBODY, Reason.PERMISSION, "CAP_DAC_READ_SEARCH"),
        (ROOT, Reason.OUT_OF_RANGE, "no measured temperature"),
    ],
)
def test_0_degrees_are_no_temperature_while_energy_can_be_read(
    open_card: Opener, rights: Privileges, reason: Reason, words: str
) -> None:
    card = open_card(rights, temperatures=[{"type": devices.SENSOR_GPU, "celsius": 0.0}])
    assert card.energy_joules() > 0
    error = failure(card, "temperature_celsius")
    assert error.reason is reason
    assert words in error.detail


def test_sensors_that_are_not_listed_may_want_privileges(open_card: Opener) -> None:
    assert failure(open_card(NOBODY, temperatures=[]), "temperature_celsius").reason is (
        Reason.PERMISSION
    )
    assert failure(open_card(ROOT, temperatures=[]), "temperature_celsius").reason is (
        Reason.NOT_SUPPORTED
    )


def test_the_hottest_tile_counts(open_card: Opener) -> None:
    sensors = [
        {"type": devices.SENSOR_GPU, "celsius": heat, "subdevice": tile}
        for tile, heat in enumerate((50.0, 58.0))
    ]
    assert open_card(temperatures=sensors).temperature_celsius() == 58.0


def test_a_temperature_below_zero_is_one(open_card: Opener) -> None:
    card = open_card(temperatures=[{"type": devices.SENSOR_GLOBAL, "celsius": -4.5}])
    assert card.temperature_celsius() == -4.5


def test_power_domains_are_chosen_and_never_added_up(open_card: Opener) -> None:
    memory = {"domain": devices.POWER_MEMORY, "energy": 10**6, "limit": 1000}
    package = {"domain": devices.POWER_PACKAGE, "energy": 2 * 10**6, "limit": 2000}
    unknown = {"domain": devices.POWER_UNKNOWN, "energy": 4 * 10**6, "limit": 4000}
    tile = {"domain": devices.POWER_CARD, "energy": 8 * 10**6, "subdevice": 0}
    assert open_card(powers=[memory, tile, package]).energy_joules() == 2.0
    assert open_card(powers=[memory, package]).power_limit_watts() == 2.0
    assert open_card(powers=[tile, unknown]).energy_joules() == 4.0
    for powers in ([memory], [], [unknown, unknown], [tile]):
        assert failure(open_card(powers=powers), "energy_joules_total").reason is (
            Reason.NOT_SUPPORTED
        )


def test_the_energy_counter_is_handed_on_as_it_is_glitches_included(
    fake_levelzero: FakeLevelZero, open_card: Opener
) -> None:
    """Whether a drop is a restart or a hiccup is decided in one place for all backends."""
    card = open_card()
    totals = []
    for energy in (22_543_283_000_000, 200_000_000, 22_543_284_000_000):
        powers = [{"domain": devices.POWER_CARD, "energy": energy}]
        fake_levelzero.write(device(powers=powers))
        card = SysmanCard(card.zero, card.handle, ROOT)
        totals.append(card.energy_joules())
    assert totals == [22_543_283.0, 200.0, 22_543_284.0]


def test_energy_of_exactly_0_is_no_energy(open_card: Opener) -> None:
    card = open_card(powers=[{"domain": devices.POWER_CARD, "energy": 0}])
    assert failure(card, "energy_joules_total").reason is Reason.OUT_OF_RANGE


def test_a_limit_that_is_switched_off_is_none(open_card: Opener) -> None:
    powers = [{"domain": devices.POWER_CARD, "energy": 1, "limit": {"disabled": 1}}]
    error = failure(open_card(powers=powers), "power_limit_watts")
    assert error.reason is Reason.NOT_SUPPORTED


def test_a_clock_that_is_not_known_is_not_minus_1(open_card: Opener) -> None:
    card = open_card(clocks=[{"type": devices.CLOCK_GPU, "actual": -1.0}])
    assert failure(card, "sm_clock_megahertz").reason is Reason.NOT_SUPPORTED
    error = failure(card, "memory_clock_megahertz")
    assert (error.reason, error.permanent) == (Reason.NOT_SUPPORTED, True)


def test_throttle_time_is_mostly_not_supported(open_card: Opener) -> None:
    card = open_card(clocks=[{"type": devices.CLOCK_GPU, "actual": 2400.0}])
    error = failure(card, "intel_throttled_seconds_total")
    assert (error.reason, error.permanent) == (Reason.NOT_SUPPORTED, True)
    assert "ERROR_UNSUPPORTED_FEATURE" in error.detail


def test_a_link_that_is_not_counted_has_no_bytes(open_card: Opener) -> None:
    error = failure(open_card(pci=None), "pcie_receive_bytes_total")
    assert (error.reason, error.permanent) == (Reason.NOT_SUPPORTED, True)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (devices.LOST, Reason.LOST),
        (devices.RESET, Reason.RESET_REQUIRED),
        (devices.LOW_POWER, Reason.STALE),
        (devices.UNSUPPORTED, Reason.NOT_SUPPORTED),
        (1, Reason.TIMEOUT),
        (0x70020000, Reason.NOT_SUPPORTED),
        (0x7FFFFFFE, Reason.ERROR),
        (0x12345, Reason.ERROR),
    ],
)
def test_result_codes_become_reasons(
    fake_levelzero: FakeLevelZero, open_card: Opener, code: int, reason: Reason
) -> None:
    card = open_card()
    fake_levelzero.write(device(error=code))
    error = failure(card, "memory_used_bytes")
    assert (error.reason, error.code) == (reason, code)
    assert "zesDeviceEnumMemoryModules" in error.detail
    assert card.name == ""
    assert card.uuid == ""


def test_a_function_that_the_loader_lacks_is_not_supported(open_card: Opener) -> None:
    zero = open_card().zero
    with pytest.raises(UnreadableError) as caught:
        zero.call("zesDeviceEccAvailable", None, None)  # the fake does not have it
    assert (caught.value.reason, caught.value.permanent) == (Reason.NOT_SUPPORTED, True)
    assert "too old" in caught.value.detail


def test_a_device_that_does_not_say_where_it_is_hides_no_other(
    fake_levelzero: FakeLevelZero,
) -> None:
    fake_levelzero.write(device("0000:03:00.0", error=devices.LOST), device("0000:0A:00.0"))
    assert list(LevelZero().devices()) == ["0000:0a:00.0"]
