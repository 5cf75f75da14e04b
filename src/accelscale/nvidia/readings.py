"""How each metric is read from one card: a table of calls, beside the one in `fields`.

Values are passed on raw, in the unit of the metrics table. Rejected here are those that contradict
others of the same card, which a table of ranges cannot know.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from attrs import frozen

from accelscale.model import Reason
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.card import Card, note_mig_mode
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.fields import FIELDS, read_fields
from accelscale.nvidia.outcome import MEMORY_METRICS, Absent, Outcome, absent, number

_POWER_WITHOUT_LIMIT_WATTS = 2000.0
_GREATEST_PID = 2**22  # PID_MAX_LIMIT of Linux


@frozen
class Call:
    """One call of NVML and the metrics it gives; ``read`` makes it."""

    metrics: tuple[str, ...]
    read: Callable[[Driver, Card], Mapping[str, Outcome]]


def read_card(
    driver: Driver, card: Card, metrics: Collection[str]
) -> Iterator[tuple[str, Outcome, float]]:
    """Read these metrics of one card: each, its value or why there is none, and when it was read.

    Raises:
        CallError: the driver as a whole does not answer.
    """
    note_mig_mode(driver, card)
    for call in CALLS:
        wanted = [metric for metric in call.metrics if metric in metrics]
        if not wanted:
            continue
        try:
            answers = call.read(driver, card)
        except CallError as error:
            answers = {metric: absent(driver, card, metric, error) for metric in wanted}
        now = time.monotonic()
        yield from ((metric, answers[metric], now) for metric in wanted)
    fields = [field for field in FIELDS if field.metric in metrics]
    if fields:
        outcomes = dict(read_fields(driver, card, fields))
        now = time.monotonic()
        yield from ((metric, outcome, now) for metric, outcome in outcomes.items())


def _plain(metric: str, *alternatives: tuple[str, ...], divisor: float = 1) -> Call:
    """A metric that is the whole answer of a call; later alternatives are for older drivers."""

    def read(driver: Driver, card: Card) -> Mapping[str, Outcome]:
        forms = [
            (name, card.handle, *(driver.constant(constant) for constant in constants))
            for name, *constants in alternatives
        ]
        answer = driver.call_first(*forms)
        raw = answer[0] if isinstance(answer, list) else answer  # codecs add their window
        bits = 64 if raw > 2**32 else 32
        return {metric: number(raw, bits=bits, divisor=divisor)}

    return Call((metric,), read)


def _read_utilization(driver: Driver, card: Card) -> Mapping[str, Outcome]:
    rates = driver.call("nvmlDeviceGetUtilizationRates", card.handle)
    return {
        "utilization_percent": number(rates.gpu),
        "memory_bandwidth_utilization_percent": number(rates.memory),
    }


def _read_memory(driver: Driver, card: Card) -> Mapping[str, Outcome]:
    """Used and total bytes. Only the second version leaves out of "used" what is reserved."""
    card.asked.add("memory_total_bytes")
    memory = driver.call_first(
        ("nvmlDeviceGetMemoryInfo", card.handle, driver.constant("nvmlMemory_v2")),
        ("nvmlDeviceGetMemoryInfo", card.handle),
    )
    total, used = number(memory.total, bits=64), number(memory.used, bits=64)
    if isinstance(total, float) and total > 0:
        card.memory_total_bytes = total
    if isinstance(total, float) and isinstance(used, float) and (total == 0 or used > total):
        detail = f"the driver gave {used:.0f} bytes used of {total:.0f} in all"
        used = Absent(Reason.OUT_OF_RANGE, detail)
    return {"memory_used_bytes": used, "memory_total_bytes": total}


def _read_power_limit(driver: Driver, card: Card) -> Mapping[str, Outcome]:
    card.asked.add("power_limit_watts")
    raw = driver.call("nvmlDeviceGetEnforcedPowerLimit", card.handle)
    limit = number(raw, divisor=1000)
    card.power_limit_watts = limit if isinstance(limit, float) and limit >= 1 else None
    return {"power_limit_watts": limit}


def _read_power(driver: Driver, card: Card) -> Mapping[str, Outcome]:
    """Power in watts; far above the limit it is a fault of the driver (MangoHud#2144)."""
    power = number(driver.call("nvmlDeviceGetPowerUsage", card.handle), divisor=1000)
    _ask_once(driver, card, "power_limit_watts", _read_power_limit)
    limit = card.power_limit_watts
    bound = _POWER_WITHOUT_LIMIT_WATTS if limit is None else 2 * limit
    if isinstance(power, float) and power > bound:
        known = "no limit is known" if limit is None else f"the limit is {limit:g} W"
        power = Absent(Reason.OUT_OF_RANGE, f"the driver gave {power:g} W where {known}")
    return {"power_watts": power}


def _ask_once(
    driver: Driver,
    card: Card,
    metric: str,
    read: Callable[[Driver, Card], Mapping[str, Outcome]],
) -> None:
    """Read what another reading is judged by, unless this card was asked for it already."""
    if metric in card.asked:
        return
    card.asked.add(metric)
    try:
        read(driver, card)
    except CallError as error:
        if error.is_driver_wide:
            raise


def _read_process_count(driver: Driver, card: Card) -> Mapping[str, Outcome]:
    """Processes with a compute or graphics context, or a connection to the MPS server.

    Some drivers list records of no process: impossible pids, or more memory than the card has
    (Syllo/nvtop#432, XuehaiPan/nvitop#181). These do not count.
    """
    call = "nvmlDeviceGet{}RunningProcesses_v{}".format
    records = list(
        driver.call_first((call("Compute", 3), card.handle), (call("Compute", 2), card.handle))
    )
    for forms in (
        ((call("Graphics", 3), card.handle), (call("Graphics", 2), card.handle)),
        ((call("MPSCompute", 3), card.handle),),
    ):
        try:
            records += driver.call_first(*forms)
        except CallError as error:
            if error.reason is not Reason.NOT_SUPPORTED:
                raise
    _ask_once(driver, card, "memory_total_bytes", _read_memory)
    total = math.inf if card.memory_total_bytes is None else card.memory_total_bytes
    pids = {
        record.pid
        for record in records
        if 0 < record.pid <= _GREATEST_PID and (record.usedGpuMemory or 0) <= total
    }
    return {"process_count": float(len(pids))}


CALLS: Sequence[Call] = (
    Call(("utilization_percent", "memory_bandwidth_utilization_percent"), _read_utilization),
    Call(MEMORY_METRICS, _read_memory),
    _plain(
        "temperature_celsius",
        ("nvmlDeviceGetTemperatureV", "NVML_TEMPERATURE_GPU"),
        ("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
    ),
    _plain(
        "slowdown_temperature_celsius",
        ("nvmlDeviceGetTemperatureThreshold", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
    ),
    Call(("power_limit_watts",), _read_power_limit),
    Call(("power_watts",), _read_power),
    _plain("sm_clock_megahertz", ("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM")),
    _plain("memory_clock_megahertz", ("nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM")),
    _plain("encoder_utilization_percent", ("nvmlDeviceGetEncoderUtilization",)),
    _plain("decoder_utilization_percent", ("nvmlDeviceGetDecoderUtilization",)),
    _plain(
        "ecc_uncorrected_errors_total",
        (
            "nvmlDeviceGetTotalEccErrors",
            "NVML_MEMORY_ERROR_TYPE_UNCORRECTED",
            "NVML_VOLATILE_ECC",
        ),
    ),
    Call(("process_count",), _read_process_count),
)
"""The calls that give one or two readings each. The limits stand before what they judge."""
