"""What i915 and xe show under /sys, and cards that sleep or are no GPU of ours."""

from __future__ import annotations

import pytest

from accelscale.model import Reason
from accelscale_intel import kernel
from accelscale_intel.cards import Card, intel_cards
from accelscale_intel.files import UnreadableError
from accelscale_intel.rights import privileges
from accelscale_intel.sleep import Sleep
from intel.trees import Tree, full_xe_card

A = "0000:03:00.0"


def card_of(tree: Tree) -> Card:
    (card,) = intel_cards(tree.root)
    return card


def failure(tree: Tree, metric: str) -> UnreadableError:
    with pytest.raises(UnreadableError) as caught:
        kernel.READERS[metric](card_of(tree))
    assert caught.value.detail
    return caught.value


def test_cards_are_listed_by_address_and_connectors_are_none(tree: Tree) -> None:
    tree.card(1, "0000:03:00.0", "xe", "8086:E20B")
    tree.card(0, "0000:00:02.0", "i915", "8086:4680")
    tree.card(2, "0000:0C:00.0", "ast", "1A03:2000")
    tree.write("sys/class/drm/card1-DP-1/status", "connected")
    tree.write("sys/class/drm/renderD128/dev", "226:128")
    integrated, discrete = intel_cards(tree.root)
    assert (integrated.address, integrated.number, integrated.driver) == ("0000:00:02.0", 0, "i915")
    assert integrated.is_integrated
    assert (discrete.address, discrete.pci_id) == ("0000:03:00.0", "8086:e20b")
    assert not discrete.is_integrated
    assert discrete.nodes == {"card1", "renderD129", "226:1", "226:129"}


def test_addresses_are_spelt_one_way(tree: Tree) -> None:
    tree.card(0, "000F:1B:00.0")
    assert card_of(tree).address == "000f:1b:00.0"


def test_a_machine_without_cards_has_none(tree: Tree) -> None:
    assert intel_cards(tree.root) == []


def test_a_virtual_function_names_its_card(tree: Tree) -> None:
    folder = tree.card(1, "0000:03:00.1")
    tree.write(f"{folder}/physfn/uevent", "DRIVER=xe\nPCI_SLOT_NAME=0000:03:00.0")
    assert card_of(tree).physical_function == "0000:03:00.0"


def test_an_xe_card_is_read_whole(tree: Tree) -> None:
    full_xe_card(tree)
    card = card_of(tree)
    values = {}
    for metric, read in kernel.READERS.items():
        if metric != "power_watts":
            values[metric] = read(card)
    assert values == {
        "temperature_celsius": 47.0,
        "memory_temperature_celsius": 52.0,
        "energy_joules_total": 5000.0,
        "power_limit_watts": 190.0,
        "sm_clock_megahertz": 2400.0,  # of the graphics part, not of the media part
        "intel_power_throttle_state": 0.0,
        "intel_thermal_throttle_state": 0.0,
    }


def test_an_i915_card_is_read_from_its_own_files(tree: Tree) -> None:
    tree.card(0, A, "i915")
    tree.monitor(0, "i915", energy1_input=7_000_000, power1_max=225_000_000, temp1_input=61_000)
    tree.write("sys/class/drm/card0/device/hwmon/hwmon2/name", "i915_gt0")
    tree.write("sys/class/drm/card0/device/hwmon/hwmon2/energy1_input", 1)
    tree.write("sys/class/drm/card0/gt/gt0/rps_act_freq_mhz", 1350)
    tree.write("sys/class/drm/card0/gt/gt0/throttle_reason_status", 1)
    tree.write("sys/class/drm/card0/gt/gt0/throttle_reason_pl1", 1)
    tree.write("sys/class/drm/card0/gt/gt0/throttle_reason_thermal", 0)
    card = card_of(tree)
    assert kernel.energy_joules(card) == 7.0
    assert kernel.power_limit_watts(card) == 225.0
    assert kernel.temperature_celsius(card) == 61.0
    assert kernel.clock_megahertz(card) == 1350.0
    assert kernel.power_throttle_state(card) == 1.0
    assert kernel.thermal_throttle_state(card) == 0.0
    assert failure(tree, "memory_temperature_celsius").permanent


def test_an_older_i915_shows_the_clock_elsewhere(tree: Tree) -> None:
    tree.card(0, A, "i915")
    tree.write("sys/class/drm/card0/gt_act_freq_mhz", 900)
    assert kernel.clock_megahertz(card_of(tree)) == 900.0


def test_the_fastest_tile_counts_and_any_that_is_throttled(tree: Tree) -> None:
    folder = tree.card(0, A)
    for tile, gt, clock, hot in ((0, 0, 1200, 0), (1, 1, 1500, 1)):
        freq = f"{folder}/tile{tile}/gt{gt}/freq0"
        tree.write(f"{freq}/act_freq", clock)
        tree.write(f"{freq}/throttle/reason_thermal", hot)
    assert kernel.clock_megahertz(card_of(tree)) == 1500.0
    assert kernel.thermal_throttle_state(card_of(tree)) == 1.0


