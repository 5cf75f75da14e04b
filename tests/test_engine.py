from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from attrs import evolve

from accelscale.engine import Evaluation, evaluate, failed_evaluation, max_age_of
from accelscale.errors import AccelscaleError, NoDataError, NotFoundError, UnsupportedError
from accelscale.model import Failure, Reason, Replica, Workload
from accelscale.trigger import Trigger
from fleets import NOW, Reading, fleet, trigger

LOST = Reason.LOST


def run(wanted: object = None, **options: object) -> Evaluation:
    pods = options.pop("pods")
    return evaluate(*fleet(wanted or trigger(), pods, **options), now=NOW)  # type: ignore[arg-type]


def value(evaluation: Evaluation) -> float | type[AccelscaleError]:
    found = evaluation.value
    return type(found) if isinstance(found, AccelscaleError) else found


def active(evaluation: Evaluation) -> bool | type[AccelscaleError]:
    found = evaluation.active
    return type(found) if isinstance(found, AccelscaleError) else found


def one_each(*readings: Reading) -> dict[str, list[Reading]]:
    return {f"pod-{index}": [reading] for index, reading in enumerate(readings)}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, 160.0),
        ({"metricType": "Value"}, 80.0),
        ({"replicaAggregation": "max"}, 90.0),
        ({"replicaAggregation": "min", "metricType": "Value"}, 70.0),
        ({"replicaAggregation": "mean"}, 80.0),
        ({"replicaAggregation": "p50"}, 70.0),
    ],
)
def test_replicas_are_summed_or_averaged_as_the_metric_type_wants(
    keys: dict[str, str], expected: float
) -> None:
    assert value(run(trigger(**keys), pods=one_each(90.0, 70.0))) == expected


@pytest.mark.parametrize(
    ("aggregation", "expected"), [("mean", 20.0), ("max", 30.0), ("min", 10.0), ("sum", 60.0)]
)
def test_devices_of_a_replica_are_aggregated_first(aggregation: str, expected: float) -> None:
    pods = {"a": [10.0, 20.0, 30.0]}
    assert value(run(trigger(aggregation=aggregation), pods=pods)) == expected


def test_uneven_nodes_are_no_average_of_averages() -> None:
    evaluation = run(trigger(replicaAggregation="mean"), pods=one_each(*[90.0] * 8, 10.0))
    assert value(evaluation) == pytest.approx(81.11, abs=0.01)


def test_no_replicas_is_a_true_zero_and_idle() -> None:
    evaluation = run(pods={})
    assert (evaluation.metric_value(), evaluation.is_active()) == (0.0, False)


def test_idle_hardware_is_a_true_zero() -> None:
    evaluation = run(pods=one_each(0.0, 0.0))
    assert (evaluation.metric_value(), evaluation.is_active()) == (0.0, False)


@pytest.mark.parametrize(
    ("reading", "reason"),
    [(reason, reason) for reason in Reason] + [(None, Reason.STALE), ((50.0, 5.1), Reason.STALE)],
)
@pytest.mark.parametrize("missing", ["hold", "error", "ignore"])
def test_without_a_fresh_reading_there_is_neither_value_nor_verdict(
    reading: Reading, reason: Reason, missing: str
) -> None:
    evaluation = run(trigger(missing=missing), pods=one_each(reading, reading))
    for ask in (evaluation.metric_value, evaluation.is_active):
        with pytest.raises(NoDataError) as caught:
            ask()
        assert caught.value.reason is reason
        assert str(reason) in str(caught.value)
        assert "pod-0/0" in str(caught.value)


def test_a_sample_counts_until_its_age() -> None:
    assert value(run(pods=one_each((50.0, 4.9)))) == 50.0
    assert value(run(trigger(maxAge="2s"), pods=one_each((50.0, 2.1)))) is NoDataError
    assert value(run(trigger(maxAge="60s"), pods=one_each((50.0, 59.0)))) == 50.0


