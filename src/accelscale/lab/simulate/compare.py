"""Many policies on the same requests, ranked: those that are quick enough, cheapest first.

A policy is quick enough when at most `LATE_SHARE` of its requests get their first token after the
objective. Those that are not are ranked by how many are late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from attrs import frozen

from accelscale.lab.policy import read_policy
from accelscale.lab.simulate.arrivals import Arrivals
from accelscale.lab.simulate.remarks import assumptions, warnings
from accelscale.lab.simulate.run import Conditions, Simulation, simulate
from accelscale.lab.simulate.server_model import ServerModel
from accelscale.lab.simulate.signals import Signal, metrics_with
from accelscale.lab.simulate.summary import (
    FIRST_TOKEN_OBJECTIVE,
    SimulationSummary,
    summarize,
)
from accelscale.lab.sweep import MOST_KEPT, Candidate

LATE_SHARE = 0.05


@frozen(eq=False)
class Outcome:
    """One candidate with what became of it; ``simulation`` stays only where the caller wants it."""

    candidate: Candidate
    summary: SimulationSummary
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]
    simulation: Simulation | None = None

    @property
    def quick_enough(self) -> bool:
        """Whether few enough requests are late."""
        return (self.summary.late_share or 0.0) <= LATE_SHARE

    @property
    def rank(self) -> tuple[float, float, float]:
        """Lower is better."""
        summary = self.summary
        if self.quick_enough:
            return 0.0, summary.device_hours, summary.energy_kilowatt_hours
        return 1.0, summary.late_share or 0.0, summary.device_hours

    def record(self) -> dict[str, Any]:
        """Its form in JSON."""
        return {
            "name": self.candidate.name,
            "quick_enough": self.quick_enough,
            "summary": self.summary.record(),
            "warnings": list(self.warnings),
        }


def compare(
    arrivals: Arrivals,
    candidates: Sequence[Candidate],
    model: ServerModel,
    conditions: Conditions,
    signals: Mapping[str, Signal],
    *,
    objective: float = FIRST_TOKEN_OBJECTIVE,
    keeps_simulations: bool = False,
    on_progress: Callable[[int], None] = lambda _: None,
) -> list[Outcome]:
    """Simulate every candidate, the best first.

    With ``keeps_simulations`` those of the `MOST_KEPT` best stay, for a picture.

    Raises:
        ConfigurationError, UnsupportedError: a candidate is no policy that can be simulated.
    """
    outcomes: list[Outcome] = []
    for done, candidate in enumerate(candidates, 1):
        outcome = tried(arrivals, candidate, model, conditions, signals, objective)
        outcomes = sorted([*outcomes, outcome], key=lambda one: one.rank)
        most = MOST_KEPT if keeps_simulations else 0
        outcomes[most:] = [attrs.evolve(one, simulation=None) for one in outcomes[most:]]
        on_progress(done)
    return outcomes


def tried(
    arrivals: Arrivals,
    candidate: Candidate,
    model: ServerModel,
    conditions: Conditions,
    signals: Mapping[str, Signal],
    objective: float = FIRST_TOKEN_OBJECTIVE,
) -> Outcome:
    """Simulate one candidate."""
    policy = read_policy(candidate.document, metrics=metrics_with(signals))
    simulation = simulate(arrivals, policy, model, conditions, signals)
    summary = summarize(simulation, objective=objective)
    return Outcome(
        candidate,
        summary,
        tuple(warnings(simulation, summary)),
        tuple(assumptions(simulation)),
        simulation,
    )
