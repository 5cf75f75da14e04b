"""A log of ``nvidia-smi --query-gpu=timestamp,uuid,... --format=csv -l SECONDS``.

The header names each column and its unit; with ``nounits`` the numbers stand alone. What the driver
does not give is written ``[N/A]``, ``[Not Supported]``, ``ERR!`` and the like, and becomes an
absence with its reason. A log that was appended to repeats its header. Times are local times
without a zone and are taken as UTC; only their distances matter here.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from attrs import frozen

from accelscale.lab.gathering import Gathering
from accelscale.lab.importers.units import parsed
from accelscale.lab.recording import Recording, broken
from accelscale.metrics import METRICS
from accelscale.model import Device, Reason, normal_pci_address

if TYPE_CHECKING:
    from accelscale.lab.loading import Reading

COLUMNS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "utilization.gpu": ("utilization_percent", "%"),
        "utilization.memory": ("memory_bandwidth_utilization_percent", "%"),
        "utilization.encoder": ("encoder_utilization_percent", "%"),
        "utilization.decoder": ("decoder_utilization_percent", "%"),
        "memory.used": ("memory_used_bytes", "MiB"),
        "memory.total": ("memory_total_bytes", "MiB"),
        "power.draw": ("power_watts", "W"),
        "power.draw.instant": ("power_watts", "W"),
        "power.draw.average": ("power_watts", "W"),
        "enforced.power.limit": ("power_limit_watts", "W"),
        "power.limit": ("power_limit_watts", "W"),
        "temperature.gpu": ("temperature_celsius", "C"),
        "temperature.memory": ("memory_temperature_celsius", "C"),
        "clocks.sm": ("sm_clock_megahertz", "MHz"),
        "clocks.current.sm": ("sm_clock_megahertz", "MHz"),
        "clocks.mem": ("memory_clock_megahertz", "MHz"),
        "clocks.current.memory": ("memory_clock_megahertz", "MHz"),
    }
)
"""Properties of ``nvidia-smi --help-query-gpu`` with our metric and the unit without one."""

_TITLE = re.compile(r"\s*([\w.]+)\s*(?:\[([^\]]*)\])?\s*")
_MISSING = re.compile(r"\[(.*)\]|ERR!|N/A|(?i:unknown error)")
_TIME = "%Y/%m/%d %H:%M:%S.%f"

_REASONS = (
    ("permission", Reason.PERMISSION),
    ("lost", Reason.LOST),
    ("reset", Reason.RESET_REQUIRED),
    ("n/a", Reason.NOT_SUPPORTED),
    ("not supported", Reason.NOT_SUPPORTED),
    ("not found", Reason.LOST),
    ("timeout", Reason.TIMEOUT),
)


@frozen
class _Column:
    """A column of the log: the property, and what it holds, where it is a metric."""

    title: str
    property: str
    metric: str | None
    assumed: str


def recognizes(head: str) -> bool:
    """Whether a file that begins so is such a log."""
    titles = next((_properties(line) for line in head.splitlines() if line.strip()), [])
    return bool({"utilization.gpu", *COLUMNS} & set(titles))


def read(path: Path, reading: Reading) -> Recording:
    """Read such a log.

    Raises:
        ConfigurationError: a row does not match the header, a unit changes, or time goes back.
    """
    gathering = Gathering(path.name, repair=reading.repair, metrics=reading.metrics)
    start: float | None = None
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        lines = iter(enumerate(file, 1))
        columns = _header(lines, path.name)
        names = [column.property for column in columns]
        for number, row in _rows(lines, columns, path.name, gathering):
            where = f"{path.name}:{number}"
            texts = dict(zip(names, row, strict=True))
            time = _time(texts["timestamp"], where, gathering)
            if time is None:
                continue
            start = time if start is None else start
            device = _device(texts)
            gathering.device(device)
            _take(gathering, columns, row, device.id, time, where)
    if start is None:
        raise broken(path.name, "holds no row below its header")
    gathering.present_from_first_sample()
    return gathering.finish(start, origin=path.name)


def _header(lines: Iterable[tuple[int, str]], name: str) -> list[_Column]:
    for number, line in lines:
        if not line.strip():
            continue
        columns = [_column(title) for title in _split(line)]
        names = [column.property for column in columns]
        if "timestamp" not in names:
            problem = "has no column timestamp: log with --query-gpu=timestamp,uuid,..."
            raise broken(f"{name}:{number}", problem)
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise broken(f"{name}:{number}", f"has the column {', '.join(sorted(twice))} twice")
        return columns
    raise broken(name, "is empty")


def _rows(
    lines: Iterator[tuple[int, str]], columns: Sequence[_Column], name: str, gathering: Gathering
) -> Iterator[tuple[int, list[str]]]:
    titles = [column.title for column in columns]
    for number, line in lines:
        where = f"{name}:{number}"
        if not line.strip():
            continue
        row = _split(line)
        if row and _TITLE.fullmatch(row[0]) and "timestamp" in _properties(line):
            if row != titles:
                problem = "another header begins here: split the file, one query each"
                raise broken(where, problem)
            continue
        if not line.endswith("\n") and len(row) <= len(columns):
            # Even a last line with enough fields may have lost digits of its last number.
            gathering.notes.append(f"{where}: the last line is cut off and was left out")
            return
        if len(row) != len(columns):
            problem = f"has {len(row)} fields where the header has {len(columns)}: {line.strip()!r}"
            gathering.leave_out(where, "fields", problem)
            continue
        yield number, row


def _take(
    gathering: Gathering,
    columns: Sequence[_Column],
    row: Sequence[str],
    device_id: str,
    time: float,
    where: str,
) -> None:
    taken: set[str] = set()
    for column, text in zip(columns, row, strict=True):
        metric = column.metric
        if metric is None or metric in taken:
            continue
        key = (device_id, metric)
        if _MISSING.fullmatch(text):
            plain = text.strip("[]")
            gathering.absent(key, time, _reason(plain), plain)
            continue
        taken.add(metric)
        try:
            value = parsed(text, METRICS[metric].unit, column.assumed)
        except ValueError as error:
            gathering.leave_out(where, "number", f"{column.property}: {error}")
            continue
        gathering.sample(key, time, value, f"{where}, {column.property}")


def _time(text: str, where: str, gathering: Gathering) -> float | None:
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        gathering.leave_out(where, "time", f"{text!r} is no time such as 2026/01/31 12:00:00.000")
        return None


def _device(texts: Mapping[str, str]) -> Device:
    """Named by UUID, else by PCI address, else (as the log has no better) by index."""
    address = next((texts[n] for n in ("pci.bus_id", "gpu_bus_id") if n in texts), None)
    uuid = next((texts[n] for n in ("uuid", "gpu_uuid") if n in texts), None)
    pci = normal_pci_address(address) if address else None
    device_id = uuid or pci or f"gpu-{texts.get('index', '0')}"
    name = texts.get("name") or texts.get("gpu_name") or device_id
    return Device(device_id, name, "nvidia", "import", pci_address=pci)


def _column(title: str) -> _Column:
    match = _TITLE.fullmatch(title)
    name = match[1] if match else title.strip()
    metric, spelling = COLUMNS.get(name, (None, ""))
    return _Column(title, name, metric, spelling)


def _properties(line: str) -> list[str]:
    return [_column(title).property for title in _split(line)]


def _split(line: str) -> list[str]:
    fields = next(csv.reader([line.rstrip("\r\n")], skipinitialspace=True), [])
    return [field.strip() for field in fields]


def _reason(text: str) -> Reason:
    lower = text.lower()
    return next((reason for mark, reason in _REASONS if mark in lower), Reason.ERROR)
