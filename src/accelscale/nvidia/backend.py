"""The NVIDIA backend: what the collector sees of NVML."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from attrs import define, evolve

from accelscale.backend import Attempt, Backend, Probe
from accelscale.errors import BackendError
from accelscale.metrics import Tier
from accelscale.model import Device, Reading, Reason
from accelscale.nvidia import resources
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.cards import Cards
from accelscale.nvidia.driver import Driver, text
from accelscale.nvidia.events import Listener
from accelscale.nvidia.fields import FIELDS
from accelscale.nvidia.gpm import LEAST_SECONDS, SOURCES, Gpm, Subject
from accelscale.nvidia.identity import PCI_DEVICES
from accelscale.nvidia.outcome import Absent
from accelscale.nvidia.reader import PROCESSES, XIDS, Reader, nothing
from accelscale.nvidia.readings import CALLS

logger = logging.getLogger("accelscale.nvidia")

_SLOW = frozenset({"ecc_uncorrected_errors_total", PROCESSES})
_METRICS = (
    *(metric for call in CALLS for metric in call.metrics),
    *(field.metric for field in FIELDS),
    *SOURCES,
    PROCESSES,
    XIDS,
)


@define
class Backoff:
    """When to try again what did not help so far: after 5 seconds, then 10, up to 5 minutes."""

    pause: float = 5.0
    due: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether it is time; the first time asked, the first pause begins."""
        if self.due is None:
            self.due = now + self.pause
        if now < self.due:
            return False
        self.pause = min(2 * self.pause, 300.0)
        self.due = now + self.pause
        return True


