"""The backend: Gaudi cards, listed by the kernel and read through HLML."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import evolve

from accelscale.backend import Attempt, Backend, Probe
from accelscale.errors import BackendError
from accelscale.metrics import METRICS, Tier
from accelscale.model import Device, Failure, Reading, Reason, Sample, normal_pci_address

if TYPE_CHECKING:
    # Imported when there is a card: most machines have none, and pay for the rest only.
    from accelscale_gaudi.library import CallError, Library, Trial, Verdict

_HABANA = "0x1da3"  # PCI vendor
_ON_CHIP, _HBM, _SLOWDOWN, _UNCORRECTED, _SINCE_RESET = 0, 3, 1, 1, 0
_OPEN_WAITS = 1.5  # seconds for a trial: a call of the collector has 2
_PROBE_WAITS = 10.0

# Each metric with the call that has it, the call's further arguments, and what to make of it.
_CALLS: Mapping[str, tuple[str, tuple[int, ...], Callable[[Any], float]]] = {
    "utilization_percent": ("hlmlDeviceGetUtilizationRates", (), lambda rates: rates.aip),
    "memory_used_bytes": ("hlmlDeviceGetMemoryInfo", (), lambda memory: memory.used),
    "memory_total_bytes": ("hlmlDeviceGetMemoryInfo", (), lambda memory: memory.total),
    "temperature_celsius": ("hlmlDeviceGetTemperature", (_ON_CHIP,), float),
    "memory_temperature_celsius": ("hlmlDeviceGetTemperature", (_HBM,), float),
    "slowdown_temperature_celsius": ("hlmlDeviceGetTemperatureThreshold", (_SLOWDOWN,), float),
    "power_watts": ("hlmlDeviceGetPowerUsage", (), lambda milliwatts: milliwatts / 1e3),
    "energy_joules_total": (
        "hlmlDeviceGetTotalEnergyConsumption",
        (),
        lambda millijoules: millijoules / 1e3,
    ),
    "ecc_uncorrected_errors_total": (
        "hlmlDeviceGetTotalECCErrors",
        (_UNCORRECTED, _SINCE_RESET),
        float,
    ),
}
_ZERO_IS_NONE = frozenset(
    {
        "temperature_celsius",
        "memory_temperature_celsius",
        "slowdown_temperature_celsius",
        "power_watts",
        "memory_total_bytes",
    }
)
_SLOW = frozenset(
    {"memory_total_bytes", "slowdown_temperature_celsius", "ecc_uncorrected_errors_total"}
)


class GaudiBackend(Backend):
    """Intel Gaudi cards as devices of vendor ``intel-gaudi``.

    Not ``intel``: that is the vendor of Intel's GPUs, and a trigger means one or the other. A
    device's id is its PCI address, which the kernel shows also of a card that HLML cannot reach.
    ``root`` is where ``/sys`` and the library's file are looked for.
    """

    name = "gaudi"
    vendor = "intel-gaudi"
    metrics: ClassVar[Mapping[str, Tier]] = {
        name: Tier.SLOW if name in _SLOW else Tier.FAST for name in _CALLS
    }

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._trial: Trial | None = None
        self._verdict: tuple[Verdict, float] | None = None
        self._library: Library | None = None
        self._handles: dict[str, Any] = {}
        self._identities: dict[str, Device] = {}

    def probe(self) -> Probe:
        started = time.perf_counter()
        try:
            cards = self._cards()
            verdict = self._tried(_PROBE_WAITS)
        except BackendError as error:
            seconds = time.perf_counter() - started
            attempt = Attempt("look for Gaudi cards and HLML", str(error), False, seconds)
            return Probe(False, str(error), attempts=(attempt,))
        finally:
            self._end_trial()
        seconds = time.perf_counter() - started
        attempt = Attempt("initialise HLML in a process of its own", verdict.text, True, seconds)
        return Probe(True, f"{len(cards)} Gaudi cards: {', '.join(cards)}", attempts=(attempt,))

    def open(self) -> None:
        if self._library is not None:
            return
        self._cards()
        verdict = self._tried(_OPEN_WAITS)
        from accelscale_gaudi.library import Library

        self._library = Library(verdict)

    def devices(self) -> Sequence[Device]:
        library = self._opened()
        return tuple(self._listed(library, address) for address in self._cards())

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        library = self._opened()
        for device in devices:
            answers = list(self._answers(library, device.id, metrics))
            yield Reading(
                device.id,
                samples=tuple(answer for answer in answers if isinstance(answer, Sample)),
                failures=tuple(answer for answer in answers if isinstance(answer, Failure)),
            )

    def close(self) -> None:
        self._end_trial()
        self._handles.clear()
        library, self._library = self._library, None
        if library is not None:
            library.close()

    def owns_resource(self, resource: str) -> bool:
        return resource == "habana.ai/gaudi"

    def device_of(self, allocated_id: str, devices: Sequence[Device]) -> Device | None:
        """By serial number, which Habana's device plugin allocates, or by PCI address or UUID."""
        address = normal_pci_address(allocated_id)
        for device in devices:
            known = {device.attributes.get("serial"), device.attributes.get("uuid")}
            if allocated_id in known or address == device.id:
                return device
        return None

    def _opened(self) -> Library:
        if self._library is None:
            raise BackendError("the gaudi backend is not open", reason=Reason.ERROR)
        return self._library

    def _cards(self) -> list[str]:
        """The PCI addresses of the cards; raises where there is none, or no library."""
        folder = self._root / "sys/bus/pci/devices"
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            entries = []
        cards = [entry.name for entry in entries if _text(entry / "vendor") == _HABANA]
        if not cards:
            text = f"no Gaudi card: no device of PCI vendor {_HABANA} in {folder}"
            raise BackendError(text, reason=Reason.NOT_SUPPORTED)
        library = self._root / "usr/lib/habanalabs/libhlml.so"
        if not library.exists():
            text = f"no HLML: {library} comes with Habana's driver; in a container, mount it"
            raise BackendError(text, reason=Reason.NOT_SUPPORTED)
        if importlib.util.find_spec("pyhlml") is None:
            text = "no binding: pip install habana-pyhlml"
            raise BackendError(text, reason=Reason.NOT_SUPPORTED)
        return cards

    def _tried(self, seconds: float) -> Verdict:
        """The verdict of a trial that found HLML to work; waits for a new one so long."""
        from accelscale_gaudi.library import RETRY_SECONDS, Trial

        now = time.monotonic()
        if self._verdict is not None and self._trial is None:
            verdict, since = self._verdict
            if verdict.works or now - since < RETRY_SECONDS:
                return _working(verdict)
        if self._trial is None:
            self._trial = Trial()
        found = self._trial.wait(seconds)
        if found is None:
            text = "HLML is being tried in a process of its own, and has not answered yet"
            raise BackendError(text, reason=Reason.TIMEOUT)
        self._trial = None
        self._verdict = found, now
        return _working(found)

    def _end_trial(self) -> None:
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.end()

    def _listed(self, library: Library, address: str) -> Device:
        """The card as it is now; what was once learned of its identity stays with it."""
        from accelscale_gaudi.library import CallError

        bare = Device(address, "Gaudi card", self.vendor, self.name, pci_address=address)
        known = self._identities.get(address, bare)
        try:
            handle = library.call("hlmlDeviceGetHandleByPCIBusID", address)
            name = library.call("hlmlDeviceGetName", handle)
        except CallError as error:
            self._handles.pop(address, None)
            reason = Reason.LOST if error.reason is Reason.LOST else Reason.ERROR
            return evolve(known, problem=reason, problem_detail=str(error))
        self._handles[address] = handle
        if known is bare or "serial" not in known.attributes:
            attributes = dict(self._learned(library, handle))
            known = evolve(known, name=_word(name) or known.name, attributes=attributes)
            self._identities[address] = known
        return known

    def _learned(self, library: Library, handle: object) -> Iterator[tuple[str, str]]:
        from accelscale_gaudi.library import CallError

        for key, call in (("serial", "hlmlDeviceGetSerial"), ("uuid", "hlmlDeviceGetUUID")):
            try:
                text = _word(library.call(call, handle))
            except CallError:
                continue
            if text:
                yield key, text

    def _answers(
        self, library: Library, address: str, metrics: Collection[str]
    ) -> Iterator[Sample | Failure]:
        from accelscale_gaudi.library import CallError

        handle = self._handles.get(address)
        answered: dict[tuple[str, tuple[int, ...]], object] = {}  # one call may have two metrics
        for metric in metrics:
            now = time.monotonic()
            if metric not in _CALLS:
                text = f"HLML does not tell {metric}"
                yield Failure(address, metric, Reason.NOT_SUPPORTED, text, now, permanent=True)
                continue
            if handle is None:
                yield Failure(address, metric, Reason.LOST, "HLML does not reach this card", now)
                continue
            call, arguments, convert = _CALLS[metric]
            key = call, arguments
            if key not in answered:
                try:
                    answered[key] = library.call(call, handle, *arguments)
                except CallError as error:
                    answered[key] = error
            answer = answered[key]
            if isinstance(answer, CallError):
                yield _failure(address, metric, answer, now)
            else:
                yield _checked(address, metric, float(convert(answer)), now)


def _working(verdict: Verdict) -> Verdict:
    if not verdict.works:
        text = f"HLML does not work here: {verdict.text}"
        raise BackendError(text, reason=Reason.ERROR)
    return verdict


def _failure(address: str, metric: str, error: CallError, now: float) -> Failure:
    permanent = error.is_permanent
    return Failure(address, metric, error.reason, str(error), now, error.code, permanent)


def _checked(address: str, metric: str, value: float, now: float) -> Sample | Failure:
    row = METRICS[metric]
    if value == 0 and metric in _ZERO_IS_NONE:
        text = f"HLML says exactly 0 {row.unit}, which is no measurement"
        return Failure(address, metric, Reason.OUT_OF_RANGE, text, now)
    if not row.minimum <= value <= row.maximum:
        text = f"{value:g} is outside {row.minimum:g} to {row.maximum:g} {row.unit}"
        return Failure(address, metric, Reason.OUT_OF_RANGE, text, now)
    return Sample(address, metric, value, now)


def _word(value: object) -> str:
    text = value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
    return text.strip()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
