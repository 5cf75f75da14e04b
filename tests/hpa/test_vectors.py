"""Every row of hpa_vectors.csv: cases of Kubernetes' and KEDA's own tests, restated as numbers.

A row says everything in its columns and its note; what a note says in words is read by pattern. A
row that this file cannot interpret fails, it is never skipped.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from attrs import evolve

from accelscale.hpa import (
    Action,
    Controller,
    Fallback,
    FallbackBehavior,
    HpaSpec,
    HpaState,
    KedaState,
    KedaTrigger,
    Pause,
    Scale,
    ScaledJob,
    ScaledObject,
    ScalerAnswer,
    ScalingModifiers,
    Tolerance,
    demand,
    jobs_to_start,
    poll,
    queue_of,
    sync,
)
from accelscale.hpa.autoscaler import ExternalMetric, MetricError, MetricStatus, Proposal, propose
from accelscale.hpa.fallback import FallbackTarget, Observation, with_fallback
from accelscale.hpa.modifiers import composite_value, formula_value
from accelscale.hpa.pods import Pod, PodProposal, pods_replicas, utilization_replicas
from accelscale.hpa.quantities import total_of_series
from accelscale.hpa.replicas import reported_value
from accelscale.hpa.scaledjob import Calculation, Demand, Strategy
from accelscale.hpa.versions import KedaVersion
from accelscale.trigger import MetricType

Row = dict[str, str]

with (Path(__file__).parent / "hpa_vectors.csv").open(newline="") as file:
    ROWS = list(csv.DictReader(file))

KEDA = KedaVersion()


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(";") if number]


def number(text: str, default: int) -> int:
    return int(text) if text else default


def noted(row: Row, pattern: str) -> str | None:
    match = re.search(pattern, row["note"])
    return match[1] if match else None


def rows(*kinds: str) -> list[object]:
    chosen = [row for row in ROWS if row["metric_type"].split("/")[0] in kinds]
    return [pytest.param(row, id=f"{row['metric_type']}: {row['case']}") for row in chosen]


def test_every_row_is_claimed_by_a_test() -> None:
    claimed = {"External", "Object", "Pods", "Resource", "KEDA"}
    assert {row["metric_type"].split("/")[0] for row in ROWS} == claimed
    assert {row["metric_type"] for row in ROWS if row["metric_type"].startswith("KEDA")} == {
        f"KEDA/{kind}"
        for kind in ("fallback", "modifiers", "activation", "scaledjob", "scaledjob-strategy")
    }


def tolerance_of(row: Row) -> Tolerance:
    return Tolerance(float(row["tolerance_up"] or 0.1), float(row["tolerance_down"] or 0.1))


def scale_of(row: Row) -> Scale:
    current = number(row["current_replicas"], 1)
    ready = number(row["ready_replicas"], current)
    return Scale(current, max(current, ready), ready)


def pod_proposal(row: Row) -> PodProposal:
    """The proposal of a Pods or Resource row; pods beyond the values have no sample."""
    values, scale = numbers(row["metric_values_milli"]), scale_of(row)
    count = max(scale.replicas, scale.ready, len(values))
    requests = numbers(noted(row, r"requests_milli=([0-9;]+)") or "") or [1000] * count
    unready = noted(row, r"pod(\d) unready")
    pods = [
        Pod(value, request, unready=unready == str(index))
        for index, (value, request) in enumerate(
            zip([*values, *[None] * (count - len(values))], requests, strict=True)
        )
    ]
    target = int(row["target_milli"])
    count_by = utilization_replicas if row["metric_type"].startswith("Resource") else pods_replicas
    return count_by(pods, target, current=scale.replicas, tolerance=tolerance_of(row))


def is_controller_row(row: Row) -> bool:
    return bool(row["min"] or row["max"])


@pytest.mark.parametrize("row", rows("External", "Object"))
def test_external_and_object_metrics(row: Row) -> None:
    metric = ExternalMetric(
        "metric", int(row["target_milli"]), MetricType(row["metric_type"].split("/")[1])
    )
    scale, expected = scale_of(row), int(row["expected_replicas"])
    if is_controller_row(row):
        outcome = synced(row, metric=metric)
        assert outcome == expected
        return
    values = tuple(numbers(row["metric_values_milli"]))
    got = propose(metric, MetricStatus(values), scale, tolerance_of(row))
    assert got == expected
    reported = noted(row, r"reported_usage=(\d+)")
    if reported is not None:
        total = total_of_series(values, metric.metric_type)
        shown = reported_value(total, metric_type=metric.metric_type, status=scale.status)
        assert shown == int(reported)


@pytest.mark.parametrize("row", rows("Pods", "Resource"))
def test_pods_and_resource_metrics(row: Row) -> None:
    expected = int(row["expected_replicas"])
    if row["metric_values_milli"]:
        usage = pod_proposal(row).usage
        for shown in (noted(row, r"reported_usage=(\d+)"), noted(row, r"util=(\d+)%")):
            assert shown is None or usage == int(shown)
    if is_controller_row(row):
        assert synced(row) == expected
    else:
        assert pod_proposal(row).replicas == expected


def status_of(row: Row) -> MetricStatus:
    if row["metric_values_milli"] == "ERROR":
        return MetricStatus(error="query failed")
    return MetricStatus(tuple(numbers(row["metric_values_milli"])))


def other_proposals(row: Row) -> list[Proposal]:
    """What metrics that are not external propose, the row's own and those of its note."""
    others: list[Proposal] = []
    if row["metric_type"].split("/")[0] in ("Pods", "Resource") and row["metric_values_milli"]:
        others.append(pod_proposal(row).replicas)
    cpu = noted(row, r"cpu.* proposes (\d+)")
    if cpu is not None:
        others.append(int(cpu))
    if "second metric of unknown type errors" in row["note"]:
        others.append(MetricError("InvalidMetricSourceType", "unknown metric source type"))
    return others


