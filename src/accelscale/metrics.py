"""Every metric, one row each: the name is written here once and means the same for all vendors.

Backends fill what their hardware has; what it lacks is a `Failure` with reason ``not_supported``.
A reading outside ``minimum`` to ``maximum`` is rejected as ``out_of_range``, never clamped.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from attrs import frozen


class Kind(StrEnum):
    """How a metric behaves in time."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Derivation(StrEnum):
    """How a metric follows from others, in one place for all backends (`accelscale.derive`)."""

    PERCENT_OF = "percent of"  # 100 x first source / second source
    DIFFERENCE = "difference"  # first source - second source
    RATE = "rate"  # change of the counter per second
    BUSIEST_RATE_PERCENT = "busiest rate, percent"  # 100 x the largest rate of the sources


class Tier(StrEnum):
    """What a reading costs, and so how often it is taken."""

    FAST = "fast"  # microseconds: every interval
    SLOW = "slow"  # may take milliseconds or a driver lock, or hardly ever changes


TIER_SECONDS: Mapping[Tier, float] = MappingProxyType({Tier.FAST: 0.0, Tier.SLOW: 10.0})
"""Least seconds between two readings of a tier; the interval where that is longer."""


LEAST_MAX_AGE = 5.0
"""Seconds that a sample counts at least, however short the interval."""


def max_age(interval: float) -> float:
    """Seconds that a sample of a metric counts which is read every ``interval`` seconds."""
    return max(3 * interval, LEAST_MAX_AGE)


@frozen
class Metric:
    """One row of the table.

    ``aggregation`` is the default over the devices of one replica. ``derivation`` and ``sources``
    are set where the value is computed here and not read. ``always_advances`` marks a counter that
    cannot stand still while its device lives, so that two equal readings are a fault.
    """

    name: str
    unit: str
    help: str
    minimum: float = 0.0
    maximum: float = float("inf")
    kind: Kind = Kind.GAUGE
    aggregation: str = "mean"
    derivation: Derivation | None = None
    sources: tuple[str, ...] = ()
    always_advances: bool = False

    @property
    def is_bytes(self) -> bool:
        """Whether thresholds may be written as Kubernetes quantities (``64Gi``)."""
        return self.unit in {"bytes", "bytes per second"}


_TEBI = 2.0**40
_PETA = 1e15


def _percent(
    name: str, help: str, derivation: Derivation | None = None, sources: tuple[str, ...] = ()
) -> Metric:
    return Metric(name, "percent", help, 0.0, 100.0, derivation=derivation, sources=sources)


def _bytes(name: str, help: str) -> Metric:
    return Metric(name, "bytes", help, 0.0, 1024 * _TEBI, aggregation="sum")


def _byte_counter(name: str, help: str) -> Metric:
    return Metric(name, "bytes", help, kind=Kind.COUNTER, aggregation="sum")


def _byte_rate(name: str, source: str, help: str) -> Metric:
    return Metric(
        name,
        "bytes per second",
        help,
        0.0,
        _PETA,
        aggregation="sum",
        derivation=Derivation.RATE,
        sources=(source,),
    )