class NvidiaBackend(Backend):
    """Cards that NVML reads, and the MIG instances that they are cut into.

    NVML is initialised once and stays so until `close` or `release`, whatever happens to cards.
    While a card is lost, NVML is initialised anew now and then, since only that makes it list a
    card that came back (`Backoff`). ``clock`` is for these pauses; ``pci_devices`` is where the
    kernel lists the devices of the machine.
    """

    name: ClassVar[str] = "nvidia"
    vendor: ClassVar[str] = "nvidia"
    metrics: ClassVar[Mapping[str, Tier]] = MappingProxyType(
        {metric: Tier.SLOW if metric in _SLOW else Tier.FAST for metric in _METRICS}
    )
    isolates_devices: ClassVar[bool] = True

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, pci_devices: Path = PCI_DEVICES
    ) -> None:
        self._clock = clock
        self._driver = Driver()
        self._cards = Cards(pci_devices)
        self._gpm = Gpm(self._driver)
        self._reader = Reader(self._driver, self._gpm)
        self._listener = Listener(self._driver)
        self._is_wanted = False  # between open and close
        self._has_worked = False
        self._fault: str | None = None  # what the driver as a whole said last, if it failed
        self._backoff = Backoff()

    def probe(self) -> Probe:
        """Look for a library that works, a driver, and devices."""
        attempts: list[Attempt] = []
        if not self._is_wanted:
            self._driver.record = attempts.append
        try:
            self._driver.open()
            version, count = self._version(), self._count()
        except CallError as error:
            return Probe(False, str(error), attempts=tuple(attempts))
        finally:
            if not self._is_wanted:
                self._driver.record = None
                self._driver.close()
        if count == 0:
            return Probe(False, _no_device(version), version, tuple(attempts))
        reason = f"NVIDIA driver {version} lists {count} {'device' if count == 1 else 'devices'}"
        if self._driver.rejected:
            reason += f"; passed over {'; '.join(map(str, self._driver.rejected))}"
        return Probe(True, reason, version, tuple(attempts))

    def open(self) -> None:
        """Initialise NVML, or initialise it anew if it failed as a whole since.

        A driver that lists no device, and never did, counts as not to be opened yet.
        """
        self._is_wanted = True
        try:
            if self._fault is not None and self._driver.is_open:
                self._restart()
            self._driver.open()
            if not self._cards.all() and self._count() == 0:
                message = _no_device(self._version())
                self.close()
                raise BackendError(message, reason=Reason.ERROR)
        except CallError as error:
            raise self._failed(error) from error

    def devices(self) -> Sequence[Device]:
        """All cards that were ever seen, by PCI address, each with its MIG instances of now."""
        self._require_open()
        try:
            self._driver.reopen()
            self._look()
        except CallError as error:
            raise self._failed(error) from error
        self._works()
        self._gpm.keep_only(self._subjects())
        if self._driver.record is None:
            self._listener.listen()
        devices = []
        for card in self._cards.all():
            devices.append(card.as_device())
            devices += [instance.as_device() for instance in card.instances]
        return devices

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        """Read one device after the other; a lost one is not touched until `devices` found it."""
        self._require_open()
        wanted = tuple(dict.fromkeys(metrics))
        for device in devices:
            try:
                yield self._read(device.id, wanted)
            except CallError as error:
                raise self._failed(error) from error

    def close(self) -> None:
        """Shut NVML down; while a call hangs, as soon as that returns.

        What was wrong with a card is forgotten: it may be reset before we open again.
        """
        self._is_wanted = False
        self._let_go()
        self._driver.close()
        for card in self._cards.all():
            card.health.forget_faults()

    def diagnose(self) -> Iterator[Attempt]:
        """Every NVML call of `open`, `devices` and `read`, with the fields read in batches."""
        attempts: list[Attempt] = []
        self._listener.stop()  # its calls would be shown among the others
        self._driver.record = attempts.append

        def drained(device_id: str | None = None) -> list[Attempt]:
            done = [evolve(attempt, device_id=device_id) for attempt in attempts]
            attempts.clear()
            return done

        try:
            self.open()
            yield from drained()
            devices = self.devices()
            yield from drained()
            list(self.read(devices, SOURCES))
            if any(card.has_gpm for card in self._cards.all()):
                time.sleep(LEAST_SECONDS)  # what GPM tells lies between two samples
            attempts.clear()
            for device in devices:
                if device.problem is not None:
                    detail = f"{device.problem}: {device.problem_detail}"
                    yield Attempt("device", detail, False, 0.0, device.id)
                for _ in self.read([device], self.metrics):
                    yield from drained(device.id)
        except Exception as error:  # noqa: BLE001 - whatever breaks is what doctor describes
            yield from drained()
            yield Attempt("backend", f"{type(error).__name__}: {error}", False, 0.0)
        finally:
            self.close()
            self._driver.record = None

    def owns_resource(self, resource: str) -> bool:
        """``nvidia.com/gpu`` and ``nvidia.com/mig-…``, both also as ``….shared``."""
        return resources.owns_resource(resource)

    def device_of(self, allocated_id: str, devices: Sequence[Device]) -> Device | None:
        """The device behind any of the spellings in `accelscale.nvidia.resources`."""
        return resources.device_of(allocated_id, devices)

    def _version(self) -> str:
        return text(self._driver.call("nvmlSystemGetDriverVersion"))

    def _count(self) -> int:
        return int(self._driver.call("nvmlDeviceGetCount"))

    def _require_open(self) -> None:
        if not self._is_wanted:
            raise BackendError("the nvidia backend is not open", reason=Reason.ERROR)

    def _look(self) -> None:
        generation = self._driver.generation
        try:
            self._look_once()
        except CallError as error:
            if not self._recover(error, generation):
                raise
            self._look_once()
        if all(card.problem not in {Reason.LOST, Reason.ERROR} for card in self._cards.all()):
            self._backoff = Backoff()
        elif self._backoff.is_due(self._clock()) and self._restart():
            self._look_once()

    def _look_once(self) -> None:
        self._cards.look(self._driver)
        self._listener.attend(self._cards.all())

    def _recover(self, error: CallError, generation: int) -> bool:
        """Initialise NVML anew after it failed as a whole; False where that cannot help."""
        if error.name == "UNINITIALIZED":
            self._driver.initialise_again(generation)
            return True
        if error.is_driver_wide or error.name == "UNKNOWN":
            return self._restart()
        return False

    def _restart(self) -> bool:
        """Shut NVML down and initialise it anew, unless a call is under way."""
        self._let_go()
        return self._driver.restart()

    def _let_go(self) -> None:
        """Give back what NVML keeps for us, as must be done before it is shut down."""
        self._listener.stop()
        self._gpm.keep_only(())

    def _subjects(self) -> Iterator[Subject]:
        """What GPM may be sampled of now."""
        for card in self._cards.all():
            if card.life is not None and card.problem is not Reason.LOST:
                yield Subject(card.id, card.life)
                for instance in card.instances:
                    yield Subject(instance.id, card.life, instance.gpu_instance)

    def _read(self, device_id: str, metrics: Sequence[str]) -> Reading:
        generation = self._driver.generation
        try:
            reading = self._read_found(device_id, metrics)
        except CallError as error:
            if error.name != "UNINITIALIZED" or not self._recover(error, generation):
                raise
            self._look_once()
            reading = self._read_found(device_id, metrics)
        self._works()
        return reading

    def _read_found(self, device_id: str, metrics: Sequence[str]) -> Reading:
        card = self._cards.card(device_id)
        if card is not None:
            return self._reader.read_card(card, metrics)
        instance = self._cards.instance(device_id)
        if instance is not None:
            return self._reader.read_instance(instance, metrics)
        return nothing(device_id, metrics, Absent(Reason.LOST, "no such device is there now"))

    def _failed(self, error: CallError) -> BackendError:
        """The failure of the driver as a whole, logged when it is news."""
        gone = self._has_worked and not self._driver.is_open and error.name == "UNKNOWN"
        failure = error.as_backend_error(needs_restart=gone)
        if self._fault != str(failure):
            self._fault = str(failure)
            logger.warning("%s", failure)
        return failure

    def _works(self) -> None:
        self._has_worked = True
        if self._fault is not None:
            self._fault = None
            logger.info("the NVIDIA driver answers again")


def _no_device(version: str) -> str:
    return f"the NVIDIA driver {version} is loaded, but lists no device"
