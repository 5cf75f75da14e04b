"""The backend: TPU chips, listed by the kernel and read from libtpu's metric service."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from accelscale.backend import Attempt, Backend, Probe
from accelscale.errors import BackendError
from accelscale.metrics import METRICS, Tier
from accelscale.model import Device, Failure, Reading, Reason, Sample, normal_pci_address
from accelscale_tpu.chips import Chip, find_chips

if TYPE_CHECKING:
    # Imported when there is a chip: gRPC is heavy, and most machines have no TPU.
    from accelscale_tpu.service import Absent, MetricService

ADDRESS_VARIABLE = "ACCELSCALE_TPU_METRICS"
"""``HOST:PORT`` of the metric service, if it is not libtpu's default."""

_DEFAULT_ADDRESS = "localhost:8431"
_TIMEOUT = 1.0  # seconds for all calls of a reading together: a call of the collector has 2

# Each metric with libtpu's name for it, and how the figures of a chip's cores become the chip's.
_SOURCES: Mapping[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "utilization_percent": ("tpu.runtime.tensorcore.dutycycle.percent", max),
    "memory_used_bytes": ("tpu.runtime.hbm.memory.usage.bytes", sum),
    "memory_total_bytes": ("tpu.runtime.hbm.memory.total.bytes", sum),
    "memory_bandwidth_utilization_percent": ("tpu.runtime.hbm.utilization.percent", max),
}


class TpuBackend(Backend):
    """Google TPU chips as devices of vendor ``google``.

    A device's id is the PCI address of the chip, which the machine type fixes. ``root`` is where
    ``/sys`` is looked for; ``address`` is the ``HOST:PORT`` of the metric service.
    """

    name = "tpu"
    vendor = "google"
    metrics: ClassVar[Mapping[str, Tier]] = dict.fromkeys(_SOURCES, Tier.FAST)

    def __init__(self, root: Path = Path("/"), *, address: str | None = None) -> None:
        self._root = root
        self._address = address or os.environ.get(ADDRESS_VARIABLE) or _DEFAULT_ADDRESS
        self._service: MetricService | None = None
        self._chips: tuple[Chip, ...] = ()

    def probe(self) -> Probe:
        started = time.perf_counter()
        chips = find_chips(self._root)
        seconds = time.perf_counter() - started
        found = ", ".join(f"{chip.name} ({chip.address})" for chip in chips)
        attempt = Attempt("search /sys", found or "none", bool(chips), seconds)
        if not chips:
            return Probe(False, _nothing_found(self._root), attempts=(attempt,))
        return Probe(True, f"{len(chips)} chips; metrics from {self._address}", None, (attempt,))

    def open(self) -> None:
        if self._service is not None:
            return
        if not find_chips(self._root):
            raise BackendError(_nothing_found(self._root), reason=Reason.NOT_SUPPORTED)
        try:
            from accelscale_tpu.service import MetricService
        except ImportError as error:
            text = f"grpcio and protobuf are needed: {error}"
            raise BackendError(text, reason=Reason.NOT_SUPPORTED) from error
        self._service = MetricService(self._address, _TIMEOUT)

    def devices(self) -> Sequence[Device]:
        self._opened()
        self._chips = find_chips(self._root)
        return tuple(self._device(chip) for chip in self._chips)

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        service = self._opened()
        wanted = {_SOURCES[metric][0] for metric in metrics if metric in _SOURCES}
        values = service.values(wanted) if devices else {}
        places = {chip.address: place for place, chip in enumerate(self._chips)}
        for device in devices:
            answers = [
                self._answer(device.id, places.get(device.id), metric, values) for metric in metrics
            ]
            yield Reading(
                device.id,
                samples=tuple(answer for answer in answers if isinstance(answer, Sample)),
                failures=tuple(answer for answer in answers if isinstance(answer, Failure)),
            )

    def close(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            service.close()

    def owns_resource(self, resource: str) -> bool:
        return resource == "google.com/tpu"

    def device_of(self, allocated_id: str, devices: Sequence[Device]) -> Device | None:
        """By PCI address; which ids GKE's device plugin allocates is not established."""
        address = normal_pci_address(allocated_id)
        return next((device for device in devices if device.id == address), None)

    def _opened(self) -> MetricService:
        if self._service is None:
            raise BackendError("the tpu backend is not open", reason=Reason.ERROR)
        return self._service

    def _device(self, chip: Chip) -> Device:
        attributes = {"device_file": chip.device_file} if chip.device_file else {}
        return Device(
            chip.address,
            chip.name,
            self.vendor,
            self.name,
            pci_address=chip.address,
            attributes={**attributes, "cores": str(chip.cores)},
        )

    def _answer(
        self,
        device_id: str,
        place: int | None,
        metric: str,
        values: Mapping[str, Mapping[int, float] | Absent],
    ) -> Sample | Failure:
        now = time.monotonic()
        if metric not in _SOURCES:
            text = f"libtpu does not tell {metric}"
            return Failure(device_id, metric, Reason.NOT_SUPPORTED, text, now, permanent=True)
        if place is None:
            text = "the kernel does not show this chip"
            return Failure(device_id, metric, Reason.LOST, text, now)
        source, combine = _SOURCES[metric]
        found = values[source]
        if not isinstance(found, Mapping):
            return Failure(device_id, metric, found.reason, found.detail, now)
        own = self._of_chip(place, found)
        if not own:
            text = (
                f"the workload tells {source} of {len(found)} devices, which are not those of this"
                f" machine's {len(self._chips)} chips, so it is not known which are whose"
            )
            return Failure(device_id, metric, Reason.ERROR, text, now)
        row, value = METRICS[metric], combine(own)
        if not row.minimum <= value <= row.maximum:
            text = f"{value:g} is outside {row.minimum:g} to {row.maximum:g} {row.unit}"
            return Failure(device_id, metric, Reason.OUT_OF_RANGE, text, now)
        return Sample(device_id, metric, value, now)

    def _of_chip(self, place: int, values: Mapping[int, float]) -> list[float]:
        """The values of the chip at this place, one or one per core; none if that is not certain.

        libtpu's device ids count over all machines of a slice (8, 9, 12, 13 on one of them), so
        only their order says something, and only when every chip of this machine is among them.
        """
        per_chip, rest = divmod(len(values), max(len(self._chips), 1))
        if rest or per_chip not in {1, self._chips[place].cores}:
            return []
        ordered = [values[device] for device in sorted(values)]
        return ordered[place * per_chip : (place + 1) * per_chip]


def _nothing_found(root: Path) -> str:
    return f"no TPU: no chip that is known among the PCI devices in {root / 'sys/bus/pci/devices'}"
