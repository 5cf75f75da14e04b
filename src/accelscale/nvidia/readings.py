"""How each metric is read from one card or one MIG instance: calls, beside `fields` and GPM.

Values are passed on raw, in the unit of the metrics table. Rejected here are those that contradict
others of the same card, which a table of ranges cannot know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from attrs import frozen

from accelscale.model import Reason
from accelscale.nvidia.absence import (
    MEMORY_METRICS,
    absent,
    absent_of_instance,
    believed,
    belongs_to_card,
)
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.card import Card, note_mig_mode
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.fields import read_fields
from accelscale.nvidia.gpm import Gpm
from accelscale.nvidia.gpm_readings import BANDWIDTH, read_gpm_of_card, read_gpm_of_instance
from accelscale.nvidia.instances import Instance
from accelscale.nvidia.outcome import Absent, Outcome, Result, number


@frozen
class Call:
    """One call of NVML and the metrics it gives; ``read`` makes it."""

    metrics: tuple[str, ...]
    read: Callable[[Driver, Card], Mapping[str, Outcome]]


def read_card(driver: Driver, gpm: Gpm, card: Card, metrics: Collection[str]) -> Iterator[Result]:
    """Read these metrics of one card, those of them that are read here or in `fields`.

    Raises:
        CallError: the driver as a whole does not answer.
    """
    note_mig_mode(driver, card)
    by_gpm = dict(read_gpm_of_card(driver, gpm, card, metrics))
    now = time.monotonic()
    bandwidth = by_gpm.get(BANDWIDTH)
    if isinstance(bandwidth, Absent) and bandwidth.reason is Reason.NOT_SUPPORTED:
        del by_gpm[BANDWIDTH]  # the older counter of all cards takes its place
    yield from ((metric, believed(card, outcome), now) for metric, outcome in by_gpm.items())
    for call in CALLS:
        wanted = [name for name in call.metrics if name in metrics and name not in by_gpm]
        if not wanted:
            continue
        try:
            answers = call.read(driver, card)
        except CallError as error:
            answers = {metric: absent(driver, card, metric, error) for metric in wanted}
        now = time.monotonic()
        yield from ((metric, believed(card, answers[metric]), now) for metric in wanted)
    outcomes = dict(read_fields(driver, card, metrics))
    now = time.monotonic()
    yield from ((metric, believed(card, outcome), now) for metric, outcome in outcomes.items())


def read_instance(
    driver: Driver, gpm: Gpm, instance: Instance, metrics: Collection[str]
) -> Iterator[Result]:
    """Read these metrics of one MIG instance; what only cards have fails, never copied from there.

    Raises:
        CallError: the driver as a whole does not answer.
    """
    by_gpm = dict(read_gpm_of_instance(driver, gpm, instance, metrics))
    now = time.monotonic()
    yield from ((metric, outcome, now) for metric, outcome in by_gpm.items())
    memory = [metric for metric in MEMORY_METRICS if metric in metrics]
    if memory:
        answers = _read_memory_of_instance(driver, instance)
        now = time.monotonic()
        yield from ((metric, answers[metric], now) for metric in memory)
    of_card = belongs_to_card(instance)
    for metric in metrics:
        if metric not in by_gpm and metric not in memory:
            yield metric, of_card, now


def read_memory(driver: Driver, holder: Card | Instance) -> Mapping[str, Outcome]:
    """Used and total bytes. Only the second version leaves out of "used" what is reserved."""
    holder.asked.add("memory_total_bytes")
    memory = driver.call_first(
        ("nvmlDeviceGetMemoryInfo", holder.handle, driver.constant("nvmlMemory_v2")),
        ("nvmlDeviceGetMemoryInfo", holder.handle),
    )
    total, used = number(memory.total, bits=64), number(memory.used, bits=64)
    if isinstance(total, float) and total > 0:
        holder.memory_total_bytes = total
    if isinstance(total, float) and isinstance(used, float) and (total == 0 or used > total):
        detail = f"the driver gave {used:.0f} bytes used of {total:.0f} in all"
        used = Absent(Reason.OUT_OF_RANGE, detail)
    return {"memory_used_bytes": used, "memory_total_bytes": total}


def _read_memory_of_instance(driver: Driver, instance: Instance) -> Mapping[str, Outcome]:
    """The memory of its GPU instance, which one compute instance reports for all that share it."""
    if instance.reporter != instance.id:
        detail = (
            f"it shares the memory of GPU instance {instance.gpu_instance}, which counts once: see"
            f" {instance.reporter}"
        )
        return dict.fromkeys(MEMORY_METRICS, Absent(Reason.NOT_SUPPORTED, detail, permanent=True))
    try:
        return read_memory(driver, instance)
    except CallError as error:
        return {
            metric: absent_of_instance(driver, instance, metric, error) for metric in MEMORY_METRICS
        }


def _plain(metric: str, *alternatives: tuple[str, ...]) -> Call:
    """A metric that is the whole answer of a call; later alternatives are for older drivers."""

    def read(driver: Driver, card: Card) -> Mapping[str, Outcome]:
        forms = [
            (name, card.handle, *(driver.constant(constant) for constant in constants))
            for name, *constants in alternatives
        ]
        answer = driver.call_first(*forms)
        raw = answer[0] if isinstance(answer, list) else answer  # codecs add their window
        return {metric: number(raw, bits=64 if raw > 2**32 else 32)}

    return Call((metric,), read)


def _read_utilization(driver: Driver, card: Card) -> Mapping[str, Outcome]:
    rates = driver.call("nvmlDeviceGetUtilizationRates", card.handle)
    return {"utilization_percent": number(rates.gpu), BANDWIDTH: number(rates.memory)}


CALLS: Sequence[Call] = (
    Call(("utilization_percent", BANDWIDTH), _read_utilization),
    Call(MEMORY_METRICS, read_memory),
    _plain(
        "temperature_celsius",
        ("nvmlDeviceGetTemperatureV", "NVML_TEMPERATURE_GPU"),
        ("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
    ),
    _plain(
        "slowdown_temperature_celsius",
        ("nvmlDeviceGetTemperatureThreshold", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
    ),
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
)
"""The calls that give one or two readings each."""
