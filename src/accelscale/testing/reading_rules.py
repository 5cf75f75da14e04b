"""What one reading of one device promises, as sentences about what breaks it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from accelscale.metrics import Metric
from accelscale.model import Failure, Reading, Reason, Sample


def reading_faults(
    reading: Reading,
    asked: Collection[str],
    table: Mapping[str, Metric],
    *,
    since: float,
    until: float,
) -> Iterator[str]:
    """Every fault of a reading that was taken between two monotonic times.

    ``asked`` are the metrics that were asked for, ``table`` holds every metric there is.
    """
    answers: tuple[Sample | Failure, ...] = (*reading.samples, *reading.failures)
    counts = Counter(answer.metric for answer in answers)
    for metric in asked:
        if metric not in counts:
            yield f"{reading.device_id} gave neither sample nor failure of {metric}"
    for metric, count in counts.items():
        if metric not in asked:
            yield f"{reading.device_id} gave {metric}, which was not asked for"
        if count > 1:
            yield f"{reading.device_id} gave {count} answers for {metric}"
    for answer in answers:
        title = f"{answer.metric} of {reading.device_id}"
        if answer.device_id != reading.device_id:
            yield f"{title} names the device {answer.device_id}"
        if isinstance(answer, Sample):
            yield from _sample_faults(answer, table, title)
            if not since <= answer.time <= until:
                yield f"{title} is dated {answer.time}, not by time.monotonic at the call"
        else:
            yield from _failure_faults(answer, title)


def _sample_faults(sample: Sample, table: Mapping[str, Metric], title: str) -> Iterator[str]:
    value: object = sample.value
    row = table.get(sample.metric)
    if row is None:
        yield f"{title} is no metric of the table or of the backend"
    elif isinstance(value, bool) or not isinstance(value, int | float):
        yield f"{title} is no number: {value!r}"
    elif not math.isfinite(value):
        yield f"{title} is not finite: {value}"
    elif not row.minimum <= value <= row.maximum:
        yield f"{title} is {value:g}, outside {row.minimum:g} to {row.maximum:g} {row.unit}"


def _failure_faults(failure: Failure, title: str) -> Iterator[str]:
    reason: object = failure.reason
    if not isinstance(reason, Reason):
        yield f"{title} failed with {reason!r}, which is no accelscale.model.Reason"
    if not failure.detail.strip():
        yield f"{title} failed ({failure.reason}) without a detail in words"
