"""Runs a policy on a simulated fleet: the real parser and engine answer, KEDA and the HPA act.

Nothing here is by chance: the same requests, model, policy and conditions give the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from attrs import frozen

from accelscale.engine import Evaluation, evaluate
from accelscale.errors import (
    AccelscaleError,
    ConfigurationError,
    Fault,
    UnsupportedError,
)
from accelscale.hpa import Controller, KedaVersion, Scale, ScalerAnswer, Timing, run
from accelscale.lab.course import Answered, Course
from accelscale.lab.policy import Policy
from accelscale.lab.recording import Floats
from accelscale.lab.simulate.arrivals import Arrivals
from accelscale.lab.simulate.fleet import Fleet, Silence
from accelscale.lab.simulate.replica import SHOWN
from accelscale.lab.simulate.server_model import ServerModel
from accelscale.lab.simulate.signals import Signal
from accelscale.model import (
    Device,
    Failure,
    Replica,
    Series,
    SeriesValue,
    Snapshot,
    Workload,
)
from accelscale.trigger import Trigger


@frozen
class Conditions:
    """What a cluster and its users leave open. Times are in seconds.

    ``replicas`` is how many there are at the start (the least that the policy wants, at least 1,
    when not given). A new replica is Ready ``readiness_delay`` after its creation (once it has
    loaded when not given). ``grace`` is what a removed replica has to finish its work.
    ``interval`` is between two samples of a device, ``scrape_interval`` between two readings of an
    external number. ``tail`` goes on after the last request.
    """

    replicas: int | None = None
    readiness_delay: float | None = None
    grace: float = 30.0
    poll_phase: float = 0.0
    sync_phase: float = 0.0
    controller: Controller = Controller()
    keda: KedaVersion = KedaVersion()
    interval: float = 1.0
    scrape_interval: float = 15.0
    tail: float = 120.0
    silences: tuple[Silence, ...] = ()

    def __attrs_post_init__(self) -> None:
        faults = [
            Fault(name, f"{getattr(self, name):g}", "must be 0 or more")
            for name in ("replicas", "readiness_delay", "grace", "tail")
            if getattr(self, name) is not None and not getattr(self, name) >= 0
        ]
        faults += [
            Fault(name, f"{getattr(self, name):g}", "must be above 0")
            for name in ("interval", "scrape_interval")
            if not getattr(self, name) > 0
        ]
        if faults:
            raise ConfigurationError(faults, subject="conditions")


@frozen(eq=False, kw_only=True)
class Simulation(Course):
    """The outcome. ``first_token`` and ``finished`` are times, NaN where that never came."""

    arrivals: Arrivals
    model: ServerModel
    conditions: Conditions
    readiness_delay: float
    signals: Mapping[str, Signal]
    fleet: Fleet
    first_token: Floats
    finished: Floats


def simulate(
    arrivals: Arrivals,
    policy: Policy,
    model: ServerModel,
    conditions: Conditions = Conditions(),
    signals: Mapping[str, Signal] | None = None,
) -> Simulation:
    """Run the policy from the first request to ``conditions.tail`` after the last.

    ``signals`` are the external numbers that triggers of the policy name as their metric.

    Raises:
        ConfigurationError: the API server would refuse a target.
        UnsupportedError: the policy is paused, or looks at what the model does not have.
    """
    signals = signals or {}
    scaled_object = policy.scaled_object
    if scaled_object.pause.stops:
        raise UnsupportedError(
            f"ScaledObject {policy.name} is paused by an annotation: nothing would happen"
        )
    ours = [trigger for trigger in policy.triggers if trigger.metric not in signals]
    _need_shown(ours)
    least = max(1, scaled_object.min_replicas)
    start = least if conditions.replicas is None else conditions.replicas
    delay = conditions.readiness_delay
    readiness_delay = model.load_seconds if delay is None else delay
    windows = [one.window_seconds for trigger in ours for one in trigger.wanted_series]
    fleet = Fleet(
        arrivals,
        model,
        replicas=start,
        readiness_delay=readiness_delay,
        grace=conditions.grace,
        metrics=dict.fromkeys(trigger.metric for trigger in ours),
        interval=conditions.interval,
        scrape_interval=conditions.scrape_interval,
        longest_window=max(windows, default=0.0),
        silences=conditions.silences,
    )
    end = math.ceil(arrivals.seconds + conditions.tail)
    answers = _Answers(policy, fleet, signals)
    turns = []
    for turn in run(
        scaled_object,
        answers,
        start=0.0,
        end=float(end),
        replicas=start,
        timing=Timing(conditions.poll_phase, conditions.sync_phase, readiness_delay),
        controller=conditions.controller,
        keda=conditions.keda,
    ):
        turns.append(turn)
        fleet.scaled(turn.replicas, turn.time)
    fleet.close(float(end))
    return Simulation(
        policy=policy,
        start_replicas=start,
        turns=tuple(turns),
        answered=tuple(answers.given),
        devices_per_replica=model.devices,
        seconds=float(end),
        load_time=max(model.load_seconds, readiness_delay),
        tolerance=conditions.controller.tolerance,
        arrivals=arrivals,
        model=model,
        conditions=conditions,
        readiness_delay=readiness_delay,
        signals=signals,
        fleet=fleet,
        first_token=np.array(fleet.first_token),
        finished=np.array(fleet.finished),
    )


class _Answers:
    """What the triggers answer: a callable as `accelscale.hpa.run` wants it."""

    def __init__(self, policy: Policy, fleet: Fleet, signals: Mapping[str, Signal]) -> None:
        self.given: list[Answered] = []
        self._triggers = policy.triggers
        self._fleet = fleet
        self._signals = signals

    def __call__(self, now: float, found: Scale) -> tuple[ScalerAnswer, ...]:
        self._fleet.advance(now)
        answers, activation = [], []
        for trigger in self._triggers:
            signal = self._signals.get(trigger.metric)
            if signal is None:
                answer, value = _from_devices(self._fleet, trigger, now)
            else:
                value = signal.value(self._fleet.scraped)
                answer = _from_signal(trigger, value)
            answers.append(answer)
            activation.append(value)
        answered = Answered(
            now,
            tuple(answer.value for answer in answers),
            tuple(None if answer.error else answer.active for answer in answers),
            tuple(activation),
            tuple(answer.error for answer in answers if answer.error),
        )
        if self.given and self.given[-1].time == now:
            self.given[-1] = answered
        else:
            self.given.append(answered)
        return tuple(answers)


def _from_signal(trigger: Trigger, value: float | None) -> ScalerAnswer:
    if value is None:
        return ScalerAnswer.failed(f"{trigger.metric}: no replica serves, so there is no number")
    return ScalerAnswer.of(value, active=value > trigger.activation_threshold)


def _from_devices(fleet: Fleet, trigger: Trigger, now: float) -> tuple[ScalerAnswer, float | None]:
    """What accelscale answers, and the activation value where there is one."""
    snapshot, workload = seen(fleet, trigger, now)
    evaluation: Evaluation = evaluate(trigger, snapshot, workload, now=now)
    try:
        value, active = evaluation.metric_value(), evaluation.is_active()
    except AccelscaleError as error:
        return ScalerAnswer.failed(str(error)), evaluation.activation_value
    return ScalerAnswer.of(value, active=active), evaluation.activation_value


def seen(fleet: Fleet, trigger: Trigger, now: float) -> tuple[Snapshot, Workload]:
    """What the scaler knows of the fleet at ``now``: the agents' samples through their windows."""
    series: dict[tuple[str, Series], SeriesValue | Failure] = {}
    devices: list[Device] = []
    replicas: list[Replica] = []
    for one in fleet.replicas:
        ids = one.device_ids
        devices += [Device(device_id, "modelled", "modelled", "modelled") for device_id in ids]
        ready = fleet.is_ready(one, now)
        # A probe that once said Ready has said so for good: nothing here falls ill.
        replicas.append(Replica(one.name, ids, ready=ready, was_ready=ready))
        ring = one.rings[trigger.metric]
        if not len(ring):
            continue
        for wanted in trigger.wanted_series:
            value = ring.window(wanted, now, 1.5 * fleet.interval)
            series.update({(device_id, wanted): value for device_id in ids})
    snapshot = Snapshot(now, len(fleet.moments), fleet.interval, tuple(devices), series=series)
    return snapshot, Workload("simulated", tuple(replicas), scope=trigger.scope)


def _need_shown(triggers: list[Trigger]) -> None:
    for trigger in triggers:
        if trigger.metric not in SHOWN:
            raise UnsupportedError(
                f"the model of a server does not say what {trigger.metric} would read; it gives"
                f" {', '.join(SHOWN)}"
            )
        for key, value in (
            ("devices", trigger.devices),
            ("vendor", trigger.vendor),
            ("node", trigger.node),
        ):
            if value:
                raise UnsupportedError(f"{key} of a trigger means nothing to simulated devices")
