"""A recording as a Parquet file: one row for each sample and for each absence.

Columns: ``time`` and ``until`` (seconds since the start; ``until`` only for an absence),
``device``, ``metric``, ``value`` (null where there is none), ``reason``, ``detail``, ``permanent``,
``shared``.
Rows are sorted by metric, device and time within a row group. What holds for the whole recording
(start, interval, units, devices, who held them) is JSON under the key ``accelscale`` of the file's
metadata.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from attrs import evolve

from accelscale.lab.jsonlines import device_of, device_record
from accelscale.lab.recording import (
    Absence,
    Column,
    Floats,
    Holder,
    Key,
    Recording,
    Span,
    broken,
    joined,
    merged_absences,
)
from accelscale.metrics import METRICS
from accelscale.model import Reason

VERSION = 1
METADATA_KEY = b"accelscale"
ROWS_PER_GROUP = 1_000_000

_TEXT = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("time", pa.float64(), nullable=False),
        pa.field("until", pa.float64()),
        pa.field("device", _TEXT, nullable=False),
        pa.field("metric", _TEXT, nullable=False),
        pa.field("value", pa.float64()),
        pa.field("reason", _TEXT),
        pa.field("detail", _TEXT),
        pa.field("permanent", pa.bool_()),
        pa.field("shared", pa.bool_()),
    ]
)


def write_parquet(recording: Recording, path: Path) -> None:
    """Write a whole recording. The file is complete or not there: it is renamed into place."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    metadata = {METADATA_KEY: json.dumps(_metadata(recording), allow_nan=False).encode()}
    with pq.ParquetWriter(unfinished, SCHEMA.with_metadata(metadata), compression="zstd") as writer:
        for table in _tables(recording):
            writer.write_table(table, row_group_size=ROWS_PER_GROUP)
    _in_place(unfinished, path)


def read_parquet(path: Path, *, metrics: Iterable[str] | None = None) -> Recording:
    """Read such a file, one row group at a time; of other metrics than ``metrics`` nothing is kept.

    Raises:
        ConfigurationError: it is cut off, is no recording, or its times go back.
    """
    try:
        with pq.ParquetFile(path) as file:
            found = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
            if found is None:
                problem = f"is a Parquet file without the metadata {METADATA_KEY.decode()!r}"
                raise broken(path.name, f"{problem}: no recording of accelscale")
            metadata = json.loads(found)
            if metadata.get("version") != VERSION:
                raise broken(path.name, f"is of version {metadata.get('version')}, not {VERSION}")
            rows = _Rows(path.name, None if metrics is None else frozenset(metrics))
            wanted = [name for name in SCHEMA.names if name in file.schema_arrow.names]
            _need_columns(path.name, wanted)
            for group in range(file.num_row_groups):
                rows.take(file.read_row_group(group, columns=wanted), group)
    except (pa.ArrowException, OSError, json.JSONDecodeError) as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            raise
        size = path.stat().st_size
        text = " ".join(str(error).split())
        raise broken(
            path.name, f"cannot be read ({size} bytes, cut off or damaged): {text}"
        ) from error
    return _recording(path.name, metadata, rows)


def merge_parts(parts: Sequence[Path], path: Path) -> None:
    """One file of parts that follow each other; at any time one part is in memory.

    Raises:
        ConfigurationError: a part is damaged.
    """
    heads = [evolve(read_parquet(part), columns={}) for part in parts]
    whole = joined(heads)
    unfinished = path.with_name(f".{path.name}.unfinished")
    metadata = {METADATA_KEY: json.dumps(_metadata(whole), allow_nan=False).encode()}
    with pq.ParquetWriter(unfinished, SCHEMA.with_metadata(metadata), compression="zstd") as writer:
        for part in parts:
            table = pq.read_table(part, schema=SCHEMA)
            writer.write_table(table.filter(pc.is_valid(table.column("value"))))
        absences = [absence for found in whole.absences.values() for absence in found]
        if absences:
            writer.write_table(_absences(absences))
    _in_place(unfinished, path)


def _in_place(unfinished: Path, path: Path) -> None:
    with unfinished.open("rb+") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)


def _need_columns(name: str, found: Sequence[str]) -> None:
    lacking = [column for column in ("time", "device", "metric", "value") if column not in found]
    if lacking:
        raise broken(name, f"has no column {', '.join(lacking)}")


