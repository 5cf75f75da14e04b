"""What a replay comes to: hours, energy, scale events, overload, and what was not served in time.

Every figure that the recording does not allow is None, never 0. Shares are fractions of the time
for which they can be told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from attrs import frozen

from accelscale.hpa import Action, Poll
from accelscale.lab.course import CourseSummary, summarize_course
from accelscale.lab.demand import FULL
from accelscale.lab.recording import Floats, Recording
from accelscale.lab.replay import Replay
from accelscale.metrics import max_age


@frozen
class PowerModel:
    """What a device draws: ``idle_watts`` at 0 % and ``busy_watts`` at 100 %, linear between."""

    idle_watts: float
    busy_watts: float

    def watts(self, devices: Floats, busy: Floats) -> Floats:
        """Of so many devices, ``busy`` of which are at 100 %."""
        return devices * self.idle_watts + busy * (self.busy_watts - self.idle_watts)


@frozen
class Summary(CourseSummary):
    """The figures of one replay.

    ``saturated_share`` is the time that more work came than the serving replicas could do,
    ``missed_device_hours`` that work: it waited (closed loop), or would have (open loop).
    ``longest_wait_seconds`` is the longest that the queue of a closed loop would have taken to
    empty, ``left_device_hours`` what is in it at the end (None in open loop).
    ``energy_kilowatt_hours`` is None without recorded power.
    """

    energy_kilowatt_hours: float | None
    saturated_share: float | None
    work_device_hours: float | None
    missed_device_hours: float | None
    missed_share: float | None
    longest_wait_seconds: float | None
    left_device_hours: float | None

    def record(self) -> dict[str, Any]:
        """Its form in JSON."""
        return attrs.asdict(self)


@frozen(eq=False)
class Timeline:
    """A replay in even steps: what came, what could serve, what was done, what waited.

    ``arriving`` is NaN where the recording does not tell, and None without a metric of work. Work
    is in devices, the queue in device seconds and None in open loop.
    """

    times: Floats
    wanted: Floats
    serving: Floats
    arriving: Floats | None
    served: Floats | None
    queue: Floats | None


def timeline(replay: Replay) -> Timeline:
    """The replay in steps of its work, or of 5 seconds without any."""
    step = replay.work.step if replay.work is not None else 5.0
    times = np.arange(0.0, replay.seconds, step)
    wanted = replicas_at(replay.changes(), times)
    steps = math.ceil(replay.conditions.load_time / step)
    if replay.fleet is not None:
        fleet = replay.fleet
        return Timeline(
            times,
            wanted,
            np.array(fleet.serving, dtype=np.float64),
            fleet.work.arriving,
            np.array(fleet.served),
            np.array(fleet.queues),
        )
    serving = _least_of_last(wanted, steps, replay.start_replicas)
    if replay.work is None:
        return Timeline(times, wanted, serving, None, None, None)
    arriving = replay.work.arriving
    served = np.minimum(arriving, serving * replay.devices_per_replica)
    return Timeline(times, wanted, serving, arriving, served, None)


def replicas_at(changes: Sequence[tuple[float, int]], times: Floats) -> Floats:
    """The replicas wanted at each of the times."""
    since, replicas = zip(*changes, strict=True)
    at = np.searchsorted(np.array(since), times, side="right") - 1
    return np.array(replicas, dtype=np.float64)[at]


def summarize(replay: Replay) -> Summary:
    """The figures of a replay."""
    line, work = timeline(replay), replay.work
    known, missed, saturated = _shortage(line, replay)
    return Summary(
        **attrs.asdict(summarize_course(replay)),
        energy_kilowatt_hours=_energy(replay, line),
        saturated_share=saturated,
        work_device_hours=None if work is None else work.device_hours,
        missed_device_hours=missed,
        missed_share=None if missed is None or not known else missed / known,
        longest_wait_seconds=_longest_wait(line, replay),
        left_device_hours=None if line.queue is None else float(line.queue[-1]) / 3600,
    )


def power_model(recording: Recording, metric: str) -> PowerModel | None:
    """Fitted to all devices that have power and ``metric``; None where none has both.

    Where power does not rise with the metric, or hardly anything of it was seen, it is taken to be
    the same all the time.
    """
    watts, busy = [], []
    for (device_id, name), power in recording.columns.items():
        column = recording.columns.get((device_id, metric))
        if name != "power_watts" or column is None or not len(column) or not len(power):
            continue
        thin = slice(None, None, max(1, len(power) // 20_000))
        times, values = power.times[thin], power.values[thin]
        at = np.searchsorted(column.times, times, side="right") - 1
        fresh = (at >= 0) & (times - column.times[at] <= max_age(recording.interval_of(metric)))
        watts.append(values[fresh])
        busy.append(column.values[at[fresh]] / FULL)
    if not watts or not sum(len(part) for part in watts):
        return None
    power_values, shares = np.concatenate(watts), np.concatenate(busy)
    mean = float(power_values.mean())
    if float(np.ptp(shares)) < 0.1:
        return PowerModel(mean, mean)
    slope, idle = (float(number) for number in np.polyfit(shares, power_values, 1))
    return PowerModel(idle, idle + slope) if slope > 0 and idle > 0 else PowerModel(mean, mean)


def _shortage(line: Timeline, replay: Replay) -> tuple[float, float | None, float | None]:
    """Known work and missed work in device hours, and the share of time that was saturated."""
    work = replay.work
    if work is None or line.arriving is None:
        return 0.0, None, None
    known = ~np.isnan(line.arriving)
    if not known.any():
        return 0.0, None, None
    room = line.serving * replay.devices_per_replica
    waiting = line.arriving if line.queue is None else line.arriving + line.queue / work.step
    short = np.maximum(0.0, line.arriving - room)[known]
    full = (waiting[known] >= room[known]) & (waiting[known] > 0)
    return work.device_hours, float(short.sum()) * work.step / 3600, float(full.mean())


def _longest_wait(line: Timeline, replay: Replay) -> float | None:
    if line.queue is None:
        return None
    room = line.serving * replay.devices_per_replica
    waits = np.divide(line.queue, room, out=np.full(len(room), np.inf), where=room > 0)
    waits[line.queue <= 0] = 0.0
    finite = waits[np.isfinite(waits)]
    return float(finite.max()) if len(finite) else None


def _energy(replay: Replay, line: Timeline) -> float | None:
    work = replay.work
    if work is None or line.served is None:
        return None
    model = power_model(replay.recording, work.metric)
    if model is None:
        return None
    done = line.served if replay.fleet is not None else line.arriving
    busy = np.nan_to_num(done if done is not None else line.served)
    watts = model.watts(line.wanted * replay.devices_per_replica, busy)
    return float(watts.sum()) * work.step / 3.6e6


def _least_of_last(values: Floats, steps: int, before: int) -> Floats:
    """The least of each value and the ``steps`` before it: replicas that are past loading.

    The youngest replica is removed first, so those that have loaded are the least that was wanted
    while the youngest of them did.
    """
    if steps == 0:
        return values
    padded = np.concatenate((np.full(steps, float(before)), values))
    windows = np.lib.stride_tricks.sliding_window_view(padded, steps + 1)
    least: Floats = windows.min(axis=1)
    return least


def fell_back(replay: Replay) -> bool:
    """Whether KEDA ever replaced the answers by a fallback value."""
    fallback = replay.policy.scaled_object.fallback
    if fallback is None:
        return False
    polls = [turn.outcome for turn in replay.turns if isinstance(turn.outcome, Poll)]
    return any(
        count > fallback.failure_threshold
        for poll in polls
        for count in poll.state.failures.values()
    )


def woke_by_itself(replay: Replay) -> int:
    """How often a trigger's own answer lifted the workload from 0."""
    return sum(
        isinstance(turn.outcome, Poll)
        and turn.outcome.action is Action.ACTIVATED
        and turn.found.replicas == 0
        for turn in replay.turns
    )
