"""Energy and power limit from a powercap tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from accelscale.model import Reason
from accelscale_host.files import UnreadableError
from accelscale_host.power import PackageEnergy, power_limit_watts
from host.trees import Tree

SPAN = 262_143_328_850


def refused(energy: PackageEnergy, now: float) -> UnreadableError:
    with pytest.raises(UnreadableError) as caught:
        energy.joules(now)
    return caught.value


def test_packages_are_summed_and_nothing_else(tree: Tree) -> None:
    tree.package(0, 1_500_000)
    tree.package(1, 2_000_000)
    tree.write("sys/class/powercap/intel-rapl:2/name", "psys")
    tree.write("sys/class/powercap/intel-rapl:2/energy_uj", 70_000_000)
    tree.write("sys/class/powercap/intel-rapl-mmio:0/name", "package-0")
    tree.write("sys/class/powercap/intel-rapl-mmio:0/energy_uj", 1_500_000)
    energy = PackageEnergy(tree.root)
    assert energy.joules(0.0) == pytest.approx(3.5)
    tree.energy(0, 1_600_000)
    assert energy.joules(1.0) == pytest.approx(3.6)


def test_a_wrap_is_added_up(tree: Tree) -> None:
    tree.package(0, SPAN - 1_000_000)
    energy = PackageEnergy(tree.root)
    before = energy.joules(0.0)
    tree.energy(0, 2_000_000)
    assert energy.joules(1.0) - before == pytest.approx(3.0)
    tree.energy(0, 4_000_000)
    assert energy.joules(2.0) - before == pytest.approx(5.0)


def test_a_restart_is_no_wrap(tree: Tree) -> None:
    """From 1 kJ to nothing in a second would be a wrap of 261 kJ: no package draws 261 kW."""
    tree.package(0, 1_000_000_000)
    energy = PackageEnergy(tree.root)
    before = energy.joules(0.0)
    tree.energy(0, 0)
    failure = refused(energy, 1.0)
    assert failure.reason is Reason.COUNTER_RESET
    assert "intel-rapl:0" in failure.detail
    tree.energy(0, 500_000)
    assert energy.joules(2.0) - before == pytest.approx(0.5)


def test_a_step_back_without_a_known_span_is_a_restart(tree: Tree) -> None:
    tree.package(0, 10_000_000)
    (tree.root / "sys/class/powercap/intel-rapl:0/max_energy_range_uj").unlink()
    energy = PackageEnergy(tree.root)
    energy.joules(0.0)
    tree.energy(0, 9_000_000)
    assert refused(energy, 1.0).reason is Reason.COUNTER_RESET


def test_one_unreadable_package_leaves_no_partial_sum(tree: Tree) -> None:
    tree.package(0, 1_000_000)
    tree.package(1, 2_000_000)
    energy = PackageEnergy(tree.root)
    assert energy.joules(0.0) == pytest.approx(3.0)
    tree.energy(0, 1_500_000)
    tree.write("sys/class/powercap/intel-rapl:1/energy_uj", "N/A")
    failure = refused(energy, 1.0)
    assert failure.reason is Reason.ERROR
    assert "'N/A'" in failure.detail
    tree.energy(0, 1_800_000)
    tree.energy(1, 2_100_000)
    assert energy.joules(2.0) == pytest.approx(3.9)


def test_a_package_that_goes_is_lost_and_one_that_comes_adds_no_past(tree: Tree) -> None:
    tree.package(0, 1_000_000)
    tree.package(1, 2_000_000)
    energy = PackageEnergy(tree.root)
    energy.joules(0.0)
    shutil.rmtree(tree.root / "sys/class/powercap/intel-rapl:1")
    assert refused(energy, 1.0).reason is Reason.LOST
    tree.package(1, 2_500_000)
    tree.package(2, 900_000_000)
    assert energy.joules(2.0) == pytest.approx(3.5)
    tree.energy(2, 900_100_000)
    assert energy.joules(3.0) == pytest.approx(3.6)


def test_without_rapl_it_is_not_supported(tree: Tree) -> None:
    failure = refused(PackageEnergy(tree.root), 0.0)
    assert (failure.reason, failure.permanent) == (Reason.NOT_SUPPORTED, True)


def test_links_that_lead_nowhere_are_not_supported(tree: Tree) -> None:
    """Docker hides what the links in /sys/class/powercap point to."""
    folder = tree.root / "sys/class/powercap"
    folder.mkdir(parents=True)
    (folder / "intel-rapl:0").symlink_to(tree.root / "sys/devices/virtual/powercap/intel-rapl:0")
    assert refused(PackageEnergy(tree.root), 0.0).reason is Reason.NOT_SUPPORTED


READ_AS_NOBODY = """
import os, sys
from pathlib import Path
from accelscale_host.files import UnreadableError
from accelscale_host.power import PackageEnergy

if os.geteuid() == 0:  # which may read everything
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    PackageEnergy(Path(sys.argv[1])).joules(0.0)
except UnreadableError as error:
    print(error.reason, error.detail)
"""


def test_energy_that_only_root_may_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder))
        tree.root.chmod(0o755)
        tree.package(0, 1_000_000)
        energy = tree.root / "sys/class/powercap/intel-rapl:0/energy_uj"
        energy.chmod(0o400 if os.geteuid() == 0 else 0o000)
        done = subprocess.run(
            [sys.executable, "-c", READ_AS_NOBODY, folder],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert done.stdout.startswith("permission ")
    assert "DAC_READ_SEARCH" in done.stdout


def limit(tree: Tree, number: int, microwatts: int, name: str = "long_term") -> None:
    folder = f"sys/class/powercap/intel-rapl:{number}"
    tree.write(f"{folder}/constraint_0_name", "short_term")
    tree.write(f"{folder}/constraint_0_power_limit_uw", 300_000_000)
    tree.write(f"{folder}/constraint_1_name", name)
    tree.write(f"{folder}/constraint_1_power_limit_uw", microwatts)


def test_the_long_term_limits_are_summed(tree: Tree) -> None:
    for number in (0, 1):
        tree.package(number, 0)
        limit(tree, number, 125_000_000)
    assert power_limit_watts(tree.root) == pytest.approx(250.0)
    tree.write("sys/class/powercap/intel-rapl:1/enabled", 1)
    assert power_limit_watts(tree.root) == pytest.approx(250.0)
    tree.write("sys/class/powercap/intel-rapl:1/enabled", 0)
    with pytest.raises(UnreadableError, match="switched off"):
        power_limit_watts(tree.root)


def test_a_package_without_limit_leaves_no_partial_sum(tree: Tree) -> None:
    tree.package(0, 0)
    tree.package(1, 0)
    limit(tree, 0, 125_000_000)
    with pytest.raises(UnreadableError, match="no long_term power limit") as caught:
        power_limit_watts(tree.root)
    assert caught.value.reason is Reason.NOT_SUPPORTED