def test_the_message_names_device_reason_and_age() -> None:
    with pytest.raises(NoDataError, match=r"Toy pod-0/0: stale \(no newer reading\), 12\.0 s old"):
        run(pods=one_each((50.0, 12.0))).metric_value()


def test_the_message_gives_the_reason_why_there_is_no_newer_reading() -> None:
    wanted, snapshot, workload = fleet(trigger(), one_each((50.0, 12.0)))
    failure = Failure("pod-0/0", wanted.metric, Reason.TIMEOUT, "the driver hangs", NOW)
    failures = {("pod-0/0", wanted.metric): failure}
    evaluation = evaluate(wanted, evolve(snapshot, failures=failures), workload, now=NOW)
    with pytest.raises(NoDataError, match=r"timeout \(the driver hangs\), 12\.0 s old"):
        evaluation.metric_value()


def test_a_long_message_is_cut() -> None:
    with pytest.raises(NoDataError, match="and 7 more"):
        run(pods=one_each(*[LOST] * 10)).metric_value()


def test_the_age_limit_follows_the_interval_of_the_metric() -> None:
    wanted, snapshot, _ = fleet(trigger(), one_each(1.0))
    assert max_age_of(wanted, snapshot) == 5.0
    slow = type(snapshot)(NOW, 1, 1.0, intervals={"utilization_percent": 10.0})
    assert max_age_of(wanted, slow) == 30.0


def test_an_evaluation_says_how_long_it_stays_fresh() -> None:
    assert run(pods=one_each((50.0, 1.0), (50.0, 3.0))).fresh_until == NOW - 3.0 + 5.0
    assert run(pods={}).fresh_until == math.inf


# What a silent replica means.


@pytest.mark.parametrize(
    ("readings", "expected", "fill"),
    [
        # They ask for more: the silent one counts 0.
        ((100.0, 100.0, 100.0, LOST), 300.0, "zero"),
        # They ask for fewer: it counts the threshold.
        ((10.0, 20.0, 30.0, LOST), 130.0, "threshold"),
        # Filling in turns the direction round: no change.
        ((75.0, 75.0, LOST, LOST), 280.0, "no change"),
        # They are just right: no change.
        ((70.0, LOST), 140.0, "no change"),
        # All report.
        ((10.0, 20.0), 30.0, "none"),
    ],
)
def test_hold_fills_in_as_the_hpa_does(
    readings: tuple[Reading, ...], expected: float, fill: str
) -> None:
    evaluation = run(pods=one_each(*readings))
    assert (value(evaluation), evaluation.fill) == (expected, fill)


def test_no_change_under_value_is_the_threshold() -> None:
    evaluation = run(trigger(metricType="Value"), pods=one_each(75.0, 75.0, LOST, LOST))
    assert (value(evaluation), evaluation.fill) == (70.0, "no change")


@pytest.mark.parametrize("aggregation", ["max", "min", "mean", "p50"])
def test_hold_leaves_other_aggregations_at_the_threshold_or_better(aggregation: str) -> None:
    wanted = trigger(replicaAggregation=aggregation, metricType="Value")
    assert run(wanted, pods=one_each(10.0, 20.0, LOST)).metric_value() >= 10.0
    assert run(wanted, pods=one_each(90.0, 90.0, LOST)).metric_value() >= 60.0


def test_fewer_than_half_of_those_that_have_been_ready_is_no_data() -> None:
    assert value(run(pods=one_each(90.0, LOST, LOST))) is NoDataError
    assert value(run(pods=one_each(100.0, LOST))) == 140.0
    starting = ("pod-1", "pod-2", "pod-3")
    assert value(run(pods=one_each(95.0, LOST, LOST, LOST), starting=starting)) == 280.0


def test_a_starting_replica_is_silent_whatever_it_reads() -> None:
    pods = one_each(95.0, 95.0, 0.0, 0.0)
    evaluation = run(pods=pods, starting=("pod-2", "pod-3"))
    assert (value(evaluation), evaluation.fill) == (280.0, "no change")


def test_one_that_was_ready_counts_with_its_sample_ready_or_not() -> None:
    assert value(run(pods=one_each(95.0, 95.0), unready=("pod-1",))) == 190.0


