"""Power: whose it is, and what of it is believed.

Where a card is one module with a processor (Grace Hopper, Grace Blackwell), power, limit and energy
may be those of the GPU or of the module, and NVML's older calls may mean the module
(ml-energy/zeus#242). The fields say it: scope 0 is the GPU. So they are asked first, and the calls
on drivers without them.
"""

from __future__ import annotations

from accelscale.model import Reason
from accelscale.nvidia.card import Card
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.outcome import Absent, Outcome

LIMIT = "power_limit_watts"
SCOPE_GPU = 0

_WITHOUT_LIMIT_WATTS = 2000.0


def power_call(driver: Driver, card: Card) -> int:
    """Milliwatts, of the whole module where there is one."""
    power: int = driver.call("nvmlDeviceGetPowerUsage", card.handle)
    return power


def limit_call(driver: Driver, card: Card) -> int:
    """Milliwatts of the limit in force, likewise."""
    limit: int = driver.call("nvmlDeviceGetEnforcedPowerLimit", card.handle)
    return limit


def energy_call(driver: Driver, card: Card) -> int:
    """Millijoules since the driver was loaded, likewise."""
    energy: int = driver.call("nvmlDeviceGetTotalEnergyConsumption", card.handle)
    return energy


def keep_limit(card: Card, limit: Outcome) -> Outcome:
    """Keep the limit, by which power is judged; the last one while it cannot be read."""
    card.asked.add(LIMIT)
    if isinstance(limit, float):
        card.power_limit_watts = limit if limit >= 1 else None
    return limit


def judge_power(card: Card, power: Outcome) -> Outcome:
    """Power far above the limit is a fault of the driver (flightlessmango/MangoHud#2144)."""
    limit = card.power_limit_watts
    bound = _WITHOUT_LIMIT_WATTS if limit is None else 2 * limit
    if isinstance(power, float) and power > bound:
        known = "no limit is known" if limit is None else f"the limit is {limit:g} W"
        return Absent(Reason.OUT_OF_RANGE, f"the driver gave {power:g} W where {known}")
    return power
