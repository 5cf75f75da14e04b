"""Reads a recording from whatever holds one: our own files and folders, or what others wrote.

The kind of a file is told by its content, not by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from attrs import evolve, frozen

from accelscale.errors import NotFoundError
from accelscale.lab.jsonlines import is_jsonlines, read_jsonlines
from accelscale.lab.recording import Recording, broken, joined
from accelscale.lab.sinks import parts_folder


@frozen
class Reading:
    """How to read: ``metrics`` limits what is kept, ``repair`` leaves broken rows out.

    ``metric`` names what series without a name hold (the result of an expression, say).
    """

    metrics: frozenset[str] | None = None
    repair: bool = False
    metric: str | None = None


def load(
    paths: Sequence[Path],
    *,
    metrics: Iterable[str] | None = None,
    repair: bool = False,
    metric: str | None = None,
) -> Recording:
    """The recording in these files and folders, joined on the wall clock.

    Raises:
        NotFoundError: there is no such file, or no recording in it.
        ConfigurationError: a file is broken; the message says where.
    """
    reading = Reading(None if metrics is None else frozenset(metrics), repair, metric)
    return joined([_load(file, reading) for path in paths for file in _files(path)])


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(path.glob("*.parquet")) + sorted(path.glob("*.jsonl"))
        finished = {file.with_suffix("") for file in found if file.suffix == ".parquet"}
        # The journal of a part that is complete was left by a kill, and says the same.
        found = [f for f in found if f.suffix == ".parquet" or f.with_suffix("") not in finished]
        if not found:
            raise NotFoundError(f"{path}: no recording in this folder")
        return found
    if path.exists():
        return [path]
    if parts_folder(path).is_dir():
        return _files(parts_folder(path))
    raise NotFoundError(f"{path}: no such file")


def _load(path: Path, reading: Reading) -> Recording:
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise NotFoundError(f"{path}: {error.strerror}") from error
    if not head.strip():
        raise broken(path.name, "is empty")
    if head.startswith(b"PAR1") or path.suffix == ".parquet":
        from accelscale.lab.parquet import read_parquet

        return read_parquet(path, metrics=reading.metrics)
    if is_jsonlines(head):
        return read_jsonlines(path, metrics=reading.metrics, repair=reading.repair)
    return _imported(path, head, reading)


def _imported(path: Path, head: bytes, reading: Reading) -> Recording:
    from accelscale.lab.importers import nvidia_smi, prometheus, series_csv
    from accelscale.lab.importers.derived import sources_of, with_derived

    try:
        first = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # else the block just ends within a character
            raise broken(f"{path.name}, byte {error.start}", "is no text") from error
        first = head[: error.start].decode("utf-8-sig")
    wanted = reading.metrics
    if wanted is not None:
        reading = evolve(reading, metrics=sources_of(wanted))
    for recognizes, read in (
        (prometheus.recognizes, prometheus.read),
        (nvidia_smi.recognizes, nvidia_smi.read),
        (series_csv.recognizes, series_csv.read),
    ):
        if recognizes(first):
            return with_derived(read(path, reading), wanted)
    raise broken(
        path.name,
        "is no recording that is known here: a Parquet file or JSON lines of `accelscale record`,"
        " the JSON of a Prometheus range query, a CSV of such series, or a log of nvidia-smi"
        " --query-gpu=... --format=csv",
    )
