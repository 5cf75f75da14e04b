"""Puts a recording in the place of the hardware."""

from __future__ import annotations

import inspect
import math
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import evolve

from accelscale.backend import Attempt, Backend, Probe
from accelscale.errors import BackendError
from accelscale.model import Device, Failure, Reading, Reason, Sample
from accelscale.plugins import load_plugins
from accelscale.testing.recording.record import MANIFEST, HardwareRecording, Outcome, without_times
from accelscale.testing.recording.tree import Tree, materialise, refusing


class RecordedBackend(Backend):
    """A backend that gives over and over what was read from the hardware when it was recorded.

    For tests of what stands on backends: its devices and readings are those of the recording,
    without the vendor's library and without the plugin.
    """

    name = "recorded"
    vendor = "recorded"
    metrics = {}  # noqa: RUF012 - replaced, never changed
    isolates_devices = True

    def __init__(self, recording: HardwareRecording) -> None:
        self.recording = recording
        self._readings = {reading.device_id: reading for reading in recording.live.readings}
        self._is_open = False
        # The contract has these on the class; an instance shadows them.
        vars(self).update(_class_data(recording))

    def as_class(self) -> type[Backend]:
        """A backend class whose instances are of this recording, for what takes classes."""
        recording = self.recording

        def initialise(self: RecordedBackend) -> None:
            RecordedBackend.__init__(self, recording)

        data = {"__init__": initialise, "__module__": __name__, **_class_data(recording)}
        return type("Recorded", (RecordedBackend,), data)

    def probe(self) -> Probe:
        return self.recording.probe

    def open(self) -> None:
        error = self.recording.live.error()
        if error is not None:
            raise error
        self._is_open = True

    def devices(self) -> Sequence[Device]:
        self._require_open()
        return self.recording.live.devices

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        self._require_open()
        for device in devices:
            now = time.monotonic()
            answers = [self._answer(device.id, metric, now) for metric in metrics]
            known = self._readings.get(device.id)
            yield Reading(
                device.id,
                tuple(answer for answer in answers if isinstance(answer, Sample)),
                tuple(answer for answer in answers if isinstance(answer, Failure)),
                None if known is None else known.processes,
            )

    def close(self) -> None:
        self._is_open = False

    def diagnose(self) -> Iterator[Attempt]:
        yield from self.recording.attempts or super().diagnose()

    def _require_open(self) -> None:
        if not self._is_open:
            raise BackendError(f"the recorded {self.name} backend is not open", reason=Reason.ERROR)

    def _answer(self, device_id: str, metric: str, now: float) -> Sample | Failure:
        reading = self._readings.get(device_id)
        if reading is None:
            return Failure(device_id, metric, Reason.LOST, "not in the recording", now)
        answers: tuple[Sample | Failure, ...] = (*reading.samples, *reading.failures)
        for answer in answers:
            if answer.metric == metric:
                return evolve(answer, time=now)
        text = f"{metric} was not recorded"
        return Failure(device_id, metric, Reason.NOT_SUPPORTED, text, now, permanent=True)


def _class_data(recording: HardwareRecording) -> dict[str, object]:
    return {
        "name": recording.backend,
        "vendor": recording.vendor,
        "metrics": recording.metrics,
        "extra_metrics": recording.extra_metrics,
    }


def recordings(folder: Path) -> list[Path]:
    """The folders below this one that hold a recording, for ``pytest.mark.parametrize``."""
    return sorted(path.parent for path in folder.rglob(MANIFEST))


@contextmanager
def replay(folder: Path, backend: type[Backend] | None = None) -> Iterator[Backend]:
    """A backend over a recording, not opened yet; it is closed at the end.

    Where the recording has files, that is the plugin's own class over a copy of them: ``backend``,
    or the class that is installed by the recorded name. Else it is a `RecordedBackend`.

    Raises:
        BackendError: no recording is there, or nothing of its backend's name is installed.
        NotFoundError: likewise.
    """
    recording = HardwareRecording.load(folder)
    if recording.files is None or not recording.replays_files:
        opened: Backend = RecordedBackend(recording)
        try:
            yield opened
        finally:
            opened.close()
        return
    with over_files(recording.files, backend or _installed(recording.backend)) as (opened, _):
        yield opened


