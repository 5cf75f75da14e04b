"""Many policies over one recording: a grid of settings, side by side and ranked by cost."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from attrs import field, frozen

from accelscale.errors import ConfigurationError, Fault
from accelscale.lab.policy import Document, changed, read_policy
from accelscale.lab.remarks import assumptions, warnings
from accelscale.lab.replay import Conditions, Replay, Replayer
from accelscale.lab.summary import Summary, summarize
from accelscale.metrics import Metric

MOST_POINTS = 2000
MOST_KEPT = 6
MISSED_HOUR_COST = 10.0
"""How many device hours one hour of missed work is worth, unless the caller says otherwise."""

_RANGE = re.compile(r"(-?[0-9.]+)\.\.(-?[0-9.]+)(?::([0-9.]+))?([a-zA-Z]*)")


@frozen
class Sweep:
    """One setting with the texts that it takes in turn."""

    key: str
    values: tuple[str, ...]


@frozen
class Candidate:
    """A policy to be tried: where it comes from, what was changed, and its manifest."""

    name: str
    document: Document = field(eq=False)


@frozen(eq=False)
class Outcome:
    """One candidate with what became of it; ``replay`` is kept only where the caller wants it."""

    candidate: Candidate
    summary: Summary
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]
    cost: float
    replay: Replay | None = None

    def record(self) -> dict[str, Any]:
        """Its form in JSON."""
        return {
            "name": self.candidate.name,
            "cost": self.cost,
            "summary": self.summary.record(),
            "warnings": list(self.warnings),
        }


def parse_sweep(text: str) -> Sweep:
    """``threshold=50..90:5``, ``window=15s,30s,1m`` or ``cooldownPeriod=60..600:60``.

    A range holds both ends; its step is 1 where none is given, and a unit behind it is repeated.

    Raises:
        ConfigurationError: it is none of these.
    """
    key, separator, values = text.partition("=")
    if not separator or not key.strip() or not values.strip():
        raise _fault(text, "must be KEY=FROM..TO:STEP or KEY=VALUE,VALUE")
    match = _RANGE.fullmatch(values.strip())
    if match is None:
        if ".." in values:
            raise _fault(text, "a range is FROM..TO:STEP, such as 50..90:5")
        return Sweep(key.strip(), tuple(value.strip() for value in values.split(",")))
    try:
        low, high, step = float(match[1]), float(match[2]), float(match[3] or 1)
    except ValueError:
        raise _fault(text, "a range is FROM..TO:STEP, such as 50..90:5") from None
    if not step > 0 or high < low:
        raise _fault(text, "a range rises, by a step above 0")
    count = math.floor((high - low) / step + 1e-9) + 1
    if count > MOST_POINTS:
        raise _fault(text, f"has {count} points; at most {MOST_POINTS} are tried")
    numbers = (round(low + index * step, 9) for index in range(count))
    return Sweep(key.strip(), tuple(f"{number:g}{match[4]}" for number in numbers))


def grid(name: str, document: Document, sweeps: Sequence[Sweep]) -> list[Candidate]:
    """Every combination of the settings; just the document where there is no sweep.

    Raises:
        ConfigurationError: there are too many.
        NotFoundError: the document has no such setting.
    """
    total = math.prod(len(sweep.values) for sweep in sweeps)
    if total > MOST_POINTS:
        raise _fault(str(total), f"points are too many; at most {MOST_POINTS} are tried")
    return list(_combinations(name, document, sweeps))


def _combinations(name: str, document: Document, sweeps: Sequence[Sweep]) -> Iterator[Candidate]:
    for values in itertools.product(*(sweep.values for sweep in sweeps)):
        result, parts = document, []
        for sweep, value in zip(sweeps, values, strict=True):
            result = changed(result, sweep.key, value)
            parts.append(f"{sweep.key}={value}")
        yield Candidate(" ".join([name, *parts]) if name else " ".join(parts), result)


def compare(
    replayer: Replayer,
    candidates: Sequence[Candidate],
    conditions: Conditions,
    *,
    missed_hour_cost: float = MISSED_HOUR_COST,
    keeps_replays: bool = False,
    on_progress: Callable[[int], None] = lambda _: None,
) -> list[Outcome]:
    """Replay every candidate, the cheapest first.

    With ``keeps_replays`` the whole replays of the `MOST_KEPT` cheapest stay, for a picture.

    Raises:
        ConfigurationError, UnsupportedError: a candidate is no policy that can be replayed.
    """
    metrics = replayer.recording.metrics_table()
    outcomes: list[Outcome] = []
    for number, candidate in enumerate(candidates):
        outcome = tried(replayer, candidate, conditions, metrics, missed_hour_cost)
        outcomes = sorted([*outcomes, outcome], key=lambda one: one.cost)
        most = MOST_KEPT if keeps_replays else 0
        outcomes[most:] = [attrs.evolve(one, replay=None) for one in outcomes[most:]]
        on_progress(number + 1)
    return outcomes


def tried(
    replayer: Replayer,
    candidate: Candidate,
    conditions: Conditions,
    metrics: Mapping[str, Metric],
    missed_hour_cost: float = MISSED_HOUR_COST,
) -> Outcome:
    """Replay one candidate."""
    replay = replayer.replay(read_policy(candidate.document, metrics=metrics), conditions)
    summary = summarize(replay)
    return Outcome(
        candidate,
        summary,
        tuple(warnings(replay, summary)),
        tuple(assumptions(replay)),
        cost_of(summary, missed_hour_cost),
        replay,
    )


def cost_of(summary: Summary, missed_hour_cost: float = MISSED_HOUR_COST) -> float:
    """Device hours, and so many more for each device hour of work that was not served in time.

    Without a metric of work only the device hours count.
    """
    missed = (summary.missed_device_hours or 0.0) + (summary.left_device_hours or 0.0)
    return summary.device_hours + missed_hour_cost * missed


def _fault(text: str, problem: str) -> ConfigurationError:
    return ConfigurationError([Fault("sweep", text, problem)], subject="options")