_ROWS = (
    _percent(
        "utilization_percent",
        "Share of time with any work running on the device. One small kernel that never stops"
        " makes it 100, so it says how long the device works, not how hard.",
    ),
    _percent(
        "sm_activity_percent", "Share of the compute units that had work, averaged over time."
    ),
    _percent(
        "sm_occupancy_percent",
        "Resident warps as a share of those that would fit, averaged over time and compute units.",
    ),
    _percent("tensor_activity_percent", "Share of time that the matrix units worked."),
    _percent(
        "memory_bandwidth_utilization_percent",
        "How busy device memory is: the bytes moved as a share of the most possible where the"
        " hardware measures that, else the share of time that memory was being read or written. Not"
        " the share of memory in use, which is memory_used_percent.",
    ),
    _bytes("memory_used_bytes", "Device memory in use, without what the driver reserves."),
    Metric(
        "memory_total_bytes",
        "bytes",
        "Device memory in all.",
        1.0,
        1024 * _TEBI,
        aggregation="sum",
    ),
    _percent(
        "memory_used_percent",
        "Device memory in use as a share of all of it.",
        derivation=Derivation.PERCENT_OF,
        sources=("memory_used_bytes", "memory_total_bytes"),
    ),
    Metric("temperature_celsius", "celsius", "Temperature of the chip.", -50.0, 150.0),
    Metric("memory_temperature_celsius", "celsius", "Temperature of the memory.", -50.0, 150.0),
    Metric(
        "slowdown_temperature_celsius",
        "celsius",
        "Temperature at which the device starts to lower its own clocks.",
        1.0,
        200.0,
    ),
    Metric(
        "thermal_headroom_celsius",
        "celsius",
        "Degrees left before the device lowers its clocks: slowdown limit - temperature.",
        -150.0,
        250.0,
        derivation=Derivation.DIFFERENCE,
        sources=("slowdown_temperature_celsius", "temperature_celsius"),
    ),
    Metric("power_watts", "watts", "Power drawn.", 0.0, 20_000.0, aggregation="sum"),
    Metric("power_limit_watts", "watts", "Power limit in force.", 1.0, 20_000.0, aggregation="sum"),
    Metric(
        "power_used_percent",
        "percent",
        "Power drawn as a share of the limit in force. Short peaks lie above 100.",
        0.0,
        200.0,
        derivation=Derivation.PERCENT_OF,
        sources=("power_watts", "power_limit_watts"),
    ),
    Metric(
        "energy_joules_total",
        "joules",
        "Energy drawn since the driver started to count.",
        kind=Kind.COUNTER,
        aggregation="sum",
        always_advances=True,
    ),
    Metric(
        "energy_rate_watts",
        "watts",
        "Mean power between two readings of the energy counter; it sees peaks that power_watts,"
        " a momentary figure, misses.",
        0.0,
        20_000.0,
        aggregation="sum",
        derivation=Derivation.RATE,
        sources=("energy_joules_total",),
    ),
    Metric(
        "throttled_power_seconds_total",
        "seconds",
        "Time that the power limit held clocks down.",
        kind=Kind.COUNTER,
    ),
    Metric(
        "throttled_thermal_seconds_total",
        "seconds",
        "Time that temperature held clocks down.",
        kind=Kind.COUNTER,
    ),
    Metric(
        "throttled_percent",
        "percent",
        "Share of time that heat or power held clocks down. Where both did, the larger share"
        " counts: the two times may overlap, and their sum would count that time twice.",
        0.0,
        105.0,
        derivation=Derivation.BUSIEST_RATE_PERCENT,
        sources=("throttled_power_seconds_total", "throttled_thermal_seconds_total"),
    ),
    Metric("sm_clock_megahertz", "megahertz", "Clock of the compute units.", 0.0, 20_000.0),
    Metric("memory_clock_megahertz", "megahertz", "Clock of the memory.", 0.0, 40_000.0),
    _byte_counter("pcie_receive_bytes_total", "Bytes that the device received over PCIe."),
    _byte_counter("pcie_transmit_bytes_total", "Bytes that the device sent over PCIe."),
    _byte_rate(
        "pcie_receive_bytes_per_second",
        "pcie_receive_bytes_total",
        "Bytes a second that the device received over PCIe.",
    ),
    _byte_rate(
        "pcie_transmit_bytes_per_second",
        "pcie_transmit_bytes_total",
        "Bytes a second that the device sent over PCIe.",
    ),
    _byte_counter(
        "interconnect_receive_bytes_total",
        "Bytes that the device received over its links to other devices (NVLink, XGMI, Xe Link).",
    ),
    _byte_counter(
        "interconnect_transmit_bytes_total",
        "Bytes that the device sent over its links to other devices.",
    ),
    _byte_rate(
        "interconnect_receive_bytes_per_second",
        "interconnect_receive_bytes_total",
        "Bytes a second that the device received over its links to other devices.",
    ),
    _byte_rate(
        "interconnect_transmit_bytes_per_second",
        "interconnect_transmit_bytes_total",
        "Bytes a second that the device sent over its links to other devices.",
    ),
    _percent("encoder_utilization_percent", "Share of time that the video encoder worked."),
    _percent("decoder_utilization_percent", "Share of time that the video decoder worked."),
    Metric(
        "ecc_uncorrected_errors_total",
        "errors",
        "Memory errors that could not be corrected since the driver was loaded.",
        kind=Kind.COUNTER,
        aggregation="sum",
    ),
    Metric(
        "xid_errors_total",
        "errors",
        "Critical errors that the driver reported since this process started to listen.",
        kind=Kind.COUNTER,
        aggregation="sum",
    ),
    Metric(
        "process_count",
        "processes",
        "Processes that hold the device.",
        0.0,
        100_000.0,
        aggregation="sum",
    ),
)

METRICS: Mapping[str, Metric] = MappingProxyType({row.name: row for row in _ROWS})
"""The table, by name, in the order of the documentation."""
