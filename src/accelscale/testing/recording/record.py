"""What a recording holds, and its form on disk: a folder of four JSON files.

``manifest.json`` says what was recorded where, ``readings.json`` what the backend made of the
hardware, ``files.json`` what it looked at, and ``expected.json`` what it makes of those files. The
last two are there only where a backend takes a ``root``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, field, frozen

from accelscale.backend import Attempt, Probe
from accelscale.errors import BackendError
from accelscale.metrics import Derivation, Kind, Metric, Tier
from accelscale.model import Device, Failure, ProcessUse, Reading, Reason, Sample
from accelscale.testing.recording.scrub import Replaced
from accelscale.testing.recording.tree import Entry, dump, load

FORMAT = 1
MANIFEST = "manifest.json"
_LINE_LENGTH = 120


@frozen
class Outcome:
    """What a backend gave: its devices, a reading of each, or why it could not be opened.

    Times are left out: those of a reading count from when it is asked for, replayed ones too.
    """

    devices: tuple[Device, ...] = ()
    readings: tuple[Reading, ...] = ()
    refusal: str = ""
    refusal_reason: Reason | None = None

    def record(self) -> dict[str, Any]:
        """Its form in JSON."""
        found: dict[str, Any] = {
            "devices": [_given(asdict(device)) for device in self.devices],
            "readings": [_reading_record(reading) for reading in self.readings],
        }
        if self.refusal:
            found |= {"refusal": self.refusal, "refusal_reason": self.refusal_reason}
        return found

    @classmethod
    def parsed(cls, record: Mapping[str, Any]) -> Outcome:
        """The outcome of which this is the form in JSON."""
        reason = record.get("refusal_reason")
        return cls(
            tuple(_device(device) for device in record["devices"]),
            tuple(_reading(reading) for reading in record["readings"]),
            record.get("refusal", ""),
            None if reason is None else Reason(reason),
        )

    def error(self) -> BackendError | None:
        """What `open` raised, or None."""
        return BackendError(self.refusal, reason=self.refusal_reason) if self.refusal else None


@frozen
class Difference:
    """Where replaying the files gives something else than the hardware gave."""

    what: str
    live: str
    replayed: str


@frozen
class HardwareRecording:
    """What one backend read on one machine, without anything that identifies either.

    ``versions`` names the distributions and the driver, ``system`` the kernel and the processor.
    ``files`` is what the backend looked at and ``expected`` what it makes of that; both are None
    where its readings cannot come from files alone, and ``why_no_files`` says why. ``left_out``
    has paths that were read and not copied, with the reason.
    """

    backend: str
    vendor: str
    recorded: str
    versions: Mapping[str, str | None]
    system: str
    metrics: Mapping[str, Tier]
    extra_metrics: tuple[Metric, ...]
    probe: Probe
    live: Outcome
    attempts: tuple[Attempt, ...] = ()
    hanging: str | None = None
    files: Mapping[str, Entry] | None = None
    expected: Outcome | None = None
    why_no_files: str = ""
    differences: tuple[Difference, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    left_out: Mapping[str, str] = field(factory=dict)

    @property
    def replays_files(self) -> bool:
        """Whether the plugin itself can be replayed, and not only its readings."""
        return self.expected is not None

    def texts(self) -> dict[str, str]:
        """The contents of its files by their names."""
        manifest = {
            "format": FORMAT,
            "backend": self.backend,
            "vendor": self.vendor,
            "recorded": self.recorded,
            "versions": dict(self.versions),
            "system": self.system,
            "replays": "files" if self.replays_files else "readings",
            "why_no_files": self.why_no_files,
            "hanging": self.hanging,
            "replaced": [asdict(replaced) for replaced in self.replaced],
            "left_out": dict(self.left_out),
            "differences": [asdict(difference) for difference in self.differences],
        }
        readings = {
            "metrics": dict(self.metrics),
            "extra_metrics": [_given(asdict(row)) for row in self.extra_metrics],
            "probe": {"viable": self.probe.viable, "reason": self.probe.reason},
            **self.live.record(),
            "attempts": [asdict(attempt) for attempt in self.attempts],
        }
        texts = {MANIFEST: _json(manifest), "readings.json": _json(readings)}
        if self.files is not None:
            texts["files.json"] = dump(self.files)
        if self.expected is not None:
            texts["expected.json"] = _json(self.expected.record())
        return texts

    def save(self, folder: Path) -> None:
        """Write its files into a folder, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.texts().items():
            (folder / name).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> HardwareRecording:
        """Read a recording.

        Raises:
            BackendError: there is none in this folder, or one of another format.
        """
        try:
            manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if manifest["format"] != FORMAT:
                raise BackendError(f"{folder} has format {manifest['format']}, not {FORMAT}")
            return cls._parsed(manifest, folder)
        except (OSError, ValueError, KeyError, TypeError) as error:
            text = f"{folder} holds no hardware recording: {type(error).__name__}: {error}"
            raise BackendError(text) from error

    @classmethod
    def _parsed(cls, manifest: Mapping[str, Any], folder: Path) -> HardwareRecording:
        readings = json.loads((folder / "readings.json").read_text(encoding="utf-8"))
        files, expected = folder / "files.json", folder / "expected.json"
        return cls(
            backend=manifest["backend"],
            vendor=manifest["vendor"],
            recorded=manifest["recorded"],
            versions=manifest["versions"],
            system=manifest["system"],
            metrics={name: Tier(tier) for name, tier in readings["metrics"].items()},
            extra_metrics=tuple(_metric(row) for row in readings["extra_metrics"]),
            probe=Probe(**readings["probe"], version=manifest["versions"].get("driver")),
            live=Outcome.parsed(readings),
            attempts=tuple(Attempt(**attempt) for attempt in readings["attempts"]),
            hanging=manifest["hanging"],
            files=load(files.read_text(encoding="utf-8")) if files.exists() else None,
            expected=(
                Outcome.parsed(json.loads(expected.read_text(encoding="utf-8")))
                if expected.exists()
                else None
            ),
            why_no_files=manifest["why_no_files"],
            differences=tuple(Difference(**row) for row in manifest["differences"]),
            replaced=tuple(
                Replaced(row["kind"], row["count"], tuple(row["places"]))
                for row in manifest["replaced"]
            ),
            left_out=manifest["left_out"],
        )