def test_under_value_the_sum_is_spread_over_the_ready_ones() -> None:
    wanted = trigger(metricType="Value")
    evaluation = run(wanted, pods=one_each(90.0, 90.0, 30.0), unready=("pod-2",))
    assert value(evaluation) == 105.0
    assert value(run(wanted, pods=one_each(90.0), unready=("pod-0",))) is NoDataError


def test_nobody_reports_but_starting_ones_is_no_data() -> None:
    evaluation = run(pods=one_each(50.0, 50.0), starting=("pod-0", "pod-1"))
    with pytest.raises(NoDataError, match="pod-0 is still starting"):
        evaluation.metric_value()
    assert active(evaluation) is NoDataError


def test_error_takes_no_silent_one() -> None:
    wanted = trigger(missing="error")
    assert value(run(wanted, pods=one_each(90.0, 90.0, LOST))) is NoDataError
    assert value(run(wanted, pods=one_each(90.0, 90.0, 1.0), starting=("pod-2",))) == 210.0


def test_ignore_leaves_silent_ones_out() -> None:
    wanted = trigger(missing="ignore", replicaAggregation="mean")
    evaluation = run(wanted, pods=one_each(10.0, 20.0, 30.0, LOST))
    assert value(evaluation) == 20.0
    assert [figure.counted for figure in evaluation.replicas] == [10.0, 20.0, 30.0, None]
    assert value(run(wanted, pods=one_each(30.0, LOST, LOST, LOST))) == 30.0


def test_a_replica_reports_with_the_devices_that_do() -> None:
    assert value(run(trigger(missing="ignore"), pods={"a": [40.0, LOST, 60.0]})) == 50.0
    (figure,) = run(pods={"a": [40.0, LOST, 60.0]}).replicas
    assert figure.value == 50.0
    assert value(run(trigger(missing="error"), pods={"a": [60.0, LOST, 60.0]})) == 190.0 / 3


@pytest.mark.parametrize(
    ("aggregation", "readings", "expected", "fill"),
    [
        # They ask for fewer: the lost one counts the threshold, and never less than it seemed.
        ("mean", [20.0, 20.0, LOST], 110.0 / 3, "threshold"),
        ("max", [20.0, 30.0, LOST], 70.0, "threshold"),
        ("min", [20.0, 30.0, LOST], 20.0, "threshold"),
        ("p50", [20.0, LOST], 20.0, "threshold"),
        # They ask for more: it counts 0.
        ("mean", [200.0, 100.0, LOST], 100.0, "zero"),
        ("max", [20.0, 90.0, LOST], 90.0, "none"),
        # That turns the direction round: no change.
        ("mean", [80.0, 100.0, LOST], 70.0, "no change"),
        ("min", [90.0, 100.0, LOST], 70.0, "no change"),
    ],
)
def test_a_lost_device_makes_no_replica_look_idler(
    aggregation: str, readings: list[Reading], expected: float, fill: str
) -> None:
    evaluation = run(trigger(aggregation=aggregation), pods={"a": readings})
    assert (value(evaluation), evaluation.fill) == (pytest.approx(expected), fill)


def test_a_sum_with_a_part_missing_is_no_sum_but_a_floor() -> None:
    wanted = trigger(aggregation="sum")
    low = run(wanted, pods={"a": [10.0, 20.0], "b": [15.0, LOST]})
    assert (value(low), low.fill) == (100.0, "threshold")
    high = run(wanted, pods={"a": [300.0, 300.0], "b": [100.0, LOST]})
    assert (value(high), high.fill) == (700.0, "zero")
    ignoring = trigger(aggregation="sum", missing="ignore")
    assert value(run(ignoring, pods={"a": [10.0, 20.0], "b": [15.0, LOST]})) == 45.0


