"""Runs a policy over a recording: the real engine answers, the model of KEDA and the HPA acts.

Open loop (the default): what the scaler answers is what it would have answered while the recording
was made, whatever the model does with the replicas. That is right for the sum under AverageValue
as long as the load does not depend on the replicas. Under Value the recorded total is spread over
the replicas of the model, which comes to the same. Closed loop: the recorded work is done by
the replicas of the model (`accelscale.lab.demand`), so that a shortage shows as saturation and a
queue, and a loading replica as one that does not help yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import frozen

from accelscale.engine import Evaluation, evaluate
from accelscale.errors import (
    AccelscaleError,
    ConfigurationError,
    Fault,
    NoDataError,
    UnsupportedError,
)
from accelscale.hpa import (
    Controller,
    KedaVersion,
    Scale,
    ScalerAnswer,
    Timing,
    run,
)
from accelscale.lab.course import Answered, Course
from accelscale.lab.demand import WORK_METRICS, Fleet, Work, recorded_work
from accelscale.lab.policy import Policy
from accelscale.lab.recording import Recording
from accelscale.lab.view import View
from accelscale.trigger import MetricType, Trigger


@frozen
class Conditions:
    """What a cluster and its users leave open. Times are in seconds.

    ``replicas`` is how many there are at the start (as many as recorded when not given).
    ``load_time`` is what a new replica needs until it can work, ``readiness_delay`` until it is
    Ready (the same when not given). ``poll_phase`` and ``sync_phase`` are the times of the first
    poll and the first sync. ``wakes`` lets a perfect queue signal lift a closed-loop fleet from 0.
    """

    closed_loop: bool = False
    replicas: int | None = None
    load_time: float = 60.0
    readiness_delay: float | None = None
    poll_phase: float = 0.0
    sync_phase: float = 0.0
    controller: Controller = Controller()
    keda: KedaVersion = KedaVersion()
    devices_per_replica: int = 1
    pods: str | None = None
    wakes: bool = False

    def __attrs_post_init__(self) -> None:
        limits = {"load_time": 0, "devices_per_replica": 1}
        limits |= {"replicas": 0} if self.replicas is not None else {}
        faults = [
            Fault(name, f"{getattr(self, name):g}", f"must be {least} or more")
            for name, least in limits.items()
            if not getattr(self, name) >= least
        ]
        if faults:
            raise ConfigurationError(faults, subject="conditions")

    @property
    def timing(self) -> Timing:
        """In the terms of the model."""
        delay = self.load_time if self.readiness_delay is None else self.readiness_delay
        return Timing(self.poll_phase, self.sync_phase, delay)


@frozen(eq=False, kw_only=True)
class Replay(Course):
    """The outcome.

    ``work`` is None where the recording holds no metric of work. ``fleet`` is there in closed loop.
    """

    recording: Recording
    conditions: Conditions
    work: Work | None
    fleet: Fleet | None


class Replayer:
    """Replays policies over one recording; what they share is computed once."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._views: dict[tuple[object, ...], tuple[View, dict[float, int]]] = {}
        self._work: dict[tuple[object, ...], Work | None] = {}

    def replay(self, policy: Policy, conditions: Conditions = Conditions()) -> Replay:
        """Run the policy from the start to the end of the recording.

        Raises:
            ConfigurationError: the API server would refuse a target.
            UnsupportedError: the policy is paused, or closed loop cannot model its metrics.
            NoDataError: the recording has not one sample of a metric that a trigger looks at.
        """
        scaled_object = policy.scaled_object
        if scaled_object.pause.stops:
            raise UnsupportedError(
                f"ScaledObject {policy.name} is paused by an annotation: nothing would happen"
            )
        self._need(policy.metrics)
        view, indexes = self._view(policy, conditions)
        work = self._work_of(policy, conditions, view)
        recorded, devices = _first_fleet(view, policy.triggers[0])
        bounds = (scaled_object.resting_replicas, scaled_object.max_replicas)
        start = recorded if conditions.replicas is None else conditions.replicas
        start = min(max(start, bounds[0]), bounds[1]) if conditions.replicas is None else start
        fleet = None
        if conditions.closed_loop:
            fleet = self._fleet(policy, conditions, work, start, max(1, round(devices)))
        answers = _Answers(view, indexes, policy, fleet, conditions)
        turns = []
        for turn in run(
            scaled_object,
            answers,
            start=0.0,
            end=self.recording.end,
            replicas=start,
            timing=conditions.timing,
            controller=conditions.controller,
            keda=conditions.keda,
        ):
            turns.append(turn)
            if fleet is not None:
                fleet.scaled(turn.replicas, turn.time)
        if fleet is not None:
            fleet.advance(self.recording.end)
        return Replay(
            policy=policy,
            start_replicas=start,
            turns=tuple(turns),
            answered=tuple(answers.given),
            devices_per_replica=devices,
            seconds=self.recording.end,
            load_time=conditions.load_time,
            tolerance=conditions.controller.tolerance,
            recording=self.recording,
            conditions=conditions,
            work=work,
            fleet=fleet,
        )

    def _need(self, metrics: Iterable[str]) -> None:
        recording = self.recording
        if recording.end <= 0:
            raise NoDataError(f"{recording.origin} holds a single moment, over which nothing runs")
        for metric in metrics:
            if any(len(column) for key, column in recording.columns.items() if key[1] == metric):
                continue
            reasons = {
                absence.detail or str(absence.reason)
                for key, found in recording.absences.items()
                for absence in found
                if key[1] == metric
            }
            why = f" ({'; '.join(sorted(reasons)[:3])})" if reasons else ""
            raise NoDataError(f"{recording.origin} holds not one sample of {metric}{why}")

    def _view(self, policy: Policy, conditions: Conditions) -> tuple[View, dict[float, int]]:
        polling = policy.scaled_object.polling_interval
        timing, sync = conditions.timing, conditions.controller.sync_period
        grouping = (conditions.pods, conditions.devices_per_replica)
        key = (polling, sync, timing.poll_phase, timing.sync_phase, *grouping)
        if key not in self._views:
            polls = _times(timing.poll_phase, polling, self.recording.end)
            syncs = _times(timing.sync_phase, sync, self.recording.end)
            moments = sorted({*polls, *syncs})
            view = View(
                self.recording,
                moments,
                pods=conditions.pods,
                devices_per_replica=conditions.devices_per_replica,
            )
            self._views[key] = (view, {time: index for index, time in enumerate(moments)})
        return self._views[key]

    def _work_of(self, policy: Policy, conditions: Conditions, view: View) -> Work | None:
        trigger = policy.triggers[0]
        metric = next((name for name in policy.metrics if name in WORK_METRICS), WORK_METRICS[0])
        if not any(name == metric for _, name in self.recording.columns):
            return None
        selection = (trigger.scope, trigger.devices, trigger.vendor, trigger.node)
        grouping = (trigger.container, conditions.pods, trigger.metric)
        key = (metric, *selection, *grouping)
        if key not in self._work:
            self._work[key] = recorded_work(self.recording, trigger, metric, view)
        return self._work[key]

    def _fleet(
        self,
        policy: Policy,
        conditions: Conditions,
        work: Work | None,
        replicas: int,
        devices: int,
    ) -> Fleet:
        foreign = [name for name in policy.metrics if name not in WORK_METRICS]
        if foreign or len(policy.metrics) > 1 or work is None:
            what = ", ".join(foreign or policy.metrics)
            raise UnsupportedError(
                f"closed loop models one metric that is a share of a device's time"
                f" ({', '.join(WORK_METRICS)}); how {what} would follow from the replicas is not"
                " known: replay it in open loop"
            )
        timing = conditions.timing
        return Fleet(
            work,
            replicas=replicas,
            devices=devices,
            load_time=conditions.load_time,
            readiness_delay=timing.readiness_delay,
        )