def synced(row: Row, *, metric: ExternalMetric | None = None) -> int:
    """The replicas after one sync of an HPA without a behaviour and with an empty history."""
    gate = "gate on" in row["case"] or "HPAScaleToZero" in row["note"]
    without_condition = "WithoutCondition" in row["case"]
    controller = Controller(scale_to_zero=gate or without_condition)
    statuses = [] if metric is None else [status_of(row)]
    is_keda = row["source"].startswith("keda/")
    spec = HpaSpec(
        max(number(row["min"], 1), 1 if is_keda else 0),
        number(row["max"], 100),
        () if metric is None else (metric,),
    )
    state = HpaState(recommendations=(), scaled_to_zero=gate and "FromZero" in row["case"])
    outcome = sync(
        spec,
        state,
        scale_of(row),
        statuses,
        now=0.0,
        controller=controller,
        others=other_proposals(row),
    )
    for reason in re.findall(r"ScalingDisabled|FailedGetExternalMetric", row["note"]):
        assert outcome.scaling_active == reason
    for reason in re.findall(r"TooManyReplicas|TooFewReplicas", row["note"]):
        assert outcome.scaling_limited == reason
    if row["metric_values_milli"] == "ERROR":
        assert outcome.errors
    return outcome.replicas


def of_kind(kind: str) -> list[object]:
    return [
        pytest.param(row, id=row["case"]) for row in ROWS if row["metric_type"] == f"KEDA/{kind}"
    ]


STATIC = Fallback(failure_threshold=3, replicas=10)

FALLBACK_CASES: dict[str, tuple[Fallback | None, list[int]]] = {
    # case: the fallback block, and the failures before (more than one where the note says so)
    "fallback static, beyond threshold": (STATIC, [3]),
    "fallback below threshold": (STATIC, [0]),
    "fallback disabled": (None, [0]),
    "fallback invalid threshold -3": (Fallback(-3, 10), [0]),
    "fallback disabled, healthy": (None, [0]),
    "fallback enabled, healthy": (STATIC, [0, 5]),
    "static ignores current": (STATIC, [3]),
}


@pytest.mark.parametrize("row", of_kind("fallback"))
def test_fallback(row: Row) -> None:
    assert row["case"] in FALLBACK_CASES, "no interpretation of this row"
    fallback, before = FALLBACK_CASES[row["case"]]
    healthy = "healthy" in row["case"]
    values = () if row["metric_values_milli"] == "ERROR" else numbers(row["metric_values_milli"])
    target = int(row["target_milli"])
    given = Observation(tuple(values)) if healthy else Observation(error="no data")
    for failures in before:
        got, after = with_fallback(
            given,
            failures,
            fallback=fallback,
            metric=FallbackTarget(target, MetricType.AVERAGE_VALUE),
            current=number(row["current_replicas"], 1),
            ready=1,
            keda=KEDA,
        )
        assert got.values == tuple(values)
        assert bool(got.error) is (row["metric_values_milli"] == "ERROR")
        if fallback is None or not fallback.valid:
            assert after == failures
        else:
            assert after == (0 if healthy else failures + 1)
        if row["expected_replicas"]:
            metric = ExternalMetric("metric", target)
            status = MetricStatus(got.values)
            replicas = propose(metric, status, Scale.settled(1), Tolerance())
            assert replicas == int(row["expected_replicas"])