@pytest.mark.parametrize("missing", ["hold", "error"])
def test_a_replica_whose_devices_are_not_known_is_silent(missing: str) -> None:
    wanted = trigger(missing=missing)
    why = {"pod-1": "no agent of node-b was heard"}
    evaluation = run(wanted, pods={"pod-0": [100.0], "pod-1": []}, problems=why)
    assert value(evaluation) == (140.0 if missing == "hold" else NoDataError)
    with pytest.raises(NoDataError, match="pod-1: no agent of node-b was heard"):
        run(wanted, pods={"pod-0": [LOST], "pod-1": []}, problems=why).metric_value()
    with pytest.raises(NoDataError, match="pod-1: none of its devices is known"):
        run(wanted, pods={"pod-1": []}).metric_value()


def test_of_a_replica_some_of_whose_devices_are_not_known_the_others_count() -> None:
    group = {"group-0": [20.0]}
    evaluation = run(pods=group, problems={"group-0": "no agent of node-b was heard"})
    assert (value(evaluation), evaluation.fill) == (45.0, "threshold")
    assert active(run(pods=group)) is True
    idle = run(pods={"group-0": [0.0]}, problems={"group-0": "no agent of node-b was heard"})
    with pytest.raises(NoDataError, match="may be busy: group-0: no agent of node-b was heard"):
        idle.is_active()


# Devices that replicas share.


def on_one_card(
    reading: float, pods: int, wanted: Trigger, parts: Sequence[float] = ()
) -> Evaluation:
    """Pods that hold the same device, with equal parts of it unless they are given."""
    _, snapshot, workload = fleet(wanted, {"card": [reading]})
    parts = parts or [1 / pods] * pods
    shares = [{"card/0": part} for part in parts]
    replicas = tuple(Replica(f"pod-{n}", ("card/0",), shares=s) for n, s in enumerate(shares))
    return evaluate(wanted, snapshot, evolve(workload, replicas=replicas), now=NOW)


@pytest.mark.parametrize("aggregation", ["sum", "mean", "max", "p50"])
def test_a_card_that_four_pods_share_counts_once(aggregation: str) -> None:
    evaluation = on_one_card(70.0, 4, trigger(aggregation=aggregation))
    assert value(evaluation) == 70.0
    assert [figure.value for figure in evaluation.replicas] == [17.5] * 4
    by_value = trigger(aggregation=aggregation, metricType="Value")
    assert value(on_one_card(70.0, 4, by_value)) == 17.5


def test_shares_need_not_be_equal() -> None:
    evaluation = on_one_card(80.0, 2, trigger(), parts=[0.75, 0.25])
    assert [figure.value for figure in evaluation.replicas] == [60.0, 20.0]


@pytest.mark.parametrize("over_replicas", ["max", "min", "p50"])
def test_where_nothing_is_added_up_each_replica_sees_the_whole_figure(over_replicas: str) -> None:
    wanted = trigger(replicaAggregation=over_replicas, metricType="Value")
    assert value(on_one_card(80.0, 4, wanted)) == 80.0


def test_a_shared_card_that_is_busy_keeps_the_workload_active() -> None:
    assert on_one_card(8.0, 4, trigger(activationThreshold="5")).activation_value == 8.0
    by_sum = trigger(activationThreshold="5", replicaAggregation="sum")
    assert on_one_card(8.0, 4, by_sum).activation_value == 8.0


# Activity.


@pytest.mark.parametrize(
    ("keys", "reading", "expected"),
    [
        ({}, 0.0, False),
        ({}, 0.001, True),
        ({"activationThreshold": "10"}, 10.0, False),
        ({"activationThreshold": "10"}, 10.001, True),
        ({"activationThreshold": "50", "threshold": "10"}, 40.0, False),
    ],
)
def test_active_is_strictly_above(keys: dict[str, str], reading: float, expected: bool) -> None:
    assert active(run(trigger(**keys), pods=one_each(reading))) is expected


def test_one_busy_replica_keeps_all() -> None:
    wanted = trigger(activationThreshold="5")
    assert active(run(wanted, pods=one_each(0.0, 0.0, 6.0))) is True
    by_mean = trigger(activationThreshold="5", replicaAggregation="mean", metricType="Value")
    assert active(run(by_mean, pods=one_each(0.0, 0.0, 6.0))) is False


