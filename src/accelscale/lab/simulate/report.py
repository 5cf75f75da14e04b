"""The figures of a simulation for people and for programs: labels, a ranking, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs

from accelscale.lab.simulate.arrivals import Arrivals
from accelscale.lab.simulate.compare import Outcome
from accelscale.lab.simulate.remarks import assumptions
from accelscale.lab.simulate.run import Conditions, Simulation
from accelscale.lab.simulate.server_model import FIGURES, ServerModel
from accelscale.lab.simulate.summary import Percentiles, SimulationSummary
from accelscale.lab.wording import NOTHING, number, percent, quantity, spell


def labelled(summary: SimulationSummary, objective: float) -> list[tuple[str, str]]:
    """Each figure with its label and unit; what cannot be told is left out."""
    return [(label, text) for label, text in _labelled(summary, objective) if text != NOTHING]


def _labelled(s: SimulationSummary, objective: float) -> Iterator[tuple[str, str]]:
    yield "requests", f"{s.requests}, {s.completed} done"
    yield "first token", latency(s.first_token)
    yield "whole answer", latency(s.whole_answer)
    yield "per token", latency(s.per_token)
    yield f"first token after {number(objective)} s", percent(s.late_share)
    yield "requests waiting", f"{number(s.waiting_mean)} on average, at most {s.waiting_most}"
    yield "device hours", number(s.device_hours)
    yield "energy", quantity(s.energy_kilowatt_hours, "kWh")
    yield "energy per token", quantity(s.joules_per_token, "J")
    yield "busy", f"{percent(s.busy_share)} of the time that devices were held"
    yield (
        "replicas",
        f"{s.replicas_least} to {s.replicas_most}, {number(s.replicas_mean)} on average",
    )
    yield "scale events", f"{s.scale_ups} up, {s.scale_downs} down"
    yield "cold starts", str(s.replicas_started)
    yield "from and to zero", f"{s.starts_from_zero} from, {s.stops_to_zero} to"
    yield "flaps", str(s.flaps)
    yield "time above threshold", percent(s.above_threshold_share)
    yield "time at maximum", percent(s.at_maximum_share)
    yield "time without answer", percent(s.no_data_share)
    yield "begun again", str(s.begun_again)


def latency(found: Percentiles) -> str:
    """Three percentiles in words; what never came is ``not in time``."""
    pairs = (("p50", found.p50), ("p95", found.p95), ("p99", found.p99))
    return ", ".join(f"{name} {seconds(value)}" for name, value in pairs)


def seconds(value: float | None) -> str:
    """``0.23 s``, ``18 ms``, or that it did not come in time."""
    if value is None:
        return "not in time"
    return f"{number(1000 * value)} ms" if value < 0.1 else f"{number(value)} s"


def ranking(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Titles and rows of a comparison, the best first."""
    titles = ["", "policy", "late", "first p50", "first p95", "answer p95", "device h", "energy"]
    titles += ["waiting", "started", "events"]
    rows = []
    for place, outcome in enumerate(outcomes, 1):
        s = outcome.summary
        rows.append(
            [
                str(place),
                outcome.candidate.name,
                percent(s.late_share),
                seconds(s.first_token.p50),
                seconds(s.first_token.p95),
                seconds(s.whole_answer.p95),
                number(s.device_hours),
                quantity(s.energy_kilowatt_hours, "kWh"),
                number(s.waiting_mean),
                str(s.replicas_started),
                str(s.scale_ups + s.scale_downs),
            ]
        )
    return titles, rows


def subtitle(arrivals: Arrivals, model: ServerModel) -> str:
    """What was simulated, in a line."""
    begin = datetime.fromtimestamp(arrivals.start, UTC)
    return (
        f"{arrivals.origin}: {len(arrivals)} requests from {begin:%Y-%m-%d %H:%M} UTC in"
        f" {spell(arrivals.seconds)}, {number(arrivals.mean_rate)} a second, at most"
        f" {number(arrivals.peak_rate)} in 15 s; {model.name} on {model.devices}"
        f" device{'s' * (model.devices != 1)} a replica"
    )


def simulation_record(
    simulation: Simulation, summary: SimulationSummary, warnings: Sequence[str]
) -> dict[str, Any]:
    """A simulation in JSON; ``changes`` are [time, replicas from then on]."""
    fleet = simulation.fleet
    return {
        "policy": f"{simulation.policy.namespace}/{simulation.policy.name}",
        **_surroundings(simulation.arrivals, simulation.model, simulation.conditions),
        "summary": summary.record(),
        "warnings": list(warnings),
        "assumptions": assumptions(simulation),
        "changes": [list(change) for change in simulation.changes()],
        "replicas": [
            {
                "name": replica.name,
                "created": max(replica.created, 0.0),
                "served": sum(number == replica.number for number in fleet.served_by),
                "busy_seconds": replica.server.busy_seconds,
                "energy_joules": replica.server.joules,
            }
            for replica in fleet.all_replicas
        ],
    }


def comparison_record(
    arrivals: Arrivals,
    model: ServerModel,
    conditions: Conditions,
    outcomes: Sequence[Outcome],
    assumed: Sequence[str],
) -> dict[str, Any]:
    """A comparison in JSON, the best first."""
    return {
        **_surroundings(arrivals, model, conditions),
        "assumptions": list(assumed),
        "policies": [outcome.record() for outcome in outcomes],
    }


def _surroundings(arrivals: Arrivals, model: ServerModel, conditions: Conditions) -> dict[str, Any]:
    record = attrs.asdict(conditions)
    record["keda"] = ".".join(str(part) for part in attrs.astuple(conditions.keda))
    record["controller"]["tolerance_form"] = str(conditions.controller.tolerance_form)
    return {
        "arrivals": {
            "origin": arrivals.origin,
            "start": arrivals.start,
            "seconds": arrivals.seconds,
            "requests": len(arrivals),
            "prompt_tokens": int(arrivals.prompt_tokens.sum()),
            "answer_tokens": int(arrivals.answer_tokens.sum()),
            "notes": list(arrivals.notes),
        },
        "server": {"name": model.name, **{name: getattr(model, name) for name in FIGURES}},
        "conditions": record,
    }
