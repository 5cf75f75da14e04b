"""The backend: what the collector sees of the cards."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from attrs import frozen

from accelscale.backend import Attempt, Backend, Probe
from accelscale.errors import BackendError
from accelscale.metrics import METRICS, Metric, Tier
from accelscale.model import Device, Failure, Reading, Reason, Sample, normal_pci_address
from accelscale_example.cards import CLASS, Unit, find_units
from accelscale_example.files import UnreadableError, read_number, text_or_none

ROOT_VARIABLE = "ACCELSCALE_EXAMPLE_ROOT"
"""The folder below which the cards' files are. A real backend has no such variable."""

# What the common table lacks. The name begins with that of the backend.
QUEUE_LENGTH = Metric(
    "example_queue_length", "jobs", "Jobs that wait for the card.", 0.0, 1e6, aggregation="sum"
)
ROWS: Mapping[str, Metric] = {**METRICS, QUEUE_LENGTH.name: QUEUE_LENGTH}


@frozen
class Source:
    """Where a metric comes from: a file, and what one of its counts is in the metric's unit.

    ``of_partitions`` is set where a partition has a file of its own; the others are sensors of the
    whole card. ``zero_is_absent`` where the driver writes 0 for a sensor that is not fitted.
    """

    file: str
    scale: float = 1.0
    tier: Tier = Tier.FAST
    of_partitions: bool = False
    zero_is_absent: bool = False


SOURCES: Mapping[str, Source] = {
    "utilization_percent": Source("busy_percent", of_partitions=True),
    "memory_used_bytes": Source("memory_used_bytes", of_partitions=True),
    # Does not change, so it is not read every second.
    "memory_total_bytes": Source("memory_total_bytes", tier=Tier.SLOW, of_partitions=True),
    "temperature_celsius": Source("temperature_millicelsius", 1e-3, zero_is_absent=True),
    "power_watts": Source("power_microwatts", 1e-6, zero_is_absent=True),
    "energy_joules_total": Source("energy_microjoules", 1e-6),
    # Takes the lock of the memory controller for milliseconds.
    "ecc_uncorrected_errors_total": Source("ecc_uncorrected", tier=Tier.SLOW),
    QUEUE_LENGTH.name: Source("queue_length", of_partitions=True),
}


class ExampleBackend(Backend):
    """Cards that do not exist, and their partitions.

    ``root`` is where ``/sys`` is looked for, so that a folder of files can stand in for the
    hardware; a real backend has ``Path("/")`` as its default.
    """

    name = "example"
    vendor = "example"
    metrics: ClassVar[Mapping[str, Tier]] = {name: row.tier for name, row in SOURCES.items()}
    extra_metrics = (QUEUE_LENGTH,)
    # Nobody should come upon cards that do not exist.
    on_request_only = True
    # Reading one card touches nothing that another one needs.
    isolates_devices = True

    def __init__(self, root: Path | None = None) -> None:
        named = os.environ.get(ROOT_VARIABLE, "")
        self._root = root or (Path(named) if named else None)
        self._is_open = False
        self._units: Mapping[str, Unit] = {}

    def probe(self) -> Probe:
        if self._root is None:
            return Probe(False, f"{ROOT_VARIABLE} does not name a folder of example cards")
        started = time.perf_counter()
        count = len(find_units(self._root))
        seconds = time.perf_counter() - started
        place = self._root / CLASS
        attempt = Attempt(f"list {place}", f"{count} found", ok=count > 0, seconds=seconds)
        if count == 0:
            reason = f"no example card: nothing in {place}; the driver example_accel shows them"
            return Probe(False, reason, attempts=(attempt,))
        version = text_or_none(self._root / "sys/module/example_accel/version")
        return Probe(True, f"{count} cards and partitions in {place}", version, (attempt,))

    def open(self) -> None:
        # Tried again and again where it fails, so it looks no further than it must.
        if self._root is None or not find_units(self._root):
            raise BackendError(self.probe().reason, reason=Reason.NOT_SUPPORTED)
        self._is_open = True

    def devices(self) -> Sequence[Device]:
        root = self._opened()
        found = {unit.id: unit for unit in find_units(root)}
        # A card that was there once stays listed: its pods must not vanish from the sums.
        known = {unit.id: unit for unit in self._units.values() if unit.parent is None}
        self._units = {**known, **found}
        return tuple(self._device(unit) for unit in self._units.values())

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        self._opened()
        for device in devices:
            answers = [self._answer(device.id, metric) for metric in metrics]
            yield Reading(
                device.id,
                samples=tuple(answer for answer in answers if isinstance(answer, Sample)),
                failures=tuple(answer for answer in answers if isinstance(answer, Failure)),
            )

    def close(self) -> None:
        self._is_open = False

    def owns_resource(self, resource: str) -> bool:
        return resource in {"example.com/accelerator", "example.com/accelerator-partition"}

    def device_of(self, allocated_id: str, devices: Sequence[Device]) -> Device | None:
        """By PCI address however it is spelt, of a partition with its number behind a slash."""
        address, slash, number = allocated_id.partition("/")
        wanted = normal_pci_address(address) + slash + number
        return next((device for device in devices if device.id == wanted), None)

    def _opened(self) -> Path:
        if self._root is None or not self._is_open:
            raise BackendError("the example backend is not open", reason=Reason.ERROR)
        return self._root

    def _device(self, unit: Unit) -> Device:
        problem, detail = unit.problem
        serial = text_or_none(unit.card / "serial_number")
        return Device(
            id=unit.id,
            name=unit.name,
            vendor=self.vendor,
            backend=self.name,
            parent=unit.parent,
            pci_address=unit.address,
            problem=problem,
            problem_detail=detail,
            attributes={"serial_number": serial} if serial else {},
        )

    def _answer(self, device_id: str, metric: str) -> Sample | Failure:
        now = time.monotonic()
        try:
            value = self._value(device_id, metric)
        except UnreadableError as error:
            why = (error.reason, error.detail, now, error.code, error.permanent)
            return Failure(device_id, metric, *why)
        row = ROWS[metric]
        if not row.minimum <= value <= row.maximum:
            text = f"{value:g} is outside {row.minimum:g} to {row.maximum:g} {row.unit}"
            return Failure(device_id, metric, Reason.OUT_OF_RANGE, text, now)
        return Sample(device_id, metric, value, now)

    def _value(self, device_id: str, metric: str) -> float:
        """The metric of that device in its unit. Raises UnreadableError."""
        source, unit = SOURCES.get(metric), self._units.get(device_id)
        if source is None:
            text = f"the driver does not show {metric}"
            raise UnreadableError(Reason.NOT_SUPPORTED, text, permanent=True)
        if unit is None:
            raise UnreadableError(Reason.LOST, "there is no such card")
        if unit.parent is not None and not source.of_partitions:
            # Never the card's figure: two partitions would show it twice.
            text = f"it is that of the whole card, so {unit.parent} has it"
            raise UnreadableError(Reason.NOT_SUPPORTED, text, permanent=True)
        if unit.is_asleep:
            raise UnreadableError(Reason.STALE, "the card sleeps, and reading it would wake it")
        problem, detail = unit.problem
        if problem is not None:
            raise UnreadableError(problem, detail)
        value = read_number(unit.folder / source.file, source.scale)
        if value == 0 and source.zero_is_absent:
            text = f"{unit.folder / source.file} shows 0, as it does where no sensor is fitted"
            raise UnreadableError(Reason.NOT_SUPPORTED, text)
        return value
