"""The metrics that FPGAs add to the common table, and which ones XRT's tool can tell."""

from __future__ import annotations

from collections.abc import Mapping

from accelscale.metrics import METRICS, Derivation, Kind, Metric

STARTS = Metric(
    "fpga_compute_unit_starts_total",
    "starts",
    "Starts of the card's compute units (kernels), as the driver counts them.",
    kind=Kind.COUNTER,
    aggregation="sum",
)
STARTS_RATE = Metric(
    "fpga_compute_unit_starts_per_second",
    "starts per second",
    "Starts a second of the card's compute units.",
    0.0,
    1e9,
    aggregation="sum",
    derivation=Derivation.RATE,
    sources=(STARTS.name,),
)

ROWS: Mapping[str, Metric] = {**METRICS, STARTS.name: STARTS}
"""Every metric that the backend can read."""

XRT_METRICS = frozenset(
    {
        "utilization_percent",
        "memory_used_bytes",
        "memory_total_bytes",
        "temperature_celsius",
        "memory_temperature_celsius",
        "power_watts",
        STARTS.name,
    }
)
