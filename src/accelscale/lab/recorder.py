"""Writes a recording while the hardware works, so that a kill costs the last pass at most.

Every pass is appended to a file of JSON lines and handed to the operating system at once. Under a
name that ends with ``.jsonl`` that file is the result. Otherwise it is a journal: when a part is
full, it becomes a Parquet file of its own and a new journal begins. A name that ends with
``.parquet`` stands for one file, put together from its parts at the end; until then they lie in the
folder ``NAME.parts``, which can be read as it is. Any other name is a folder whose parts stay, of
which the oldest can be removed as new ones come.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

from attrs import define, field, frozen

from accelscale.errors import ConfigurationError, Fault
from accelscale.lab import jsonlines
from accelscale.lab.recording import Key, broken
from accelscale.lab.sources import Observed
from accelscale.metrics import METRICS
from accelscale.model import Device, Reason, Snapshot

PART_SECONDS = 600.0


@frozen
class Head:
    """What a file begins with; ``start`` is the Unix time of its time 0."""

    start: float
    interval: float
    units: Mapping[str, str] = field(factory=dict)


class Sink(Protocol):
    """Where lines go. ``begin`` starts a file, the next one where `full` says so."""

    def begin(self, head: Head, now: float) -> None: ...

    def write(self, lines: Sequence[str]) -> None: ...

    def full(self, now: float) -> bool: ...

    def close(self) -> None: ...


@define
class Progress:
    """How far a recording is."""

    seconds: float = 0.0
    devices: int = 0
    samples: int = 0
    missing: int = 0


@define
class _Known:
    """What the current file has said already."""

    devices: tuple[Device, ...] | None = None
    holders: frozenset[tuple[str, str, str, str]] | None = None
    intervals: dict[str, float] = field(factory=dict)
    missing: dict[Key, tuple[Reason, str]] = field(factory=dict)


class Recorder:
    """Turns passes into lines. ``metrics`` limits what is written, where given.

    ``offset`` is the time in the recording at which this process begins, for one that goes on.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        metrics: Sequence[str] = (),
        start: float | None = None,
        offset: float = 0.0,
    ) -> None:
        self.progress = Progress()
        self._sink = sink
        self._metrics = frozenset(metrics)
        self._start = start
        self._offset = offset
        self._zero: float | None = None
        self._last_times: dict[Key, float] = {}
        self._known = _Known()
        self._begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def take(self, observed: Observed) -> None:
        """Write what is new in a pass."""
        snapshot = observed.snapshot
        if self._zero is None:
            ages = [snapshot.time - sample.time for sample in snapshot.samples.values()]
            self._zero = snapshot.time - max(ages, default=0.0)
            if self._start is None:
                self._start = time.time() - (time.monotonic() - self._zero)
        now = self._at(snapshot.time)
        if not self._begun or self._sink.full(now):
            head = Head(self._start or 0.0, snapshot.interval, observed.units)
            self._sink.begin(head, now)
            self._known = _Known()
        # What is there at the first pass was there when the first sample of it was taken.
        since = now if self._begun else self._offset
        self._begun = True
        lines = [*self._inventory(observed, since), *self._values(snapshot)]
        lines += self._missing(snapshot, now)
        self._sink.write(lines or [jsonlines.time_line(now)])
        self.progress.seconds = now
        self.progress.devices = len(snapshot.devices)
        self.progress.missing = sum(not f.permanent for f in snapshot.failures.values())

    def close(self) -> None:
        """End the recording and complete its file."""
        if self._begun:
            self._sink.write([jsonlines.time_line(self.progress.seconds, end=True)])
        self._sink.close()

    def _at(self, monotonic: float) -> float:
        assert self._zero is not None
        return round(self._offset + monotonic - self._zero, 6)

    def _wants(self, metric: str) -> bool:
        return not self._metrics or metric in self._metrics

    def _inventory(self, observed: Observed, now: float) -> Iterator[str]:
        known, snapshot = self._known, observed.snapshot
        if snapshot.devices != known.devices:
            known.devices = snapshot.devices
            yield jsonlines.devices_line(now, snapshot.devices)
            there = {device.id for device in snapshot.devices}
            for key in [key for key in known.missing if key[0] not in there]:
                del known.missing[key]
        if observed.holders is not None and observed.holders != known.holders:
            known.holders = observed.holders
            yield jsonlines.holders_line(now, sorted(observed.holders))
        intervals = {k: v for k, v in snapshot.intervals.items() if v != snapshot.interval}
        if intervals != known.intervals:
            known.intervals = intervals
            yield jsonlines.intervals_line(now, intervals)

    def _values(self, snapshot: Snapshot) -> Iterator[str]:
        fresh: dict[tuple[str, float], dict[str, float]] = {}
        shared: dict[tuple[str, float], list[str]] = {}
        for key, sample in snapshot.samples.items():
            if not self._wants(sample.metric):
                continue
            self._known.missing.pop(key, None)
            if sample.time <= self._last_times.get(key, float("-inf")):
                continue
            self._last_times[key] = sample.time
            at = (sample.device_id, sample.time)
            fresh.setdefault(at, {})[sample.metric] = sample.value
            if sample.shared:
                shared.setdefault(at, []).append(sample.metric)
        for (device_id, when), values in sorted(fresh.items(), key=lambda item: item[0][1]):
            self.progress.samples += len(values)
            found = shared.get((device_id, when), ())
            yield jsonlines.values_line(self._at(when), device_id, values, found)

    def _missing(self, snapshot: Snapshot, now: float) -> Iterator[str]:
        new: dict[str, dict[str, tuple[Reason, str, bool]]] = {}
        for key, failure in snapshot.failures.items():
            why = (failure.reason, failure.detail)
            if not self._wants(failure.metric) or self._known.missing.get(key) == why:
                continue
            if failure.reason is Reason.STALE and key not in self._last_times:
                continue  # nothing has been read yet, which the lack of samples says already
            self._known.missing[key] = why
            found = new.setdefault(failure.device_id, {})
            found[failure.metric] = (*why, failure.permanent)
        for device_id, missing in new.items():
            yield jsonlines.missing_line(now, device_id, missing)
        for key in [key for key in self._known.missing if key not in snapshot.failures]:
            del self._known.missing[key]
            yield jsonlines.no_longer_missing_line(now, *key)


