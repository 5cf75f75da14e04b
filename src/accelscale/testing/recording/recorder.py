"""Records what a backend reads on hardware that others lack."""

from __future__ import annotations

import platform
import re
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from attrs import define, evolve, field

import accelscale
from accelscale.backend import Attempt, Backend, Probe
from accelscale.errors import BackendError
from accelscale.model import Device, Failure, Reading, Reason
from accelscale.plugins import RegisteredBackend
from accelscale.testing.recording.copying import Copy
from accelscale.testing.recording.places import names_an_identity
from accelscale.testing.recording.record import (
    Difference,
    HardwareRecording,
    Outcome,
    without_times,
)
from accelscale.testing.recording.replaying import (
    differences,
    facts_of,
    outcome_of,
    over_files,
    takes_root,
    with_root,
)
from accelscale.testing.recording.scrub import Scrubber
from accelscale.testing.recording.tree import Entry
from accelscale.testing.recording.watch import Access, watching

_OF_THE_KERNEL = re.compile(r"/(?:sys|proc)/.*|/dev/(?!null$|urandom$).*|/etc/machine-id")


def record(
    registered: RegisteredBackend,
    *,
    root: Path | None = None,
    limit_seconds: float = 60.0,
    scrubber: Scrubber | None = None,
) -> HardwareRecording:
    """Use a backend once as the collector does and once as ``accelscale doctor`` does.

    Nothing is written; `HardwareRecording.save` does that. ``root`` is where the backend looks for
    ``/sys`` and the like, if not at ``/``. A backend that is not done after ``limit_seconds`` is
    recorded as far as it came. Every file that this process looks at meanwhile counts as the
    backend's.

    Raises:
        BackendError: it cannot be created, or takes no ``root``.
    """
    kind = registered.backend
    home = Path("/") if root is None else root.resolve()
    copy = Copy(home)
    session = _Session(lambda: kind() if root is None else with_root(kind, home))
    session.create()
    with watching(copy.look):
        hanging = _within(limit_seconds, session.run)
    files = copy.finished()
    scrubber = scrubber or Scrubber()
    _learn(scrubber, session, files)
    clean = _Cleaner(scrubber, home)
    recording = HardwareRecording(
        backend=kind.name,
        vendor=kind.vendor,
        recorded=datetime.now(UTC).date().isoformat(),
        versions={
            "accelscale": accelscale.__version__,
            registered.distribution: registered.version,
            "driver": session.probe.version,
        },
        system=clean.text(f"{platform.system()} {platform.release()} {platform.machine()}"),
        metrics=dict(kind.metrics),
        extra_metrics=kind.extra_metrics,
        probe=evolve(session.probe, reason=clean.text(session.probe.reason), attempts=()),
        live=clean.outcome(session.outcome()),
        attempts=tuple(clean.attempt(attempt) for attempt in session.attempts),
        hanging=hanging,
        left_out={clean.text(path): why for path, why in sorted(copy.left_out.items())},
    )
    recording = _with_files(recording, kind, scrubber.tree(files))
    recording = evolve(recording, replaced=scrubber.replaced())
    if any(scrubber.remains_in(text) for text in recording.texts().values()):
        raise BackendError("a secret would have remained in the recording, so none was made")
    return recording


@define
class _Session:
    """What comes of using the backend; complete up to the call that hangs."""

    make: Callable[[], Backend]
    probe: Probe = Probe(False, "its probe did not return")
    devices: tuple[Device, ...] = ()
    readings: list[Reading] = field(factory=list)
    attempts: list[Attempt] = field(factory=list)
    refusal: BackendError | None = None

    def create(self) -> Backend:
        """A new instance. Raises BackendError."""
        try:
            return self.make()
        except BackendError:
            raise
        except Exception as error:
            raise BackendError(f"it cannot be created: {type(error).__name__}: {error}") from error

    def run(self) -> None:
        try:
            backend = self.create()
            self.probe = backend.probe()
            self._read(backend)
            for attempt in self.create().diagnose():
                self.attempts.append(attempt)
        except Exception as error:  # noqa: BLE001 - a broken backend is worth recording
            text = f"{type(error).__name__}: {error}"
            self.attempts.append(Attempt("backend", text, ok=False, seconds=0.0))

    def _read(self, backend: Backend) -> None:
        try:
            backend.open()
        except BackendError as error:
            self.refusal = error
            return
        try:
            self.devices = tuple(backend.devices())
            for reading in backend.read(self.devices, tuple(backend.metrics)):
                self.readings.append(without_times(reading))
        finally:
            backend.close()

    def outcome(self) -> Outcome:
        """The devices, with a reading of each; one that was not read to its end timed out."""
        if self.refusal is not None:
            text = str(self.refusal) or "it did not say why"
            return Outcome(refusal=text, refusal_reason=self.refusal.reason)
        read = {reading.device_id for reading in self.readings}
        late = [
            Reading(
                device.id,
                failures=tuple(
                    Failure(device.id, metric, Reason.TIMEOUT, "was not read in time")
                    for metric in self.make().metrics
                ),
            )
            for device in self.devices
            if device.id not in read
        ]
        return Outcome(self.devices, (*self.readings, *late))


