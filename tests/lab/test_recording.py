from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from accelscale.errors import ConfigurationError, NoDataError
from accelscale.lab.recording import (
    Absence,
    Holder,
    Recording,
    Span,
    joined,
    merged_absences,
    merged_spans,
)
from accelscale.model import Device, Reason
from lab.toys import START, column, recording


def later(seconds: float, found: Recording) -> Recording:
    return evolve(found, start=found.start + seconds)


def test_files_of_a_rotation_become_one_recording() -> None:
    first = recording({"utilization_percent": [10.0]}, seconds=99.0)
    second = later(100.0, recording({"utilization_percent": [20.0]}, seconds=99.0))
    whole = joined([second, first])
    times = whole.columns["GPU-0", "utilization_percent"].times
    assert (whole.start, whole.end) == (START, 199.0)
    assert times.tolist() == list(range(200))
    assert whole.spans_of("GPU-0") == (Span(0.0, 200.0),)


def test_recordings_of_two_nodes_lie_beside_each_other() -> None:
    here = recording({"utilization_percent": [10.0]}, seconds=100.0)
    other = Device("GPU-9", "Example", "nvidia", "nvidia", node="b")
    there = evolve(
        recording({"utilization_percent": [20.0]}, seconds=50.0),
        start=START + 30.0,
        devices=(other,),
        columns={("GPU-9", "utilization_percent"): column(20.0, 50.0)},
        holders=(Holder("GPU-9", "ns", "pod", "c", 0.0, 10.0),),
    )
    whole = joined([here, there])
    assert [device.id for device in whole.devices] == ["GPU-0", "GPU-9"]
    assert whole.spans_of("GPU-9") == (Span(30.0, 81.0),)
    assert whole.holders == (Holder("GPU-9", "ns", "pod", "c", 30.0, 40.0),)
    assert whole.columns["GPU-9", "utilization_percent"].times[0] == 30.0


def test_two_files_with_samples_of_the_same_time_are_refused() -> None:
    one = recording({"utilization_percent": [10.0]}, seconds=100.0)
    with pytest.raises(ConfigurationError, match="for the same time: leave one of them out"):
        joined([one, later(50.0, one)])


def test_nothing_joins_to_nothing() -> None:
    with pytest.raises(NoDataError):
        joined([])


def test_an_absence_that_goes_on_in_the_next_file_is_one() -> None:
    lost = Absence("a", "power_watts", 5.0, 9.0, Reason.LOST, "Xid 79")
    more = evolve(lost, start=10.0, end=20.0)
    other = evolve(lost, start=20.5, end=30.0, reason=Reason.TIMEOUT)
    assert merged_absences([other, more, lost], 2.0) == (evolve(lost, end=20.0), other)


def test_spans_that_touch_are_one() -> None:
    spans = [Span(10.0, 20.0), Span(0.0, 9.5), Span(40.0, 50.0), Span(12.0, 15.0)]
    assert merged_spans(spans, 1.0) == (Span(0.0, 20.0), Span(40.0, 50.0))


def test_metrics_stand_in_the_order_of_the_table_and_foreign_ones_behind() -> None:
    found = recording({"power_watts": [1.0], "utilization_percent": [1.0], "acme_depth": [3.0]})
    assert found.metrics == ("utilization_percent", "power_watts", "acme_depth")
    table = evolve(found, units={"acme_depth": "requests"}).metrics_table()
    assert table["acme_depth"].unit == "requests"
    assert table["power_watts"].unit == "watts"
    assert found.samples == 3 * 3601
    assert np.isfinite(found.columns["GPU-0", "power_watts"].values).all()
