"""Readings of cards through amdsmi.

What is missing comes as the text ``N/A`` or as a number with all bits set, of a width that differs
by field; neither is a value here. Units: activity in percent, memory in bytes (by these calls;
others have MiB), temperature in degrees, power in watts, power limits in microwatts, clocks in MHz.

Not among the calls are ``amdsmi_get_violation_status``, which waits, and
``amdsmi_get_gpu_metrics_info``, which fills a structure that grows from release to release: with a
library newer than the binding it would write past its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from accelscale.model import Reason
from accelscale_amd.files import UnreadableError
from accelscale_amd.library import AmdSmi
from accelscale_amd.memory_pool import MemoryPool
from accelscale_amd.sysfs import JOULES_PER_COUNT, CardFiles, no_power

_ALL_BITS = {width: 2**width - 1 for width in (16, 32, 64)}
_LEAST_MICROWATTS = 100_000
"""A power limit below is in watts, as a library for hypervisors has it: no card has a limit of
0.1 W, and none one of 100 kW."""

_ROUNDING = 0.005
"""Releases give the unit of energy as 15.3 or 15.259 microjoules. In a total of many days what is
left out makes kilojoules, which would be a burst when the card is next read from files."""


class CardCalls:
    """The calls for one card in one pass; each is made at most once."""

    def __init__(self, library: AmdSmi, handle: Any, files: CardFiles) -> None:
        self._library = library
        self._handle = handle
        self._files = files
        self._answers: dict[tuple[Any, ...], Any] = {}

    def read(self, metric: str, _: float) -> float:
        """A metric in its unit, of those in `METRICS`.

        Raises:
            UnreadableError: the card does not have it, or not now.
        """
        self._files.require_whole(metric)
        return _READERS[metric](self)

    def _call(self, name: str, *arguments: Any) -> Any:
        key = (name, *arguments)
        if key not in self._answers:
            try:
                self._answers[key] = self._library.call(name, self._handle, *arguments)
            except UnreadableError as error:
                self._answers[key] = error
        answer = self._answers[key]
        if isinstance(answer, UnreadableError):
            raise answer
        return answer

    def _activity(self, name: str) -> float:
        return _member("amdsmi_get_gpu_activity", self._call("amdsmi_get_gpu_activity"), name)

    def _utilization(self) -> float:
        return self._activity("gfx_activity")

    def _memory_bandwidth_utilization(self) -> float:
        return self._activity("umc_activity")

    def _video(self) -> float:
        return self._activity("mm_activity")

    def _memory(self, call: str, pool: str) -> int:
        kind = self._library.value("AmdSmiMemoryType", pool.upper())
        return int(_number(call, self._call(call, kind), 64))

    def _pool(self) -> MemoryPool:
        call = "amdsmi_get_gpu_memory_total"
        return self._files.choose_pool(self._memory(call, "vram"), self._memory(call, "gtt"))

    def _memory_used(self) -> float:
        return self._memory("amdsmi_get_gpu_memory_usage", self._pool().name)

    def _memory_total(self) -> float:
        return self._pool().total_bytes

    def _celsius(self, sensor: str, metric: str = "CURRENT") -> float:
        """A temperature; 0 is what the library says where the card lacks the sensor."""
        call = "amdsmi_get_temp_metric"
        value = _number(
            f"{call}({sensor})",
            self._call(
                call,
                self._library.value("AmdSmiTemperatureType", sensor),
                self._library.value("AmdSmiTemperatureMetric", metric),
            ),
            16,
        )
        if value in {0, -1}:  # the field has a sign, so all bits set are -1
            detail = f"{call}({sensor}) gave exactly {value:g}, which nothing measured"
            raise UnreadableError(Reason.OUT_OF_RANGE, detail)
        return value

    def _first_celsius(self, *sensors: str, metric: str = "CURRENT") -> tuple[str, float]:
        """The first of these sensors that the card has, and what it says."""
        error: UnreadableError | None = None
        for sensor in sensors:
            try:
                return sensor, self._celsius(sensor, metric)
            except UnreadableError as failed:
                if failed.reason not in {Reason.NOT_SUPPORTED, Reason.OUT_OF_RANGE}:
                    raise
                error = error or failed
        assert error is not None
        raise error

    def _temperature(self) -> float:
        return self._first_celsius("HOTSPOT", "EDGE")[1]

    def _memory_temperature(self) -> float:
        return self._first_celsius("VRAM", "HBM_0", "HBM_1", "HBM_2", "HBM_3")[1]

    def _slowdown_temperature(self) -> float:
        sensor, _ = self._first_celsius("HOTSPOT", "EDGE")
        return self._celsius(sensor, "CRITICAL")

    def _power(self) -> float:
        """The first of the fields that has a number: each generation fills another."""
        call = "amdsmi_get_power_info"
        info = self._call(call)
        for name in ("socket_power", "current_socket_power", "average_socket_power"):
            try:
                if watts := _member(call, info, name, 16):
                    return watts
            except UnreadableError:
                continue
        raise no_power(self._files.card, "power")

    def _power_limit(self) -> float:
        call = "amdsmi_get_power_cap_info"
        limit = _member(call, self._call(call), "power_cap", 64)
        if limit == 0:
            raise no_power(self._files.card, "a power limit")
        return limit / 1e6 if limit >= _LEAST_MICROWATTS else limit

    def _energy(self) -> float:
        call = "amdsmi_get_energy_count"
        answer = self._call(call)
        name = "energy_accumulator" if "energy_accumulator" in answer else "power"
        count = _member(call, answer, name, 64)
        microjoules = _member(call, answer, "counter_resolution", 64)
        if count == 0 or not 0 < microjoules < 1e6:
            raise no_power(self._files.card, "energy")
        if abs(microjoules / 1e6 - JOULES_PER_COUNT) < _ROUNDING * JOULES_PER_COUNT:
            return count * JOULES_PER_COUNT
        return count * microjoules / 1e6

    def _clock(self, name: str) -> float:
        call = "amdsmi_get_clock_info"
        answer = self._call(call, self._library.value("AmdSmiClkType", name))
        key = "clk" if "clk" in answer else "cur_clk"
        return _member(f"{call}({name})", answer, key)

    def _sm_clock(self) -> float:
        return self._clock("GFX")

    def _memory_clock(self) -> float:
        return self._clock("MEM")

    def _uncorrected_errors(self) -> float:
        call = "amdsmi_get_gpu_ecc_count"
        answer = self._call(call, self._library.value("AmdSmiGpuBlock", "UMC"))
        return _member(call, answer, "uncorrectable_count", 64)


def _member(call: str, answer: Any, name: str, width: int = 32) -> float:
    """A number out of what a call answered."""
    if not isinstance(answer, Mapping) or name not in answer:
        raise UnreadableError(Reason.NOT_SUPPORTED, f"{call} has no {name} in this release")
    return _number(f"{call}: {name}", answer[name], width)


def _number(title: str, value: Any, width: int) -> float:
    """The value, if it is one: ``width`` is that of the field, or of the narrower one behind it."""
    missing = {_ALL_BITS[64]} if width == 64 else {_ALL_BITS[16], _ALL_BITS[32], _ALL_BITS[64]}
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnreadableError(Reason.NOT_SUPPORTED, f"{title} is {str(value)[:40]!r}, no number")
    if value in missing:
        raise UnreadableError(Reason.NOT_SUPPORTED, f"{title} has all bits set: no value")
    return value


_READERS: Mapping[str, Callable[[CardCalls], float]] = MappingProxyType(
    {
        "utilization_percent": CardCalls._utilization,
        "memory_bandwidth_utilization_percent": CardCalls._memory_bandwidth_utilization,
        "memory_used_bytes": CardCalls._memory_used,
        "memory_total_bytes": CardCalls._memory_total,
        "temperature_celsius": CardCalls._temperature,
        "memory_temperature_celsius": CardCalls._memory_temperature,
        "slowdown_temperature_celsius": CardCalls._slowdown_temperature,
        "power_watts": CardCalls._power,
        "power_limit_watts": CardCalls._power_limit,
        "energy_joules_total": CardCalls._energy,
        "sm_clock_megahertz": CardCalls._sm_clock,
        "memory_clock_megahertz": CardCalls._memory_clock,
        "ecc_uncorrected_errors_total": CardCalls._uncorrected_errors,
        "amd_video_utilization_percent": CardCalls._video,
    }
)

METRICS = frozenset(_READERS)
"""What amdsmi is asked for; all else is read from ``/sys``."""