class _Answers:
    """What the triggers answer: a callable as `accelscale.hpa.run` wants it."""

    def __init__(
        self,
        view: View,
        indexes: dict[float, int],
        policy: Policy,
        fleet: Fleet | None,
        conditions: Conditions,
    ) -> None:
        self.given: list[Answered] = []
        self._view = view
        self._indexes = indexes
        self._policy = policy
        self._fleet = fleet
        self._wakes = conditions.wakes
        self._last: list[Evaluation | AccelscaleError] = []

    def __call__(self, now: float, found: Scale) -> tuple[ScalerAnswer, ...]:
        if self._fleet is not None or not self.given or self.given[-1].time != now:
            self._last = [self._evaluated(trigger, now) for trigger in self._policy.triggers]
        wakes = (
            self._wakes
            and self._fleet is not None
            and found.replicas == 0
            and self._fleet.demands(now)
        )
        pairs = zip(self._policy.triggers, self._last, strict=True)
        answers = tuple(self._answer(trigger, got, found, wakes) for trigger, got in pairs)
        answered = _answered(now, answers, self._last)
        if self.given and self.given[-1].time == now:
            self.given[-1] = answered
        else:
            self.given.append(answered)
        return answers

    def _evaluated(self, trigger: Trigger, now: float) -> Evaluation | AccelscaleError:
        try:
            if self._fleet is not None:
                snapshot, workload = self._fleet.seen(trigger, now)
            else:
                workload = self._view.workload(trigger, now)
                snapshot = self._view.snapshot(self._indexes[now], trigger.wanted_series)
            return evaluate(trigger, snapshot, workload, now=now)
        except AccelscaleError as error:
            return error

    def _answer(
        self, trigger: Trigger, got: Evaluation | AccelscaleError, found: Scale, wakes: bool
    ) -> ScalerAnswer:
        if isinstance(got, AccelscaleError):
            return ScalerAnswer.failed(str(got))
        try:
            value, active = got.metric_value(), got.is_active() or wakes
        except AccelscaleError as error:
            return ScalerAnswer.failed(str(error))
        if self._fleet is None and _is_mean_under_value(trigger) and found.ready:
            ready = sum(figure.replica.ready for figure in got.replicas)
            value *= ready / found.ready
        return ScalerAnswer.of(value, active=active)


