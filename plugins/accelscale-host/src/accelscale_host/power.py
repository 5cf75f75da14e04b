"""Energy and power limit of the CPU packages, where the kernel shows RAPL under powercap.

Only the domains that stand for a whole package count: ``intel-rapl:N`` whose name begins with
``package-``, on AMD processors too. Sub-domains (core, uncore, dram) are parts of a package or lie
beside it, ``psys`` covers the platform, and ``intel-rapl-mmio`` shows the packages a second time.
"""

from __future__ import annotations

import re
from pathlib import Path

from attrs import Factory, define

from accelscale.model import Reason
from accelscale_host.files import UnreadableError, read_integer, read_text

_DOMAIN = re.compile(r"intel-rapl:\d+")
_LONG_TERM = "long_term"

MOST_WATTS = 5000.0
"""More than a package can draw: a larger step of its counter is no wrap but a restart."""

_GRACE_SECONDS = 1.0  # the hardware updates its counter in steps


def package_domains(root: Path) -> list[Path]:
    """The folders of the package domains, in order.

    Raises:
        UnreadableError: there is none, as in most virtual machines and containers.
    """
    parent = root / "sys/class/powercap"
    packages = [
        folder
        for folder in sorted(parent.glob("intel-rapl:*"))
        if _DOMAIN.fullmatch(folder.name)
        and (folder / "name").is_file()  # a container may hide what the link points to
        and read_text(folder / "name").startswith("package-")
    ]
    if not packages:
        detail = (
            f"no RAPL package under {parent}: a virtual machine, a processor without RAPL, or a"
            " container from which it is hidden"
        )
        raise UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=True)
    return packages


def power_limit_watts(root: Path) -> float:
    """The long-term power limit of all packages together, in watts.

    Raises:
        UnreadableError: a package shows none, has it switched off, or it may not be read.
    """
    return sum(_limit_of(folder) for folder in package_domains(root))


def _limit_of(folder: Path) -> float:
    for name in sorted(folder.glob("constraint_*_name")):
        if read_text(name) == _LONG_TERM:
            enabled = folder / "enabled"
            if enabled.is_file() and read_integer(enabled) == 0:
                raise UnreadableError(Reason.NOT_SUPPORTED, f"{folder}: the limit is switched off")
            return read_integer(name.with_name(name.name.replace("_name", "_power_limit_uw"))) / 1e6
    detail = f"{folder} has no {_LONG_TERM} power limit"
    raise UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=True)


@define
class _Counter:
    microjoules: int
    time: float


@define
class PackageEnergy:
    """The energy of all packages as one counter that never goes back.

    A package's counter starts again at ``max_energy_range_uj``, which at full load takes some
    twenty minutes. One wrap between two readings is added; of several, all but one are lost: the
    total then grows by too little, never by too much.
    """

    root: Path
    _counters: dict[Path, _Counter] = Factory(dict)
    _total: int = 0

    def joules(self, now: float) -> float:
        """Energy in joules at the monotonic time ``now``; all packages, or none.

        Raises:
            UnreadableError: a package cannot be read, is gone, or its counter started anew.
        """
        readings = {folder: _energy_of(folder) for folder in package_domains(self.root)}
        gone = self._counters.keys() - readings.keys()
        if gone:
            names = ", ".join(sorted(folder.name for folder in gone))
            raise UnreadableError(Reason.LOST, f"{names} is no longer among the RAPL packages")
        if not self._counters:
            self._total = sum(readings.values())
        restarted = []
        for folder, microjoules in readings.items():
            before = self._counters.get(folder)
            self._counters[folder] = _Counter(microjoules, now)
            if before is None:
                continue  # a package that appears later counts from here on
            step = _step(folder, before, microjoules, now)
            if step is None:
                restarted.append(folder.name)
            else:
                self._total += step
        if restarted:
            raise UnreadableError(
                Reason.COUNTER_RESET, f"the energy counter of {', '.join(restarted)} started anew"
            )
        return self._total / 1e6


def _step(folder: Path, before: _Counter, microjoules: int, now: float) -> int | None:
    """What was drawn since the reading before; None if the counter did not wrap but restarted."""
    if microjoules >= before.microjoules:
        return microjoules - before.microjoules
    try:
        span = read_integer(folder / "max_energy_range_uj")
    except UnreadableError:
        return None
    step = microjoules + span - before.microjoules
    most = MOST_WATTS * 1e6 * (now - before.time + _GRACE_SECONDS)
    return step if 0 <= step <= most else None


def _energy_of(folder: Path) -> int:
    path = folder / "energy_uj"
    try:
        return read_integer(path)
    except UnreadableError as error:
        if error.reason is not Reason.PERMISSION:
            raise
        raise UnreadableError(
            Reason.PERMISSION,
            f"{path} may be read by root only, since Linux 5.10: run as root, grant the capability"
            " DAC_READ_SEARCH, or open the file to a group",
        ) from error
