"""Package temperatures from a tree of hardware monitors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from accelscale.model import Reason
from accelscale_host.files import UnreadableError
from accelscale_host.thermal import hottest_package

if TYPE_CHECKING:
    from host.trees import Tree


def refused(tree: Tree) -> UnreadableError:
    with pytest.raises(UnreadableError) as caught:
        hottest_package(tree.root)
    return caught.value


def test_the_hottest_intel_package_counts_with_its_own_limit(tree: Tree) -> None:
    tree.sensor(0, "nvme", 1, label="Composite", input=88_000)
    tree.sensor(1, "coretemp", 1, label="Package id 0", input=51_000, max=80_000, crit=100_000)
    tree.sensor(1, "coretemp", 2, label="Core 0", input=99_000, crit=100_000)
    tree.sensor(2, "coretemp", 1, label="Package id 1", input=64_500, max=80_000, crit=98_000)
    sensor = hottest_package(tree.root)
    assert sensor.celsius == pytest.approx(64.5)
    assert sensor.slowdown_celsius() == pytest.approx(98.0)


def test_the_die_is_preferred_to_the_control_value_of_amd(tree: Tree) -> None:
    tree.sensor(0, "k10temp", 1, label="Tctl", input=77_000)
    tree.sensor(0, "k10temp", 2, label="Tdie", input=50_000)
    tree.sensor(0, "k10temp", 3, label="Tccd1", input=80_000)
    assert hottest_package(tree.root).celsius == pytest.approx(50.0)


def test_amd_without_a_limit_has_none(tree: Tree) -> None:
    """``temp1_max`` of k10temp is a constant of the driver, and no limit."""
    tree.sensor(0, "k10temp", 1, label="Tctl", input=41_250, max=70_000)
    sensor = hottest_package(tree.root)
    assert sensor.celsius == pytest.approx(41.25)
    with pytest.raises(UnreadableError) as caught:
        sensor.slowdown_celsius()
    assert caught.value.reason is Reason.NOT_SUPPORTED


def test_the_relative_scale_of_old_amd_processors_is_no_temperature(tree: Tree) -> None:
    tree.sensor(0, "k10temp", 1, input=41_250, crit=90_000)
    assert refused(tree).reason is Reason.NOT_SUPPORTED


def test_an_arm_board_shows_where_it_turns_off_and_not_where_it_slows_down(tree: Tree) -> None:
    tree.sensor(0, "cpu_thermal", 1, input=48_312, crit=110_000)
    sensor = hottest_package(tree.root)
    assert sensor.celsius == pytest.approx(48.312)
    with pytest.raises(UnreadableError):
        sensor.slowdown_celsius()


@pytest.mark.parametrize(
    ("shown", "reason"),
    [("0", Reason.OUT_OF_RANGE), ("N/A", Reason.ERROR), ("", Reason.ERROR)],
)
def test_what_is_no_temperature_hides_behind_no_other_package(
    tree: Tree, shown: str, reason: Reason
) -> None:
    tree.sensor(0, "coretemp", 1, label="Package id 0", input=51_000)
    tree.sensor(1, "coretemp", 1, label="Package id 1", input=shown)
    assert refused(tree).reason is reason


def test_without_a_sensor_it_is_not_supported(tree: Tree) -> None:
    tree.sensor(0, "acpitz", 1, input=30_000)
    failure = refused(tree)
    assert (failure.reason, failure.permanent) == (Reason.NOT_SUPPORTED, True)
