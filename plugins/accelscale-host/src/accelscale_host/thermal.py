"""The temperature of the hottest CPU package, from the kernel's hardware monitors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

from accelscale.model import Reason
from accelscale_host.files import UnreadableError, read_integer, read_text

# Per driver, the labels of the sensor of a whole package, the best one first. Tdie is the die;
# Tctl is the die plus an offset on the few models that also have Tdie. On AMD processors before
# Zen it has no label and is a distance on a scale of its own, not a temperature (k10temp).
_PACKAGE_LABELS: Mapping[str, tuple[str, ...]] = {
    "coretemp": (r"Package id \d+", r"Physical id \d+"),
    "k10temp": (r"Tdie", r"Tctl"),
    "zenpower": (r"Tdie", r"Tctl"),
    "cpu_thermal": (r"",),  # most ARM boards: one sensor without a label
}
# Where the critical temperature is the one at which the processor lowers its clocks. On ARM
# boards it is the one at which the machine turns itself off.
_CRITICAL_IS_SLOWDOWN = frozenset({"coretemp", "k10temp"})


@frozen
class Sensor:
    """One package's sensor: its temperature now, and where its limit would be."""

    driver: str
    celsius: float
    stem: Path

    def slowdown_celsius(self) -> float:
        """The temperature at which the processor lowers its clocks.

        Raises:
            UnreadableError: the kernel does not show it.
        """
        path = self.stem.with_name(f"{self.stem.name}_crit")
        if self.driver not in _CRITICAL_IS_SLOWDOWN or not path.is_file():
            detail = f"{self.driver} does not show at which temperature clocks are lowered"
            raise UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=True)
        return read_integer(path) / 1000


def hottest_package(root: Path) -> Sensor:
    """The package sensor that shows most, so that no package hides behind a cooler one.

    Raises:
        UnreadableError: there is none, or one of them cannot be read.
    """
    stems = list(_package_sensors(root))
    if not stems:
        detail = (
            f"no CPU package sensor under {root / 'sys/class/hwmon'}: a virtual machine, or no"
            f" driver of {', '.join(_PACKAGE_LABELS)} is loaded"
        )
        raise UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=True)
    sensors = [Sensor(driver, _celsius(stem), stem) for driver, stem in stems]
    return max(sensors, key=lambda sensor: sensor.celsius)


def _package_sensors(root: Path) -> Iterator[tuple[str, Path]]:
    """Driver and ``temp1`` of each package: one driver instance may show several sensors."""
    for folder in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        name = folder / "name"
        driver = read_text(name) if name.is_file() else ""
        labels = {
            path.with_name(path.name.removesuffix("_input")): _label(path)
            for path in sorted(folder.glob("temp*_input"))
        }
        for pattern in _PACKAGE_LABELS.get(driver, ()):
            found = [stem for stem, label in labels.items() if re.fullmatch(pattern, label)]
            if found:
                yield from ((driver, stem) for stem in found)
                break


def _label(sensor_input: Path) -> str:
    path = sensor_input.with_name(sensor_input.name.replace("_input", "_label"))
    return read_text(path) if path.is_file() else ""


def _celsius(stem: Path) -> float:
    millidegrees = read_integer(stem.with_name(f"{stem.name}_input"))
    if millidegrees == 0:
        # A running processor is not at 0.000 degrees; firmware that has measured nothing says so.
        detail = f"{stem}_input shows exactly 0, which is no measured temperature"
        raise UnreadableError(Reason.OUT_OF_RANGE, detail)
    return millidegrees / 1000
