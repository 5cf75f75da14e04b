"""Named defaults for the keys of a trigger: a start for a kind of workload, not a verdict on it.

A profile sets keys exactly as a user would write them; every key written beside it wins. What a
profile cannot set are KEDA's own fields (cooldown, polling) and the HPA's behaviour: a scaler has
no way to reach them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from attrs import field, frozen


@frozen
class Profile:
    """One row: ``keys`` as in a trigger's metadata, ``help`` says for whom and why."""

    name: str
    help: str
    keys: Mapping[str, str] = field(hash=False)


_ROWS = (
    Profile(
        "vllm",
        "LLM servers that reserve device memory at start (vLLM, SGLang, TGI). Memory in use never"
        " falls there, so busy time is the signal; ten quiet minutes count as idle.",
        {
            "metric": "utilization_percent",
            "threshold": "70",
            "activationThreshold": "5",
            "window": "30s",
            "idleAfter": "10m",
        },
    ),
    Profile(
        "triton",
        "Triton and other servers of many small models: short requests, quick to load.",
        {
            "metric": "utilization_percent",
            "threshold": "75",
            "activationThreshold": "5",
            "window": "30s",
            "idleAfter": "5m",
        },
    ),
    Profile(
        "ollama",
        "Servers that unload a model when nobody asks for it (Ollama, llama-swap).",
        {
            "metric": "utilization_percent",
            "threshold": "70",
            "activationThreshold": "5",
            "window": "30s",
            "idleAfter": "10m",
        },
    ),
    Profile(
        "training",
        "Training jobs: any work keeps the replicas, and half an hour of silence (a checkpoint,"
        " an evaluation, a slow input) does not end them.",
        {
            "metric": "utilization_percent",
            "threshold": "90",
            "activationThreshold": "1",
            "window": "5m",
            "idleAfter": "30m",
        },
    ),
    Profile(
        "batch",
        "Batch inference from a queue: high load is wanted, gaps between jobs are short.",
        {
            "metric": "utilization_percent",
            "threshold": "85",
            "activationThreshold": "5",
            "window": "1m",
            "idleAfter": "5m",
        },
    ),
    Profile(
        "notebook",
        "Interactive sessions: only a long silence counts as idle.",
        {
            "metric": "utilization_percent",
            "threshold": "90",
            "activationThreshold": "1",
            "window": "1m",
            "idleAfter": "1h",
        },
    ),
)

PROFILES: Mapping[str, Profile] = MappingProxyType({row.name: row for row in _ROWS})
"""The profiles, by name."""
