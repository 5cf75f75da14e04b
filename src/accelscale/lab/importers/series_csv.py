"""Series of the DCGM or AMD exporter as CSV, in either of two shapes.

Long: one row a point, with a column for the time, one for the value, one for the name (``metric``,
``__name__`` or ``name``), and one for each label. Wide, as Grafana exports a panel: a column for
the time, and one for each series, whose title is the series: ``DCGM_FI_DEV_GPU_UTIL{UUID="..."}``.
Times are Unix seconds or milliseconds, or a date; without a zone they count as UTC.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from accelscale.lab.importers.series import LabelledSeries, gather
from accelscale.lab.recording import Recording, broken

if TYPE_CHECKING:
    from accelscale.lab.loading import Reading

_TIMES = ("time", "timestamp", "ts", "date", "datetime")
_NAMES = ("__name__", "metric", "name", "metric_name")
_VALUES = ("value", "val")
_TITLE = re.compile(r"([a-zA-Z_:][\w:]*)?\s*(?:\{(.*)\})?")
_LABEL = re.compile(r'([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_MILLISECONDS_FROM = 1e11

Rows = Iterator[tuple[int, list[str]]]


def recognizes(head: str) -> bool:
    """Whether a file that begins so is such a CSV."""
    titles = _titles(head.splitlines())
    return (len(titles) > 1 and titles[0].strip().lower() in _TIMES) or _is_long(titles)


def read(path: Path, reading: Reading) -> Recording:
    """Read such a file.

    Raises:
        ConfigurationError: a row does not match the header, or a point of it is broken.
    """
    notes: list[str] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = list(file)
    titles = [title.strip() for title in _titles(lines)]
    rows = _rows(lines, path.name, len(titles), notes)
    series = _long(titles, rows, path.name) if _is_long(titles) else _wide(titles, rows, path.name)
    recording = gather(
        series, path.name, metrics=reading.metrics, repair=reading.repair, metric=reading.metric
    )
    return _noted(recording, notes)


def _noted(recording: Recording, notes: Sequence[str]) -> Recording:
    from attrs import evolve

    return evolve(recording, notes=(*notes, *recording.notes))


def _titles(lines: Sequence[str]) -> list[str]:
    lines = [line for line in lines if not line.startswith("sep=")]  # what Grafana writes for Excel
    if not lines:
        return []
    return next(csv.reader([lines[0]], skipinitialspace=True), [])


def _is_long(titles: Iterable[str]) -> bool:
    lower = {title.strip().lower() for title in titles}
    return bool(lower & set(_TIMES)) and bool(lower & set(_VALUES))


def _rows(lines: Sequence[str], name: str, width: int, notes: list[str]) -> Rows:
    """The rows below the header with the numbers of their lines.

    Raises:
        ConfigurationError: a row has not as many fields as the header.
    """
    skipped = 2 if lines and lines[0].startswith("sep=") else 1
    reader = csv.reader(lines[skipped:], skipinitialspace=True)
    for row in reader:
        number = reader.line_num + skipped
        if not any(field.strip() for field in row):
            continue
        if len(row) != width or (
            number == len(lines) and not lines[-1].endswith("\n") and _torn(row)
        ):
            if number == len(lines) and not lines[-1].endswith("\n"):
                notes.append(f"{name}:{number}: the last line is cut off and was left out")
                return
            problem = f"has {len(row)} fields where the header has {width}"
            raise broken(f"{name}:{number}", problem)
        yield number, row


def _torn(row: Sequence[str]) -> bool:
    """Whether the last field of a last line without a line break can be a half one: it is empty."""
    return not row[-1].strip()


def _long(titles: Sequence[str], rows: Rows, name: str) -> list[LabelledSeries]:
    lower = [title.lower() for title in titles]
    time_at = next(lower.index(one) for one in _TIMES if one in lower)
    value_at = next(lower.index(one) for one in _VALUES if one in lower)
    name_at = next((lower.index(one) for one in _NAMES if one in lower), None)
    special = {time_at, value_at, name_at}
    found: dict[tuple[str, ...], list[tuple[float, str, str]]] = {}
    for number, row in rows:
        where = f"{name}:{number}"
        labels = tuple("" if at in special else row[at].strip() for at in range(len(row)))
        key = (row[name_at].strip() if name_at is not None else "", *labels)
        found.setdefault(key, []).append((_time(row[time_at], where), row[value_at], where))
    series = []
    for (series_name, *values), points in found.items():
        labels_of = {t: v for t, v in zip(titles, values, strict=True) if v}
        series.append(LabelledSeries(series_name, labels_of, points, points[0][2]))
    return series


def _wide(titles: Sequence[str], rows: Rows, name: str) -> list[LabelledSeries]:
    points: list[list[tuple[float, str, str]]] = [[] for _ in titles]
    for number, row in rows:
        where = f"{name}:{number}"
        time = _time(row[0], where)
        for at in range(1, len(row)):
            if row[at].strip():  # Grafana leaves a cell empty where a series has no point
                points[at].append((time, row[at], f"{where}, column {at + 1}"))
    series = []
    for at, title in enumerate(titles[1:], 1):
        match = _TITLE.fullmatch(title)
        labels = dict(_LABEL.findall(match[2] or "")) if match else {}
        series_name = labels.pop("__name__", "") or (match[1] if match else title) or ""
        series.append(LabelledSeries(series_name, labels, points[at], f"{name}, column {at + 1}"))
    return series


def _time(text: str, where: str) -> float:
    """Unix seconds of a time as people write them.

    Raises:
        ConfigurationError: it is none.
    """
    text = text.strip()
    try:
        number = float(text)
    except ValueError:
        try:
            found = datetime.fromisoformat(text.replace("/", "-"))
        except ValueError:
            raise broken(where, f"{text!r} is no time") from None
        zoned = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return zoned.timestamp()
    return number / 1000 if number >= _MILLISECONDS_FROM else number
