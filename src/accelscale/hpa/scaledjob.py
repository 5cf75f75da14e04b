"""ScaledJobs: how many jobs the operator starts on one poll.

Only queues make sense here: the metric is read as a queue length, a percentage is not one. Under
``metricType: Value`` the target counts as 0, so no job is ever started for the queue.

Origin: ``pkg/scaling/scaledjob/metrics.go`` and ``pkg/scaling/executor/scale_jobs.go`` of KEDA.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

from attrs import frozen

from accelscale.errors import ConfigurationError, Fault
from accelscale.hpa.quantities import as_float
from accelscale.trigger import MetricType


class Calculation(StrEnum):
    """``multipleScalersCalculation``: how the queues of several triggers become one."""

    MAX = "max"
    MIN = "min"
    AVERAGE = "avg"
    SUM = "sum"


class Strategy(StrEnum):
    """``scalingStrategy.strategy``: what running and pending jobs are worth."""

    DEFAULT = "default"
    CUSTOM = "custom"
    ACCURATE = "accurate"
    EAGER = "eager"


@frozen
class ScaledJob:
    """What a ScaledJob says, as far as it decides on the number of jobs.

    ``queue_length_deduction`` and ``running_job_percentage`` (a fraction, despite its name in the
    manifest) are of the custom strategy, which without the latter is the default one.

    Raises:
        ConfigurationError: a bound below 0, or no job allowed.
    """

    min_replicas: int = 0
    max_replicas: int = 100
    strategy: Strategy = Strategy.DEFAULT
    calculation: Calculation = Calculation.MAX
    queue_length_deduction: int = 0
    running_job_percentage: float | None = None

    def __attrs_post_init__(self) -> None:
        faults = []
        if self.min_replicas < 0:
            faults.append(Fault("minReplicaCount", str(self.min_replicas), "must be 0 or more"))
        if self.max_replicas < 1:
            faults.append(Fault("maxReplicaCount", str(self.max_replicas), "must be 1 or more"))
        if faults:
            raise ConfigurationError(faults, subject="ScaledJob")

    @property
    def least(self) -> int:
        """The minimum that counts: never above the maximum."""
        return min(self.min_replicas, self.max_replicas)


@frozen
class Queue:
    """The queue of one trigger: its length, the jobs it is good for, and whether it is active."""

    length: float
    jobs: float
    active: bool


@frozen
class Demand:
    """What all triggers together ask for: whether to act, the queue, and the jobs for it."""

    active: bool
    queue_length: int
    jobs: int


@frozen
class JobDecision:
    """The jobs to start, and the two numbers whose smaller one that is."""

    start: int
    wanted: int
    allowed: int


def queue_of(
    values: Sequence[int],
    targets: Sequence[int],
    *,
    active: bool,
    max_replicas: int,
    metric_type: MetricType = MetricType.AVERAGE_VALUE,
) -> Queue:
    """The queue of one trigger; values and targets (one for each spec) are in thousandths.

    The series are added, the targets averaged.
    """
    length = _added(as_float(value) for value in values)
    total = _added(as_float(target) for target in targets)
    mean = total / float(len(targets)) if targets else 0.0
    if metric_type is MetricType.VALUE:
        mean = 0.0
    jobs = min(length / mean, float(max_replicas)) if mean else 0.0
    return Queue(length, jobs, active)


def demand(job: ScaledJob, queues: Sequence[Queue]) -> Demand:
    """The active queues combined, rounded up at the end; a minimum above 0 forces activity.

    A trigger that failed has no queue here: it neither counts nor stops the others.
    """
    active = [queue for queue in queues if queue.active]
    length = jobs = 0.0
    match job.calculation:
        case Calculation.MIN:
            for queue in active:
                if length == 0 or queue.length < length:
                    length, jobs = queue.length, queue.jobs
        case Calculation.AVERAGE:
            if active:
                length = _added(queue.length for queue in active) / float(len(active))
                jobs = _added(queue.jobs for queue in active) / float(len(active))
        case Calculation.SUM:
            length = _added(queue.length for queue in active)
            jobs = _added(queue.jobs for queue in active)
        case _:
            active = [queue for queue in active if queue.length > 0]
            for queue in active:
                if queue.length > length:
                    length, jobs = queue.length, queue.jobs
    jobs = min(jobs, float(job.max_replicas))
    return Demand(bool(active) or job.least > 0, math.ceil(length), math.ceil(jobs))


def jobs_to_start(job: ScaledJob, wanted: Demand, *, running: int, pending: int) -> JobDecision:
    """The jobs that one poll starts while ``running`` (pending ones included) are not finished.

    Below the minimum it fills up to it and looks at nothing else.
    """
    if running < job.least:
        missing = job.least - running
        scale_to = allowed = missing
    else:
        allowed = _allowed(job, wanted.jobs, running - job.least, pending)
        eager = job.strategy is Strategy.EAGER
        scale_to = job.max_replicas if eager else wanted.queue_length
    start = max(0, min(scale_to, allowed)) if wanted.active else 0
    return JobDecision(start, scale_to, allowed)


def _added(numbers: Iterable[float]) -> float:
    """One after the other, as Go adds; Python's own ``sum`` corrects the rounding since 3.12."""
    total = 0.0
    for number in numbers:
        total += number
    return total


def _allowed(job: ScaledJob, jobs: int, running: int, pending: int) -> int:
    """The "effective max scale" of the strategy; below 0 it starts nothing."""
    match job.strategy:
        case Strategy.CUSTOM if job.running_job_percentage is not None:
            share = math.trunc(float(running) * job.running_job_percentage)
            return min(jobs - job.queue_length_deduction - share, job.max_replicas)
        case Strategy.ACCURATE:
            if jobs + running - pending > job.max_replicas:
                return job.max_replicas - running
            return jobs - pending
        case Strategy.EAGER:
            return min(job.max_replicas - running - pending, jobs)
        case _:
            return jobs - running
