"""The readings that NVML gives many at a time: items of ``nvmlDeviceGetFieldValues``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from attrs import frozen

from accelscale.model import Reason
from accelscale.nvidia import power
from accelscale.nvidia.absence import absent
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.card import Card
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.field_value import value_of
from accelscale.nvidia.outcome import Absent, Outcome, number


@frozen
class Field:
    """One item of ``nvmlDeviceGetFieldValues``: the value is ``raw / divisor``.

    ``wraps_at_32_bits`` marks a counter that is useless in a 32-bit type. ``older`` is the call
    that gave the raw value before there was a field for it, of ``older_bits``. ``judge`` holds the
    reading against others of the card.
    """

    metric: str
    constant: str
    divisor: float = 1
    scope: int = 0
    wraps_at_32_bits: bool = False
    older: Callable[[Driver, Card], int] | None = None
    older_bits: int = 64
    judge: Callable[[Card, Outcome], Outcome] | None = None


def _violation_call(policy: str) -> Callable[[Driver, Card], int]:
    def read(driver: Driver, card: Card) -> int:
        constant = driver.constant(policy)
        time: int = driver.call("nvmlDeviceGetViolationStatus", card.handle, constant).violationTime
        return time

    return read


_ALL_LINKS = 0xFFFFFFFF
_KIBIBYTE = 1 / 1024

FIELDS: Sequence[Field] = (
    Field(
        power.LIMIT,
        "NVML_FI_DEV_POWER_CURRENT_LIMIT",
        divisor=1e3,
        scope=power.SCOPE_GPU,
        older=power.limit_call,
        older_bits=32,
        judge=power.keep_limit,
    ),
    Field(
        "power_watts",
        "NVML_FI_DEV_POWER_AVERAGE",
        divisor=1e3,
        scope=power.SCOPE_GPU,
        older=power.power_call,
        older_bits=32,
        judge=power.judge_power,
    ),
    Field(
        "energy_joules_total",
        "NVML_FI_DEV_ENERGY",
        divisor=1e3,
        scope=power.SCOPE_GPU,
        older=power.energy_call,
    ),
    Field("memory_temperature_celsius", "NVML_FI_DEV_MEMORY_TEMP"),
    Field(
        "throttled_power_seconds_total",
        "NVML_FI_DEV_PERF_POLICY_POWER",
        divisor=1e9,
        older=_violation_call("NVML_PERF_POLICY_POWER"),
    ),
    Field(
        "throttled_thermal_seconds_total",
        "NVML_FI_DEV_PERF_POLICY_THERMAL",
        divisor=1e9,
        older=_violation_call("NVML_PERF_POLICY_THERMAL"),
    ),
    Field("pcie_receive_bytes_total", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES", wraps_at_32_bits=True),
    Field("pcie_transmit_bytes_total", "NVML_FI_DEV_PCIE_COUNT_TX_BYTES", wraps_at_32_bits=True),
    Field(
        "interconnect_receive_bytes_total",
        "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX",
        divisor=_KIBIBYTE,
        scope=_ALL_LINKS,
    ),
    Field(
        "interconnect_transmit_bytes_total",
        "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX",
        divisor=_KIBIBYTE,
        scope=_ALL_LINKS,
    ),
)
"""What one batched call gives, the power limit before the power that is judged by it. The NVLink
"throughputs" are counters of KiB, whatever their name. PCIe has no other source here but GPM:
`nvmlDeviceGetPcieThroughput` blocks 20 ms for each direction."""


def read_fields(
    driver: Driver, card: Card, metrics: Collection[str]
) -> Iterator[tuple[str, Outcome]]:
    """Read the fields of these metrics: each with its value, or why there is none.

    Raises:
        CallError: the driver as a whole does not answer.
    """
    fields = [field for field in FIELDS if field.metric in metrics]
    if "power_watts" in metrics and power.LIMIT not in card.asked:
        fields = [field for field in FIELDS if field.metric in {*metrics, power.LIMIT}]
    known = {
        field.metric: field_id
        for field in fields
        if field.metric not in card.without
        and (field_id := driver.constant(field.constant)) is not None
    }
    ids = [(known[field.metric], field.scope) for field in fields if field.metric in known]
    try:
        items = iter(driver.call("nvmlDeviceGetFieldValues", card.handle, ids) if ids else ())
        failed: CallError | None = None
    except CallError as error:
        items, failed = iter(()), error
    for field in fields:
        if field.metric not in known:
            old = CallError(field.constant, None, "FUNCTION_NOT_FOUND", "nvidia-ml-py is old")
            outcome = _older(driver, card, field, old)
        elif failed is not None:
            outcome = _older(driver, card, field, failed)
        else:
            outcome = _item(driver, card, field, next(items))
        if field.judge is not None:
            outcome = field.judge(card, outcome)
        if field.metric in metrics:
            yield field.metric, outcome


def _item(driver: Driver, card: Card, field: Field, item: Any) -> Outcome:
    """One item of the batch. Its error is its own, and so is the type of its value."""
    if item.nvmlReturn != 0:
        error = driver.error(field.constant, item.nvmlReturn)
        driver.note(field.constant, error.in_brief, ok=False)
        return _older(driver, card, field, error)
    value = value_of(item)
    if value is None:
        return Absent(Reason.ERROR, f"{field.constant} has the unknown type {item.valueType}")
    raw, bits = value
    driver.note(field.constant, raw, ok=True)
    if field.wraps_at_32_bits and bits < 64:
        detail = f"{field.constant} has only {bits} bits here, and wraps several times a second"
        return Absent(Reason.NOT_SUPPORTED, detail, permanent=True)
    return number(raw, bits=bits, divisor=field.divisor)


def _older(driver: Driver, card: Card, field: Field, error: CallError) -> Outcome:
    """The reading by the older call, where the field has one and the driver lacks the field.

    A card whose older call worked in place of the field is not asked for the field again.
    """
    lacks_field = error.name == "INVALID_ARGUMENT" and error.call == field.constant
    if lacks_field:
        error = CallError(field.constant, error.code, "NOT_SUPPORTED", "unknown to this driver")
    if error.reason is Reason.NOT_SUPPORTED and field.older is not None:
        try:
            raw = field.older(driver, card)
        except CallError as failed:
            error = failed
        else:
            card.without.add(field.metric)
            return number(raw, bits=field.older_bits, divisor=field.divisor)
    return absent(driver, card, field.metric, error)
