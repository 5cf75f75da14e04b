"""ScaledJobs: queues, their combination, strategies, and what is started in the end."""

from __future__ import annotations

import pytest

from accelscale.errors import ConfigurationError
from accelscale.hpa import (
    Calculation,
    Demand,
    JobDecision,
    Queue,
    ScaledJob,
    Strategy,
    demand,
    jobs_to_start,
    queue_of,
)
from accelscale.trigger import MetricType


def test_a_queue_is_the_sum_of_series_over_the_mean_of_targets() -> None:
    queue = queue_of([3000, 4500], [2000, 1000], active=True, max_replicas=100)
    assert queue == Queue(7.5, 5.0, active=True)
    assert queue_of([9_000_000], [1000], active=True, max_replicas=40).jobs == 40.0
    assert queue_of([9000], [], active=True, max_replicas=40).jobs == 0.0


def test_under_value_no_job_is_started() -> None:
    queue = queue_of([9000], [1000], active=True, max_replicas=40, metric_type=MetricType.VALUE)
    wanted = demand(ScaledJob(), [queue])
    assert wanted == Demand(True, 9, 0)
    assert jobs_to_start(ScaledJob(), wanted, running=0, pending=0).start == 0


def test_the_greatest_queue_counts_by_default_and_an_empty_one_is_inactive() -> None:
    queues = [Queue(3.0, 3.0, True), Queue(7.2, 1.4, True), Queue(9.0, 9.0, False)]
    assert demand(ScaledJob(), queues) == Demand(True, 8, 2)
    assert demand(ScaledJob(), [Queue(0.0, 0.0, True)]) == Demand(False, 0, 0)
    assert demand(ScaledJob(), []) == Demand(False, 0, 0)


@pytest.mark.parametrize("calculation", [Calculation.MIN, Calculation.AVERAGE, Calculation.SUM])
def test_other_calculations_take_activity_at_its_word(calculation: Calculation) -> None:
    job = ScaledJob(calculation=calculation)
    assert demand(job, [Queue(0.0, 0.0, True)]) == Demand(True, 0, 0)
    assert demand(job, [Queue(5.0, 5.0, False)]) == Demand(False, 0, 0)


def test_the_least_queue_is_looked_for_among_the_active() -> None:
    job = ScaledJob(calculation=Calculation.MIN)
    queues = [Queue(5.0, 5.0, True), Queue(2.0, 2.0, True), Queue(1.0, 1.0, False)]
    assert demand(job, queues) == Demand(True, 2, 2)


def test_sums_are_rounded_up_at_the_end() -> None:
    queues = [Queue(0.4, 0.4, True)] * 3
    assert demand(ScaledJob(calculation=Calculation.SUM), queues) == Demand(True, 2, 2)
    tenths = [Queue(0.1, 0.1, True)] * 10
    assert demand(ScaledJob(calculation=Calculation.SUM), tenths).jobs == 1


def test_nothing_starts_while_inactive_or_satisfied() -> None:
    inactive = jobs_to_start(ScaledJob(), Demand(False, 9, 9), running=0, pending=0)
    assert inactive == JobDecision(0, 9, 9)
    satisfied = jobs_to_start(ScaledJob(), Demand(True, 9, 9), running=12, pending=0)
    assert satisfied == JobDecision(0, 9, -3)


def test_the_minimum_is_filled_first_and_never_exceeds_the_maximum() -> None:
    job = ScaledJob(min_replicas=5, max_replicas=3)
    assert job.least == 3
    wanted = demand(job, [])
    assert wanted.active
    assert jobs_to_start(job, wanted, running=1, pending=0) == JobDecision(2, 2, 2)
    assert jobs_to_start(job, wanted, running=3, pending=0).start == 0


def test_the_queue_limits_what_the_strategy_allows() -> None:
    accurate = ScaledJob(strategy=Strategy.ACCURATE, max_replicas=10)
    assert jobs_to_start(accurate, Demand(True, 2, 8), running=0, pending=0).start == 2
    eager = ScaledJob(strategy=Strategy.EAGER, max_replicas=10)
    assert jobs_to_start(eager, Demand(True, 2, 8), running=0, pending=0).start == 8


def test_a_custom_strategy_without_a_percentage_is_the_default() -> None:
    custom = ScaledJob(strategy=Strategy.CUSTOM, queue_length_deduction=5)
    assert jobs_to_start(custom, Demand(True, 9, 9), running=2, pending=0).start == 7


def test_bounds_are_checked() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ScaledJob(min_replicas=-1, max_replicas=0)
    assert [fault.key for fault in caught.value.faults] == ["minReplicaCount", "maxReplicaCount"]
