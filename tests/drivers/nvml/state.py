"""Writes what the fake NVML driver answers, and reads what it was asked.

::

    fake = FakeNvml(tmp_path / "nvml.state")
    fake.device("GPU-aaaa", utilization_gpu=37)
    fake.write()
    ...
    fake.lose("GPU-aaaa").write()

Nothing reaches the driver before `FakeNvml.write`; every process that has it loaded then sees all
changes at once, with its next call. ``README.md`` beside this file lists the keys.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from drivers.build import compile_library

STATE_VARIABLE = "ACCELSCALE_FAKE_NVML_STATE"
SONAME = "libnvidia-ml.so.1"
GIBIBYTE = 2**30

Value = int | float | str | None
"""What stands behind a key; None takes the key away, which makes its readings NOT_SUPPORTED."""

_SLOT = struct.Struct("120sQ")

HEALTHY: Mapping[str, Value] = {
    "name": "NVIDIA H100 80GB HBM3",
    "utilization_gpu": 50,
    "utilization_memory": 20,
    "memory_total": 80 * GIBIBYTE,
    "memory_used": 20 * GIBIBYTE,
    "memory_reserved": GIBIBYTE // 2,
    "temperature": 45,
    "temperature_slowdown": 87,
    "temperature_shutdown": 92,
    "memory_temperature": 50,
    "power_mw": 350_000,
    "power_limit_mw": 700_000,
    "clock_graphics": 1980,
    "clock_sm": 1980,
    "clock_memory": 2619,
    "clock_video": 1545,
    "encoder": 0,
    "decoder": 0,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "processes_compute": "",
    "processes_graphics": "",
    "processes_mps": "",
    "event_types": 0xFF0F,
    "recovery_action": 0,
}
"""A card in good health under half load, without GPM as one that a virtual machine was given; its
counters come from `FakeNvml.device`."""

GPM: Mapping[str, Value] = {
    "gpm": 1,
    "gpm.1": 45.5,
    "gpm.2": 40.25,
    "gpm.3": 30.5,
    "gpm.5": 20.125,
    "gpm.10": 35.75,
    "gpm.20": 100,
    "gpm.21": 200,
    "gpm.60": 300,
    "gpm.61": 400,
}
"""What makes a card one of Hopper or later; an instance needs the metrics of its own, not ``gpm``.

