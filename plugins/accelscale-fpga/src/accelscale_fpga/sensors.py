"""Temperature and power from the hardware monitors that belong to a card.

Which of a board's sensors means the chip, its memory or the whole board is told by the monitor's
driver or by the sensor's label. A single sensor needs no label; of several without a telling label
none is taken. Units are fixed by the kernel: thousandths of a degree, millionths of a watt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from accelscale.model import Reason
from accelscale_fpga.files import UnreadableError, entries, read_integer, text_or_empty

_MEMORY = re.compile(r"hbm|ddr|dimm|memory", re.IGNORECASE)
_CHIP = re.compile(r"fpga|\bdie\b", re.IGNORECASE)
_BOARD = re.compile(r"total|board", re.IGNORECASE)

# Drivers whose first sensor is that of the whole FPGA (sysfs-platform-dfl-fme in the kernel's ABI).
_CHIP_DRIVERS = frozenset({"dfl_fme_thermal", "dfl_fme_power"})
_THROTTLES_AT_MAX = "dfl_fme_thermal"  # at temp1_max the hardware itself lowers the clocks


def names_chip(label: str) -> bool:
    """Whether a temperature of this name is that of the FPGA itself."""
    return _CHIP.search(label) is not None and not names_memory(label)


def names_memory(label: str) -> bool:
    """Whether a temperature of this name is that of the card's memory."""
    return _MEMORY.search(label) is not None


@frozen
class Sensor:
    """One ``tempN`` or ``powerN`` of a hardware monitor; ``stem`` is its path without a suffix."""

    driver: str
    label: str
    stem: Path

    @property
    def is_power(self) -> bool:
        return self.stem.name.startswith("power")

    def file(self, suffix: str) -> Path:
        """The path of one of its files, such as ``_input``."""
        return self.stem.with_name(self.stem.name + suffix)


def monitors(root: Path) -> list[Path]:
    """The real folders of all hardware monitors of the machine."""
    return [entry.resolve() for entry in entries(root / "sys/class/hwmon")]


def sensors_of(folders: Sequence[Path], monitors: Sequence[Path]) -> tuple[Sensor, ...]:
    """The sensors of the monitors that sit below one of these device folders."""
    return tuple(
        sensor
        for monitor in monitors
        if any(folder in monitor.parents for folder in folders)
        for sensor in _sensors(monitor)
    )


def _sensors(monitor: Path) -> Iterator[Sensor]:
    driver = text_or_empty(monitor / "name")
    for kind in ("temp*_input", "power*_input"):
        for path in sorted(monitor.glob(kind)):
            stem = path.with_name(path.name.removesuffix("_input"))
            label = text_or_empty(stem.with_name(f"{stem.name}_label"))
            yield Sensor(driver, label, stem)


def chip_celsius(sensors: Sequence[Sensor]) -> float:
    """The temperature of the FPGA: of the hottest, where several sensors show it.

    Raises:
        UnreadableError: no sensor is known to show it, or one that does cannot be read.
    """
    return _largest(_chip_sensors(sensors)) / 1e3


def memory_celsius(sensors: Sequence[Sensor]) -> float:
    """The temperature of the card's memory, of the hottest part.

    Raises:
        UnreadableError: as `chip_celsius`.
    """
    found = [one for one in sensors if not one.is_power and names_memory(one.label)]
    return _largest(found or _missing(sensors, "temp", "memory")) / 1e3


def slowdown_celsius(sensors: Sequence[Sensor]) -> float:
    """The temperature at which the FPGA lowers its own clocks; most drivers do not say.

    Raises:
        UnreadableError: as `chip_celsius`.
    """
    limits = [one.file("_max") for one in sensors if one.driver == _THROTTLES_AT_MAX]
    limits = [path for path in limits if path.is_file()]
    if not limits:
        detail = "no driver of this card shows at which temperature clocks are lowered"
        raise UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=True)
    return min(_measured(path) for path in limits) / 1e3


def board_watts(sensors: Sequence[Sensor]) -> float:
    """The power of the card, or of the FPGA where only that is measured.

    Raises:
        UnreadableError: as `chip_celsius`.
    """
    power = [one for one in sensors if one.is_power]
    ranked = (
        [one for one in power if _BOARD.search(one.label)],
        [one for one in power if one.driver in _CHIP_DRIVERS],
        power if len(power) == 1 else [],
    )
    found = next((group for group in ranked if group), None)
    return _largest(found or _missing(sensors, "power", "whole board")) / 1e6


def _chip_sensors(sensors: Sequence[Sensor]) -> list[Sensor]:
    temperatures = [one for one in sensors if not one.is_power]
    found = [one for one in temperatures if one.driver in _CHIP_DRIVERS or names_chip(one.label)]
    only_one = len(temperatures) == 1 and not names_memory(temperatures[0].label)
    return found or (temperatures if only_one else _missing(sensors, "temp", "FPGA"))


def _missing(sensors: Sequence[Sensor], kind: str, whose: str) -> list[Sensor]:
    labels = [one.label or one.stem.name for one in sensors if one.stem.name.startswith(kind)]
    if labels:
        detail = f"none of its sensors is known to be that of the {whose}: {', '.join(labels)}"
    else:
        detail = "no hardware monitor of the kernel belongs to this device"
    raise UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=True)


def _largest(sensors: Sequence[Sensor]) -> int:
    values, absent = [], None
    for sensor in sensors:
        try:
            values.append(_measured(sensor.file("_input")))
        except UnreadableError as error:
            if error.absent.reason is not Reason.OUT_OF_RANGE:
                raise
            absent = error
    if absent is not None and not values:
        raise absent
    return max(values)


def _measured(path: Path) -> int:
    value = read_integer(path)
    if value == 0:  # what firmware says of a sensor that is not fitted or not ready
        detail = f"{path} shows exactly 0, which is no measurement"
        raise UnreadableError(Reason.OUT_OF_RANGE, detail)
    return value


READERS: Mapping[str, Callable[[Sequence[Sensor]], float]] = {
    "temperature_celsius": chip_celsius,
    "memory_temperature_celsius": memory_celsius,
    "slowdown_temperature_celsius": slowdown_celsius,
    "power_watts": board_watts,
}
"""How each metric is read from a card's sensors."""