def without_times(reading: Reading) -> Reading:
    """The reading as if it had been taken at time 0."""
    return evolve(
        reading,
        samples=tuple(evolve(sample, time=0.0) for sample in reading.samples),
        failures=tuple(evolve(failure, time=0.0) for failure in reading.failures),
    )


def _json(record: Any) -> str:
    return _lines(record, 0) + "\n"


def _lines(value: Any, depth: int) -> str:
    """JSON for people: what fits on a line is on one."""
    flat = json.dumps(value, allow_nan=False)
    if len(flat) + depth <= _LINE_LENGTH or not isinstance(value, dict | list | tuple):
        return flat
    space = " " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_lines(part, depth + 1)}" for key, part in value.items()]
        opening, closing = "{", "}"
    else:
        parts = [_lines(part, depth + 1) for part in value]
        opening, closing = "[", "]"
    inside = f",\n{space}".join(parts)
    return f"{opening}\n{space}{inside}\n{' ' * depth}{closing}"


def _given(record: Mapping[str, Any]) -> dict[str, Any]:
    """What is not at its default, to keep the files short."""
    found = {name: value for name, value in record.items() if value not in (None, "", {}, ())}
    return {name: None if value == float("inf") else value for name, value in found.items()}


def _reading_record(reading: Reading) -> dict[str, Any]:
    found: dict[str, Any] = {
        "device_id": reading.device_id,
        # What is no number in JSON is no sound reading either, but worth to be recorded.
        "samples": {
            s.metric: s.value if isfinite(s.value) else str(s.value) for s in reading.samples
        },
        "failures": {
            failure.metric: _given(
                {
                    "reason": failure.reason,
                    "detail": failure.detail,
                    "code": failure.code,
                    "permanent": failure.permanent or None,
                }
            )
            for failure in reading.failures
        },
    }
    shared = [sample.metric for sample in reading.samples if sample.shared]
    if shared:
        found["shared"] = shared
    if reading.processes is not None:
        found["processes"] = [asdict(process) for process in reading.processes]
    return found


def _reading(record: Mapping[str, Any]) -> Reading:
    device_id, shared = record["device_id"], record.get("shared", ())
    processes: Sequence[Mapping[str, Any]] | None = record.get("processes")
    return Reading(
        device_id,
        tuple(
            Sample(device_id, metric, float(value), 0.0, metric in shared)
            for metric, value in record["samples"].items()
        ),
        tuple(
            Failure(device_id, metric, **{**row, "reason": Reason(row["reason"])})
            for metric, row in record["failures"].items()
        ),
        None if processes is None else tuple(ProcessUse(**process) for process in processes),
    )


def _device(record: Mapping[str, Any]) -> Device:
    problem = record.get("problem")
    return Device(**{**record, "problem": None if problem is None else Reason(problem)})


def _metric(record: Mapping[str, Any]) -> Metric:
    derivation = record.get("derivation")
    return Metric(
        **{
            **record,
            "maximum": float("inf") if record.get("maximum") is None else record["maximum"],
            "kind": Kind(record["kind"]),
            "derivation": None if derivation is None else Derivation(derivation),
            "sources": tuple(record.get("sources", ())),
        }
    )
