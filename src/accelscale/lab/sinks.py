"""Where the lines of a recording go: one file, or a folder of parts.

Every line is handed to the operating system at once. Under a name that ends with ``.jsonl`` the
file of lines is the result. Otherwise it is a journal: when a part is full, it becomes a Parquet
file of its own and a new journal begins. A name that ends with ``.parquet`` stands for one file,
put together from its parts at the end; until then they lie in the folder ``NAME.parts``, which can
be read as it is. Any other name is a folder whose parts stay, of which the oldest can be removed as
new ones come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from attrs import field, frozen

from accelscale.errors import ConfigurationError, Fault
from accelscale.lab import jsonlines
from accelscale.lab.recording import broken
from accelscale.metrics import METRICS

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
