"""The backend: Neuron devices, listed by the driver and read by neuron-monitor."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from accelscale.backend import Attempt, Backend, Probe
from accelscale.errors import BackendError
from accelscale.metrics import METRICS, Tier
from accelscale.model import Device, Failure, Reading, Reason, Sample
from accelscale_neuron.chips import Absent, Chip, find_chips

if TYPE_CHECKING:
    # Imported when there is a chip: most machines have none, and pay for the rest only.
    from accelscale_neuron.monitor import Monitor

TOOL_VARIABLE = "ACCELSCALE_NEURON_MONITOR"
"""The path of neuron-monitor, where it is neither in its folder nor on the path."""

_TOOL = "neuron-monitor"
_TOOL_FOLDER = "opt/aws/neuron/bin"
_LONGEST_FIRST_REPORT = 5.0  # what `diagnose` waits for it
_ECC = "ecc_uncorrected_errors_total"


class NeuronBackend(Backend):
    """AWS Inferentia and Trainium chips ("Neuron devices") as devices of vendor ``aws``.

    A chip is a device, and its cores are not: Kubernetes hands out chips as
    ``aws.amazon.com/neuron`` and cores as ``aws.amazon.com/neuroncore``, and of both the kubelet
    gives the bare number, so only one of the two can be understood. Utilisation is the mean over
    the cores of a chip.

    ``root`` is where ``/sys`` and the tool are looked for; ``tool`` is the tool's path.
    """

    name = "neuron"
    vendor = "aws"
    metrics: ClassVar[Mapping[str, Tier]] = {
        "utilization_percent": Tier.FAST,
        "memory_used_bytes": Tier.FAST,
        "memory_total_bytes": Tier.SLOW,
        _ECC: Tier.SLOW,
    }

    def __init__(self, root: Path = Path("/"), *, tool: Path | None = None) -> None:
        self._root = root
        self._tool = tool
        self._monitor: Monitor | None = None
        self._is_open = False
        self._chips: tuple[Chip, ...] = ()

    def probe(self) -> Probe:
        started = time.perf_counter()
        chips = find_chips(self._root)
        seconds = time.perf_counter() - started
        found = ", ".join(f"{chip.name} ({chip.id})" for chip in chips)
        attempts = [Attempt("search /sys", found or "none", bool(chips), seconds)]
        if not chips:
            return Probe(False, self._nothing_found(), attempts=tuple(attempts))
        path = self._find_tool()
        text = str(path) if path is not None else self._no_tool().detail
        attempts.append(Attempt(f"find {_TOOL}", text, path is not None, 0.0))
        return Probe(True, f"{len(chips)} Neuron devices: {found}", None, tuple(attempts))

    def open(self) -> None:
        if self._is_open:
            return
        self._chips = find_chips(self._root)
        if not self._chips:
            raise BackendError(self._nothing_found(), reason=Reason.NOT_SUPPORTED)
        path = self._find_tool()
        if path is not None:
            from accelscale_neuron.monitor import Monitor

            self._monitor = Monitor(path)
            self._monitor.start()
        self._is_open = True

    def devices(self) -> Sequence[Device]:
        self._opened()
        self._chips = find_chips(self._root)
        return tuple(self._device(chip) for chip in self._chips)

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        self._opened()
        chips = {chip.id: chip for chip in self._chips}
        for device in devices:
            answers = [self._answer(device.id, chips.get(device.id), one) for one in metrics]
            yield Reading(
                device.id,
                samples=tuple(answer for answer in answers if isinstance(answer, Sample)),
                failures=tuple(answer for answer in answers if isinstance(answer, Failure)),
            )

    def close(self) -> None:
        self._is_open = False
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.stop()

    def diagnose(self) -> Iterator[Attempt]:
        try:
            self.open()
        except BackendError as error:
            yield Attempt("open", str(error), False, 0.0)
            return
        if self._monitor is not None:
            started = time.perf_counter()
            done = self._monitor.wait(_LONGEST_FIRST_REPORT)
            text = "came" if done else f"not after {_LONGEST_FIRST_REPORT:g} s; it is waited for"
            seconds = time.perf_counter() - started
            yield Attempt(f"first report of {self._monitor.path}", text, done, seconds)
        yield from super().diagnose()

    def owns_resource(self, resource: str) -> bool:
        return resource in {"aws.amazon.com/neuron", "aws.amazon.com/neurondevice"}

    def device_of(self, allocated_id: str, devices: Sequence[Device]) -> Device | None:
        """By the driver's number of the chip, which AWS's device plugin allocates, or by id."""
        for device in devices:
            if allocated_id in {device.id, device.attributes.get("index")}:
                return device
        return None

    def _opened(self) -> None:
        if not self._is_open:
            raise BackendError("the neuron backend is not open", reason=Reason.ERROR)

    def _device(self, chip: Chip) -> Device:
        attributes = {"index": str(chip.index), "device_file": f"/dev/neuron{chip.index}"}
        if chip.cores is not None:
            attributes["cores"] = str(chip.cores)
        return Device(chip.id, chip.name, self.vendor, self.name, attributes=attributes)

    def _answer(self, device_id: str, chip: Chip | None, metric: str) -> Sample | Failure:
        now = time.monotonic()
        if metric not in self.metrics:
            absent = Absent(
                Reason.NOT_SUPPORTED, f"nothing shows {metric} of a Neuron device", True
            )
            return _failure(device_id, metric, absent, now)
        if chip is None:
            absent = Absent(Reason.LOST, "the driver does not show this device")
            return _failure(device_id, metric, absent, now)
        value, measured = self._value(chip, metric, now)
        if isinstance(value, Absent):
            return _failure(device_id, metric, value, now)
        row = METRICS[metric]
        if not row.minimum <= value <= row.maximum:
            text = f"{value:g} is outside {row.minimum:g} to {row.maximum:g} {row.unit}"
            return _failure(device_id, metric, Absent(Reason.OUT_OF_RANGE, text), now)
        return Sample(device_id, metric, value, measured)

    def _value(self, chip: Chip, metric: str, now: float) -> tuple[float | Absent, float]:
        """The value and when it was measured."""
        if metric == _ECC:
            return chip.uncorrected_errors(), now
        if self._monitor is None:
            return self._no_tool(), now
        from accelscale_neuron.report import total_bytes, used_bytes, utilization_percent

        report = self._monitor.newest(now)
        if isinstance(report, Absent):
            return report, now
        if metric == "memory_total_bytes":
            return total_bytes(report), report.time
        read = utilization_percent if metric == "utilization_percent" else used_bytes
        return read(report, chip, self._chips), report.time

    def _find_tool(self) -> Path | None:
        if self._tool is not None:
            return self._tool
        named = os.environ.get(TOOL_VARIABLE, "").strip()
        if named:
            return Path(named)
        folders = [self._root / _TOOL_FOLDER]
        if self._root == Path("/"):
            folders += [Path(text) for text in os.environ.get("PATH", "").split(os.pathsep) if text]
        paths = (folder / _TOOL for folder in folders)
        return next((path for path in paths if os.access(path, os.X_OK)), None)

    def _no_tool(self) -> Absent:
        detail = (
            f"{_TOOL} (package aws-neuronx-tools) is neither in /{_TOOL_FOLDER} nor on the path;"
            f" {TOOL_VARIABLE} may name it"
        )
        return Absent(Reason.NOT_SUPPORTED, detail)

    def _nothing_found(self) -> str:
        return (
            f"no Neuron device: the driver shows none in"
            f" {self._root / 'sys/devices/virtual/neuron_device'}"
        )


def _failure(device_id: str, metric: str, absent: Absent, now: float) -> Failure:
    return Failure(device_id, metric, absent.reason, absent.detail, now, permanent=absent.permanent)