@pytest.mark.parametrize("missing", ["hold", "error"])
def test_what_is_silent_may_be_busy(missing: str) -> None:
    wanted = trigger(missing=missing)
    assert active(run(wanted, pods=one_each(0.0, 0.0, LOST))) is NoDataError
    assert active(run(wanted, pods=one_each(1.0, 0.0, LOST))) is True
    assert active(run(wanted, pods={"a": [0.0, LOST]})) is NoDataError
    assert active(run(wanted, pods=one_each(0.0, 0.0), starting=("pod-1",))) is NoDataError


def test_ignore_lets_the_reporting_ones_decide() -> None:
    assert active(run(trigger(missing="ignore"), pods=one_each(0.0, 0.0, LOST))) is False


def test_an_uncovered_window_may_say_active_but_not_idle() -> None:
    assert active(run(pods=one_each(5.0), covered=False)) is True
    idle = run(pods=one_each(0.0), covered=False)
    assert value(idle) == 0.0
    with pytest.raises(NoDataError, match="does not yet cover the 15 s"):
        idle.is_active()
    ignoring = run(trigger(missing="ignore"), pods=one_each(0.0), covered=False)
    assert active(ignoring) is NoDataError


def test_idle_after_keeps_a_workload_active_for_that_long() -> None:
    wanted = trigger(idleAfter="10m", activationThreshold="5")
    busy_lately = run(wanted, pods=one_each(0.0, 0.0), peaks={"pod-1": 60.0})
    assert active(busy_lately) is True
    assert value(busy_lately) == 0.0
    assert active(run(wanted, pods=one_each(0.0, 0.0), peaks={"pod-1": 5.0})) is False
    with pytest.raises(NoDataError, match="600 s"):
        run(wanted, pods=one_each(0.0), covered=False).is_active()


def test_without_the_past_that_an_idle_verdict_needs_there_is_a_value_and_no_verdict() -> None:
    wanted, snapshot, workload = fleet(trigger(idleAfter="10m"), one_each(0.0))
    series = {key: found for key, found in snapshot.series.items() if key[1] == wanted.series}
    evaluation = evaluate(wanted, evolve(snapshot, series=series), workload, now=NOW)
    assert value(evaluation) == 0.0
    with pytest.raises(NoDataError, match="no reading yet"):
        evaluation.is_active()


def test_busy_now_is_active_even_if_idle_after_is_shorter_than_the_window() -> None:
    wanted = trigger(idleAfter="1s", activationThreshold="5")
    assert active(run(wanted, pods=one_each(50.0), peaks={"pod-0": 0.0})) is True


# What cannot be sent.


def test_a_value_that_overflows_is_refused() -> None:
    wanted = trigger(metric="memory_used_bytes")
    with pytest.raises(UnsupportedError, match="too large") as caught:
        run(wanted, pods=one_each(6e15, 6e15)).metric_value()
    assert caught.value.reason is Reason.OUT_OF_RANGE


def test_a_negative_value_is_refused() -> None:
    wanted = trigger(metric="thermal_headroom_celsius")
    with pytest.raises(UnsupportedError, match="negative") as caught:
        run(wanted, pods=one_each(-3.0)).metric_value()
    assert caught.value.reason is Reason.OUT_OF_RANGE


def test_what_cannot_be_sent_is_no_sign_of_idleness() -> None:
    wanted = trigger(metric="thermal_headroom_celsius")
    assert active(run(wanted, pods=one_each(-3.0))) is UnsupportedError
    assert active(run(wanted, pods=one_each(-300.0, 5.0))) is True


def test_an_evaluation_that_could_not_begin_answers_its_error() -> None:
    error = NotFoundError("no device GPU-x")
    evaluation = failed_evaluation(trigger(), Workload("w", ()), error, NOW)
    for ask in (evaluation.metric_value, evaluation.is_active):
        with pytest.raises(NotFoundError, match="GPU-x"):
            ask()