def _is_mean_under_value(trigger: Trigger) -> bool:
    mean = trigger.resolved_replica_aggregation == "mean"
    return mean and trigger.metric_type is MetricType.VALUE


def _answered(
    now: float,
    answers: tuple[ScalerAnswer, ...],
    evaluations: list[Evaluation | AccelscaleError],
) -> Answered:
    first = evaluations[0]
    return Answered(
        now,
        tuple(answer.value for answer in answers),
        tuple(None if answer.error else answer.active for answer in answers),
        tuple(
            None if isinstance(one, AccelscaleError) else one.activation_value
            for one in evaluations
        ),
        tuple(answer.error for answer in answers if answer.error),
        None if isinstance(first, AccelscaleError) else len(first.workload.replicas),
    )


def _times(phase: float, period: float, end: float) -> Iterator[float]:
    """The turns of one controller, reckoned as `accelscale.hpa.run` does from a start of 0."""
    turns = 0
    while (time := 0.0 + phase + turns * period) < end:
        yield time
        turns += 1


def _first_fleet(view: View, trigger: Trigger) -> tuple[int, float]:
    """Replicas, and devices per replica, as first seen in the recording.

    Raises:
        AccelscaleError: the trigger counts nothing in the whole recording.
    """
    error: AccelscaleError | None = None
    for time in view.edges:
        try:
            replicas = view.workload(trigger, float(time)).replicas
        except AccelscaleError as found:
            error = error or found
            continue
        if replicas:
            return len(replicas), sum(len(r.devices) for r in replicas) / len(replicas)
    if error is not None:
        raise error
    return 0, 1.0
