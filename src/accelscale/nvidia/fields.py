"""The readings that NVML gives many at a time: items of ``nvmlDeviceGetFieldValues``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import frozen

from accelscale.model import Reason
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.card import Card
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.outcome import Absent, Outcome, absent, number


@frozen
class Field:
    """One item of ``nvmlDeviceGetFieldValues``: the value is ``raw / divisor``.

    ``wraps_at_32_bits`` marks a counter that is useless in a 32-bit type. ``older`` is the call
    that gave the raw value before there was a field for it.
    """

    metric: str
    constant: str
    divisor: float = 1
    scope: int = 0
    wraps_at_32_bits: bool = False
    older: Callable[[Driver, Card], int] | None = None


def _energy_call(driver: Driver, card: Card) -> int:
    energy: int = driver.call("nvmlDeviceGetTotalEnergyConsumption", card.handle)
    return energy


def _violation_call(policy: str) -> Callable[[Driver, Card], int]:
    def read(driver: Driver, card: Card) -> int:
        constant = driver.constant(policy)
        time: int = driver.call("nvmlDeviceGetViolationStatus", card.handle, constant).violationTime
        return time

    return read


_ALL_LINKS = 0xFFFFFFFF
_KIBIBYTE = 1 / 1024

FIELDS: Sequence[Field] = (
    Field("memory_temperature_celsius", "NVML_FI_DEV_MEMORY_TEMP"),
    Field(
        "energy_joules_total",
        "NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        divisor=1e3,
        older=_energy_call,
    ),
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
"""What one batched call gives. The NVLink "throughputs" are counters of KiB, whatever their name.
PCIe has no other source here: `nvmlDeviceGetPcieThroughput` blocks 20 ms for each direction."""

_UNION_MEMBERS: Mapping[int, tuple[str, int]] = MappingProxyType(
    {
        0: ("dVal", 64),
        1: ("uiVal", 32),
        2: ("ulVal", 64),
        3: ("ullVal", 64),
        4: ("sllVal", 64),
        5: ("siVal", 32),
        6: ("usVal", 16),
    }
)
"""Member of the union and its width, by ``nvmlValueType``."""


def read_fields(
    driver: Driver, card: Card, fields: Sequence[Field]
) -> Iterator[tuple[str, Outcome]]:
    """Read these fields of one card: each metric with its value, or why there is none.

    Raises:
        CallError: the driver as a whole does not answer.
    """
    known = [(field, driver.constant(field.constant)) for field in fields]
    ids = [(field_id, field.scope) for field, field_id in known if field_id is not None]
    try:
        items = iter(driver.call("nvmlDeviceGetFieldValues", card.handle, ids) if ids else ())
        failed: CallError | None = None
    except CallError as error:
        items, failed = iter(()), error
    for field, field_id in known:
        if field_id is None:
            failure = CallError(field.constant, None, "FUNCTION_NOT_FOUND", "nvidia-ml-py is old")
            yield field.metric, _older(driver, card, field, failure)
        elif failed is not None:
            yield field.metric, _older(driver, card, field, failed)
        else:
            yield field.metric, _item(driver, card, field, next(items))


def _item(driver: Driver, card: Card, field: Field, item: Any) -> Outcome:
    """One item of the batch. Its error is its own, and so is the type of its value.

    The members of the union other than that of its type hold garbage (icl-utk-edu/papi#564).
    """
    if item.nvmlReturn != 0:
        error = driver.error(field.constant, item.nvmlReturn)
        driver.note(field.constant, error.in_brief, ok=False)
        return _older(driver, card, field, error)
    member, bits = _UNION_MEMBERS.get(item.valueType, (None, 0))
    if member is None:
        return Absent(Reason.ERROR, f"{field.constant} has the unknown type {item.valueType}")
    raw = getattr(item.value, member)
    driver.note(field.constant, raw, ok=True)
    if field.wraps_at_32_bits and bits < 64:
        detail = f"{field.constant} has only {bits} bits here, and wraps several times a second"
        return Absent(Reason.NOT_SUPPORTED, detail, permanent=True)
    return number(raw, bits=bits, divisor=field.divisor)


def _older(driver: Driver, card: Card, field: Field, error: CallError) -> Outcome:
    """The reading by the older call, where the field has one and the driver lacks the field."""
    lacks_field = error.name == "INVALID_ARGUMENT" and error.call == field.constant
    if lacks_field:
        error = CallError(field.constant, error.code, "NOT_SUPPORTED", "unknown to this driver")
    if error.reason is Reason.NOT_SUPPORTED and field.older is not None:
        try:
            return number(field.older(driver, card), bits=64, divisor=field.divisor)
        except CallError as failed:
            error = failed
    return absent(driver, card, field.metric, error)