def _within(seconds: float, work: Callable[[], None]) -> str | None:
    """Do the work; if it takes longer, leave it to itself and name the function it is in."""
    thread = threading.Thread(target=work, name="accelscale-recording", daemon=True)
    thread.start()
    thread.join(seconds)
    if not thread.is_alive():
        return None
    frame = sys._current_frames().get(thread.ident or 0)
    return "a call that has just ended" if frame is None else frame.f_code.co_qualname


def _learn(scrubber: Scrubber, session: _Session, files: Mapping[str, Entry]) -> None:
    scrubber.learn_from(files)
    for device in session.devices:
        for device_id in (device.id, device.parent or ""):
            scrubber.learn_from_id(device_id)
        for name, value in device.attributes.items():
            if names_an_identity(name):
                scrubber.learn(value)
    for attempt in session.attempts:
        if attempt.ok and names_an_identity(attempt.call):
            scrubber.learn(attempt.result)


@define
class _Cleaner:
    """Records without secrets, and with paths as they are below the root."""

    scrubber: Scrubber
    root: Path
    place: str = "readings"

    def text(self, text: str) -> str:
        shown = text if self.root == Path("/") else text.replace(str(self.root), "")
        return self.scrubber.text(shown, self.place)

    def outcome(self, outcome: Outcome) -> Outcome:
        return Outcome(
            tuple(self._device(device) for device in outcome.devices),
            tuple(self._reading(reading) for reading in outcome.readings),
            self.text(outcome.refusal),
            outcome.refusal_reason,
        )

    def attempt(self, attempt: Attempt) -> Attempt:
        return evolve(
            attempt,
            call=self.text(attempt.call),
            result=self.text(attempt.result),
            device_id=attempt.device_id and self.text(attempt.device_id),
            seconds=round(attempt.seconds, 6),
        )

    def _device(self, device: Device) -> Device:
        return evolve(
            device,
            id=self.text(device.id),
            name=self.text(device.name),
            parent=device.parent and self.text(device.parent),
            problem_detail=self.text(device.problem_detail),
            attributes={name: self.text(value) for name, value in device.attributes.items()},
        )

    def _reading(self, reading: Reading) -> Reading:
        device_id = self.text(reading.device_id)
        return evolve(
            reading,
            device_id=device_id,
            samples=tuple(evolve(sample, device_id=device_id) for sample in reading.samples),
            failures=tuple(
                evolve(failure, device_id=device_id, detail=self.text(failure.detail))
                for failure in reading.failures
            ),
        )


def _with_files(
    recording: HardwareRecording, kind: type[Backend], files: Mapping[str, Entry]
) -> HardwareRecording:
    """The recording with its files, and with what the backend makes of them where that is sound."""
    if not takes_root(kind):
        return evolve(recording, why_no_files="it takes no root, so its files cannot be elsewhere")
    if not files:
        return evolve(recording, why_no_files="it looked at no file that may be recorded")
    recording = evolve(recording, files=files)
    try:
        expected, elsewhere = _replayed(files, kind)
        again, _ = _replayed(files, kind)
    except Exception as error:  # noqa: BLE001 - shown to the owner in place of a golden output
        text = f"replaying them raised {type(error).__name__}: {error}"
        return evolve(recording, why_no_files=text)
    if elsewhere:
        return evolve(recording, why_no_files=f"it reads beside its root: {', '.join(elsewhere)}")
    live, found = facts_of(recording.live), facts_of(expected)
    for what in ("open", "devices"):
        if live.get(what) != found.get(what):
            text = f"replaying them gives {what}: {found.get(what)}, not {live.get(what)}"
            return evolve(recording, why_no_files=text)
    # The hardware goes on between a reading and the copy, so two numbers may differ.
    aside = {
        what: Difference(what, *texts)
        for what, texts in differences(recording.live, expected).items()
        if not all(isinstance(facts.get(what), int | float | list) for facts in (live, found))
    }
    for what, texts in differences(expected, again).items():
        aside[what] = Difference(what, str(live.get(what)), f"{texts[0]}, then {texts[1]}")
    return evolve(recording, expected=expected, differences=tuple(aside.values()))


def _replayed(files: Mapping[str, Entry], kind: type[Backend]) -> tuple[Outcome, tuple[str, ...]]:
    """What comes of the files, and what was read of this machine besides."""
    elsewhere: dict[str, None] = {}

    with over_files(files, kind) as (backend, root):

        def note(access: Access, path: str) -> None:
            if access in {Access.OPEN, Access.LIST} and _OF_THE_KERNEL.fullmatch(path):
                elsewhere[path] = None

        with watching(note):
            outcome = outcome_of(backend)
    return _Cleaner(Scrubber(()), root).outcome(outcome), tuple(elsewhere)
