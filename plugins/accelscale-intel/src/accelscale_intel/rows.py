"""Which metrics there are, how costly each is, and the rows that the common table lacks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from accelscale.metrics import Derivation, Kind, Metric, Tier

# What the drivers tell of low clocks does not fit the counters throttled_power_seconds_total and
# throttled_thermal_seconds_total of the common table: the files say for which cause, but only at
# this moment, and Level Zero counts time, but not for which cause. So each has a row of its own.
EXTRA_METRICS = (
    Metric(
        "intel_throttled_seconds_total",
        "seconds",
        "Time that the hardware held the clock of the GPU down, for whichever cause.",
        kind=Kind.COUNTER,
    ),
    Metric(
        "intel_throttled_percent",
        "percent",
        "Share of time that the hardware held the clock of the GPU down, for whichever cause.",
        0.0,
        105.0,
        derivation=Derivation.BUSIEST_RATE_PERCENT,
        sources=("intel_throttled_seconds_total",),
    ),
    Metric(
        "intel_power_throttle_state",
        "state",
        "1 if a limit of power or current held the clocks down at the moment of reading, else 0."
        " Its mean over a window is the share of readings, not of time.",
        0.0,
        1.0,
    ),
    Metric(
        "intel_thermal_throttle_state",
        "state",
        "1 if heat held the clocks down at the moment of reading, else 0. Its mean over a window is"
        " the share of readings, not of time.",
        0.0,
        1.0,
    ),
)

TIERS: Mapping[str, Tier] = MappingProxyType(
    {
        "utilization_percent": Tier.FAST,
        "memory_used_bytes": Tier.FAST,
        "memory_total_bytes": Tier.SLOW,
        "temperature_celsius": Tier.FAST,
        "memory_temperature_celsius": Tier.FAST,
        "power_watts": Tier.FAST,
        "power_limit_watts": Tier.SLOW,
        "energy_joules_total": Tier.FAST,
        "sm_clock_megahertz": Tier.FAST,
        "memory_clock_megahertz": Tier.FAST,
        "pcie_receive_bytes_total": Tier.SLOW,
        "pcie_transmit_bytes_total": Tier.SLOW,
        "process_count": Tier.SLOW,
        "intel_throttled_seconds_total": Tier.FAST,
        "intel_power_throttle_state": Tier.FAST,
        "intel_thermal_throttle_state": Tier.FAST,
    }
)

LEVEL_ZERO = frozenset(
    {
        "utilization_percent",
        "memory_used_bytes",
        "memory_total_bytes",
        "temperature_celsius",
        "memory_temperature_celsius",
        "power_limit_watts",
        "energy_joules_total",
        "sm_clock_megahertz",
        "memory_clock_megahertz",
        "pcie_receive_bytes_total",
        "pcie_transmit_bytes_total",
        "intel_throttled_seconds_total",
    }
)
"""What Level Zero may give; the rest only the kernel does."""

KERNEL_FIRST = frozenset({"energy_joules_total"})
"""Asked of the kernel before Level Zero, whose energy counter now and then falls to almost nothing
while the kernel's goes on (intel/compute-runtime#938)."""
