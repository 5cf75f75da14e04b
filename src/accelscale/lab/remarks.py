"""What must be said beside the figures of a replay: what was assumed, and what looks wrong."""

from __future__ import annotations

from collections.abc import Iterator

from accelscale.lab.course import scale_down_window
from accelscale.lab.replay import Replay
from accelscale.lab.summary import Summary, fell_back, power_model, woke_by_itself

OFTEN = 0.5
"""The share of the time from which something counts as most of it."""


def assumptions(replay: Replay) -> list[str]:
    """What the model takes for granted in this replay, in sentences."""
    return list(_assumptions(replay))


def warnings(replay: Replay, summary: Summary) -> list[str]:
    """What a reader should look at before believing the policy or the figures."""
    return [*_of_policy(replay), *_of_recording(replay, summary), *_of_course(replay, summary)]


def _assumptions(replay: Replay) -> Iterator[str]:
    conditions, timing = replay.conditions, replay.conditions.timing
    if replay.fleet is not None:
        yield (
            "Closed loop: the recorded work is conserved and spread evenly over the replicas that"
            " serve. A replica is full at 100 % on each of its devices; more than that waits in one"
            " queue without a limit, which nobody leaves, until there is room."
        )
        yield (
            f"A new replica reads 0 % while it loads ({conditions.load_time:g} s), is Ready after"
            f" {timing.readiness_delay:g} s, and serves once both are past. A removed replica gives"
            " its work back at once."
        )
        yield (
            "At 0 replicas a queue in front of the workload wakes it at the next poll."
            if conditions.wakes
            else "At 0 replicas there is no device to measure, so nothing wakes the workload"
            " (--wake stands for a queue trigger that does)."
        )
    else:
        yield (
            "Open loop: value and activity are those of the recorded replicas, whatever the model"
            " does; under metricType Value the recorded total is spread over the modelled replicas."
        )
        yield (
            "For what the modelled replicas could have served, each counts from"
            f" {conditions.load_time:g} s after its start."
        )
    yield (
        f"Polls begin at {timing.poll_phase:g} s, HPA syncs at {timing.sync_phase:g} s and then"
        f" every {conditions.controller.sync_period:g} s; the ScaledObject is created as the"
        f" recording starts, with {replay.start_replicas} Ready replicas."
    )
    form, keda = conditions.controller.tolerance_form, conditions.keda
    yield (
        f"HPA tolerance {conditions.controller.tolerance:g} ({form}), KEDA"
        f" {keda.major}.{keda.minor}.{keda.patch}; pods are scheduled at once and a card is always"
        " free."
    )
    if replay.devices_per_replica != 1:
        yield f"A replica holds {replay.devices_per_replica:g} devices."
    scopes = {trigger.scope for trigger in replay.policy.triggers}
    if "workload" in scopes and not replay.recording.holders:
        yield (
            "The recording does not tell which pods held the devices: each recorded device (or"
            " group of them) counts as one replica."
        )
    if replay.policy.pushes:
        yield "external-push is replayed as external: activity is seen at the next poll."
    if replay.work is not None:
        model = power_model(replay.recording, replay.work.metric)
        if model is not None:
            yield (
                f"A device draws {model.idle_watts:.0f} W idle and {model.busy_watts:.0f} W at"
                f" 100 % {replay.work.metric}, fitted to the recording."
            )


def _of_policy(replay: Replay) -> Iterator[str]:
    policy = replay.policy
    for number, trigger in enumerate(policy.triggers):
        name = f"trigger {number} ({trigger.metric}): " if len(policy.triggers) > 1 else ""
        yield from (f"{name}{warning}" for warning in trigger.warnings)
        if trigger.pod_selector is not None:
            yield f"{name}podSelector was not applied: a recording does not hold the pods' labels"
    for left_out in policy.left_out:
        yield f"{left_out} was left out: a recording of hardware cannot answer it"
    load, window = replay.conditions.load_time, _scale_down_window(replay)
    if load > window:
        yield (
            f"loading takes {load:g} s, longer than the {window:g} s for which the HPA remembers"
            " what it asked for: it may remove replicas that have not helped yet"
        )


