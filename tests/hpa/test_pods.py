"""Metrics of each pod: filling of missing and unready pods, and what makes no answer possible."""

from __future__ import annotations

import pytest

from accelscale.errors import NoDataError
from accelscale.hpa import Tolerance
from accelscale.hpa.pods import Pod, pods_replicas, utilization_replicas

TOLERANCE = Tolerance()


def test_missing_pods_count_as_the_target_on_the_way_down() -> None:
    pods = [Pod(10_000), Pod(10_000), Pod(10_000), Pod(None)]
    got = pods_replicas(pods, 30_000, current=4, tolerance=TOLERANCE)
    assert (got.replicas, got.usage) == (2, 10_000)


def test_missing_pods_count_as_nothing_on_the_way_up() -> None:
    pods = [Pod(100_000), Pod(100_000), Pod(None), Pod(None)]
    got = pods_replicas(pods, 30_000, current=4, tolerance=TOLERANCE)
    assert (got.replicas, got.usage) == (7, 100_000)


def test_a_filling_that_turns_the_direction_changes_nothing() -> None:
    pods = [Pod(40_000), Pod(None)]
    assert pods_replicas(pods, 30_000, current=2, tolerance=TOLERANCE).replicas == 2


def test_unready_pods_are_left_out_on_the_way_down() -> None:
    pods = [Pod(10_000), Pod(10_000), Pod(90_000, unready=True)]
    assert pods_replicas(pods, 20_000, current=3, tolerance=TOLERANCE).replicas == 1


def test_requests_weigh_a_utilization() -> None:
    pods = [Pod(500, 1000), Pod(1500, 1000), Pod(None, 2000)]
    got = utilization_replicas(pods, 50, current=3, tolerance=TOLERANCE)
    assert (got.usage, got.replicas) == (100, 3)


def test_a_target_above_the_request_fills_missing_pods_up_to_it() -> None:
    pods = [Pod(1000, 1000), Pod(1000, 1000), Pod(None, 1000)]
    got = utilization_replicas(pods, 200, current=3, tolerance=TOLERANCE)
    assert (got.usage, got.replicas) == (100, 2)


@pytest.mark.parametrize("pods", [[], [Pod(None)], [Pod(5, unready=True)]])
def test_without_a_sample_there_is_no_proposal(pods: list[Pod]) -> None:
    with pytest.raises(NoDataError, match="did not receive metrics"):
        pods_replicas(pods, 1000, current=1, tolerance=TOLERANCE)


def test_without_requests_there_is_no_utilization() -> None:
    with pytest.raises(NoDataError, match="request nothing"):
        utilization_replicas([Pod(5)], 50, current=1, tolerance=TOLERANCE)
