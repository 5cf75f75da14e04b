"""The backend: one device, the machine as a whole, read through psutil and ``/sys``."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from accelscale.backend import Attempt, Backend, Probe
from accelscale.errors import BackendError
from accelscale.metrics import METRICS, Tier
from accelscale.model import Device, Failure, Reading, Reason, Sample
from accelscale_host.cpu_time import BusyShare, CpuTime
from accelscale_host.files import UnreadableError
from accelscale_host.identity import cpu_attributes, cpu_model, device_id
from accelscale_host.power import PackageEnergy, power_limit_watts
from accelscale_host.thermal import hottest_package


class HostBackend(Backend):
    """The machine's CPU packages as one device of vendor ``host``.

    One device and not one per package: memory, and the load as the scheduler spreads it, belong
    to the machine. Chosen by name only, so that a node without an accelerator is never scaled on
    its CPU by accident. ``root`` is where ``/etc``, ``/proc`` and ``/sys`` are looked for; CPU
    times and memory are those of this machine in any case.
    """

    name = "host"
    vendor = "host"
    on_request_only = True
    metrics: ClassVar[Mapping[str, Tier]] = {
        "utilization_percent": Tier.FAST,
        "memory_used_bytes": Tier.FAST,
        "memory_total_bytes": Tier.FAST,
        "temperature_celsius": Tier.FAST,
        "slowdown_temperature_celsius": Tier.SLOW,
        "energy_joules_total": Tier.FAST,
        "power_limit_watts": Tier.SLOW,
    }

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._psutil: ModuleType | None = None  # while open
        self._busy = BusyShare()
        # Kept over close and open: what wrapped before would be missing from the total after.
        self._energy = PackageEnergy(root)
        self._readers: Mapping[str, Callable[[float], float]] = {
            "utilization_percent": self._utilization_percent,
            "memory_used_bytes": self._memory_used_bytes,
            "memory_total_bytes": self._memory_total_bytes,
            "temperature_celsius": lambda _: hottest_package(root).celsius,
            "slowdown_temperature_celsius": lambda _: hottest_package(root).slowdown_celsius(),
            "energy_joules_total": self._energy.joules,
            "power_limit_watts": lambda _: power_limit_watts(root),
        }

    def probe(self) -> Probe:
        started = time.perf_counter()
        try:
            version = f"psutil {_load_psutil().__version__}"
        except BackendError as error:
            seconds = time.perf_counter() - started
            attempt = Attempt("import psutil", str(error), ok=False, seconds=seconds)
            return Probe(viable=False, reason=str(error), attempts=(attempt,))
        seconds = time.perf_counter() - started
        attempt = Attempt("import psutil", version, ok=True, seconds=seconds)
        reason = f"{cpu_model(self._root)}; read only when asked for by name"
        return Probe(viable=True, reason=reason, version=version, attempts=(attempt,))

    def open(self) -> None:
        if self._psutil is not None:
            return
        self._psutil = _load_psutil()
        # Looked at once: a machine does not change its CPU, and /proc/cpuinfo is slow to read.
        self._device = Device(
            id=device_id(self._root),
            name=cpu_model(self._root),
            vendor=self.vendor,
            backend=self.name,
            attributes=cpu_attributes(self._root),
        )

    def devices(self) -> Sequence[Device]:
        self._opened()
        return (self._device,)

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        self._opened()
        for device in devices:
            if device.id == self._device.id:
                answers = [self._answer(device.id, metric) for metric in metrics]
            else:
                text = f"this machine is {self._device.id}"
                now = time.monotonic()
                answers = [Failure(device.id, name, Reason.LOST, text, now) for name in metrics]
            yield Reading(
                device.id,
                samples=tuple(answer for answer in answers if isinstance(answer, Sample)),
                failures=tuple(answer for answer in answers if isinstance(answer, Failure)),
            )

    def close(self) -> None:
        self._psutil = None
        self._busy = BusyShare()

    def _opened(self) -> ModuleType:
        if self._psutil is None:
            raise BackendError("the host backend is not open", reason=Reason.ERROR)
        return self._psutil

    def _answer(self, device_id: str, metric: str) -> Sample | Failure:
        now = time.monotonic()
        read = self._readers.get(metric)
        if read is None:
            text = f"a CPU has no {metric}, or the kernel does not show it"
            return Failure(device_id, metric, Reason.NOT_SUPPORTED, text, now, permanent=True)
        try:
            value = read(now)
        except UnreadableError as error:
            return Failure(
                device_id, metric, error.reason, error.detail, now, permanent=error.permanent
            )
        except PermissionError as error:
            return Failure(device_id, metric, Reason.PERMISSION, str(error), now)
        except Exception as error:  # noqa: BLE001 - psutil meets systems that we never see
            text = f"{type(error).__name__}: {error}"
            return Failure(device_id, metric, Reason.ERROR, text, now)
        row = METRICS[metric]
        if not row.minimum <= value <= row.maximum:
            text = f"{value:g} is outside {row.minimum:g} to {row.maximum:g} {row.unit}"
            return Failure(device_id, metric, Reason.OUT_OF_RANGE, text, now)
        return Sample(device_id, metric, value, now)

    def _utilization_percent(self, _: float) -> float:
        return self._busy.percent(CpuTime.of(self._opened().cpu_times()._asdict()))

    def _memory_used_bytes(self, _: float) -> float:
        memory = self._opened().virtual_memory()
        if not 0 <= memory.available <= memory.total:
            raise UnreadableError(
                Reason.OUT_OF_RANGE,
                f"{memory.available} bytes of memory available, of {memory.total} in all",
            )
        return float(memory.total - memory.available)

    def _memory_total_bytes(self, _: float) -> float:
        return float(self._opened().virtual_memory().total)


def _load_psutil() -> ModuleType:
    try:
        return importlib.import_module("psutil")
    except ImportError as error:
        text = f"psutil cannot be imported ({error}): install it with accelscale-host"
        raise BackendError(text, reason=Reason.NOT_SUPPORTED) from error
    except Exception as error:
        # It reads CPU times while it is imported, and so fails where /proc is hidden.
        text = f"importing psutil raised {type(error).__name__}: {error}"
        raise BackendError(text, reason=Reason.ERROR) from error