def _of_recording(replay: Replay, summary: Summary) -> Iterator[str]:
    recording, scaled_object = replay.recording, replay.policy.scaled_object
    yield from recording.notes
    longest = max(_scale_down_window(replay), scaled_object.cooldown_period)
    if recording.end < 3 * longest:
        yield (
            f"the recording is {recording.end:.0f} s long, and the policy looks back {longest:g} s:"
            " it says little about scaling in"
        )
    for trigger in replay.policy.triggers:
        interval = recording.interval_of(trigger.metric)
        if trigger.window < interval and trigger.window_statistic != "last":
            yield (
                f"window {trigger.window:g} s is shorter than the {interval:g} s between two"
                f" readings of {trigger.metric}: each window holds one sample"
            )
    if summary.no_data_share > 0.05:
        last = [one.errors[0] for one in replay.answered if one.errors][-1]
        yield f"no answer in {summary.no_data_share:.0%} of the time, for example: {last}"
    work = replay.work
    if work is not None and work.full_share > 0.05:
        yield (
            f"every recorded device was full in {work.full_share:.0%} of the time: more work may"
            " have waited then than the recording tells"
        )


def _of_course(replay: Replay, summary: Summary) -> Iterator[str]:
    policy, scaled_object = replay.policy, replay.policy.scaled_object
    if summary.saturated_share is not None and summary.saturated_share > OFTEN:
        yield (
            f"saturated in {summary.saturated_share:.0%} of the time: a full replica looks no"
            " fuller, so a lower threshold or a queue length as a second trigger is needed"
        )
    above = summary.above_threshold_share or 0.0
    if above > 0.05 and summary.at_maximum_share > 0.05:
        yield (
            f"at maxReplicaCount ({scaled_object.max_replicas}) in"
            f" {summary.at_maximum_share:.0%} of the time, above the threshold in {above:.0%}"
        )
    elif above > OFTEN:
        yield f"above the threshold in {above:.0%} of the time"
    for number, trigger in enumerate(policy.triggers):
        seen = [one.activation[number] for one in replay.answered]
        values = [value for value in seen if value is not None]
        limit = trigger.activation_threshold
        if values and not any(value > limit for value in values):
            yield (
                f"{trigger.metric} was never above activationThreshold {limit:g}: this trigger"
                " never makes the workload active"
            )
        elif values and scaled_object.min_replicas == 0 and summary.active_share == 1.0:
            yield (
                f"always active: {trigger.metric} never stayed at or below activationThreshold"
                f" {limit:g} long enough, so the workload never scaled to 0"
            )
    if summary.flaps >= 3 and summary.flaps > summary.hours / 2:
        yield (
            f"flapping: {summary.flaps} changes went against the one before within 10 minutes; a"
            " longer window or scaleDown.stabilizationWindowSeconds calms that"
        )
    yield from _of_zero(replay, summary)
    if fell_back(replay):
        yield "the fallback was in force for a part of the time"


def _of_zero(replay: Replay, summary: Summary) -> Iterator[str]:
    if replay.fleet is None and woke_by_itself(replay):
        yield (
            f"woke from 0 {woke_by_itself(replay)} times on the recorded activity, which no device"
            " shows at 0 replicas: a cluster needs another trigger for that, such as a queue"
        )
    if replay.fleet is not None and summary.replicas_least == 0 and not summary.starts_from_zero:
        yield (
            "stayed at 0 replicas once there: nothing that accelerators show can wake it; add a"
            " queue trigger (see --wake)"
        )


def _scale_down_window(replay: Replay) -> float:
    return scale_down_window(replay.policy, replay.conditions.controller)
