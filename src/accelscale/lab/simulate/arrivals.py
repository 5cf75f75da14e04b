"""Requests as they come: a recorded trace, or more of one.

The format is that of the Azure LLM inference traces (Azure/AzurePublicDataset): a CSV whose header
has the columns ``TIMESTAMP``, ``ContextTokens`` and ``GeneratedTokens``, one row for each request.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from accelscale.errors import ConfigurationError, Fault, NotFoundError
from accelscale.lab.recording import Floats

Ints: TypeAlias = npt.NDArray[np.int64]

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOST_TOKENS = 100_000_000
JITTER_SECONDS = 5.0
"""How far copies of a request are moved, so that they are no volley; bursts keep their shape."""


@frozen(eq=False)
class Arrivals:
    """Requests in order of time.

    ``times`` are seconds since ``start`` (a Unix time) and do not fall; each request has a prompt
    and an answer of at least one token. ``seconds`` is how long requests came. ``notes`` are
    sentences about what was repaired or changed.
    """

    start: float
    seconds: float
    times: Floats
    prompt_tokens: Ints
    answer_tokens: Ints
    origin: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.times)

    @property
    def mean_rate(self) -> float:
        """Requests a second over the whole time."""
        return len(self) / self.seconds

    @property
    def peak_rate(self) -> float:
        """Requests a second in the busiest quarter of a minute."""
        counts = np.bincount((self.times // 15.0).astype(np.int64), minlength=1)
        return float(counts.max()) / 15.0


def read_arrivals(path: Path, *, repair: bool = False) -> Arrivals:
    """Read a trace; with ``repair`` broken rows are left out and rows are put in order of time.

    Raises:
        NotFoundError: there is no such file.
        ConfigurationError: it is no such trace, or a row is broken; the message names the line.
    """
    notes: list[str] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(_rows(path.name, csv.DictReader(file), repair, notes))
    except UnicodeDecodeError as error:
        raise _broken(f"{path.name}, byte {error.start}", "is no text") from error
    except OSError as error:
        raise NotFoundError(f"{path}: {error.strerror}") from error
    if not rows:
        raise _broken(path.name, "holds no request")
    ordered = sorted(rows, key=lambda row: row[0])
    start = ordered[0][0]
    times = np.array([time - start for time, _, _ in ordered])
    return Arrivals(
        start=start,
        seconds=max(math.ceil(float(times[-1])), 1.0),
        times=times,
        prompt_tokens=np.array([prompt for _, prompt, _ in ordered], dtype=np.int64),
        answer_tokens=np.array([answer for _, _, answer in ordered], dtype=np.int64),
        origin=path.name,
        notes=tuple(notes),
    )


def multiplied(arrivals: Arrivals, factor: float, *, seed: int) -> Arrivals:
    """So many times the load: each request as often, the copies up to `JITTER_SECONDS` apart.

    A fraction is drawn: at 2.5 every request comes twice, and each second one once more.
    """
    if factor == 1.0:
        return arrivals
    chance = np.random.default_rng(seed)
    whole = math.floor(factor)
    copies = whole + (chance.random(len(arrivals)) < factor - whole)
    at = np.repeat(np.arange(len(arrivals)), copies)
    if not len(at):
        raise ConfigurationError(
            [Fault("load", f"{factor:g}", "leaves no request of the trace")], subject="arrivals"
        )
    first = np.concatenate(([True], at[1:] != at[:-1]))
    moved = np.where(first, 0.0, chance.uniform(-JITTER_SECONDS, JITTER_SECONDS, len(at)))
    times = np.clip(arrivals.times[at] + moved, 0.0, arrivals.seconds)
    order = np.argsort(times, kind="stable")
    return evolve(
        arrivals,
        times=times[order],
        prompt_tokens=arrivals.prompt_tokens[at][order],
        answer_tokens=arrivals.answer_tokens[at][order],
        origin=f"{arrivals.origin}, {factor:g} times",
    )


def _rows(
    name: str, reader: csv.DictReader[str], repair: bool, notes: list[str]
) -> Iterator[tuple[float, int, int]]:
    lacking = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
    if lacking:
        raise _broken(
            f"{name}, line 1",
            f"has no column {', '.join(lacking)}; a trace has {', '.join(COLUMNS)}",
        )
    before = -math.inf
    try:
        for row in reader:
            where = f"{name}, line {reader.line_num}"
            try:
                time, prompt, answer = _time(row), *_tokens(row)
            except ValueError as error:
                if not repair:
                    raise _broken(where, str(error)) from None
                notes.append(f"{where}: left out, for it {error}")
                continue
            if time < before:
                if not repair:
                    raise _broken(where, "goes back in time")
                notes.append(f"{where}: goes back in time, and was put in order")
            before = max(before, time)
            yield time, prompt, answer
    except csv.Error as error:
        raise _broken(f"{name}, line {reader.line_num}", str(error)) from error


def _time(row: Mapping[str, str | None]) -> float:
    text = row["TIMESTAMP"] or ""
    try:
        return float(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        pass
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < 1e11:
        raise ValueError(f"has the TIMESTAMP {text!r}, which is no time")
    return seconds


def _tokens(row: Mapping[str, str | None]) -> tuple[int, int]:
    counts = []
    for column in COLUMNS[1:]:
        text = (row[column] or "").strip()
        count = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0
        if not 1 <= count <= MOST_TOKENS:
            raise ValueError(f"has {column} {text!r}, which is no number of tokens above 0")
        counts.append(count)
    return counts[0], counts[1]


def _broken(where: str, problem: str) -> ConfigurationError:
    return ConfigurationError([Fault(where, None, problem)], subject="arrivals")
