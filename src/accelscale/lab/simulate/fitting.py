"""Figures of a server from a recording: what its hardware can tell, and nothing beyond.

Power, the reading at saturation, memory once loaded and the time to load show in what devices read.
How fast prompts are read and tokens generated does not: for that a load test is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from attrs import evolve, frozen

from accelscale.errors import ConfigurationError
from accelscale.lab.recording import Column, Floats, Holder, Recording
from accelscale.lab.simulate.server_model import ServerModel
from accelscale.lab.summary import power_model
from accelscale.lab.wording import number

BUSY = "utilization_percent"
LEAST_RANGE = 50.0
"""Points of utilisation that a recording must span before power is fitted to it."""

LEAST_PLATEAU = 0.01
"""The share of samples that must lie at the top before it counts as saturation."""

LOADED = 0.95
"""The share of the memory that a replica comes to hold from which it counts as loaded."""


@frozen
class Fit:
    """The fitted model; ``found`` says what was fitted, ``lacking`` what was not, and why."""

    model: ServerModel
    found: tuple[str, ...]
    lacking: tuple[str, ...]


def fitted(model: ServerModel, recording: Recording) -> Fit:
    """The model with every figure that the recording tells; the rest stays.

    Raises:
        ConfigurationError: what was read fits no server, such as more power idle than busy.
    """
    figures: dict[str, Any] = {}
    found: list[str] = []
    lacking: list[str] = []
    for part in (_power, _saturation, _memory, _loading):
        for values, sentence in part(recording):
            figures.update(values)
            (found if values else lacking).append(sentence)
    lacking.append(
        "speed of prompts and tokens, batch and cache: readings of the hardware do not tell them;"
        f" they are those of {model.name}"
    )
    try:
        return Fit(evolve(model, **figures), tuple(found), tuple(lacking))
    except ConfigurationError as error:
        subject = f"fit to {recording.origin or 'the recording'}"
        raise ConfigurationError(error.faults, subject=subject) from error


Part = Iterator[tuple[dict[str, Any], str]]


def _power(recording: Recording) -> Part:
    busy = _pooled(recording, BUSY)
    span = float(np.ptp(busy)) if len(busy) else 0.0
    power = power_model(recording, BUSY)
    if power is None or span < LEAST_RANGE or power.busy_watts <= power.idle_watts:
        why = (
            "there is no power_watts beside it" if power is None else f"it spans {span:.0f} points"
        )
        yield {}, f"power: {BUSY} does not tell it, for {why}"
    else:
        idle, full = round(power.idle_watts, 1), round(power.busy_watts, 1)
        watts = {"idle_watts": idle, "decode_watts": full, "prefill_watts": full}
        watts["decode_watts_per_doubling"] = 0.0
        yield watts, f"power: {idle:g} W idle, {full:g} W busy, prompts and tokens alike"
    limits = _pooled(recording, "power_limit_watts")
    if len(limits):
        limit = float(np.median(limits))
        yield {"power_limit_watts": limit}, f"power limit: {limit:g} W"


def _saturation(recording: Recording) -> Part:
    busy = _pooled(recording, BUSY)
    if not len(busy):
        yield {}, f"saturation: there is no {BUSY}"
        return
    top = float(np.percentile(busy, 99.5))
    share = float((busy >= top - 2).mean())
    if top < 50 or share < LEAST_PLATEAU:
        why = f"{BUSY} was never at one level for long ({number(top)} at most)"
        yield {}, f"saturation: {why}, so the devices were never full"
        return
    yield (
        {"full_utilization_percent": round(min(top, 100.0), 1)},
        f"saturation: {BUSY} reads {number(min(top, 100.0))} when full",
    )


def _memory(recording: Recording) -> Part:
    total = _pooled(recording, "memory_total_bytes")
    if len(total):
        size = float(np.median(total))
        yield {"memory_bytes": size}, f"memory: {size / 1024**3:.1f} GiB a device"
    shares = _while_busy(recording, "memory_used_percent")
    if not len(shares):
        yield {}, "memory once loaded: there is no memory_used_percent of a device at work"
        return
    low, middle, high = (float(np.percentile(shares, rank)) for rank in (5, 50, 95))
    reserved = high - low <= 2.0
    loaded = middle if reserved else high
    how = "and stays" if reserved else f"and moves from {low:.0f} %"
    yield (
        {"loaded_memory_percent": round(loaded, 1), "reserves_cache": reserved},
        f"memory once loaded: {loaded:.0f} % is in use {how}",
    )


def _loading(recording: Recording) -> Part:
    times = [
        seconds
        for holder in recording.holders
        if (seconds := _seconds_to_load(recording, holder)) is not None
    ]
    if not times:
        yield {}, "load time: no pod is seen to start and to fill its device's memory"
        return
    middle = round(float(np.median(times)), 1)
    since = f"from the start of the pod until its device held {LOADED:.0%} of what it came to hold"
    sentence = f"load time: {middle:g} s, the middle of {len(times)} starts, {since}"
    yield {"load_seconds": middle}, sentence


def _seconds_to_load(recording: Recording, holder: Holder) -> float | None:
    """From when a container held the device until memory was full; None where not seen."""
    column = recording.columns.get((holder.device_id, "memory_used_bytes"))
    if column is None or holder.start <= recording.interval:
        return None
    within = (column.times >= holder.start) & (column.times < holder.end)
    times, values = column.times[within], column.values[within]
    if len(times) < 4:
        return None
    full = float(np.median(values[len(values) // 2 :]))
    if not values[0] < full / 2:  # it was loaded when the record of the pod began
        return None
    reached = np.flatnonzero(values >= LOADED * full)
    return float(times[reached[0]] - holder.start) if len(reached) else None


def _pooled(recording: Recording, metric: str) -> Floats:
    parts = [
        column.values
        for (_, name), column in recording.columns.items()
        if name == metric and len(column)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _while_busy(recording: Recording, metric: str) -> Floats:
    parts = []
    for device in recording.devices:
        column = recording.columns.get((device.id, metric))
        busy = recording.columns.get((device.id, BUSY))
        if column is not None and busy is not None:
            parts.append(_where_busy(column, busy))
    return np.concatenate(parts) if parts else np.empty(0)


def _where_busy(column: Column, busy: Column) -> Floats:
    at = np.searchsorted(busy.times, column.times, side="right") - 1
    working = (at >= 0) & (busy.values[np.maximum(at, 0)] > 0) if len(busy) else at > len(busy)
    found: Floats = column.values[working]
    return found