They are graphics, SM activity, SM occupancy, tensor, DRAM, PCIe sent and received, NVLink received
and sent, the last four in MiB a second.
"""

XID_EVENT = 8
ECC_EVENT = 2


def build(folder: Path, *, without: Sequence[str] = ()) -> Path:
    """Compile the fake driver into this folder; ``without`` leaves out functions."""
    return compile_library(Path(__file__).parent, folder, SONAME, without=without)


def counter(base: int, per_second: float) -> str:
    """A value that starts at ``base`` now and grows by itself."""
    return f"{base}+{per_second:g}/s@{time.monotonic():.9f}"


class FakeNvml:
    """The state of the fake driver; every change returns the object, so that ``write`` can follow.

    Functions are named by the symbols of the library, such as ``nvmlDeviceGetPowerUsage`` and
    ``nvmlDeviceGetMemoryInfo_v2``; errors by the ends of NVML's names, such as ``GPU_IS_LOST``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library: dict[str, Value] = {}
        self._devices: dict[str, dict[str, Value]] = {}
        self._instances: dict[str, dict[str, dict[str, Value]]] = {}

    def write(self) -> Self:
        """Put all changes into force at once."""
        unfinished = self.path.with_name(f"{self.path.name}.unfinished")
        unfinished.write_text(self._text(), encoding="utf-8", errors="surrogateescape")
        unfinished.replace(self.path)
        return self

    def library(self, **values: Value) -> Self:
        """Set keys of the library as a whole: ``init="DRIVER_NOT_LOADED"``, ``driver_version``."""
        self._library.update(values)
        return self

    def device(self, uuid: str, *, bare: bool = False, **values: Value) -> Self:
        """Add a device, healthy but for ``values``; a ``bare`` one has these values alone."""
        number = len(self._devices)
        place: dict[str, Value] = {"pci": f"00000000:{number + 1:02X}:00.0", "minor_number": number}
        counters = {
            "energy_mj": counter(1_000_000, 350_000),
            "violation_power_ns": counter(0, 0),
            "violation_thermal_ns": counter(0, 0),
            "pcie_transmit_bytes": counter(10_000, 1e6),
            "pcie_receive_bytes": counter(20_000, 2e6),
            "nvlink_transmit_kib": counter(1_000, 1e3),
            "nvlink_receive_kib": counter(2_000, 2e3),
        }
        self._devices[uuid] = (
            {**place, **values}
            if bare
            else {
                **place,
                **HEALTHY,
                **counters,
                **values,
            }
        )
        return self

    def instance(self, parent: str, uuid: str, **values: Value) -> Self:
        """Add a MIG instance to a device; its ``mig_mode`` must be 1 for it to show."""
        self._instances.setdefault(parent, {})[uuid] = dict(values)
        return self

    def repartition(self, parent: str, *uuids: str, **values: Value) -> Self:
        """Replace all MIG instances of a device by these, which get the handles of the old ones."""
        self._instances[parent] = {
            uuid: {"handle": f"{parent} {place}", "gpu_instance_id": place, **values}
            for place, uuid in enumerate(uuids, start=1)
        }
        return self

    def event(self, uuid: str, data: int = 0, *, kind: int = XID_EVENT) -> Self:
        """Let something happen on a card: an XID of this number, or another kind of event."""
        before = self._section(uuid).get("events") or ""
        return self.set(uuid, events=f"{before} {kind}:{data}".strip())

    def set(self, uuid: str, values: Mapping[str, Value] | None = None, **more: Value) -> Self:
        """Change keys of a device or an instance."""
        self._section(uuid).update({**(values or {}), **more})
        return self

    def get(self, uuid: str, key: str) -> Value:
        """What stands behind a key of a device or an instance now."""
        return self._section(uuid).get(key)

    def lose(self, uuid: str, error: str = "GPU_IS_LOST") -> Self:
        """Make the card answer this error to every call and look-up, by whatever name."""
        return self.set(uuid, lost=error)

    def restore(self, uuid: str) -> Self:
        """Bring a lost card back, with a new handle: the old one stays invalid for ever."""
        generation = self._section(uuid).get("generation") or 0
        return self.set(uuid, lost=None, generation=int(generation) + 1)

    def remove(self, uuid: str) -> Self:
        """Take a device or an instance away."""
        self._devices.pop(uuid, None)
        self._instances.pop(uuid, None)
        for instances in self._instances.values():
            instances.pop(uuid, None)
        return self

    def reorder(self, *uuids: str) -> Self:
        """List the devices in this order."""
        self._devices = {uuid: self._devices[uuid] for uuid in uuids}
        return self

    def fail(
        self,
        error: str | None,
        function: str | None = None,
        *,
        device: str | None = None,
        times: int | None = None,
    ) -> Self:
        """Answer an error: to one function or all, of one device or all, always or some times.

        None takes the error back. Init and shutdown are not among "all": use ``library(init=…)``.
        """
        text = error if error is None or times is None else f"{error} x{times}"
        return self._call_key("error", function, device, text)

    def delay(
        self, microseconds: float | None, function: str | None = None, *, device: str | None = None
    ) -> Self:
        """Make calls take this long; other threads go on meanwhile."""
        return self._call_key("latency_us", function, device, microseconds)

    def hang(self, function: str | None = None, *, device: str | None = None) -> Self:
        """Make calls wait until `resume` is written, or for at most 20 seconds (`hang_limit_s`)."""
        return self._call_key("hang", function, device, 1)

    def resume(self, function: str | None = None, *, device: str | None = None) -> Self:
        """End what `hang` began."""
        return self._call_key("hang", function, device, None)

    def calls(self) -> dict[str, int]:
        """How often each function was called in all processes, failed calls included.

        Keys are ``"function"``, and ``"function UUID"`` for each device. ``"initialised"`` and
        ``"shut down"`` count the successful ones.
        """
        counts: dict[str, int] = {}
        for file in self.path.parent.glob(f"{self.path.name}.calls.*"):
            for name, count in _SLOT.iter_unpack(file.read_bytes()):
                text = name.rstrip(b"\0").decode("utf-8", "surrogateescape").strip()
                if text:
                    counts[text] = counts.get(text, 0) + count
        return counts

    @property
    def users(self) -> int:
        """Inits that succeeded, less shutdowns that did."""
        calls = self.calls()
        return calls.get("initialised", 0) - calls.get("shut down", 0)

    def environment(self, library: Path) -> dict[str, str]:
        """What a process needs in its environment to load this driver and find this state."""
        return {"LD_LIBRARY_PATH": str(library.parent), STATE_VARIABLE: str(self.path)}

    def _section(self, uuid: str) -> dict[str, Value]:
        if uuid in self._devices:
            return self._devices[uuid]
        return next(group[uuid] for group in self._instances.values() if uuid in group)

    def _call_key(
        self, family: str, function: str | None, device: str | None, value: Value
    ) -> Self:
        section = self._library if device is None else self._section(device)
        section[family if function is None else f"{family}.{function}"] = value
        return self

    def _text(self) -> str:
        lines = ["[library]", *_pairs(self._library)]
        for uuid, values in self._devices.items():
            lines += [f"[device {uuid}]", *_pairs(values)]
            for instance, its_values in self._instances.get(uuid, {}).items():
                lines += [f"[mig {instance}]", *_pairs(its_values)]
        return "\n".join(lines) + "\n"


def _pairs(values: Mapping[str, Value]) -> list[str]:
    return [f"{key} = {value}" for key, value in values.items() if value is not None]
