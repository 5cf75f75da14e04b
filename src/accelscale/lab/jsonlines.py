"""A recording as JSON lines: one object a line, written as it happens, readable by anything.

A line says one of these things; ``time`` is in seconds since the start of the recording::

    {"accelscale_recording": 1, "start": 1760000000.0, "interval": 1.0, ...}    the first line
    {"time": 0.0, "devices": [{"id": "GPU-...", "name": "...", ...}]}          from now on
    {"time": 0.0, "holders": [["GPU-...", "namespace", "pod", "container"]]}   from now on
    {"time": 1.0, "device": "GPU-...", "values": {"utilization_percent": 37}}
    {"time": 1.0, "device": "GPU-...", "missing": {"power_watts": {"reason": "lost"}}}
    {"time": 9.0}                                                              nothing new
    {"time": 9.5, "end": true}                                                 the last line

``missing`` holds from then until the next value of the metric, or until it is null. A file whose
writer was killed ends without the last line, perhaps in the middle of a line; that half line is
left out, with a note.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from accelscale.errors import ConfigurationError
from accelscale.lab.gathering import Gathering
from accelscale.lab.recording import Recording, broken
from accelscale.model import Device, Reason

VERSION = 1
MARK = "accelscale_recording"

Holders = Iterable[tuple[str, str, str, str]]


def head_line(
    start: float, interval: float, intervals: Mapping[str, float], units: Mapping[str, str]
) -> str:
    """The first line."""
    head = {MARK: VERSION, "start": start, "interval": interval}
    return _line({**head, "intervals": dict(intervals), "units": dict(units)})


def intervals_line(time: float, intervals: Mapping[str, float]) -> str:
    """How often metrics are read, once that is known better than at the start."""
    return _line({"time": time, "intervals": dict(intervals)})


def devices_line(time: float, devices: Iterable[Device]) -> str:
    """The devices that are there from now on."""
    return _line({"time": time, "devices": [device_record(device) for device in devices]})


def holders_line(time: float, holders: Holders) -> str:
    """Who holds which device from now on."""
    return _line({"time": time, "holders": [list(holder) for holder in holders]})


def values_line(
    time: float, device_id: str, values: Mapping[str, float], shared: Iterable[str] = ()
) -> str:
    """Samples of one device at one time."""
    record: dict[str, Any] = {"time": time, "device": device_id, "values": dict(values)}
    if shared := list(shared):
        record["shared"] = shared
    return _line(record)


def missing_line(
    time: float, device_id: str, missing: Mapping[str, tuple[Reason, str, bool]]
) -> str:
    """Metrics of one device that have no reading from now on: reason, detail, for good or not."""
    found: dict[str, dict[str, Any]] = {}
    for metric, (reason, detail, permanent) in missing.items():
        found[metric] = {"reason": str(reason)}
        found[metric] |= {"detail": detail} if detail else {}
        found[metric] |= {"permanent": True} if permanent else {}
    return _line({"time": time, "device": device_id, "missing": found})


def no_longer_missing_line(time: float, device_id: str, metric: str) -> str:
    """Nothing says any more why this metric has no reading."""
    return _line({"time": time, "device": device_id, "missing": {metric: None}})


def time_line(time: float, *, end: bool = False) -> str:
    """The recording went on until now, or ended."""
    return _line({"time": time, "end": True} if end else {"time": time})


def device_record(device: Device) -> dict[str, Any]:
    """A device in JSON, without what it does not have."""
    fields = ("id", "name", "vendor", "backend", "parent", "pci_address", "node")
    record = {name: getattr(device, name) for name in fields if getattr(device, name) is not None}
    if device.attributes:
        record["attributes"] = dict(device.attributes)
    return record


def device_of(record: Mapping[str, Any]) -> Device:
    """The device of such a record.

    Raises:
        KeyError, TypeError: it is none.
    """
    return Device(
        id=str(record["id"]),
        name=str(record.get("name", record["id"])),
        vendor=str(record.get("vendor", "")),
        backend=str(record.get("backend", "recording")),
        parent=record.get("parent"),
        pci_address=record.get("pci_address"),
        node=record.get("node"),
        attributes=dict(record.get("attributes", {})),
    )


def is_jsonlines(head: bytes) -> bool:
    """Whether a file that begins so is such a recording."""
    return head.lstrip()[:200].startswith(b"{") and f'"{MARK}"'.encode() in head[:200]


def read_jsonlines(
    path: Path, *, metrics: Iterable[str] | None = None, repair: bool = False
) -> Recording:
    """Read such a file.

    Raises:
        ConfigurationError: a line is broken (the message names it); with ``repair`` it is left out.
    """
    with path.open("rb") as file:
        return read_lines(file, path.name, metrics=metrics, repair=repair)


def read_lines(
    lines: Iterable[bytes], name: str, *, metrics: Iterable[str] | None, repair: bool
) -> Recording:
    """Read the lines of such a file; ``name`` is for messages."""
    gathering = Gathering(name, repair=repair, metrics=metrics)
    start: float | None = None
    ended = False
    for number, record, where in _records(lines, name, gathering):
        if number == 1:
            start = _head(record, where, gathering)
            continue
        try:
            ended = _take(record, where, gathering) or ended
        except ConfigurationError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            gathering.leave_out(where, "line", f"is no line of a recording ({error!r})")
    if start is None:
        raise broken(name, "is empty")
    if not ended:
        gathering.notes.append(f"{name} does not end with its last line: its writer was stopped")
    return gathering.finish(start, origin=name, zero=0.0)


def _records(
    lines: Iterable[bytes], name: str, gathering: Gathering
) -> Iterator[tuple[int, dict[str, Any], str]]:
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        try:
            record = json.loads(line, parse_constant=_refuse_constant)
        except ValueError as error:
            if not line.endswith(b"\n"):
                gathering.notes.append(f"{where}: the last line is cut off and was left out")
                return
            if number == 1:
                raise broken(where, f"is no JSON ({error})") from error
            gathering.leave_out(where, "json", f"is no JSON ({error})")
            continue
        if not isinstance(record, dict):
            gathering.leave_out(where, "json", "is no JSON object")
            continue
        yield number, record, where


def _head(record: Mapping[str, Any], where: str, gathering: Gathering) -> float:
    if record.get(MARK) != VERSION:
        problem = f"must be the head of a recording of version {VERSION}, with the key {MARK}"
        raise broken(where, problem)
    try:
        gathering.interval = float(record["interval"])
        gathering.intervals.update({k: float(v) for k, v in record.get("intervals", {}).items()})
        gathering.units.update(record.get("units", {}))
        start = float(record["start"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise broken(where, f"is a head without start or interval ({error!r})") from error
    if not gathering.interval > 0 or not math.isfinite(start):
        raise broken(where, "is a head with an interval that is not above 0")
    return start


def _take(record: Mapping[str, Any], where: str, gathering: Gathering) -> bool:
    """Take one line; whether it was the last."""
    time = float(record["time"])
    if not math.isfinite(time):
        raise ValueError("time is no number")
    if "values" in record:
        _take_values(record, time, where, gathering)
    if "missing" in record:
        _take_missing(record, time, gathering)
    if "devices" in record:
        gathering.inventory(time, [device_of(one) for one in record["devices"]])
    if "holders" in record:
        holders = [(str(d), str(n), str(p), str(c)) for d, n, p, c in record["holders"]]
        gathering.allocations(time, holders)
    if "intervals" in record:
        gathering.intervals.update({k: float(v) for k, v in record["intervals"].items()})
    gathering.at(time)
    return record.get("end") is True


def _take_values(record: Mapping[str, Any], time: float, where: str, gathering: Gathering) -> None:
    device_id, shared = str(record["device"]), record.get("shared", ())
    for metric, value in record["values"].items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{metric} is no number")
        key = (device_id, metric)
        gathering.sample(key, time, float(value), where, shared=metric in shared)


def _take_missing(record: Mapping[str, Any], time: float, gathering: Gathering) -> None:
    for metric, why in record["missing"].items():
        key = (str(record["device"]), metric)
        if why is None:
            gathering.absent_no_longer(key, time)
            continue
        permanent = bool(why.get("permanent", False))
        reason, detail = Reason(why["reason"]), str(why.get("detail", ""))
        gathering.absent(key, time, reason, detail, permanent=permanent)


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False, separators=(",", ":"), ensure_ascii=False) + "\n"


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def write_jsonlines(recording: Recording, file: IO[str]) -> None:
    """Write a whole recording, as an import does."""
    file.write(head_line(recording.start, recording.interval, recording.intervals, recording.units))
    for _, line in sorted(_events(recording), key=lambda event: event[0]):
        file.write(line)
    file.write(time_line(recording.end, end=True))


def _events(recording: Recording) -> Iterator[tuple[float, str]]:
    yield from _inventories(recording)
    edges = {t for h in recording.holders for t in (h.start, h.end) if math.isfinite(t)}
    for time in sorted(edges):
        holders = [
            (h.device_id, h.namespace, h.pod, h.container)
            for h in recording.holders
            if h.start <= time < h.end
        ]
        yield time, holders_line(time, holders)
    for (device_id, metric), column in recording.columns.items():
        shared = (metric,) if column.shared else ()
        for time, value in zip(column.times.tolist(), column.values.tolist(), strict=True):
            yield time, values_line(time, device_id, {metric: value}, shared)
    for (device_id, metric), found in recording.absences.items():
        for one in found:
            why = (one.reason, one.detail, one.permanent)
            yield one.start, missing_line(one.start, device_id, {metric: why})
            if one.end < recording.end:
                yield one.end, no_longer_missing_line(one.end, device_id, metric)


def _inventories(recording: Recording) -> Iterator[tuple[float, str]]:
    edges = {0.0}
    for device in recording.devices:
        for span in recording.spans_of(device.id):
            edges |= {time for time in (span.start, span.end) if math.isfinite(time)}
    for time in sorted(edges):
        there = [
            device
            for device in recording.devices
            if any(s.start <= time < s.end for s in recording.spans_of(device.id))
        ]
        yield time, devices_line(time, there)