def _installed(name: str) -> type[Backend]:
    registry = load_plugins()
    if name not in registry.backends:
        registry.create(name)  # says which names there are
    return registry.backends[name].backend


@contextmanager
def over_files(tree: Tree, kind: type[Backend]) -> Iterator[tuple[Backend, Path]]:
    """An instance of a class that takes ``root``, over these files, and where they are."""
    with tempfile.TemporaryDirectory(prefix="accelscale-recording-") as place:
        root = Path(place).resolve()
        materialise(tree, root)
        with refusing(tree, root):
            backend = with_root(kind, root)
            try:
                yield backend, root
            finally:
                backend.close()


def takes_root(kind: type[Backend]) -> bool:
    """Whether the constructor lets a caller say where ``/sys`` and the like are looked for."""
    return "root" in inspect.signature(kind).parameters


def with_root(kind: type[Backend], root: Path) -> Backend:
    """An instance that looks for ``/sys`` and the like below ``root``.

    Raises:
        BackendError: its constructor takes no ``root``.
    """
    if not takes_root(kind):
        raise BackendError(f"{kind.__qualname__} takes no root, so its files cannot be elsewhere")
    return kind(root=root)  # type: ignore[call-arg]


def outcome_of(backend: Backend) -> Outcome:
    """Open, list, read every metric once, and close."""
    try:
        backend.open()
    except BackendError as error:
        return Outcome(refusal=str(error) or "it did not say why", refusal_reason=error.reason)
    try:
        devices = tuple(backend.devices())
        readings = backend.read(devices, tuple(backend.metrics))
        return Outcome(devices, tuple(without_times(reading) for reading in readings))
    finally:
        backend.close()


def replay_faults(folder: Path, backend: type[Backend] | None = None) -> list[str]:
    """Replay a recording, and say in words what differs from what it expects.

    A test asserts that there is nothing: ``assert replay_faults(folder) == []``. Compared are the
    devices with their attributes, the values, and the reasons of failures; not the wording of
    details, nor what already differed when it was recorded.
    """
    recording = HardwareRecording.load(folder)
    expected = recording.expected or recording.live
    with replay(folder, backend) as opened:
        found = outcome_of(opened)
    aside = {difference.what for difference in recording.differences}
    if recording.expected is None:
        aside = set()
    return [
        f"{what}: expected {texts[0]}, got {texts[1]}"
        for what, texts in differences(expected, found).items()
        if what not in aside
    ]


def differences(expected: Outcome, found: Outcome) -> Mapping[str, tuple[str, str]]:
    """What differs, and how it reads on each side."""
    both = (facts_of(expected), facts_of(found))
    result = {}
    for what in dict.fromkeys((*both[0], *both[1])):
        first, second = (facts.get(what, "nothing") for facts in both)
        if not _same(first, second):
            result[what] = (str(first), str(second))
    return result


def facts_of(outcome: Outcome) -> dict[str, object]:
    """Each thing that counts, by a name for it."""
    facts: dict[str, object] = {}
    if outcome.refusal:
        facts["open"] = f"refused ({outcome.refusal_reason})"
    facts["devices"] = ", ".join(device.id for device in outcome.devices)
    for device in outcome.devices:
        for field in ("name", "vendor", "parent", "pci_address", "problem"):
            facts[f"{field} of {device.id}"] = getattr(device, field)
        facts[f"attributes of {device.id}"] = dict(sorted(device.attributes.items()))
    for reading in outcome.readings:
        for sample in reading.samples:
            facts[f"{sample.metric} of {reading.device_id}"] = sample.value
        for failure in reading.failures:
            lasting = ", permanent" if failure.permanent else ""
            facts[f"{failure.metric} of {reading.device_id}"] = f"{failure.reason}{lasting}"
        if reading.processes is not None:
            facts[f"processes of {reading.device_id}"] = [str(use) for use in reading.processes]
    return facts


def _same(first: object, second: object) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=1e-9) or (first != first and second != second)
    return first == second
