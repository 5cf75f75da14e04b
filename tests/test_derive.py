from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale.derive import Deriver, can_follow
from accelscale.metrics import METRICS
from accelscale.model import Failure, Reading, Reason, Sample

AGES = dict.fromkeys(METRICS, 5.0)


def derive(
    deriver: Deriver, time: float, *failed: Failure, **values: float
) -> dict[str, Sample | Failure]:
    samples = tuple(Sample("a", metric, value, time) for metric, value in values.items())
    extended = deriver.extend(Reading("a", samples, failed), AGES)
    results: tuple[Sample | Failure, ...] = (*extended.samples, *extended.failures)
    assert len({result.metric for result in results}) == len(results)
    return {result.metric: result for result in results}


def rate(deriver: Deriver, time: float, total: float) -> float | Reason:
    found = derive(deriver, time, pcie_receive_bytes_total=total)["pcie_receive_bytes_per_second"]
    return found.value if isinstance(found, Sample) else found.reason


def test_a_share_is_of_the_total() -> None:
    found = derive(Deriver(METRICS), 1.0, memory_used_bytes=11448.0, memory_total_bytes=23028.0)
    share = found["memory_used_percent"]
    assert isinstance(share, Sample)
    assert share.value == pytest.approx(49.71, abs=0.005)


def test_headroom_is_limit_less_temperature() -> None:
    found = derive(
        Deriver(METRICS), 1.0, slowdown_temperature_celsius=90.0, temperature_celsius=93.0
    )
    assert found["thermal_headroom_celsius"] == Sample("a", "thermal_headroom_celsius", -3.0, 1.0)


@pytest.mark.parametrize("reason", list(Reason))
def test_what_lacks_a_part_fails_for_the_reason_of_the_part(reason: Reason) -> None:
    cause = Failure("a", "power_limit_watts", reason, "why", 1.0, 3, permanent=True)
    found = derive(Deriver(METRICS), 1.0, cause, power_watts=100.0)["power_used_percent"]
    assert isinstance(found, Failure)
    assert (found.reason, found.code, found.permanent) == (reason, 3, True)
    assert "power_limit_watts: why" in found.detail


def test_a_slow_part_counts_until_its_age() -> None:
    deriver = Deriver(METRICS)
    derive(deriver, 0.0, power_limit_watts=400.0, power_watts=100.0)
    fresh = derive(deriver, 5.0, power_watts=200.0)["power_used_percent"]
    assert isinstance(fresh, Sample)
    assert fresh.value == 50.0
    old = derive(deriver, 6.0, power_watts=200.0)["power_used_percent"]
    assert isinstance(old, Failure)
    assert old.reason is Reason.STALE


def test_a_part_that_is_never_read_leaves_nothing_to_say() -> None:
    assert set(derive(Deriver(METRICS), 1.0, power_watts=100.0)) == {"power_watts"}
    found = derive(Deriver(METRICS), 0.0, throttled_power_seconds_total=1.0)
    assert isinstance(found["throttled_percent"], Failure)


def test_a_total_is_never_taken_for_a_rate() -> None:
    deriver = Deriver(METRICS)
    both = {"throttled_power_seconds_total": 900.0, "throttled_thermal_seconds_total": 900.0}
    derive(deriver, 0.0, **both)
    found = derive(deriver, 1.0, throttled_power_seconds_total=900.5)
    assert "throttled_percent" not in found


@pytest.mark.parametrize(
    ("name", "read", "expected"),
    [
        ("power_watts", {"power_watts"}, True),
        ("power_watts", set(), False),
        ("power_used_percent", {"power_watts", "power_limit_watts"}, True),
        ("power_used_percent", {"power_limit_watts"}, False),
        ("energy_rate_watts", {"energy_joules_total"}, True),
        ("throttled_percent", {"throttled_thermal_seconds_total"}, True),
        ("throttled_percent", {"power_watts"}, False),
    ],
)
def test_what_can_follow_from_what_is_read(name: str, read: set[str], expected: bool) -> None:
    assert can_follow(METRICS[name], read) is expected


def test_a_first_total_is_no_rate() -> None:
    deriver = Deriver(METRICS)
    assert rate(deriver, 0.0, 1_000_000.0) is Reason.NO_PROGRESS
    assert rate(deriver, 4.0, 1_600_000.0) == 150_000.0


def test_a_restarted_counter_gives_no_rate_once_and_goes_on() -> None:
    deriver = Deriver(METRICS)
    rate(deriver, 0.0, 1_000_000.0)
    assert rate(deriver, 1.0, 1_600_000.0) == 600_000.0
    assert rate(deriver, 2.0, 5_000.0) is Reason.COUNTER_RESET
    assert rate(deriver, 3.0, 65_000.0) == 60_000.0


def test_a_counter_that_hiccups_is_measured_across_the_hiccup() -> None:
    deriver = Deriver(METRICS)
    rate(deriver, 0.0, 1_000.0)
    assert rate(deriver, 1.0, 3.0) is Reason.COUNTER_RESET
    assert rate(deriver, 2.0, 3_000.0) == 1_000.0
    assert rate(deriver, 3.0, 4_000.0) == 1_000.0


def test_readings_too_far_apart_give_no_rate() -> None:
    deriver = Deriver(METRICS)
    rate(deriver, 0.0, 0.0)
    assert rate(deriver, 60.0, 60.0) is Reason.NO_PROGRESS
    assert rate(deriver, 61.0, 160.0) == 100.0


def test_two_readings_at_one_time_give_no_rate() -> None:
    deriver = Deriver(METRICS)
    rate(deriver, 1.0, 0.0)
    assert rate(deriver, 1.0, 100.0) is Reason.NO_PROGRESS


