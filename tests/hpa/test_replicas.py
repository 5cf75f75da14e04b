"""What one external metric asks for: formulas, edges of doubles, versions, units, errors."""

from __future__ import annotations

import math

import pytest

from accelscale.errors import ConfigurationError, NoDataError, UnsupportedError
from accelscale.hpa import Controller, KedaVersion, Tolerance, ToleranceForm, desired_replicas
from accelscale.hpa.quantities import (
    LARGEST_INT64,
    LARGEST_VALUE,
    as_float,
    metric_type_of,
    target_in_milli,
    total_of_series,
    value_in_milli,
)
from accelscale.hpa.replicas import (
    LARGEST_INT32,
    average_value_replicas,
    reported_value,
    value_replicas,
)
from accelscale.model import Reason
from accelscale.trigger import MetricType

AVERAGE, VALUE = MetricType.AVERAGE_VALUE, MetricType.VALUE
BAND, DISTANCE = ToleranceForm.BAND, ToleranceForm.DISTANCE

# By target 70: replicas, then for utilisations 20, 40, 60, 77, 80, 95 and 100 what the three shapes
# ask for: the mean under AverageValue, the sum under AverageValue, the mean under Value.
SHAPES = {
    1: "1/1/1 1/1/1 1/1/1 1/1/1 2/2/2 2/2/2 2/2/2",
    2: "1/1/1 1/2/2 1/2/2 2/2/2 2/3/3 2/3/3 2/3/3",
    4: "1/2/2 1/3/3 1/4/4 2/4/4 2/5/5 2/6/6 2/6/6",
    8: "1/3/3 1/5/5 1/7/7 2/8/8 2/10/10 2/11/11 2/12/12",
    10: "1/3/3 1/6/6 1/9/9 2/10/10 2/12/12 2/14/14 2/15/15",
    20: "1/6/6 1/12/12 1/18/18 2/20/20 2/23/23 2/28/28 2/29/29",
}


@pytest.mark.parametrize("replicas", SHAPES)
def test_the_three_shapes_of_a_utilization(replicas: int) -> None:
    for load, expected in zip(
        (20, 40, 60, 77, 80, 95, 100), SHAPES[replicas].split(" "), strict=True
    ):
        got = (
            desired_replicas(load, 70, current=replicas),
            desired_replicas(load * replicas, 70, current=replicas),
            desired_replicas(load, 70, metric_type="Value", current=replicas),
        )
        assert "/".join(map(str, got)) == expected, load


def test_pods_that_still_load() -> None:
    """Eight pods, four loaded at 95 %, four without any activity yet."""
    assert desired_replicas(380, 70, current=8) == 6
    assert desired_replicas(95, 70, metric_type="Value", current=8, ready=4) == 6
    assert desired_replicas(47.5, 70, metric_type="Value", current=8, ready=4) == 3
    assert desired_replicas(47.5, 70, metric_type="Value", current=8, ready=8) == 6
    assert desired_replicas(95, 70, current=8) == 2


@pytest.mark.parametrize(
    ("load", "target", "ready", "expected"), [(90, 70, 21, 28), (84, 75, 25, 29)]
)
def test_value_rounds_up_by_one_where_doubles_exceed_a_whole_number(
    load: float, target: float, ready: int, expected: int
) -> None:
    exact = math.ceil(load * ready / target)
    assert desired_replicas(load, target, metric_type=VALUE, current=ready) == expected == exact + 1
    assert desired_replicas(load * ready, target, current=ready) == exact


@pytest.mark.parametrize("target", [70, 80, 60, 50, 90])
def test_the_upper_edge_of_the_tolerance_depends_on_the_version(target: int) -> None:
    load = target * 1.1
    for metric_type, value in ((VALUE, load), (AVERAGE, load * 10)):
        newer = desired_replicas(value, target, metric_type=metric_type, current=10)
        older = desired_replicas(
            value, target, metric_type=metric_type, current=10, tolerance_form=DISTANCE
        )
        assert (newer, older) == (10, 11)


@pytest.mark.parametrize("form", ToleranceForm)
def test_the_lower_edge_is_inside_in_both_forms(form: ToleranceForm) -> None:
    assert desired_replicas(63, 70, metric_type=VALUE, current=10, tolerance_form=form) == 10
    assert desired_replicas(62.9, 70, metric_type=VALUE, current=10, tolerance_form=form) == 9


def test_tolerances_by_direction() -> None:
    assert desired_replicas(72, 70, metric_type=VALUE, current=100, tolerance_up=0.01) == 103
    assert desired_replicas(72, 70, metric_type=VALUE, current=100, tolerance_down=0.0) == 100
    assert desired_replicas(68, 70, metric_type=VALUE, current=100, tolerance_down=0.0) == 98
    assert desired_replicas(70, 70, metric_type=VALUE, current=100, tolerance=0.0) == 100


@pytest.mark.parametrize("form", ToleranceForm)
def test_no_tolerance_holds_what_is_no_number(form: ToleranceForm) -> None:
    tolerance = Tolerance(form=form)
    assert not tolerance.holds(math.nan)
    assert not tolerance.holds(math.inf)
    assert tolerance.holds(1.0)


def test_a_target_above_ninety_percent_never_scales_out() -> None:
    for replicas in (1, 3, 10, 32):
        assert desired_replicas(100 * replicas, 91, current=replicas) == replicas
        assert desired_replicas(100 * replicas, 90, current=replicas) > replicas