@pytest.mark.parametrize("row", of_kind("modifiers"))
def test_scaling_modifiers(row: Row) -> None:
    values = numbers(row["metric_values_milli"])
    if row["case"] == "formula sum":
        modifiers = ScalingModifiers(
            lambda value: (value["trigger1"] or 0) + (value["trigger2"] or 0), 1.0
        )
        triggers = (KedaTrigger("trigger1", 1.0), KedaTrigger("trigger2", 1.0))
        scaled_object = ScaledObject(triggers, modifiers=modifiers)
        observed = {index: Observation((value,)) for index, value in enumerate(values)}
        expected = noted(row, r"composite (\d+) milli")
        assert composite_value(scaled_object, modifiers, observed) == int(expected or -1)
    elif row["case"] == "trigger value at threshold":
        fallback = Fallback(3, 5, FallbackBehavior.SCALING_MODIFIERS)
        metric = FallbackTarget(1000, MetricType.AVERAGE_VALUE, composite=True)
        seen = []
        for failures in (2, 3):
            got, after = with_fallback(
                Observation(error="no data"),
                failures,
                fallback=fallback,
                metric=metric,
                current=1,
                ready=1,
                keda=KEDA,
            )
            assert after == failures + 1
            seen.append(got)
        at_threshold, one_over = seen
        assert not at_threshold.absent
        assert formula_value(evolve(at_threshold, values=tuple(values))) == 7.0
        assert one_over.absent
        assert formula_value(one_over) is None
    else:
        pytest.fail("no interpretation of this row")


def activation(row: Row) -> ScaledObject:
    case = row["case"]
    idle = "idle" in case or "idle_replicas" in row["source"]
    return ScaledObject(
        (KedaTrigger("metric", 1.0),),
        min_replicas=number(row["min"], 0),
        max_replicas=number(row["max"], 100),
        idle_replicas=0 if idle else None,
        pause=Pause(
            replicas=0 if case == "paused-replicas" else None,
            scale_in="paused-scale-in" in case,
            scale_out="paused-scale-out" in case,
        ),
        created=-1000.0,
    )


@pytest.mark.parametrize("row", of_kind("activation"))
def test_activation(row: Row) -> None:
    scaled_object, case = activation(row), row["case"]
    current = number(row["current_replicas"], 2)
    answers = [ScalerAnswer.of(2.0, active=not case.startswith("inactive"))]
    if case.startswith("formula"):
        modifiers = ScalingModifiers(
            lambda value: (value["one"] or 0) + (value["two"] or 0), 2.0, activation_target=2.0
        )
        triggers = (KedaTrigger("one", 1.0), KedaTrigger("two", 1.0))
        scaled_object = evolve(scaled_object, triggers=triggers, modifiers=modifiers)
        answers = [ScalerAnswer.of(0.0, active=True), ScalerAnswer.of(2.0, active=True)]
    elif not case.startswith(("active", "inactive", "paused")):
        pytest.fail("no interpretation of this row")
    outcome = poll(scaled_object, KedaState(), Scale.settled(current), answers, now=0.0)
    if row["expected_replicas"]:
        assert outcome.replicas == int(row["expected_replicas"])
    else:
        assert case == "paused-replicas"
        assert (outcome.replicas, outcome.action) == (current, Action.PAUSED)


@pytest.mark.parametrize("row", of_kind("scaledjob"))
def test_scaled_job_demand(row: Row) -> None:
    values, targets = numbers(row["metric_values_milli"]), numbers(row["target_milli"])
    if not values:  # only the mean of the targets is given
        queue = queue_of([6000], targets, active=True, max_replicas=100)
        assert queue.jobs == 6.0 / float(noted(row, r"= (\d+)$") or 0)
        return
    calculation = noted(row, r"multipleScalersCalculation=(\w+)")
    job = ScaledJob(
        min_replicas=number(row["min"], 0),
        max_replicas=int(row["max"]),
        calculation=Calculation(calculation or "max"),
    )
    last_inactive = "4th scaler inactive" in row["note"]
    queues = [
        queue_of(
            [value],
            [target],
            active=not (last_inactive and index == 3),
            max_replicas=int(row["max"]),
        )
        for index, (value, target) in enumerate(zip(values, targets, strict=True))
    ]
    got = demand(job, queues)
    length = noted(row, r"queueLength=(\d+)") or noted(row, r"queue (\d+)")
    assert got == Demand(True, int(length or -1), int(row["expected_replicas"]))


@pytest.mark.parametrize("row", of_kind("scaledjob-strategy"))
def test_scaled_job_strategy(row: Row) -> None:
    def of(name: str, default: int) -> int:
        return number(noted(row, rf"{name}=(-?\d+)") or "", default)

    maximum = of("maxReplicaCount", number(row["max"], 100))
    percentage = noted(row, r"pct=([0-9.]+)")
    job = ScaledJob(
        min_replicas=number(row["min"], 0),
        max_replicas=maximum,
        strategy=Strategy(noted(row, r"strategy=(\w+)") or "default"),
        queue_length_deduction=of("deduction", 0),
        running_job_percentage=None if percentage is None else float(percentage),
    )
    running, scale_to = int(row["current_replicas"]), noted(row, r"scaleTo=(\d+)")
    queue = maximum if scale_to is None else int(scale_to)
    wanted = Demand(True, queue, of("maxScale", 0))
    got = jobs_to_start(job, wanted, running=running, pending=of("pending", 0))
    assert got.allowed == int(row["expected_replicas"])
    assert got.start == max(0, min(got.wanted, got.allowed))
    if scale_to is not None:
        assert got.wanted == int(scale_to)
