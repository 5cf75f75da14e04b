"""What a simulation comes to: latency, device hours, energy, queue, and how the policy scaled."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
from attrs import frozen

from accelscale.lab.course import CourseSummary, summarize_course
from accelscale.lab.recording import Floats
from accelscale.lab.simulate.run import Simulation

FIRST_TOKEN_OBJECTIVE = 2.0
"""Seconds to the first token after which a request counts as late, unless the caller says so."""


@frozen
class Percentiles:
    """Seconds by nearest rank over all requests that were not refused.

    A request that was not done in time counts as the slowest; None is a percentile that falls on
    such a one.
    """

    p50: float | None
    p95: float | None
    p99: float | None


@frozen
class SimulationSummary(CourseSummary):
    """The figures of one simulation.

    ``first_token``, ``whole_answer`` and ``per_token`` are seconds from the arrival to the first
    and to the last token, and between two tokens. ``late_share`` is the share of requests without a
    first token within the objective. ``begun_again`` counts requests that lost their replica,
    ``refused`` those that fit into no cache. ``busy_share`` is busy time over the time that
    replicas were held. ``device_hours`` counts a removed replica until it has given its devices
    back.
    """

    requests: int
    completed: int
    unfinished: int
    refused: int
    begun_again: int
    first_token: Percentiles
    whole_answer: Percentiles
    per_token: Percentiles
    late_share: float | None
    waiting_mean: float
    waiting_most: int
    busy_share: float | None
    generated_tokens: int
    energy_kilowatt_hours: float
    joules_per_token: float | None

    def record(self) -> dict[str, Any]:
        """Its form in JSON."""
        return attrs.asdict(self)


def summarize(
    simulation: Simulation, *, objective: float = FIRST_TOKEN_OBJECTIVE
) -> SimulationSummary:
    """The figures of a simulation; ``objective`` is the latest time to a first token."""
    fleet, arrivals = simulation.fleet, simulation.arrivals
    course = summarize_course(simulation)
    refused = np.zeros(len(arrivals), dtype=bool)
    refused[fleet.refused] = True
    taken = ~refused
    first_token = (simulation.first_token - arrivals.times)[taken]
    whole_answer = (simulation.finished - arrivals.times)[taken]
    gaps = np.maximum(arrivals.answer_tokens - 1, 1)
    per_token = ((simulation.finished - simulation.first_token) / gaps)[
        taken & (arrivals.answer_tokens > 1)
    ]
    held = sum(replica.device_seconds(simulation.seconds) for replica in fleet.all_replicas)
    busy = sum(replica.server.busy_seconds for replica in fleet.all_replicas)
    joules = sum(replica.server.joules for replica in fleet.all_replicas)
    generated = sum(replica.server.generated for replica in fleet.all_replicas)
    done = int(np.isfinite(whole_answer).sum())
    return SimulationSummary(
        **{**attrs.asdict(course), "device_hours": held / 3600},
        requests=len(arrivals),
        completed=done,
        unfinished=len(whole_answer) - done,
        refused=len(fleet.refused),
        begun_again=fleet.begun_again,
        first_token=percentiles(first_token),
        whole_answer=percentiles(whole_answer),
        per_token=percentiles(per_token),
        late_share=float((~(first_token <= objective)).mean()) if len(first_token) else None,
        waiting_mean=float(np.mean(fleet.waiting_counts)),
        waiting_most=max(fleet.waiting_counts),
        busy_share=busy * simulation.model.devices / held if held else None,
        generated_tokens=generated,
        energy_kilowatt_hours=joules / 3.6e6,
        joules_per_token=joules / generated if generated else None,
    )


def percentiles(seconds: Floats) -> Percentiles:
    """By nearest rank, so that each is a latency that a request had; NaN counts as the slowest."""
    ordered = np.sort(np.nan_to_num(seconds, nan=math.inf, posinf=math.inf))
    return Percentiles(*(_percentile(ordered, rank) for rank in (50, 95, 99)))


def _percentile(ordered: Floats, rank: int) -> float | None:
    if not len(ordered):
        return None
    found = float(ordered[math.ceil(rank * len(ordered) / 100) - 1])
    return found if math.isfinite(found) else None
