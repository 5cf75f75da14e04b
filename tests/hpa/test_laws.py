"""Laws of the model: bounds, monotony, no scale-in on a fault, windows, caps, memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from accelscale.errors import UnsupportedError
from accelscale.hpa import (
    Behavior,
    Controller,
    ExternalMetric,
    Fallback,
    HpaSpec,
    HpaState,
    KedaState,
    KedaTrigger,
    MetricStatus,
    Policy,
    PolicyType,
    Queue,
    Scale,
    ScaledJob,
    ScaledObject,
    ScalerAnswer,
    ScalingRules,
    SelectPolicy,
    Strategy,
    Timing,
    ToleranceForm,
    demand,
    desired_replicas,
    jobs_to_start,
    poll,
    run,
    sync,
)
from accelscale.hpa.limits import ScaleEvent, ScaleEvents, limit_by_behavior, limit_by_doubling
from accelscale.hpa.quantities import LARGEST_VALUE, value_in_milli
from accelscale.hpa.replicas import LARGEST_INT32
from accelscale.hpa.stabilization import Recommendation, stabilize, stabilize_downscale
from accelscale.hpa.versions import KedaVersion
from accelscale.trigger import MetricType

values = st.floats(0, 1e6, allow_nan=False)
targets = st.floats(0.001, 1e4, allow_nan=False)
counts = st.integers(0, 500)
metric_types = st.sampled_from(MetricType)
forms = st.sampled_from(ToleranceForm)

policies = st.builds(
    Policy,
    st.sampled_from(PolicyType),
    st.integers(1, 1000),
    st.sampled_from([15, 60, 300, 1800]),
)
rules = st.builds(
    ScalingRules,
    st.lists(policies, max_size=3).map(tuple),
    st.none() | st.sampled_from(SelectPolicy),
    st.none() | st.integers(0, 600),
    st.none() | st.floats(0, 0.5),
)
behaviors = st.none() | st.builds(Behavior, rules, rules)


@given(values, values, targets, metric_types, st.integers(1, 500), st.integers(0, 500), forms)
def test_a_greater_value_never_asks_for_fewer_replicas(
    one: float,
    other: float,
    target: float,
    metric_type: MetricType,
    current: int,
    ready: int,
    form: ToleranceForm,
) -> None:
    """Under Value only with every pod Ready: the tolerance answers with the wanted pods."""
    ready = current if metric_type is MetricType.VALUE else ready

    def asked(value: float) -> int:
        return desired_replicas(
            value,
            target,
            metric_type=metric_type,
            current=current,
            ready=ready,
            tolerance_form=form,
        )

    less, more = sorted((one, other))
    assert asked(less) <= asked(more)


@given(st.floats(0, LARGEST_VALUE), targets, metric_types, st.integers(0, LARGEST_INT32))
def test_proposals_are_whole_and_fit_the_field(
    value: float, target: float, metric_type: MetricType, current: int
) -> None:
    got = desired_replicas(value, target, metric_type=metric_type, current=current)
    assert isinstance(got, int)
    assert 0 <= got <= LARGEST_INT32


@given(st.integers(1, 10**9), st.integers(1, 500), metric_types)
def test_exactly_on_target_asks_for_no_change(
    milli: int, current: int, metric_type: MetricType
) -> None:
    target = milli / 1000
    load = target if metric_type is MetricType.VALUE else milli * current / 1000
    assert desired_replicas(load, target, metric_type=metric_type, current=current) == current


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_value_becomes_thousandths_or_an_error(value: float) -> None:
    try:
        milli = value_in_milli(value)
    except UnsupportedError:
        assert abs(value) > LARGEST_VALUE
        return
    assert milli >= 0
    if 0 <= value < 1e9:
        assert math.isclose(milli / 1000, value, abs_tol=0.000501)


@st.composite
def histories(draw: st.DrawFn) -> tuple[HpaSpec, list[tuple[float, Scale, list[MetricStatus]]]]:
    """An HPA and some syncs: times, surges, unready pods, values and errors."""
    minimum = draw(st.integers(1, 5))
    maximum = minimum + draw(st.integers(0, 300))
    metrics = tuple(
        ExternalMetric(f"s{index}", draw(st.integers(1, 100_000)), draw(metric_types))
        for index in range(draw(st.integers(1, 3)))
    )
    spec = HpaSpec(minimum, maximum, metrics, draw(behaviors))
    statuses = st.builds(
        MetricStatus, st.lists(st.integers(0, 10**8), min_size=1, max_size=2).map(tuple)
    ) | st.just(MetricStatus(error="no data"))
    steps = []
    now = 0.0
    for _ in range(draw(st.integers(1, 12))):
        now += draw(st.sampled_from([1.0, 15.0, 15.0, 60.0, 301.0]))
        surge, unready = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        got = [draw(statuses) for _ in metrics]
        steps.append((now, Scale(0, surge, -unready), got))
    return spec, steps


def replayed(
    spec: HpaSpec, steps: Sequence[tuple[float, Scale, list[MetricStatus]]], first: int
) -> list[tuple[int, int, list[MetricStatus]]]:
    """Replicas before and after each sync."""
    state, replicas, outcomes = HpaState(), first, []
    for now, offsets, statuses in steps:
        status = replicas + offsets.status
        scale = Scale(replicas, status, max(0, status + offsets.ready))
        got = sync(spec, state, scale, statuses, now=now)
        outcomes.append((replicas, got.replicas, statuses))
        state, replicas = got.state, got.replicas
    return outcomes


@settings(max_examples=200, deadline=None)
@given(histories(), st.integers(1, 400))
def test_replicas_stay_within_the_bounds(
    history: tuple[HpaSpec, list[tuple[float, Scale, list[MetricStatus]]]], first: int
) -> None:
    spec, steps = history
    for _, after, _ in replayed(spec, steps, first):
        assert spec.min_replicas <= after <= spec.max_replicas


@settings(max_examples=200, deadline=None)
@given(histories())
def test_no_scale_in_while_any_metric_fails(
    history: tuple[HpaSpec, list[tuple[float, Scale, list[MetricStatus]]]],
) -> None:
    spec, steps = history
    for before, after, statuses in replayed(spec, steps, spec.max_replicas):
        if any(status.error for status in statuses):
            assert after >= before
        if all(status.error for status in statuses):
            assert after == before


@settings(max_examples=200, deadline=None)
@given(histories())
def test_a_sync_is_a_function_of_what_it_is_given(
    history: tuple[HpaSpec, list[tuple[float, Scale, list[MetricStatus]]]],
) -> None:
    spec, steps = history
    moved = [(now + 1_760_000_000.0, scale, statuses) for now, scale, statuses in steps]
    assert replayed(spec, steps, spec.min_replicas) == replayed(spec, moved, spec.min_replicas)


@st.composite
def proposals(draw: st.DrawFn) -> list[tuple[float, int]]:
    now, got = 0.0, []
    for _ in range(draw(st.integers(1, 30))):
        now += draw(st.sampled_from([5.0, 15.0, 15.0, 40.0]))
        got.append((now, draw(st.integers(0, 50))))
    return got


@given(proposals(), st.sampled_from([0.0, 60.0, 300.0]))
def test_without_a_behavior_the_window_is_respected(
    history: list[tuple[float, int]], window: float
) -> None:
    """What is held is exactly the greatest proposal of the window, however slots are reused."""
    kept: tuple[Recommendation, ...] = ()
    for index, (now, proposal) in enumerate(history):
        got = stabilize_downscale(kept, proposal, window=window, now=now)
        recent = [past for time, past in history[: index + 1] if now - time <= window]
        assert got.replicas == max(recent)
        kept = got.recommendations


@given(
    proposals(), st.sampled_from([0, 60, 300]), st.sampled_from([0, 60, 300]), st.integers(0, 50)
)
def test_with_a_behavior_both_windows_are_respected(
    history: list[tuple[float, int]], up: int, down: int, current: int
) -> None:
    behavior = Behavior(
        ScalingRules(stabilization_window_seconds=up),
        ScalingRules(stabilization_window_seconds=down),
    ).resolved(Controller())
    kept: tuple[Recommendation, ...] = ()
    for index, (now, proposal) in enumerate(history):
        got = stabilize(kept, proposal, current=current, behavior=behavior, now=now)
        seen = history[:index]
        least = min([proposal, *(past for time, past in seen if now - time < up)])
        greatest = max([proposal, *(past for time, past in seen if now - time < down)])
        assert got.replicas == min(max(current, least), greatest)
        kept = got.recommendations


events = st.lists(st.builds(ScaleEvent, st.integers(0, 50), st.floats(0, 1000)), max_size=6).map(
    tuple
)


@given(st.integers(1, 500), st.integers(0, 5000), st.builds(Behavior, rules, rules), events, events)
def test_a_limit_never_turns_the_direction(
    current: int,
    desired: int,
    behavior: Behavior,
    up: tuple[ScaleEvent, ...],
    down: tuple[ScaleEvent, ...],
) -> None:
    got = limit_by_behavior(
        current,
        desired,
        minimum=1,
        maximum=1000,
        behavior=behavior.resolved(Controller()),
        events=ScaleEvents(up, down),
        now=1000.0,
    ).replicas
    if desired > current:
        assert current <= got <= desired
    else:
        assert min(max(desired, 1), current) <= got <= current


@given(st.integers(1, 500), st.integers(0, 5000))
def test_doubling_is_the_most_without_a_behavior(current: int, desired: int) -> None:
    got = limit_by_doubling(current, desired, minimum=1, maximum=1000).replicas
    assert got <= max(2 * current, 4)
    assert got == max(1, min(desired, 1000, max(2 * current, 4)))


answers = st.one_of(
    st.builds(ScalerAnswer.of, st.floats(0, 1e5), active=st.booleans()),
    st.just(ScalerAnswer.failed("no data")),
    st.just(ScalerAnswer.unreachable("refused")),
)


@given(
    st.lists(answers, min_size=2, max_size=2),
    st.integers(1, 50),
    st.none() | st.floats(0, 5000),
    st.none() | st.builds(Fallback, st.integers(0, 3), st.integers(1, 20)),
    st.sampled_from(["2.17", "2.19", "2.20.2"]),
)
def test_the_operator_never_scales_in_on_a_fault(
    given_answers: list[ScalerAnswer],
    replicas: int,
    last_active: float | None,
    fallback: Fallback | None,
    version: str,
) -> None:
    triggers = (KedaTrigger("load", 70.0), KedaTrigger("queue", 10.0))
    got = poll(
        ScaledObject(triggers, fallback=fallback),
        KedaState(last_active=last_active),
        Scale.settled(replicas),
        given_answers,
        now=5000.0,
        keda=KedaVersion.parse(version),
    )
    if any(answer.error or answer.spec_error for answer in given_answers):
        assert got.replicas == replicas
    else:
        assert got.replicas in (0, replicas)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(answers, min_size=1, max_size=6),
    behaviors,
    st.integers(0, 3),
    st.floats(0, 29),
    st.floats(0, 14),
    st.floats(0, 90),
)
def test_the_loop_keeps_within_bounds_whatever_the_phases(
    cycle: list[ScalerAnswer],
    behavior: Behavior | None,
    minimum: int,
    poll_phase: float,
    sync_phase: float,
    delay: float,
) -> None:
    def given_answers(now: float, _: Scale) -> list[ScalerAnswer]:
        return [cycle[int(now // 30) % len(cycle)]]

    scaled_object = ScaledObject(
        (KedaTrigger("load", 70.0),),
        min_replicas=minimum,
        max_replicas=10,
        behavior=behavior,
        cooldown_period=60.0,
    )
    timing = Timing(poll_phase, sync_phase, delay)
    turns = list(run(scaled_object, given_answers, start=0.0, end=300.0, replicas=5, timing=timing))
    assert [turn.time for turn in turns] == sorted(turn.time for turn in turns)
    for turn in turns:
        assert minimum <= turn.replicas <= 10
        assert 0 <= turn.found.ready <= turn.found.status


queues = st.lists(st.builds(Queue, st.floats(0, 1e4), st.floats(0, 1e4), st.booleans()), max_size=4)


@given(
    st.builds(ScaledJob, st.integers(0, 5), st.integers(1, 50), st.sampled_from(Strategy)),
    queues,
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_jobs_started_keep_to_the_maximum(
    job: ScaledJob, queued: list[Queue], running: int, pending: int
) -> None:
    wanted = demand(job, queued)
    assert wanted.jobs <= job.max_replicas
    decision = jobs_to_start(job, wanted, running=running, pending=min(pending, running))
    assert 0 <= decision.start <= job.max_replicas
    if not wanted.active:
        assert decision.start == 0
    filled = evolve(job, min_replicas=0)
    assert jobs_to_start(filled, wanted, running=10**6, pending=0).start == 0