class _Rows:
    """Gathers the columns of a file from its row groups."""

    def __init__(self, name: str, metrics: frozenset[str] | None) -> None:
        self._name = name
        self._metrics = metrics
        self._parts: dict[Key, list[tuple[Floats, Floats, bool]]] = {}
        self.absences: dict[Key, list[Absence]] = {}

    def take(self, table: Any, group: int) -> None:
        devices, device = _decoded(table, "device")
        metrics, metric = _decoded(table, "metric")
        kept = np.array([self._metrics is None or name in self._metrics for name in metrics])
        if not len(metrics) or not kept.any():
            return
        times = table.column("time").to_numpy()
        values = table.column("value").to_numpy()
        chosen = kept[metric]
        present = chosen & ~np.isnan(values)
        code = metric.astype(np.int64) * len(devices) + device
        order = np.flatnonzero(present)
        order = order[np.argsort(code[order], kind="stable")]
        edges = np.flatnonzero(np.diff(code[order], prepend=-1)).tolist()
        for start, end in pairwise([*edges, len(order)]):
            rows = order[start:end]
            key = (devices[device[rows[0]]], metrics[metric[rows[0]]])
            self._add(key, times[rows], values[rows], self._shared(table, rows), group)
        absent = np.flatnonzero(chosen & np.isnan(values))
        if len(absent):
            self._absent(table.take(pa.array(absent)).to_pylist())

    def _add(self, key: Key, times: Floats, values: Floats, shared: bool, group: int) -> None:
        parts = self._parts.setdefault(key, [])
        last = parts[-1][0][-1] if parts else -np.inf
        back = np.flatnonzero(np.diff(times, prepend=last) <= 0)
        if len(back):
            problem = f"time does not rise at {times[back[0]]:g} s for {key[1]} of {key[0]}"
            raise broken(f"{self._name}, row group {group}", problem)
        if not np.isfinite(values).all():
            problem = f"a value of {key[1]} of {key[0]} is no number"
            raise broken(f"{self._name}, row group {group}", problem)
        parts.append((times, values, shared))

    def _shared(self, table: Any, rows: npt.NDArray[np.intp]) -> bool:
        if "shared" not in table.column_names:
            return False
        return table.column("shared")[int(rows[0])].as_py() is True

    def _absent(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            key = (row["device"], row["metric"])
            until = row.get("until")
            absence = Absence(
                *key,
                row["time"],
                math.inf if until is None else until,
                Reason(row.get("reason") or Reason.ERROR),
                row.get("detail") or "",
                row.get("permanent") is True,
            )
            self.absences.setdefault(key, []).append(absence)

    def columns(self) -> dict[Key, Column]:
        return {
            key: Column(
                np.concatenate([times for times, _, _ in parts]),
                np.concatenate([values for _, values, _ in parts]),
                any(shared for _, _, shared in parts),
            )
            for key, parts in self._parts.items()
        }


def _decoded(table: Any, name: str) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The distinct texts of a column, and for each row the number of its text."""
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    return column.dictionary.to_pylist(), column.indices.to_numpy(zero_copy_only=False)


def _recording(name: str, metadata: Mapping[str, Any], rows: _Rows) -> Recording:
    columns = rows.columns()
    if not columns and not rows.absences:
        raise broken(name, "holds no sample of a metric that is wanted")
    try:
        return Recording(
            start=float(metadata["start"]),
            end=float(metadata["end"]),
            interval=float(metadata["interval"]),
            devices=tuple(device_of(record) for record in metadata["devices"]),
            columns=columns,
            absences={key: merged_absences(found, 0.0) for key, found in rows.absences.items()},
            presence={
                device_id: tuple(Span(start, _until(end)) for start, end in spans)
                for device_id, spans in metadata.get("presence", {}).items()
            },
            holders=tuple(
                Holder(device, namespace, pod, container, float(start), _until(end))
                for device, namespace, pod, container, start, end in metadata.get("holders", [])
            ),
            intervals=metadata.get("intervals", {}),
            units=metadata.get("units", {}),
            origin=name,
            notes=tuple(metadata.get("notes", [])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise broken(name, f"its metadata is damaged ({error!r})") from error


def _until(end: float | None) -> float:
    return math.inf if end is None else float(end)


def _bounded(end: float) -> float | None:
    return end if math.isfinite(end) else None


def _metadata(recording: Recording) -> dict[str, Any]:
    return {
        "version": VERSION,
        "start": recording.start,
        "end": recording.end,
        "interval": recording.interval,
        "intervals": dict(recording.intervals),
        "units": dict(recording.units),
        "devices": [device_record(device) for device in recording.devices],
        "presence": {
            device_id: [[span.start, _bounded(span.end)] for span in spans]
            for device_id, spans in recording.presence.items()
        },
        "holders": [
            [h.device_id, h.namespace, h.pod, h.container, h.start, _bounded(h.end)]
            for h in recording.holders
        ],
        "notes": list(recording.notes),
    }


def _tables(recording: Recording) -> Iterator[Any]:
    """Tables of about a row group each: the samples by metric and device, then the absences."""
    order = {name: number for number, name in enumerate(METRICS)}
    keys = sorted(recording.columns, key=lambda key: (order.get(key[1], len(order)), key))
    waiting: list[Any] = []
    rows = 0
    for key in keys:
        column = recording.columns[key]
        waiting.append(_samples(key, column))
        rows += len(column)
        if rows >= ROWS_PER_GROUP:
            yield pa.concat_tables(waiting).unify_dictionaries().combine_chunks()
            waiting, rows = [], 0
    absences = [absence for found in recording.absences.values() for absence in found]
    if absences:
        waiting.append(_absences(absences))
    if waiting:
        yield pa.concat_tables(waiting).unify_dictionaries().combine_chunks()


def _samples(key: Key, column: Column) -> Any:
    rows = len(column)
    nothing = {
        name: pa.nulls(rows, SCHEMA.field(name).type) for name in ("until", "reason", "detail")
    }
    arrays = {
        "time": pa.array(column.times),
        "device": _repeated(key[0], rows),
        "metric": _repeated(key[1], rows),
        "value": pa.array(column.values),
        "permanent": pa.nulls(rows, pa.bool_()),
        "shared": pa.array(np.full(rows, column.shared)),
        **nothing,
    }
    return pa.table([arrays[name] for name in SCHEMA.names], schema=SCHEMA)


def _absences(absences: Sequence[Absence]) -> Any:
    ordered = sorted(absences, key=lambda a: (a.metric, a.device_id, a.start))
    rows = [
        {
            "time": a.start,
            "until": _bounded(a.end),
            "device": a.device_id,
            "metric": a.metric,
            "value": None,
            "reason": str(a.reason),
            "detail": a.detail,
            "permanent": a.permanent,
            "shared": None,
        }
        for a in ordered
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _repeated(text: str, rows: int) -> Any:
    indices = pa.array(np.zeros(rows, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array([text]))