def test_average_value_answers_existing_pods_and_ignores_readiness() -> None:
    assert desired_replicas(700, 70, current=8, status=10, ready=1) == 10
    assert desired_replicas(770, 70, current=8, status=10, ready=1) == 10
    assert desired_replicas(1400, 70, current=8, status=10, ready=1) == 20


def test_value_multiplies_by_ready_pods_and_can_fall_below_the_present() -> None:
    assert desired_replicas(8.6, 4.4, metric_type=VALUE, current=3, ready=1) == 2
    assert desired_replicas(500, 70, metric_type=VALUE, current=3, ready=0) == 0


def test_from_zero_replicas() -> None:
    assert desired_replicas(0, 70, current=0) == 0
    assert desired_replicas(100, 70, current=0) == 2
    assert desired_replicas(70, 70, metric_type=VALUE, current=0) == 1
    assert desired_replicas(71, 70, metric_type=VALUE, current=0) == 2


def test_value_without_any_pod_is_an_error_outside_the_tolerance() -> None:
    assert desired_replicas(70, 70, metric_type=VALUE, current=4, ready=0, status=0) == 4
    with pytest.raises(NoDataError, match="no pods"):
        desired_replicas(140, 70, metric_type=VALUE, current=4, ready=0, status=0)


def test_caps() -> None:
    assert desired_replicas(LARGEST_VALUE, 0.001, current=1) == LARGEST_INT32
    assert desired_replicas(LARGEST_VALUE, 0.001, metric_type=VALUE, current=3) == LARGEST_INT32
    tolerance = Tolerance()
    assert average_value_replicas(2**31 - 1, 1, status=1, tolerance=tolerance) == LARGEST_INT32
    assert average_value_replicas(2**31 - 2, 1, status=1, tolerance=tolerance) == 2**31 - 2
    got = value_replicas(-5, 1, spec=2**30, ready=2**30, pods=1, tolerance=tolerance)
    assert got == -(2**31)


@pytest.mark.parametrize("target", [0, 0.0004, -1, math.nan])
def test_a_target_that_the_hpa_would_refuse(target: float) -> None:
    with pytest.raises(ConfigurationError, match=r"at least 0\.001"):
        desired_replicas(50, target, current=1)


@pytest.mark.parametrize("name", ["Utilization", "averagevalue", ""])
def test_a_metric_type_that_an_external_metric_cannot_have(name: str) -> None:
    with pytest.raises(ConfigurationError, match="AverageValue or Value"):
        metric_type_of(name)


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        (0.0, 0),
        (0.4, 400),
        (1.0005, 1000),
        (1.0015, 1002),
        (0.0005, 1),
        (0.00049, 0),
        (12.3456, 12346),
        (math.nan, 0),
        (math.inf, 0),
        (-1.0, 0),
    ],
)
def test_values_in_thousandths(value: float, milli: int) -> None:
    assert value_in_milli(value) == milli


def test_older_versions_of_keda_cut_and_let_negative_values_pass() -> None:
    older, rounding = KedaVersion(2, 19, 0), KedaVersion(2, 20, 1)
    assert value_in_milli(1.005, older) == 1004
    assert value_in_milli(1.005, rounding) == 1005
    assert value_in_milli(-1.0, older) == value_in_milli(-1.0, rounding) == -1000
    assert target_in_milli(0.0019, older) == 1
    with pytest.raises(UnsupportedError):
        value_in_milli(math.nan, older)


def test_values_that_no_quantity_can_carry() -> None:
    with pytest.raises(UnsupportedError, match="overflows") as caught:
        value_in_milli(1.2e16)
    assert caught.value.reason is Reason.OUT_OF_RANGE
    assert value_in_milli(LARGEST_VALUE) == LARGEST_INT64


def test_series_are_added_and_saturate() -> None:
    for metric_type in MetricType:
        assert total_of_series([1, 2, 3], metric_type) == 6
        assert total_of_series([], metric_type) == 0
        assert total_of_series([LARGEST_INT64, 1], metric_type) == LARGEST_INT64
    assert total_of_series([-1000], VALUE) == -1000
    assert total_of_series([-1000], AVERAGE) == LARGEST_INT64


def test_reported_values() -> None:
    assert reported_value(8600, metric_type=AVERAGE, status=3) == 2867
    assert reported_value(8600, metric_type=AVERAGE, status=0) == 0
    assert reported_value(LARGEST_INT64, metric_type=AVERAGE, status=2) == LARGEST_INT64
    assert reported_value(8600, metric_type=VALUE, status=3) == 8600


def test_a_quantity_as_a_double_is_a_product() -> None:
    assert as_float(70_000) == 70.0
    assert as_float(1_001) == 1001 * 1e-3


@pytest.mark.parametrize(
    ("version", "form", "own"),
    [
        ("1.30", DISTANCE, False),
        ("v1.32.4", DISTANCE, False),
        ("1.33", BAND, False),
        ("1.34+", BAND, False),
        ("1.35", BAND, True),
        ("2.0", BAND, True),
    ],
)
def test_controllers_by_version(version: str, form: ToleranceForm, own: bool) -> None:
    controller = Controller.for_kubernetes(version)
    assert (controller.tolerance_form, controller.configurable_tolerance) == (form, own)


def test_versions_of_keda() -> None:
    assert KedaVersion.parse("2.18") == KedaVersion(2, 18, 0)
    assert KedaVersion.parse("v2.20.2") == KedaVersion()
    assert KedaVersion.parse("2.9") < KedaVersion.parse("2.10")
    for text in ("", "2", "latest", "2.x"):
        with pytest.raises(ConfigurationError, match=r"such as 1\.33"):
            KedaVersion.parse(text)