def test_a_link_may_be_idle_but_energy_must_flow() -> None:
    deriver = Deriver(METRICS)
    rate(deriver, 0.0, 7.0)
    assert rate(deriver, 1.0, 7.0) == 0.0
    derive(deriver, 0.0, energy_joules_total=7.0)
    stuck = derive(deriver, 1.0, energy_joules_total=7.0)["energy_rate_watts"]
    assert isinstance(stuck, Failure)
    assert stuck.reason is Reason.NO_PROGRESS
    moved = derive(deriver, 2.0, energy_joules_total=207.0)["energy_rate_watts"]
    assert isinstance(moved, Sample)
    assert moved.value == 100.0


def test_throttling_is_the_larger_of_the_shares() -> None:
    deriver = Deriver(METRICS)
    derive(deriver, 0.0, throttled_power_seconds_total=0.0, throttled_thermal_seconds_total=0.0)
    found = derive(
        deriver, 2.0, throttled_power_seconds_total=0.5, throttled_thermal_seconds_total=1.0
    )["throttled_percent"]
    assert isinstance(found, Sample)
    assert found.value == 50.0


def test_a_cause_that_the_hardware_does_not_count_leaves_the_other() -> None:
    deriver = Deriver(METRICS)
    lacking = Failure(
        "a", "throttled_thermal_seconds_total", Reason.NOT_SUPPORTED, "", 0.0, permanent=True
    )
    derive(deriver, 0.0, lacking, throttled_power_seconds_total=0.0)
    found = derive(deriver, 2.0, lacking, throttled_power_seconds_total=0.5)["throttled_percent"]
    assert isinstance(found, Sample)
    assert found.value == 25.0
    failing = Failure("a", "throttled_thermal_seconds_total", Reason.PERMISSION, "", 3.0)
    both = derive(deriver, 3.0, failing, throttled_power_seconds_total=0.5)["throttled_percent"]
    assert isinstance(both, Failure)


def test_no_cause_at_all_is_not_supported() -> None:
    lacking = [
        Failure("a", f"throttled_{cause}_seconds_total", Reason.NOT_SUPPORTED, permanent=True)
        for cause in ("power", "thermal")
    ]
    found = derive(Deriver(METRICS), 0.0, *lacking)["throttled_percent"]
    assert isinstance(found, Failure)
    assert (found.reason, found.permanent) == (Reason.NOT_SUPPORTED, True)


class TestRatesThatHardwareMeasures:
    """A backend may give a rate itself; the one that follows from a counter comes first."""

    rate = "pcie_receive_bytes_per_second"
    counter = "pcie_receive_bytes_total"

    def test_it_stands_where_the_hardware_has_no_counter(self) -> None:
        no_counter = Failure("a", self.counter, Reason.NOT_SUPPORTED, "none", 1.0, permanent=True)
        found = derive(Deriver(METRICS), 1.0, no_counter, **{self.rate: 700.0})
        assert found[self.rate] == Sample("a", self.rate, 700.0, 1.0)

    def test_it_stands_while_the_counter_gives_none(self) -> None:
        deriver = Deriver(METRICS)
        first = derive(deriver, 0.0, **{self.counter: 0.0, self.rate: 700.0})[self.rate]
        second = derive(deriver, 1.0, **{self.counter: 500.0, self.rate: 700.0})[self.rate]
        assert isinstance(first, Sample)
        assert isinstance(second, Sample)
        assert (first.value, second.value) == (700.0, 500.0)

    def test_a_counter_is_enough(self) -> None:
        deriver = Deriver(METRICS)
        lacking = Failure("a", self.rate, Reason.NOT_SUPPORTED, "none", 1.0, permanent=True)
        derive(deriver, 0.0, lacking, **{self.counter: 0.0})
        found = derive(deriver, 1.0, lacking, **{self.counter: 500.0})[self.rate]
        assert found == Sample("a", self.rate, 500.0, 1.0)

    @pytest.mark.parametrize("permanent", [True, False])
    def test_without_either_the_failure_that_may_pass_is_shown(self, permanent: bool) -> None:
        """What is measured at the next reading must not be called absent for ever."""
        no_counter = Failure("a", self.counter, Reason.ERROR, "broken", 1.0, permanent=permanent)
        not_yet = Failure("a", self.rate, Reason.NO_PROGRESS, "soon", 1.0)
        found = derive(Deriver(METRICS), 1.0, no_counter, not_yet)[self.rate]
        assert isinstance(found, Failure)
        assert not found.permanent
        assert found.reason is (Reason.NO_PROGRESS if permanent else Reason.ERROR)

    def test_without_counters_it_is_passed_on(self) -> None:
        found = derive(Deriver(METRICS), 1.0, **{self.rate: 700.0})
        assert found == {self.rate: Sample("a", self.rate, 700.0, 1.0)}


def test_a_forgotten_device_begins_anew() -> None:
    deriver = Deriver(METRICS)
    rate(deriver, 0.0, 100.0)
    deriver.forget("a")
    assert rate(deriver, 1.0, 200.0) is Reason.NO_PROGRESS


def test_a_derived_metric_without_any_source_is_not_made_up() -> None:
    assert set(derive(Deriver(METRICS), 0.0, utilization_percent=5.0)) == {"utilization_percent"}


@given(st.lists(st.floats(0, 1e15), min_size=2, max_size=30))
def test_a_rate_is_never_negative_nor_infinite(totals: list[float]) -> None:
    deriver = Deriver(METRICS)
    for second, total in enumerate(totals):
        found = rate(deriver, float(second), total)
        assert isinstance(found, Reason) or 0 <= found <= 1e15