class JsonLinesFile:
    """One file of JSON lines. With ``append`` it goes on where an earlier one was stopped."""

    def __init__(self, path: Path, *, append: bool = False) -> None:
        if path.exists() and not append:
            raise _exists(path, "name another file, or go on with it by --append")
        self.path = path
        self._file: IO[str] | None = None
        self._goes_on = append and path.exists()
        if self._goes_on:
            _cut_torn_line(path)

    def begin(self, head: Head, now: float) -> None:
        if self._file is None:
            self._file = self.path.open("a", encoding="utf-8")
            if not self._goes_on:
                self._file.write(_head_text(head))

    def write(self, lines: Sequence[str]) -> None:
        assert self._file is not None
        self._file.writelines(lines)
        self._file.flush()

    def full(self, now: float) -> bool:
        return False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Parts:
    """A folder of numbered Parquet files, with the journal of the newest while it grows.

    A part ends after ``seconds``; of more than ``keep`` parts the oldest go.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seconds: float = PART_SECONDS,
        keep: int | None = None,
        append: bool = False,
    ) -> None:
        if folder.exists() and not append and any(folder.iterdir()):
            raise _exists(folder, "name another, or go on with it by --append")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._seconds = seconds
        self._keep = keep
        self._begun = 0.0
        self._file: IO[str] | None = None
        for journal in sorted(folder.glob("*.jsonl")):
            _complete(journal)
        self._number = max((int(path.stem) for path in self.finished()), default=0)

    def finished(self) -> list[Path]:
        """The complete parts, in order."""
        return sorted(path for path in self.folder.glob("*.parquet") if path.stem.isdigit())

    def begin(self, head: Head, now: float) -> None:
        self._end_part()
        self._number += 1
        self._begun = now
        self._file = self._journal.open("x", encoding="utf-8")
        self._file.write(_head_text(head))

    def write(self, lines: Sequence[str]) -> None:
        assert self._file is not None
        self._file.writelines(lines)
        self._file.flush()

    def full(self, now: float) -> bool:
        return now - self._begun >= self._seconds

    def close(self) -> None:
        self._end_part()

    @property
    def _journal(self) -> Path:
        return self.folder / f"{self._number:06}.jsonl"

    def _end_part(self) -> None:
        if self._file is None:
            return
        self._file.close()
        self._file = None
        _complete(self._journal)
        if self._keep is not None:
            for path in self.finished()[: -self._keep]:
                path.unlink()


class ParquetFile:
    """One Parquet file, whose parts lie beside it until the end."""

    def __init__(self, path: Path, *, append: bool = False) -> None:
        if path.exists():
            raise _exists(path, "name another file: a replay takes several and joins them")
        self.path = path
        self._parts = Parts(parts_folder(path), append=append)

    def begin(self, head: Head, now: float) -> None:
        self._parts.begin(head, now)

    def write(self, lines: Sequence[str]) -> None:
        self._parts.write(lines)

    def full(self, now: float) -> bool:
        return self._parts.full(now)

    def close(self) -> None:
        from accelscale.lab.parquet import merge_parts

        self._parts.close()
        parts = self._parts.finished()
        if parts:
            merge_parts(parts, self.path)
        for part in parts:
            part.unlink()
        self._parts.folder.rmdir()


def parts_folder(path: Path) -> Path:
    """Where the parts of an unfinished Parquet file lie."""
    return path.with_name(f"{path.name}.parts")


def open_sink(
    path: Path, *, seconds: float | None = None, keep: int | None = None, append: bool = False
) -> Sink:
    """The sink for a path, by its ending.

    ``seconds`` is the length of a part and ``keep`` how many of them stay; both are for folders.

    Raises:
        ConfigurationError: it exists already, or is one file that is to be rotated.
    """
    single = path.suffix in {".jsonl", ".parquet"}
    if single and (seconds is not None or keep is not None):
        fault = Fault("output", str(path), "a rotated recording is a folder: leave the ending out")
        raise ConfigurationError([fault], subject="options")
    if not path.parent.is_dir():
        fault = Fault("output", str(path), f"there is no folder {path.parent}")
        raise ConfigurationError([fault], subject="options")
    if path.suffix == ".jsonl":
        return JsonLinesFile(path, append=append)
    if path.suffix == ".parquet":
        return ParquetFile(path, append=append)
    return Parts(path, seconds=seconds or PART_SECONDS, keep=keep, append=append)


def begun(path: Path) -> tuple[float, float] | None:
    """The start (Unix time) and the last time of a recording that is to go on, or None.

    Raises:
        ConfigurationError: its last file cannot be read.
    """
    from accelscale.lab.loading import load

    there = path if path.suffix != ".parquet" else parts_folder(path)
    if not there.exists() or (there.is_dir() and not any(there.iterdir())):
        return None
    recording = load([there])
    return recording.start, recording.end


def _head_text(head: Head) -> str:
    units = {name: row.unit for name, row in METRICS.items()}
    return jsonlines.head_line(head.start, head.interval, {}, {**units, **head.units})


def _complete(journal: Path) -> None:
    """Make a part of a journal; one whose part is there already was left by a kill."""
    from accelscale.lab.parquet import write_parquet

    part = journal.with_suffix(".parquet")
    if not part.exists():
        try:
            recording = jsonlines.read_jsonlines(journal)
        except ConfigurationError:
            if journal.read_bytes().count(b"\n") > 1:
                raise
        else:
            write_parquet(recording, part)
    journal.unlink()


def _cut_torn_line(path: Path) -> None:
    """Remove what a kill left behind the last whole line."""
    with path.open("rb+") as file:
        data_end = file.seek(0, 2)
        position = data_end
        while position > 0:
            step = min(65536, position)
            file.seek(position - step)
            block = file.read(step)
            newline = block.rfind(b"\n")
            if newline >= 0:
                file.truncate(position - step + newline + 1)
                return
            position -= step
        raise broken(path.name, "holds not one whole line")


def _exists(path: Path, way_out: str) -> ConfigurationError:
    return ConfigurationError([Fault("output", str(path), f"exists: {way_out}")], subject="options")
