"""What ``accelscale top`` shows of a snapshot: columns that fit, rows in order, ages. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from attrs import frozen

from accelscale.cli.figures import SHORT_REASONS, figure, number
from accelscale.errors import ConfigurationError, Fault
from accelscale.metrics import Metric
from accelscale.model import Device, Reason, Snapshot
from accelscale.values import did_you_mean

LATE_INTERVALS = 3.0
"""A sample older than so many intervals is marked as late."""

_UUID = re.compile(r"([0-9a-fA-F]{8})(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_GAP = 1
_LEAST_DEVICE_WIDTH = 10
_NAME_WIDTH = 22  # from here on the name of the model fits in beside the id


class Mood(StrEnum):
    """What a cell tells apart from its text; the terminal makes a colour of it."""

    PLAIN = "plain"
    BUSY = "busy"
    ABSENT = "absent"
    ILL = "ill"
    LATE = "late"


@frozen
class Column:
    """One column: the metrics that it shows, and how wide it is."""

    title: str
    metrics: tuple[str, ...]
    width: int


@frozen
class Cell:
    """A text and its mood."""

    text: str
    mood: Mood = Mood.PLAIN


@frozen
class Overview:
    """Titles, widths and rows, ready to print; ``notes`` stand below them."""

    titles: tuple[str, ...]
    widths: tuple[int, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]


COLUMNS = (  # in the order in which room is given to them
    Column("UTIL", ("utilization_percent",), 7),
    Column("MEM", ("memory_used_percent",), 7),
    Column("TEMP", ("temperature_celsius",), 7),
    Column("POWER", ("power_watts",), 7),
    Column("MEM USED/TOTAL", ("memory_used_bytes", "memory_total_bytes"), 17),
    Column("CLOCK", ("sm_clock_megahertz",), 8),
    Column("THROTTLE", ("throttled_percent",), 8),
    Column("PROCS", ("process_count",), 7),
    Column("PCIE IN", ("pcie_receive_bytes_per_second",), 10),
    Column("PCIE OUT", ("pcie_transmit_bytes_per_second",), 10),
    Column("LINK IN", ("interconnect_receive_bytes_per_second",), 10),
    Column("LINK OUT", ("interconnect_transmit_bytes_per_second",), 10),
)
_CORE = 4  # columns that are shown even where no device can fill them now
_AGE_WIDTH = 5
_BUSY_FROM = 90.0

SORT_WORDS: Mapping[str, str] = {
    "utilization": "utilization_percent",
    "memory": "memory_used_percent",
    "power": "power_watts",
    "temperature": "temperature_celsius",
}
"""What may stand for a metric in ``--sort``."""


def overview(
    snapshot: Snapshot, width: int, now: float, order: str | None, most_rows: int | None = None
) -> Overview:
    """The table of a snapshot for a terminal so many columns wide.

    ``order`` is a metric, largest first. Rows beyond ``most_rows`` are counted in a note.
    """
    columns, device_width = _fitting(_useful(snapshot), width)
    devices = ordered(snapshot, order)
    shown = devices if most_rows is None else devices[: max(most_rows, 1)]
    rows = tuple(
        (
            Cell(label(device, device_width), Mood.ILL if device.problem else Mood.PLAIN),
            *(_cell(snapshot, device, column, now) for column in columns),
            _age_cell(snapshot, device, now),
        )
        for device in shown
    )
    notes = tuple(_notes(snapshot, shown, rows, len(devices)))
    titles = ("DEVICE", *(column.title for column in columns), "AGE")
    widths = (device_width, *(column.width for column in columns), _AGE_WIDTH)
    return Overview(titles, widths, rows, notes)


def ordered(snapshot: Snapshot, order: str | None) -> Sequence[Device]:
    """The devices, largest value first; those without one come last, in the usual order."""
    if order is None:
        return snapshot.devices

    def key(device: Device) -> float:
        value = snapshot.value(device.id, order)
        return math.inf if value is None else -value

    return sorted(snapshot.devices, key=key)


def sort_metric(word: str | None, metrics: Mapping[str, Metric]) -> str | None:
    """The metric that ``--sort`` means.

    Raises:
        ConfigurationError: there is none of that name.
    """
    if word is None or word == "device":
        return None
    name = SORT_WORDS.get(word, word)
    if name not in metrics:
        choices = ("device", *SORT_WORDS, *metrics)
        hint = did_you_mean(word, choices)
        problem = f"must be device, {', '.join(SORT_WORDS)} or the name of a metric{hint}"
        raise ConfigurationError([Fault("--sort", word, problem)], subject="top")
    return name


def plain_line(snapshot: Snapshot, device: Device, now: float) -> str:
    """One device on one line for a file or a pipe: ``key=value``, missing ones by reason."""
    words = [
        datetime.now().astimezone().isoformat(timespec="seconds"),
        device.backend,
        device.id,
    ]
    if device.problem:
        words.append(f"problem={device.problem}")
    for name in dict.fromkeys(name for column in COLUMNS for name in column.metrics):
        value, failure = snapshot.value(device.id, name), snapshot.failure(device.id, name)
        if value is not None:
            words.append(f"{name}={value:.12g}")
        elif failure is not None and not failure.permanent:
            words.append(f"{name}={failure.reason}")
    age = age_of(snapshot, device, now)
    words.append("age=none" if age is None else f"age={age:.1f}s")
    return " ".join(words)


def label(device: Device, width: int) -> str:
    """Name and short id where there is room, else the id; a partition hangs below its card."""
    branch = "└ " if device.parent else ""
    short = short_id(device.id)
    if width >= _NAME_WIDTH:
        room = width - len(branch) - len(short) - 1
        name = device.name
        if name.lower().startswith(f"{device.vendor} "):
            name = name[len(device.vendor) + 1 :]
        return f"{branch}{_cut(name, room)} {short}"
    bare = short.partition("-")[2] if short.startswith(("GPU-", "MIG-")) else short
    chosen = short if len(branch) + len(short) <= width else bare
    return f"{branch}{chosen}"[:width]


def short_id(device_id: str) -> str:
    """The id with just the first group of its UUID; one without a UUID stays, if it is short."""
    return _cut(_UUID.sub(r"\1", device_id), 20)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def age_of(snapshot: Snapshot, device: Device, now: float) -> float | None:
    """Seconds since the newest sample of the device, or None where it has none."""
    newest = max((sample.time for sample in snapshot.samples_of(device.id)), default=None)
    return None if newest is None else max(now - newest, 0.0)


def _useful(snapshot: Snapshot) -> list[Column]:
    """The first columns, and those that some device in good health fills or may fill later."""

    def can_fill(metric: str) -> bool:
        for device in snapshot.devices:
            failure = snapshot.failure(device.id, metric)
            if snapshot.value(device.id, metric) is not None:
                return True
            if failure is not None and not failure.permanent and not device.problem:
                return True
        return False

    return [
        column
        for index, column in enumerate(COLUMNS)
        if index < _CORE or any(can_fill(metric) for metric in column.metrics)
    ]


def _fitting(columns: Sequence[Column], width: int) -> tuple[list[Column], int]:
    """As many columns as there is room for, and what is left for the device."""
    taken: list[Column] = []
    room = width - _AGE_WIDTH - _GAP
    for column in columns:
        left = room - sum(c.width + _GAP for c in taken) - column.width - _GAP
        needed = _LEAST_DEVICE_WIDTH if len(taken) < _CORE else _NAME_WIDTH
        if left < needed:
            break
        taken.append(column)
    device_width = room - sum(column.width + _GAP for column in taken)
    return taken, max(min(device_width, 44), 1)


def _cell(snapshot: Snapshot, device: Device, column: Column, now: float) -> Cell:
    texts, mood = [], Mood.PLAIN
    for name in column.metrics:
        sample = snapshot.samples.get((device.id, name))
        if sample is None:
            failure = snapshot.failure(device.id, name)
            if failure is None:
                return Cell("-", Mood.ABSENT)
            ill = failure.reason in {Reason.LOST, Reason.RESET_REQUIRED, Reason.TIMEOUT}
            return Cell(SHORT_REASONS[failure.reason], Mood.ILL if ill else Mood.ABSENT)
        texts.append(_short_figure(name, sample.value))
        if now - sample.time > LATE_INTERVALS * snapshot.interval_of(name):
            mood = Mood.LATE
        elif name == "utilization_percent" and sample.value >= _BUSY_FROM:
            mood = Mood.BUSY
    return Cell("/".join(texts), mood)


def _short_figure(name: str, value: float) -> str:
    from accelscale.metrics import METRICS

    if name == "process_count":
        return number(value)
    return figure(value, METRICS.get(name)).replace(" ", "" if name.endswith("_bytes") else " ")


def _age_cell(snapshot: Snapshot, device: Device, now: float) -> Cell:
    age = age_of(snapshot, device, now)
    if age is None:
        return Cell("none", Mood.ABSENT)
    late = age > LATE_INTERVALS * snapshot.interval
    text = f"{age:.1f}s" if age < 99 else f"{min(age, 99_999) / 60:.0f}m"
    return Cell(text, Mood.LATE if late else Mood.PLAIN)


def _notes(
    snapshot: Snapshot,
    shown: Collection[Device],
    rows: Sequence[Sequence[Cell]],
    devices: int,
) -> Iterator[str]:
    if devices > len(shown):
        yield f"and {devices - len(shown)} more devices"
    for device in shown:
        if device.problem:
            detail = f": {device.problem_detail}" if device.problem_detail else ""
            yield f"{short_id(device.id)} {device.problem}{detail}"
    for name, problem in snapshot.problems.items():
        yield f"{name}: {problem}"
    texts = {cell.text for row in rows for cell in row[1:]}
    meanings = [f"{short} = {r}" for r, short in SHORT_REASONS.items() if short in texts]
    unclear = [text for text in meanings if not text.startswith(("lost", "timeout", "stale"))]
    if unclear:
        yield ", ".join(unclear)
