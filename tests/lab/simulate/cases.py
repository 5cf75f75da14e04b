"""Servers, requests and policies made of plain numbers, for tests of simulations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from accelscale.lab.policy import Policy, read_policy
from accelscale.lab.simulate.arrivals import Arrivals
from accelscale.lab.simulate.run import Conditions, Simulation, simulate
from accelscale.lab.simulate.server_model import ServerModel, setup
from accelscale.lab.simulate.signals import Signal, metrics_with, with_signals
from lab.toys import START, manifest

SIMPLE = ServerModel(
    "simple",
    devices=1,
    prefill_tokens_per_second=1000.0,
    step_seconds=0.010,
    step_seconds_per_request=0.0,
    step_seconds_per_cached_token=0.0,
    step_tokens=1000,
    max_requests=8,
    cache_tokens=10_000,
    load_seconds=60.0,
    idle_watts=100.0,
    decode_watts=300.0,
    prefill_watts=500.0,
    power_limit_watts=700.0,
    memory_bytes=80e9,
    weight_bytes=16e9,
)
"""A prompt token takes 1 ms, a step 10 ms."""


def model(**changes: Any) -> ServerModel:
    """The simple server with other figures."""
    return attrs.evolve(SIMPLE, **changes)


def requests(
    times: Sequence[float],
    prompts: Sequence[int] | int = 100,
    answers: Sequence[int] | int = 10,
    *,
    seconds: float | None = None,
) -> Arrivals:
    """Requests at these times; a number of tokens stands for all of them."""
    count = len(times)
    return Arrivals(
        start=START,
        seconds=max(times) + 1.0 if seconds is None else seconds,
        times=np.array(times, dtype=np.float64),
        prompt_tokens=np.full(count, prompts) if isinstance(prompts, int) else np.array(prompts),
        answer_tokens=np.full(count, answers) if isinstance(answers, int) else np.array(answers),
        origin="toy requests",
    )


def steady(rate: float, seconds: float, **tokens: int) -> Arrivals:
    """Requests at even distances."""
    count = int(rate * seconds)
    return requests([(n + 0.5) / rate for n in range(count)], seconds=seconds, **tokens)


def fixed(replicas: int) -> Policy:
    """A policy that keeps so many replicas."""
    return read_policy(manifest(spec={"minReplicaCount": replicas, "maxReplicaCount": replicas}))


def simulated(
    arrivals: Arrivals, policy: Policy, server: ServerModel = SIMPLE, **conditions: Any
) -> Simulation:
    """The simulation under these conditions."""
    return simulate(arrivals, policy, server, Conditions(**conditions))


def queue_trigger(query: str, threshold: str = "5", **keys: str) -> dict[str, Any]:
    """A prometheus trigger as a ScaledObject holds it."""
    return {
        "type": "prometheus",
        "name": "queue",
        "metadata": {
            "serverAddress": "http://prometheus:9090",
            "query": query,
            "threshold": threshold,
            **keys,
        },
    }


def policy_with_signals(
    document: Mapping[str, Any], **chosen: str
) -> tuple[Policy, dict[str, Signal]]:
    """The policy of a manifest whose other triggers read numbers of the fleet."""
    changed, signals = with_signals(document, chosen)
    return read_policy(changed, metrics=metrics_with(signals)), signals


SETUP = setup("llama-70b")
