"""What the drivers i915 and xe show of a card under ``/sys``: sensors, clocks, throttling.

The numbers of the files are fixed by the kernel's documentation
(``Documentation/ABI/testing/sysfs-driver-intel-{i915,xe}-hwmon``): channel 1 is the whole card,
channel 2 the package, which is a part of it; they are never added up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from accelscale.model import Reason
from accelscale_intel.cards import Card
from accelscale_intel.files import UnreadableError, text_of, whole_number_of

CARD_THEN_PACKAGE = ("1", "2")

_SENSORS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"i915": {"package": "temp1"}, "xe": {"package": "temp2", "memory": "temp3"}}
)

_POWER_REASONS = frozenset(
    {"pl1", "pl2", "pl4", "iccmax", "vr_tdc", "psys_pl1", "psys_pl2", "psys_crit"}
)
_THERMAL_REASONS = frozenset(
    {
        "thermal",
        "prochot",
        "ratl",
        "vr_thermalert",
        "vr_thermal",
        "soc_thermal",
        "soc_avg_thermal",
        "mem_thermal",
    }
)


def temperature_celsius(card: Card) -> float:
    """The temperature of the package."""
    return _temperature(card, "package")


def memory_temperature_celsius(card: Card) -> float:
    """The temperature of the video memory (xe, since Linux 6.15)."""
    return _temperature(card, "memory")


def energy_joules(card: Card) -> float:
    """The energy of the card since its driver was loaded, else that of its package."""
    path = _first(card, [f"energy{channel}_input" for channel in CARD_THEN_PACKAGE])
    return _not_zero(path, "energy") / 1e6


def power_watts(card: Card) -> float:
    """The power that a sensor shows. i915 and xe have none so far, only energy."""
    names = [f"power{n}_{kind}" for n in CARD_THEN_PACKAGE for kind in ("input", "average")]
    return _not_zero(_first(card, names), "power") / 1e6


def power_limit_watts(card: Card) -> float:
    """The sustained power limit (PL1) of the card, else that of its package."""
    path = _first(card, [f"power{channel}_max" for channel in CARD_THEN_PACKAGE])
    microwatts = whole_number_of(path)
    if microwatts == 0:
        raise UnreadableError(Reason.NOT_SUPPORTED, f"{path} is 0: the limit is switched off")
    return microwatts / 1e6


def clock_megahertz(card: Card) -> float:
    """The clock of the engines for work, the fastest tile's; 0 while they are switched off."""
    if card.driver == "xe":
        paths = [gt / "freq0/act_freq" for gt in _main_gts(card)]
    else:
        paths = [card.folder / "gt/gt0/rps_act_freq_mhz", card.folder / "gt_act_freq_mhz"]
        paths = [path for path in paths if path.exists()][:1]
    if not paths:
        raise _absent(card, "clock")
    return float(max(whole_number_of(path) for path in paths))


def power_throttle_state(card: Card) -> float:
    """1 while a power or current limit holds the clocks down, else 0."""
    return _throttle_state(card, _POWER_REASONS)


def thermal_throttle_state(card: Card) -> float:
    """1 while heat holds the clocks down, else 0."""
    return _throttle_state(card, _THERMAL_REASONS)


READERS: Mapping[str, Callable[[Card], float]] = MappingProxyType(
    {
        "temperature_celsius": temperature_celsius,
        "memory_temperature_celsius": memory_temperature_celsius,
        "energy_joules_total": energy_joules,
        "power_watts": power_watts,
        "power_limit_watts": power_limit_watts,
        "sm_clock_megahertz": clock_megahertz,
        "intel_power_throttle_state": power_throttle_state,
        "intel_thermal_throttle_state": thermal_throttle_state,
    }
)
"""How to read each metric; every reader raises UnreadableError."""


def _temperature(card: Card, part: str) -> float:
    stem = _SENSORS[card.driver].get(part)
    path = _first(card, [f"{stem}_input"] if stem else [])
    millidegrees = whole_number_of(path)
    if millidegrees == 0:
        detail = f"{path} shows exactly 0, which is no measured temperature"
        raise UnreadableError(Reason.OUT_OF_RANGE, detail)
    return millidegrees / 1000


def _not_zero(path: Path, what: str) -> int:
    value = whole_number_of(path)
    if value == 0:
        raise UnreadableError(Reason.OUT_OF_RANGE, f"{path} shows exactly 0, which is no {what}")
    return value


def _first(card: Card, names: list[str]) -> Path:
    """The first of these files that the card's hardware monitor has, readable or not."""
    monitor = _monitor(card)
    for name in names:
        if (monitor / name).exists():
            return monitor / name
    raise _absent(card, " or ".join(names) or "such sensor")


def _monitor(card: Card) -> Path:
    """The monitor of the whole card; i915 has others for its parts (``i915_gt0``)."""
    for folder in sorted((card.device / "hwmon").glob("hwmon*")):
        if text_of(folder / "name") == card.driver:
            return folder
    raise _absent(card, "hardware monitor")


def _absent(card: Card, what: str) -> UnreadableError:
    detail = f"the driver {card.driver} shows no {what} of this card"
    return UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=True)


def _main_gts(card: Card) -> list[Path]:
    """The graphics part of each tile of an xe card; a media part has a higher number."""
    gts = []
    for tile in sorted(card.device.glob("tile*")):
        parts = sorted(tile.glob("gt*"), key=lambda path: (len(path.name), path.name))
        gts += [part for part in parts if (part / "freq0").exists()][:1]
    return gts


def _throttle_state(card: Card, reasons: frozenset[str]) -> float:
    if card.driver == "xe":
        folders, prefix = [gt / "freq0/throttle" for gt in _main_gts(card)], "reason_"
    else:
        folders, prefix = [card.folder / "gt/gt0"], "throttle_reason_"
    paths = [
        path
        for folder in folders
        for path in sorted(folder.glob(f"{prefix}*"))
        if path.name.removeprefix(prefix) in reasons
    ]
    if not paths:
        raise _absent(card, "reasons for low clocks")
    return float(max(whole_number_of(path) for path in paths) != 0)
