"""What the pictures of a simulation show: load, replicas, requests, latency, power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from attrs import evolve

from accelscale.lab.pictures import (
    Line,
    Panel,
    Picture,
    Role,
    averaged,
    changes_of,
    load_panels,
    steps,
    thinned,
    unanswered,
)
from accelscale.lab.recording import Floats
from accelscale.lab.simulate.compare import Outcome
from accelscale.lab.simulate.run import Simulation

STRETCH = 60.0
"""Seconds of arrivals over which a percentile is taken for a line."""


def picture_of(simulation: Simulation) -> Picture:
    """Load of a replica, replicas, requests, time to the first token, and power."""
    units = {name: signal.unit for name, signal in simulation.signals.items()}
    panels = (
        *load_panels(simulation, units),
        _replicas(simulation),
        _requests(simulation),
        Panel("Time to the first token", "seconds", (first_token_line("p95", simulation),)),
        Panel("Power of all devices", "kW", (_power(simulation),)),
    )
    policy = simulation.policy
    return Picture(
        f"{policy.namespace}/{policy.name}",
        simulation.arrivals.start,
        simulation.seconds,
        panels,
        unanswered(simulation),
    )


def comparison_of(outcomes: Sequence[Outcome]) -> Picture | None:
    """Replicas and latency of the best candidates whose simulations were kept."""
    kept = [(o.candidate.name, o.simulation) for o in outcomes if o.simulation is not None]
    if not kept:
        return None
    _, simulation = kept[0]
    replicas = tuple(steps(name, Role.OTHER, one.changes(), one.seconds) for name, one in kept)
    latency = tuple(first_token_line(name, one, Role.OTHER) for name, one in kept)
    return Picture(
        "Comparison",
        simulation.arrivals.start,
        simulation.seconds,
        (
            Panel("Replicas, best policies", "replicas", replicas),
            Panel("Time to the first token, p95", "seconds", latency),
            Panel("Requests that come", "a second", (_rate(simulation),)),
        ),
    )


def first_token_line(name: str, simulation: Simulation, role: Role = Role.QUEUE) -> Line:
    """The 95th percentile of the time to the first token, by the minute in which requests came.

    Where one of the slowest twentieth never got one, or nobody came, nothing is drawn.
    """
    arrivals = simulation.arrivals
    waits = np.nan_to_num(simulation.first_token - arrivals.times, nan=math.inf)
    edges = np.arange(0.0, simulation.seconds + STRETCH, STRETCH)
    bounds = np.searchsorted(arrivals.times, edges)
    values = []
    for start, end in pairwise(bounds.tolist()):
        part = np.sort(waits[start:end])
        found = part[math.ceil(0.95 * len(part)) - 1] if len(part) else math.inf
        values.append(float(found) if math.isfinite(found) else math.nan)
    return evolve(thinned(name, role, edges[:-1], np.array(values)), steps=True)


def _replicas(simulation: Simulation) -> Panel:
    fleet = simulation.fleet
    moments = np.array(fleet.moments)
    serving = changes_of(moments, np.array(fleet.serving_counts, dtype=np.float64))
    return Panel(
        "Replicas",
        "replicas",
        (
            steps("wanted", Role.WANTED, simulation.changes(), simulation.seconds),
            steps("serving", Role.SERVING, serving, simulation.seconds),
        ),
    )


def _requests(simulation: Simulation) -> Panel:
    fleet = simulation.fleet
    moments = np.array(fleet.moments)
    waiting = np.array(fleet.waiting_counts, dtype=np.float64)
    running = np.array(fleet.running_counts, dtype=np.float64)
    return Panel(
        "Requests",
        "requests",
        (
            thinned("waiting", Role.QUEUE, moments, waiting),
            averaged("in work", Role.SERVED, moments, running),
        ),
    )


def _rate(simulation: Simulation) -> Line:
    edges = np.arange(0.0, simulation.seconds + STRETCH, STRETCH)
    counts = np.diff(np.searchsorted(simulation.arrivals.times, edges))
    line = averaged("requests", Role.ARRIVING, edges[:-1], counts / STRETCH)
    return evolve(line, steps=True)


def _power(simulation: Simulation) -> Line:
    moments = np.array(simulation.fleet.moments)
    return averaged("drawn", Role.LOAD, moments, fleet_watts(simulation) / 1000)


def fleet_watts(simulation: Simulation) -> Floats:
    """The power of all devices at each sampling."""
    fleet = simulation.fleet
    total = np.zeros(len(fleet.moments))
    for replica in fleet.all_replicas:
        at = np.searchsorted(np.array(fleet.moments), np.array(replica.times))
        total[at] += np.array(replica.power_watts) * replica.model.devices
    return total