def test_the_package_counts_only_where_the_card_as_a_whole_is_not_measured(tree: Tree) -> None:
    tree.card(0, A)
    tree.monitor(0, energy2_input=3_000_000, power2_max=150_000_000)
    assert kernel.energy_joules(card_of(tree)) == 3.0
    assert kernel.power_limit_watts(card_of(tree)) == 150.0
    tree.monitor(0, energy1_input=5_000_000, power1_max=190_000_000)
    assert kernel.energy_joules(card_of(tree)) == 5.0  # and never 8
    assert kernel.power_limit_watts(card_of(tree)) == 190.0


def test_energy_is_no_power(tree: Tree) -> None:
    full_xe_card(tree)
    error = failure(tree, "power_watts")
    assert (error.reason, error.permanent) == (Reason.NOT_SUPPORTED, True)
    tree.monitor(0, power1_input=88_500_000)
    assert kernel.power_watts(card_of(tree)) == 88.5


@pytest.mark.parametrize(
    ("metric", "name", "text", "reason"),
    [
        ("temperature_celsius", "temp2_input", "0", Reason.OUT_OF_RANGE),
        ("temperature_celsius", "temp2_input", "N/A", Reason.ERROR),
        ("temperature_celsius", "temp2_input", "", Reason.ERROR),
        ("temperature_celsius", "temp2_input", "4.7e4", Reason.ERROR),
        ("energy_joules_total", "energy1_input", "0", Reason.OUT_OF_RANGE),
        ("energy_joules_total", "energy1_input", "\N{ARABIC-INDIC DIGIT ONE}", Reason.ERROR),
        ("power_limit_watts", "power1_max", "0", Reason.NOT_SUPPORTED),
    ],
)
def test_what_is_no_measurement_is_no_number(
    tree: Tree, metric: str, name: str, text: str, reason: Reason
) -> None:
    full_xe_card(tree)
    tree.monitor(0, **{name: text})
    error = failure(tree, metric)
    assert error.reason is reason
    assert name in error.detail


def test_a_clock_of_0_is_an_engine_that_is_switched_off(tree: Tree) -> None:
    full_xe_card(tree)
    tree.write("sys/class/drm/card0/device/tile0/gt0/freq0/act_freq", 0)
    assert kernel.clock_megahertz(card_of(tree)) == 0.0


def test_an_integrated_card_has_no_monitor(tree: Tree) -> None:
    tree.card(0, "0000:00:02.0", "i915")
    assert card_of(tree).is_integrated
    error = failure(tree, "temperature_celsius")
    assert (error.reason, error.permanent) == (Reason.NOT_SUPPORTED, True)


def test_a_discrete_card_at_the_address_of_integrated_ones_is_discrete(tree: Tree) -> None:
    """As a virtual machine may have it."""
    tree.card(0, "0000:00:02.0", "xe")
    tree.monitor(0, temp2_input=40_000)
    assert not card_of(tree).is_integrated


def test_a_sleeping_card_is_idle_if_it_slept_on(tree: Tree) -> None:
    folder = tree.card(0, A)
    tree.write(f"{folder}/power/runtime_status", "suspended")
    card, sleep = card_of(tree), Sleep()
    assert card.is_suspended
    outcomes: list[float | Reason] = []
    for active in (1000, 1000, 2500, 2500):
        tree.write(f"{folder}/power/runtime_active_time", active)
        try:
            outcomes.append(sleep.value(card, "utilization_percent"))
        except UnreadableError as error:
            outcomes.append(error.reason)
    assert outcomes == [Reason.NO_PROGRESS, 0.0, Reason.NO_PROGRESS, 0.0]
    with pytest.raises(UnreadableError, match="not woken"):
        sleep.value(card, "temperature_celsius")
    sleep.forget(card)
    with pytest.raises(UnreadableError, match="awake"):
        sleep.value(card, "utilization_percent")


def test_a_kernel_without_runtime_power_management_has_no_sleeping_cards(tree: Tree) -> None:
    folder = tree.card(0, A)
    (tree.root / folder / "power/runtime_status").unlink()
    assert not card_of(tree).is_suspended


@pytest.mark.parametrize("status", ["", "Uid:\t0", "Uid:\t0\t0\nCapEff:\tzz"])
def test_rights_that_are_not_told_are_none(tree: Tree, status: str) -> None:
    tree.write("proc/self/status", status)
    assert privileges(tree.root).capabilities == 0
    assert not privileges(tree.root).is_root


def test_the_rights_of_this_process_are_the_effective_ones(tree: Tree) -> None:
    tree.rights(1000, 1 << 38)
    rights = privileges(tree.root)
    assert not rights.is_root
    assert rights.has(rights.PERFMON)
    assert not rights.has(rights.SYS_ADMIN)
