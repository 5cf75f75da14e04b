"""What must hold for every fleet, whatever its numbers."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from accelscale.engine import evaluate
from accelscale.errors import AccelscaleError
from accelscale.model import Reason
from fleets import NOW, Reading, fleet, trigger

percent = st.floats(0, 100)
absent = st.sampled_from([*Reason, None])
readings = st.one_of(percent, absent)
devices = st.lists(readings, min_size=1, max_size=3)
fleets = st.lists(devices, min_size=1, max_size=8)
keys = st.fixed_dictionaries(
    {
        "aggregation": st.sampled_from(["mean", "max", "min", "sum", "p50"]),
        "replicaAggregation": st.sampled_from(["auto", "sum", "mean", "max", "min", "p95"]),
        "metricType": st.sampled_from(["AverageValue", "Value"]),
        "missing": st.sampled_from(["hold", "error", "ignore"]),
    }
)


def named(pods: list[list[Reading]]) -> dict[str, list[Reading]]:
    return {f"pod-{index}": pod for index, pod in enumerate(pods)}


def replicas_asked(value: float | AccelscaleError, threshold: float, summed: bool, n: int) -> float:
    """What the HPA makes of it, tolerance aside: how loaded the fleet looks."""
    assert not isinstance(value, AccelscaleError)
    return value / threshold if summed else n * value / threshold


@given(keys, fleets)
def test_finite_in_finite_out_and_never_negative(
    chosen: dict[str, str], pods: list[list[Reading]]
) -> None:
    evaluation = evaluate(*fleet(trigger(**chosen), named(pods)), now=NOW)
    if not isinstance(evaluation.value, AccelscaleError):
        assert math.isfinite(evaluation.value)
        assert evaluation.value >= 0


@given(keys, fleets, st.randoms())
def test_the_order_of_replicas_does_not_matter(
    chosen: dict[str, str], pods: list[list[Reading]], random: object
) -> None:
    wanted = trigger(**chosen)
    straight = named(pods)
    shuffled = list(straight.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = evaluate(*fleet(wanted, straight), now=NOW)
    second = evaluate(*fleet(wanted, dict(shuffled)), now=NOW)
    if isinstance(first.value, AccelscaleError):
        assert isinstance(second.value, AccelscaleError)
    else:
        assert first.value == second.value
    assert isinstance(first.active, AccelscaleError) == isinstance(second.active, AccelscaleError)


@given(keys, fleets, st.data())
def test_a_missing_sample_never_makes_a_fleet_look_idler_than_an_idle_device(
    chosen: dict[str, str], pods: list[list[Reading]], data: st.DataObject
) -> None:
    wanted = trigger(**chosen)
    pod = data.draw(st.integers(0, len(pods) - 1))
    device = data.draw(st.integers(0, len(pods[pod]) - 1))
    idle = [list(readings) for readings in pods]
    idle[pod][device] = 0.0
    gone = [list(readings) for readings in pods]
    gone[pod][device] = data.draw(absent)
    with_idle = evaluate(*fleet(wanted, named(idle)), now=NOW)
    with_gone = evaluate(*fleet(wanted, named(gone)), now=NOW)
    if with_gone.active is False:
        assert wanted.missing == "ignore"
    if isinstance(with_gone.value, AccelscaleError) or isinstance(with_idle.value, AccelscaleError):
        return
    if wanted.missing == "ignore":
        return  # asked for: it counts only what reports
    summed = wanted.resolved_replica_aggregation == "sum"
    n = len(pods)
    # Exactly "no change" may lie below what an idle device gave, yet never asks for fewer.
    seen = replicas_asked(with_gone.value, wanted.threshold, summed, n)
    idle_seen = replicas_asked(with_idle.value, wanted.threshold, summed, n)
    assert seen >= min(idle_seen, n) - 1e-9


@given(fleets)
def test_both_metric_types_lead_to_the_same_number_of_replicas(pods: list[list[Reading]]) -> None:
    by_sum = evaluate(*fleet(trigger(), named(pods)), now=NOW)
    by_mean = evaluate(*fleet(trigger(metricType="Value"), named(pods)), now=NOW)
    if isinstance(by_sum.value, AccelscaleError):
        assert isinstance(by_mean.value, AccelscaleError)
        return
    assert not isinstance(by_mean.value, AccelscaleError)
    assert math.isclose(by_sum.value, by_mean.value * len(pods), rel_tol=1e-12)
