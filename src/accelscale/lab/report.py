"""The figures of a replay for people and for programs: labels, tables, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

import attrs

from accelscale.lab.recording import Recording
from accelscale.lab.remarks import assumptions
from accelscale.lab.replay import Conditions, Replay
from accelscale.lab.summary import Summary
from accelscale.lab.sweep import Candidate, Outcome
from accelscale.lab.wording import NOTHING, number, percent, quantity, spell

Row: TypeAlias = Sequence[str]


class Remarked(Protocol):
    """An outcome of a comparison, with what must be said beside its figures."""

    @property
    def candidate(self) -> Candidate: ...
    @property
    def warnings(self) -> Sequence[str]: ...
    @property
    def assumptions(self) -> Sequence[str]: ...


def labelled(summary: Summary) -> list[tuple[str, str]]:
    """Each figure with its label and unit; what cannot be told is left out."""
    return [(label, text) for label, text in _labelled(summary) if text != NOTHING]


def _labelled(s: Summary) -> Iterator[tuple[str, str]]:
    yield "replica hours", number(s.replica_hours)
    yield "device hours", number(s.device_hours)
    yield "energy", quantity(s.energy_kilowatt_hours, "kWh")
    yield (
        "replicas",
        f"{s.replicas_least} to {s.replicas_most}, {number(s.replicas_mean)} on average",
    )
    yield "scale events", f"{s.scale_ups} up, {s.scale_downs} down"
    yield "from and to zero", f"{s.starts_from_zero} from, {s.stops_to_zero} to"
    yield "cold starts", str(s.replicas_started)
    yield "flaps", str(s.flaps)
    yield "time active", percent(s.active_share)
    yield "time above threshold", percent(s.above_threshold_share)
    yield "time saturated", percent(s.saturated_share)
    yield "time at maximum", percent(s.at_maximum_share)
    yield "time without answer", percent(s.no_data_share)
    yield "time to react", _reaction(s)
    yield "work", quantity(s.work_device_hours, "device hours")
    yield "missed work", _missed(s)
    yield "longest wait", quantity(s.longest_wait_seconds, "s")
    yield "left undone", quantity(s.left_device_hours, "device hours")


def ranking(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Titles and rows of a comparison, the cheapest first."""
    titles = ["", "policy", "cost", "device h", "missed", "saturated", "events", "flaps", "energy"]
    rows = [
        [
            str(place),
            outcome.candidate.name,
            number(outcome.cost),
            number(outcome.summary.device_hours),
            percent(outcome.summary.missed_share),
            percent(outcome.summary.saturated_share),
            str(outcome.summary.scale_ups + outcome.summary.scale_downs),
            str(outcome.summary.flaps),
            quantity(outcome.summary.energy_kilowatt_hours, "kWh"),
        ]
        for place, outcome in enumerate(outcomes, 1)
    ]
    return titles, rows


def subtitle(recording: Recording) -> str:
    """What was replayed, in a line."""
    begin = datetime.fromtimestamp(recording.start, UTC)
    count = len(recording.devices)
    return (
        f"{recording.origin}: {count} device{'s' * (count != 1)},"
        f" {begin:%Y-%m-%d %H:%M} UTC, {spell(recording.end)}, every {recording.interval:g} s"
    )


def replay_record(replay: Replay, summary: Summary, warnings: Sequence[str]) -> dict[str, Any]:
    """A replay in JSON; ``changes`` are [time, replicas from then on]."""
    return {
        "policy": f"{replay.policy.namespace}/{replay.policy.name}",
        "recording": recording_record(replay.recording),
        "conditions": conditions_record(replay.conditions),
        "summary": summary.record(),
        "warnings": list(warnings),
        "assumptions": assumptions(replay),
        "changes": [list(change) for change in replay.changes()],
    }


def recording_record(recording: Recording) -> dict[str, Any]:
    """What was replayed."""
    return {
        "origin": recording.origin,
        "start": recording.start,
        "seconds": recording.end,
        "interval": recording.interval,
        "devices": [device.id for device in recording.devices],
        "samples": recording.samples,
        "notes": list(recording.notes),
    }


def conditions_record(conditions: Conditions) -> dict[str, Any]:
    """The free inputs."""
    record = attrs.asdict(conditions)
    record["keda"] = ".".join(str(part) for part in attrs.astuple(conditions.keda))
    record["controller"]["tolerance_form"] = str(conditions.controller.tolerance_form)
    return record


def _missed(summary: Summary) -> str:
    if summary.missed_device_hours is None:
        return NOTHING
    share = f" ({percent(summary.missed_share)})" if summary.missed_share is not None else ""
    return f"{number(summary.missed_device_hours)} device hours{share}"


def _reaction(summary: Summary) -> str:
    if summary.reaction_median_seconds is None or summary.reaction_longest_seconds is None:
        return NOTHING
    return (
        f"{number(summary.reaction_median_seconds)} s, at most"
        f" {number(summary.reaction_longest_seconds)} s"
    )


def comparison_record(
    recording: Recording,
    conditions: Conditions,
    outcomes: Sequence[Outcome],
    assumed: Sequence[str],
) -> dict[str, Any]:
    """A comparison in JSON, the cheapest first."""
    return {
        "recording": recording_record(recording),
        "conditions": conditions_record(conditions),
        "assumptions": list(assumed),
        "policies": [outcome.record() for outcome in outcomes],
    }


def shared_assumptions(outcomes: Sequence[Remarked]) -> list[str]:
    """Each assumption of any of them, once."""
    return list(dict.fromkeys(text for one in outcomes for text in one.assumptions))


def shared_warnings(outcomes: Sequence[Remarked]) -> list[str]:
    """Each warning once, with the policies that it is about unless it is about all."""
    about: dict[str, list[str]] = {}
    for outcome in outcomes:
        for text in outcome.warnings:
            about.setdefault(text, []).append(outcome.candidate.name)
    return [
        text if len(names) == len(outcomes) else f"{_few(names)}: {text}"
        for text, names in about.items()
    ]


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
