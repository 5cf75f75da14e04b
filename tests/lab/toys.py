"""Recordings and manifests made of plain numbers, for tests of the lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from accelscale.lab.policy import Policy, read_policy
from accelscale.lab.recording import Absence, Column, Floats, Holder, Recording, Span
from accelscale.lab.replay import Conditions, Replay, Replayer
from accelscale.model import Device

START = 1_760_000_000.0

Level = float | Callable[[Floats], Floats]
"""A value that stays, or a function of the times."""


def devices(count: int) -> tuple[Device, ...]:
    """So many devices, with ids that sort."""
    return tuple(Device(f"GPU-{n}", "Example", "nvidia", "nvidia") for n in range(count))


def column(level: Level, seconds: float, interval: float = 1.0) -> Column:
    """Samples every ``interval`` seconds from 0 to ``seconds``."""
    times = np.arange(0.0, seconds + interval / 2, interval)
    values = level(times) if callable(level) else np.full(len(times), level)
    return Column(times, np.asarray(values, dtype=np.float64))


def recording(
    levels: Mapping[str, Sequence[Level]],
    *,
    seconds: float = 3600.0,
    interval: float = 1.0,
    absences: Sequence[Absence] = (),
    holders: Sequence[Holder] = (),
    presence: Mapping[str, tuple[Span, ...]] | None = None,
) -> Recording:
    """For each metric one level per device."""
    count = max(len(found) for found in levels.values())
    known = devices(count)
    by_key: dict[tuple[str, str], tuple[Absence, ...]] = {}
    for one in absences:
        key = (one.device_id, one.metric)
        by_key[key] = (*by_key.get(key, ()), one)
    return Recording(
        start=START,
        end=seconds,
        interval=interval,
        devices=known,
        columns={
            (device.id, metric): column(level, seconds, interval)
            for metric, found in levels.items()
            for device, level in zip(known, found, strict=False)
        },
        absences=by_key,
        holders=tuple(holders),
        presence=presence or {},
        origin="toy",
    )


def manifest(
    *,
    spec: Mapping[str, Any] | None = None,
    trigger: Mapping[str, Any] | None = None,
    **keys: str,
) -> dict[str, Any]:
    """A ScaledObject with one trigger on utilisation; ``keys`` go into its metadata."""
    metadata = {
        "scalerAddress": "scaler:6000",
        "metric": "utilization_percent",
        "threshold": "70",
        **keys,
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "web", "namespace": "toys"},
        "spec": {
            "scaleTargetRef": {"name": "web"},
            "minReplicaCount": 1,
            "maxReplicaCount": 20,
            "triggers": [{"type": "external", "metadata": metadata, **(trigger or {})}],
            **(spec or {}),
        },
    }


def policy(**arguments: Any) -> Policy:
    """The policy of such a manifest."""
    return read_policy(manifest(**arguments))


def replayed(found: Recording, wanted: Policy, **conditions: Any) -> Replay:
    """The replay of the policy under these conditions."""
    return Replayer(found).replay(wanted, Conditions(**conditions))


def wave(low: float, high: float, period: float) -> Callable[[Floats], Floats]:
    """A load that swings between two levels."""
    middle, swing = (low + high) / 2, (high - low) / 2
    return lambda times: middle - swing * np.cos(2 * np.pi * times / period)


def step_at(time: float, before: float, after: float) -> Callable[[Floats], Floats]:
    """A load that jumps."""
    return lambda times: np.where(times < time, before, after)
