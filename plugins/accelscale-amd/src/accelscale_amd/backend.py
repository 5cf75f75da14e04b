"""The backend: AMD GPUs and their partitions, through amdsmi where it works, else from ``/sys``."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from attrs import evolve

from accelscale.backend import Attempt, Backend, Probe
from accelscale.errors import BackendError
from accelscale.metrics import Tier
from accelscale.model import Device, Failure, Reading, Reason
from accelscale_amd import kubernetes
from accelscale_amd.extra import VIDEO
from accelscale_amd.presence import absence, has_card

if TYPE_CHECKING:
    from accelscale_amd.session import Session


class AmdBackend(Backend):
    """Cards that the driver amdgpu has, and the partitions of those that are split.

    ``root`` is where ``/sys``, ``/opt`` and so on are looked for. Cards are always found through
    ``/sys``, so that ids are the same whichever way they are read.
    """

    name = "amd"
    vendor = "amd"
    isolates_devices = True
    extra_metrics = (VIDEO,)
    metrics: ClassVar[Mapping[str, Tier]] = {
        "utilization_percent": Tier.FAST,
        "memory_bandwidth_utilization_percent": Tier.FAST,
        "memory_used_bytes": Tier.FAST,
        "memory_total_bytes": Tier.SLOW,
        "temperature_celsius": Tier.FAST,
        "memory_temperature_celsius": Tier.FAST,
        "slowdown_temperature_celsius": Tier.SLOW,
        "power_watts": Tier.FAST,
        "power_limit_watts": Tier.SLOW,
        "energy_joules_total": Tier.FAST,
        "throttled_power_seconds_total": Tier.FAST,
        "throttled_thermal_seconds_total": Tier.FAST,
        "sm_clock_megahertz": Tier.FAST,
        "memory_clock_megahertz": Tier.FAST,
        "interconnect_receive_bytes_total": Tier.FAST,
        "interconnect_transmit_bytes_total": Tier.FAST,
        "ecc_uncorrected_errors_total": Tier.SLOW,
        "process_count": Tier.SLOW,
        "amd_video_utilization_percent": Tier.FAST,
    }

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._session: Session | None = None
        self._is_open = False

    def probe(self) -> Probe:
        started = time.perf_counter()
        if has_card(self._root):
            from accelscale_amd import session

            return session.probe(self._root)
        reason = absence(self._root)
        seconds = time.perf_counter() - started
        attempts = (
            Attempt("look for amdgpu cards", reason, ok=False, seconds=seconds),
            Attempt("try amdsmi", "not tried without a card", ok=False, seconds=0.0),
        )
        return Probe(viable=False, reason=reason, attempts=attempts)

    def open(self) -> None:
        if self._is_open:
            return
        if self._session is None:
            if not has_card(self._root):
                raise BackendError(absence(self._root), reason=Reason.NOT_SUPPORTED)
            from accelscale_amd.session import Session

            self._session = Session(self._root)
        self._session.open()
        self._is_open = True

    def devices(self) -> Sequence[Device]:
        return self._opened().devices(self.name, self.vendor)

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        session = self._opened()
        ours = [metric for metric in metrics if metric in self.metrics]
        others = [metric for metric in metrics if metric not in self.metrics]
        for device in devices:
            reading = session.read(device.id, ours)
            failures = tuple(_not_ours(device.id, metric) for metric in others)
            yield evolve(reading, failures=reading.failures + failures) if others else reading

    def close(self) -> None:
        self._is_open = False
        if self._session is not None:
            self._session.close()

    def owns_resource(self, resource: str) -> bool:
        return kubernetes.is_gpu_resource(resource)

    def device_of(self, allocated_id: str, devices: Sequence[Device]) -> Device | None:
        return kubernetes.device_of(allocated_id, devices)

    def _opened(self) -> Session:
        if self._session is None or not self._is_open:
            raise BackendError("the amd backend is not open", reason=Reason.ERROR)
        return self._session


def _not_ours(device_id: str, metric: str) -> Failure:
    detail = f"the amd backend does not read {metric}"
    now = time.monotonic()
    return Failure(device_id, metric, Reason.NOT_SUPPORTED, detail, now, permanent=True)
