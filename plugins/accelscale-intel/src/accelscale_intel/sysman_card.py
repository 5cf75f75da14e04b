"""What Level Zero Sysman tells of one card."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from accelscale.model import Reason
from accelscale_intel.busy import SLACK
from accelscale_intel.files import UnreadableError
from accelscale_intel.rights import Privileges
from accelscale_intel.sysman import LevelZero

NEEDED_FOR_ENGINES = "engine activity is for root: run as root with the capability CAP_PERFMON"
NEEDED_FOR_SENSORS = "sensors are for root: run as root or with the capability CAP_DAC_READ_SEARCH"
NEEDED_FOR_MEMORY = "the kernel tells memory in use only with the capability CAP_PERFMON"

_NO_MEMORY = "the card has no memory of its own: Level Zero lists no memory modules on the device"


@frozen
class Part:
    """A sensor, an engine group, a memory module…: its handle, and its properties."""

    handle: Any
    properties: Any


@define
class SysmanCard:
    """One device of Level Zero; ``address`` of its handle tells whether it is still the same.

    Every reader raises UnreadableError.
    """

    zero: LevelZero
    handle: Any
    privileges: Privileges
    _parts: dict[str, list[Part]] = field(factory=dict, init=False)
    _engines: dict[int, tuple[int, int]] = field(factory=dict, init=False)
    readers: Mapping[str, Callable[[], float]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.readers = {
            "utilization_percent": self.utilization_percent,
            "memory_used_bytes": self.memory_used_bytes,
            "memory_total_bytes": self.memory_total_bytes,
            "temperature_celsius": self.temperature_celsius,
            "memory_temperature_celsius": self.memory_temperature_celsius,
            "energy_joules_total": self.energy_joules,
            "power_limit_watts": self.power_limit_watts,
            "sm_clock_megahertz": lambda: self._clock("ZES_FREQ_DOMAIN_GPU"),
            "memory_clock_megahertz": lambda: self._clock("ZES_FREQ_DOMAIN_MEMORY"),
            "pcie_receive_bytes_total": lambda: self._pcie("rxCounter"),
            "pcie_transmit_bytes_total": lambda: self._pcie("txCounter"),
            "intel_throttled_seconds_total": self.throttled_seconds,
        }

    @property
    def name(self) -> str:
        """The name of the model; empty if Level Zero does not say it."""
        try:
            properties = self._device_properties()
        except UnreadableError:
            return ""
        text: bytes = properties.core.name or properties.modelName
        return text.decode("utf-8", "replace").strip()

    @property
    def uuid(self) -> str:
        """The UUID as 32 hexadecimal digits; empty if Level Zero does not say it."""
        try:
            return bytes(self._device_properties().core.uuid.id).hex()
        except UnreadableError:
            return ""

    def forget(self) -> None:
        """Start anew with the next reading of the engines."""
        self._engines.clear()

    def utilization_percent(self) -> float:
        """The busiest of the engine groups since the previous reading.

        The group of all engines says it by itself where it means that any engine works. Where a
        driver averages over the engines instead, it says less, so the largest of all groups counts.
        """
        try:
            before, self._engines = self._engines, self._activity()
        except UnreadableError as error:
            raise _with_hint(error, NEEDED_FOR_ENGINES) from error
        shares = [_share(before.get(group), now) for group, now in self._engines.items()]
        return 100.0 * min(1.0, max(shares))

    def memory_used_bytes(self) -> float:
        """Memory in use on the modules of the device, without what the driver reserves."""
        size, free = self._memory()
        if free > size:
            text = f"{free} bytes of memory free, of {size} in all"
            raise UnreadableError(Reason.OUT_OF_RANGE, text)
        if free == size:
            # Without the right to know, the kernel calls all memory free; and the driver itself
            # always holds some (oneapi-src/level-zero#133).
            entitled = self.privileges.has(Privileges.PERFMON, Privileges.SYS_ADMIN)
            reason = Reason.OUT_OF_RANGE if entitled else Reason.PERMISSION
            text = "Level Zero calls all memory free, which it never is"
            raise UnreadableError(reason, text if entitled else f"{text}; {NEEDED_FOR_MEMORY}")
        return float(size - free)

    def memory_total_bytes(self) -> float:
        """Size of the modules of the device."""
        return float(self._memory()[0])

    def temperature_celsius(self) -> float:
        """The hottest sensor of the GPU; the overall one where it has none of its own."""
        return self._temperature("ZES_TEMP_SENSORS_GPU", "ZES_TEMP_SENSORS_GLOBAL")

    def memory_temperature_celsius(self) -> float:
        """The hottest sensor of the memory."""
        return self._temperature("ZES_TEMP_SENSORS_MEMORY")

    def energy_joules(self) -> float:
        """The energy counter of the card, else of its package; raw, glitches included."""
        domain = self._power_domain()
        counter = self.zero.read(
            "zesPowerGetEnergyCounter", domain.handle, "zes_power_energy_counter_t"
        )
        if counter.energy == 0:  # intel/compute-runtime#493
            text = "the energy counter shows exactly 0, which is no energy"
            raise UnreadableError(Reason.OUT_OF_RANGE, text)
        return float(counter.energy) / 1e6

    def power_limit_watts(self) -> float:
        """The sustained limit of the card, else of its package."""
        domain = self._power_domain()
        kind = "zes_power_limit_ext_desc_t"
        limits = self.zero.listed("zesPowerGetLimitsExt", kind, domain.handle)
        sustained = self.zero.constant("ZES_POWER_LEVEL_SUSTAINED")
        power = self.zero.constant("ZES_LIMIT_UNIT_POWER")
        for limit in limits:
            if (limit.level, limit.limitUnit) == (sustained, power) and limit.enabled:
                return float(limit.limit) / 1e3
        raise UnreadableError(Reason.NOT_SUPPORTED, "no sustained power limit is switched on")

    def throttled_seconds(self) -> float:
        """Time that the hardware held the clock of the GPU down, for whichever cause.

        Where tiles have clocks of their own, the mean over the tiles.
        """
        domains = self._clocks("ZES_FREQ_DOMAIN_GPU")
        times = [
            self.zero.read("zesFrequencyGetThrottleTime", domain.handle, "zes_freq_throttle_time_t")
            for domain in domains
        ]
        return float(sum(time.throttleTime for time in times)) / len(times) / 1e6

    def _device_properties(self) -> Any:
        return self.zero.read(
            "zesDeviceGetProperties", self.handle, "zes_device_properties_t", "DEVICE_PROPERTIES"
        )

    def _listed(self, call: str, item: str, properties: tuple[str, str, str]) -> list[Part]:
        """The parts of one kind, listed once; an empty list is asked for again."""
        parts = self._parts.get(call)
        if not parts:
            handles = self.zero.listed(call, item, self.handle)
            parts = [
                Part(handle, self.zero.read(properties[0], handle, *properties[1:]))
                for handle in handles
            ]
            self._parts[call] = parts
        return parts

    def _activity(self) -> dict[int, tuple[int, int]]:
        """Active time and time of each engine group that can be read: all of them, or it raises."""
        groups = self._listed(
            "zesDeviceEnumEngineGroups",
            "zes_engine_handle_t",
            ("zesEngineGetProperties", "zes_engine_properties_t", "ENGINE_PROPERTIES"),
        )
        if not groups:
            reason = Reason.NOT_SUPPORTED if self.privileges.is_root else Reason.PERMISSION
            raise UnreadableError(reason, "Level Zero lists no engine groups of this card")
        activity = {}
        lacking: UnreadableError | None = None
        for index, group in enumerate(groups):
            try:
                stats = self.zero.read("zesEngineGetActivity", group.handle, "zes_engine_stats_t")
            except UnreadableError as error:
                if error.reason is not Reason.NOT_SUPPORTED:
                    raise  # the one group that cannot be read may be the busy one
                lacking = error
            else:
                activity[index] = (stats.activeTime, stats.timestamp)
        if lacking is not None and not activity:
            raise lacking
        return activity

    def _memory(self) -> tuple[int, int]:
        modules = self._listed(
            "zesDeviceEnumMemoryModules",
            "zes_mem_handle_t",
            ("zesMemoryGetProperties", "zes_mem_properties_t", "MEM_PROPERTIES"),
        )
        device = self.zero.constant("ZES_MEM_LOC_DEVICE")
        modules = [module for module in modules if module.properties.location == device]
        if not modules:
            raise UnreadableError(Reason.NOT_SUPPORTED, _NO_MEMORY, permanent=True)
        states = [
            self.zero.read("zesMemoryGetState", module.handle, "zes_mem_state_t", "MEM_STATE")
            for module in _whole(modules)
        ]
        if any(state.size == 0 for state in states):
            text = "Level Zero gives a memory module a size of 0 bytes"
            raise UnreadableError(Reason.OUT_OF_RANGE, text)
        return sum(state.size for state in states), sum(state.free for state in states)

    def _temperature(self, *kinds: str) -> float:
        sensors = self._listed(
            "zesDeviceEnumTemperatureSensors",
            "zes_temp_handle_t",
            ("zesTemperatureGetProperties", "zes_temp_properties_t", "TEMP_PROPERTIES"),
        )
        for kind in map(self.zero.constant, kinds):
            found = [sensor for sensor in sensors if sensor.properties.type == kind]
            if found:
                return max(self._celsius(sensor) for sensor in _whole(found))
        text = "Level Zero lists no such temperature sensor"
        if not (self.privileges.is_root or self.privileges.has(*_SEES_FILES)):
            raise UnreadableError(Reason.PERMISSION, f"{text}; {NEEDED_FOR_SENSORS}")
        raise UnreadableError(Reason.NOT_SUPPORTED, text)

    def _celsius(self, sensor: Part) -> float:
        value = ctypes.c_double(0.0)
        self.zero.call("zesTemperatureGetState", sensor.handle, ctypes.byref(value))
        if value.value == 0.0:
            # What an unprivileged process gets in place of an error (intel/xpumanager#92).
            entitled = self.privileges.is_root or self.privileges.has(*_SEES_FILES)
            reason = Reason.OUT_OF_RANGE if entitled else Reason.PERMISSION
            text = "the sensor reads exactly 0 degrees, which is no measured temperature"
            raise UnreadableError(reason, text if entitled else f"{text}; {NEEDED_FOR_SENSORS}")
        return value.value

    def _power_domain(self) -> Part:
        """The domain of the card, else of its package, else the only one; domains are no sum."""
        parts = self._parts.get("power")
        if not parts:
            handles = self.zero.listed("zesDeviceEnumPowerDomains", "zes_pwr_handle_t", self.handle)
            parts = [Part(handle, self._power_properties(handle)) for handle in handles]
            self._parts["power"] = parts
        whole = [part for part in parts if not part.properties[0].onSubdevice]
        for kind in ("ZES_POWER_DOMAIN_CARD", "ZES_POWER_DOMAIN_PACKAGE"):
            for part in whole:
                if part.properties[1] == self.zero.constant(kind):
                    return part
        unknown = self.zero.constant("ZES_POWER_DOMAIN_UNKNOWN")
        if len(whole) == 1 and whole[0].properties[1] == unknown:
            return whole[0]
        text = "Level Zero lists no power domain of the card or its package"
        raise UnreadableError(Reason.NOT_SUPPORTED, text, permanent=True)

    def _power_properties(self, handle: Any) -> tuple[Any, int]:
        extended = self.zero.structure("zes_power_ext_properties_t", "POWER_EXT_PROPERTIES")
        properties = self.zero.structure("zes_power_properties_t", "POWER_PROPERTIES")
        properties.pNext = ctypes.addressof(extended)
        self.zero.call("zesPowerGetProperties", handle, ctypes.byref(properties))
        return properties, int(extended.domain)

    def _clocks(self, kind: str) -> Sequence[Part]:
        domains = self._listed(
            "zesDeviceEnumFrequencyDomains",
            "zes_freq_handle_t",
            ("zesFrequencyGetProperties", "zes_freq_properties_t", "FREQ_PROPERTIES"),
        )
        wanted = self.zero.constant(kind)
        found = [domain for domain in domains if domain.properties.type == wanted]
        if not found:
            text = f"Level Zero lists no frequency domain {kind.rpartition('_')[2]}"
            raise UnreadableError(Reason.NOT_SUPPORTED, text, permanent=True)
        return _whole(found)

    def _clock(self, kind: str) -> float:
        values = [
            self.zero.read("zesFrequencyGetState", domain.handle, "zes_freq_state_t", "FREQ_STATE")
            for domain in self._clocks(kind)
        ]
        fastest = max(value.actual for value in values)
        if fastest < 0:
            raise UnreadableError(Reason.NOT_SUPPORTED, "Level Zero does not know this clock")
        return float(fastest)

    def _pcie(self, counter: str) -> float:
        if not self.zero.pci_properties(self.handle).counts_bytes:
            text = "the card does not count the bytes of its PCIe link"
            raise UnreadableError(Reason.NOT_SUPPORTED, text, permanent=True)
        stats = self.zero.read("zesDevicePciGetStats", self.handle, "zes_pci_stats_t")
        return float(getattr(stats, counter))


_SEES_FILES = (Privileges.DAC_READ_SEARCH, Privileges.DAC_OVERRIDE)


def _whole(parts: Sequence[Part]) -> Sequence[Part]:
    """Those of the device as a whole; those of its tiles where it has none for the whole."""
    return [part for part in parts if not part.properties.onSubdevice] or parts


def _share(before: tuple[int, int] | None, now: tuple[int, int]) -> float:
    """Active time over time, in the unit of the driver, whichever it is."""
    if before is None:
        raise UnreadableError(Reason.NO_PROGRESS, "needs two readings of the engines")
    active, time = now[0] - before[0], now[1] - before[1]
    if active < 0 or time < 0:
        raise UnreadableError(Reason.COUNTER_RESET, "the engines' counters went back")
    if time == 0:
        raise UnreadableError(Reason.NO_PROGRESS, "the engines' counters have not moved")
    if active > time * SLACK:
        text = f"an engine worked for {active} out of {time} units of time"
        raise UnreadableError(Reason.OUT_OF_RANGE, text)
    return active / time


def _with_hint(error: UnreadableError, hint: str) -> UnreadableError:
    if error.reason is not Reason.PERMISSION:
        return error
    return UnreadableError(error.reason, f"{error.detail}; {hint}", code=error.code)
