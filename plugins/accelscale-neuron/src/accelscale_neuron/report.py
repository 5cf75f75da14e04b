"""What one line of ``neuron-monitor`` says.

Keys that are not known are left alone, and what should be a number must be one: text is refused.
Wherever something went wrong, the tool writes it into an ``error`` beside the figures, or beside
none; a process whose figures are missing makes the sum over processes unknown.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from attrs import field, frozen

from accelscale.model import Reason
from accelscale_neuron.chips import Absent, Chip

T = TypeVar("T")


@frozen
class Hardware:
    """How the tool numbers cores: so many of them are on each chip, in order."""

    chips: int
    cores_per_chip: int
    logical_factor: int
    memory_bytes: int | None


@frozen
class Report:
    """One line; ``time`` is when it came, in monotonic seconds.

    ``busy`` is the percentage of time that each core in use worked, ``used`` the bytes of device
    memory of each core, both summed over processes; ``used_in_all`` is that of all cores.
    """

    time: float
    hardware: Hardware | Absent
    busy: Mapping[int, float] | Absent = field(hash=False)
    used: Mapping[int, float] | Absent = field(hash=False)
    used_in_all: float | Absent


class _ShapeError(Exception):
    """A part of the line that is not as it should be."""


def parse(line: bytes, time: float) -> Report:
    """The report that a line holds.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        document = json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - as for all else that is no report
    return Report(
        time,
        _attempt(lambda: _hardware(document)),
        _attempt(lambda: _summed(document, "neuroncore_counters", _busy_of)),
        _attempt(lambda: _summed(document, "memory_used", _used_of)),
        _attempt(lambda: sum(_summed(document, "memory_used", _used_in_all_of).values())),
    )


def utilization_percent(report: Report, chip: Chip, chips: Sequence[Chip]) -> float | Absent:
    """The mean over all cores of the chip. A core that no process uses does not work."""
    if isinstance(report.busy, Absent):
        return report.busy
    own = _of_chip(report, report.busy, chip, chips)
    if isinstance(own, Absent):
        return own
    absurd = [value for value in own if not 0 <= value <= 100]
    if absurd:
        return Absent(Reason.OUT_OF_RANGE, f"a core is said to be busy for {absurd[0]:g} percent")
    return sum(own) / len(own)


def used_bytes(report: Report, chip: Chip, chips: Sequence[Chip]) -> float | Absent:
    """Device memory of the chip that processes use."""
    if len(chips) == 1:
        return report.used_in_all
    if isinstance(report.used, Absent):
        return report.used
    own = _of_chip(report, report.used, chip, chips)
    return own if isinstance(own, Absent) else sum(own)


def total_bytes(report: Report) -> float | Absent:
    """Device memory of each chip."""
    if isinstance(report.hardware, Absent):
        return report.hardware
    if report.hardware.memory_bytes is None:
        detail = "this neuron-monitor does not tell the size of device memory"
        return Absent(Reason.NOT_SUPPORTED, detail)
    return float(report.hardware.memory_bytes)


def _of_chip(
    report: Report, values: Mapping[int, float], chip: Chip, chips: Sequence[Chip]
) -> list[float] | Absent:
    """One value for each core of the chip: cores are numbered through, chip after chip."""
    hardware = report.hardware
    if isinstance(hardware, Absent):
        return hardware
    count = hardware.cores_per_chip
    known = range(count * hardware.chips)
    numbered_through = [one.index for one in chips] == list(range(hardware.chips))
    if not numbered_through or not all(core in known for core in values):
        detail = (
            f"neuron-monitor tells of {hardware.chips} devices with {count} cores, and of core"
            f" {max(values, default=0)}; the driver shows {len(chips)} devices"
        )
        return Absent(Reason.ERROR, detail)
    if hardware.logical_factor != 1 and chip.cores != count * hardware.logical_factor:
        # Whether cores are counted before or after they were joined decides which chip is meant.
        detail = "it is not certain how neuron-monitor numbers logical NeuronCores here"
        return Absent(Reason.NOT_SUPPORTED, detail)
    first = chip.index * count
    return [values.get(core, 0.0) for core in range(first, first + count)]


def _attempt(read: Callable[[], T]) -> T | Absent:
    try:
        return read()
    except _ShapeError as error:
        return Absent(Reason.ERROR, f"neuron-monitor: {error}")


def _hardware(document: Mapping[str, Any]) -> Hardware:
    info = _part(document, "neuron_hardware_info")
    size = info.get("neuron_device_memory_size")
    return Hardware(
        chips=_whole(info.get("neuron_device_count"), "neuron_device_count"),
        cores_per_chip=_whole(
            info.get("neuroncore_per_device_count"), "neuroncore_per_device_count"
        ),
        logical_factor=_whole(
            info.get("logical_neuroncore_config", 1), "logical_neuroncore_config"
        ),
        memory_bytes=None if size is None else _whole(size, "neuron_device_memory_size"),
    )


def _summed(
    document: Mapping[str, Any],
    group: str,
    read: Callable[[Mapping[str, Any]], Iterator[tuple[int, float]]],
) -> Mapping[int, float]:
    """A group of figures, by core, summed over all processes. No process is a sum of nothing."""
    processes = document.get("neuron_runtime_data")
    if not isinstance(processes, list):
        raise _ShapeError("neuron_runtime_data is missing")
    total: defaultdict[int, float] = defaultdict(float)
    for process in processes:
        if not isinstance(process, dict):
            raise _ShapeError("an entry of neuron_runtime_data is no object")
        _refuse_error(process, f"process {process.get('pid')}")
        report = _part(process, "report")
        for core, value in read(_part(report, group)):
            total[core] += value
    return total


def _busy_of(group: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
    for core, counters in _part(group, "neuroncores_in_use").items():
        value = counters.get("neuroncore_utilization") if isinstance(counters, dict) else None
        yield _core(core), _number(value, f"neuroncore_utilization of core {core}")


def _used_of(group: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
    used = _part(group, "neuron_runtime_used_bytes")
    cores = _part(_part(used, "usage_breakdown"), "neuroncore_memory_usage")
    for core, kinds in cores.items():
        if not isinstance(kinds, dict):
            raise _ShapeError(f"neuroncore_memory_usage of core {core} is {kinds!r}")
        yield (
            _core(core),
            sum(_number(value, f"{kind} of core {core}") for kind, value in kinds.items()),
        )


def _used_in_all_of(group: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
    used = _part(group, "neuron_runtime_used_bytes")
    yield 0, _number(used.get("neuron_device"), "neuron_device")


def _part(whole: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = whole.get(key)
    if not isinstance(part, dict):
        raise _ShapeError(f"{key} is missing")
    _refuse_error(part, key)
    return part


def _refuse_error(part: Mapping[str, Any], what: str) -> None:
    error = part.get("error")
    if error:
        raise _ShapeError(f"{what}: {str(error)[:200]}")


def _core(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise _ShapeError(f"{text[:20]!r} is no number of a core")
    return int(text)


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _ShapeError(f"{what} is {value!r}"[:200])
    return float(value)


def _whole(value: object, what: str) -> int:
    number = _number(value, what)
    if number < 1 or number != int(number):
        raise _ShapeError(f"{what} is {value!r}")
    return int(number)
