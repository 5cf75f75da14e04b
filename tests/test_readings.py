from __future__ import annotations

import math
import time

import pytest

from accelscale.errors import BackendError
from accelscale.metrics import METRICS
from accelscale.model import (
    Device,
    Failure,
    ProcessUse,
    Reading,
    Reason,
    Sample,
    Series,
    SeriesValue,
)
from accelscale.readings import Readings
from accelscale.testing import FakeBackend

MEAN = Series("utilization_percent", 15.0, "mean")
TOY = Device("a", "Toy", "fake", "fake")


@pytest.fixture
def readings() -> Readings:
    made = Readings(METRICS, 1.0, "node-a")
    backend = FakeBackend({"a": {}})
    made.declare(backend)
    made.set_devices(backend, [TOY])
    return made


def take(readings: Readings, *failures: Failure, age: float = 0.0, **values: float) -> None:
    now = time.monotonic() - age
    samples = tuple(Sample("a", metric, value, now) for metric, value in values.items())
    readings.take(Reading("a", samples, failures), asked=values)


def reason(readings: Readings, metric: str) -> Reason | None:
    found = readings.snapshot().failure("a", metric)
    return None if found is None else found.reason


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("utilization_percent", 991.0),
        ("utilization_percent", -1.0),
        ("utilization_percent", math.nan),
        ("power_watts", math.inf),
        ("memory_total_bytes", 0.0),
        ("temperature_celsius", 65535.0),
    ],
)
def test_an_absurd_reading_is_no_value(readings: Readings, metric: str, value: float) -> None:
    take(readings, **{metric: value})
    snapshot = readings.snapshot()
    assert snapshot.value("a", metric) is None
    assert reason(readings, metric) is Reason.OUT_OF_RANGE
    assert "is outside" in snapshot.failures["a", metric].detail


def test_a_share_of_nothing_is_no_share(readings: Readings) -> None:
    take(readings, memory_used_bytes=0.0, memory_total_bytes=0.0)
    assert reason(readings, "memory_used_percent") is Reason.OUT_OF_RANGE


def test_a_derived_value_is_checked_too(readings: Readings) -> None:
    take(readings, memory_used_bytes=200.0, memory_total_bytes=100.0)
    assert reason(readings, "memory_used_percent") is Reason.OUT_OF_RANGE


def test_a_reading_is_a_sample_or_a_failure_never_both(readings: Readings) -> None:
    take(readings, utilization_percent=40.0)
    assert readings.snapshot().value("a", "utilization_percent") == 40.0
    take(readings, Failure("a", "utilization_percent", Reason.LOST))
    snapshot = readings.snapshot()
    assert snapshot.value("a", "utilization_percent") is None
    assert reason(readings, "utilization_percent") is Reason.LOST
    take(readings, utilization_percent=41.0)
    assert reason(readings, "utilization_percent") is None


@pytest.mark.parametrize("why", list(Reason))
def test_only_a_passing_failure_lets_the_sample_before_count(
    readings: Readings, why: Reason
) -> None:
    take(readings, utilization_percent=40.0)
    take(readings, Failure("a", "utilization_percent", why))
    found = readings.snapshot([MEAN]).series["a", MEAN]
    if why.passing:
        assert isinstance(found, SeriesValue)
        assert found.value == 40.0
    else:
        assert isinstance(found, Failure)
        assert found.reason is why


def test_a_series_without_a_sample_tells_why(readings: Readings) -> None:
    found = readings.snapshot([MEAN]).series["a", MEAN]
    assert isinstance(found, Failure)
    assert (found.reason, found.detail) == (Reason.STALE, "no reading yet")
    take(readings, Failure("a", "utilization_percent", Reason.TIMEOUT, "slow"))
    found = readings.snapshot([MEAN]).series["a", MEAN]
    assert isinstance(found, Failure)
    assert (found.reason, found.detail) == (Reason.TIMEOUT, "slow")


def test_no_value_outlives_its_age(readings: Readings) -> None:
    take(readings, age=5.5, utilization_percent=40.0)
    assert readings.snapshot().value("a", "utilization_percent") is None
    assert reason(readings, "utilization_percent") is Reason.STALE


def test_what_a_backend_forgets_to_say_fails(readings: Readings) -> None:
    take(readings, utilization_percent=40.0)
    readings.take(Reading("a"), asked=["utilization_percent"])
    assert reason(readings, "utilization_percent") is Reason.ERROR


def test_a_metric_that_a_backend_never_reads_is_not_supported() -> None:
    class Narrow(FakeBackend):
        metrics = {"power_watts": FakeBackend.metrics["power_watts"]}  # noqa: RUF012

    narrow, made = Narrow({"a": {}}), Readings(METRICS, 1.0)
    made.declare(narrow)
    made.set_devices(narrow, [TOY])
    failures = {f.metric: f for f in made.snapshot().failures_of("a")}
    missing = failures["utilization_percent"]
    assert (missing.reason, missing.permanent) == (Reason.NOT_SUPPORTED, True)
    assert "power_watts" not in failures
    assert failures["power_used_percent"].permanent
    assert len(failures) == len(METRICS) - 1


def lacking(reason: Reason = Reason.NOT_SUPPORTED, *, permanent: bool = True) -> Failure:
    return Failure("a", "utilization_percent", reason, permanent=permanent)


def is_lacking(readings: Readings) -> bool:
    return readings.snapshot().failures["a", "utilization_percent"].permanent


def test_what_a_device_once_gave_it_does_not_lack_whatever_the_driver_says(
    readings: Readings,
) -> None:
    take(readings, utilization_percent=40.0)
    take(readings, lacking())
    assert not is_lacking(readings)


def test_what_a_device_never_gave_it_lacks_also_while_it_is_lost(readings: Readings) -> None:
    take(readings, lacking())
    assert is_lacking(readings)
    take(readings, lacking(Reason.LOST, permanent=False))
    assert is_lacking(readings)
    take(readings, utilization_percent=40.0)
    take(readings, lacking(Reason.LOST, permanent=False))
    assert not is_lacking(readings)


def test_a_reading_from_the_future_is_none(readings: Readings) -> None:
    take(readings, age=-60.0, utilization_percent=40.0)
    assert reason(readings, "utilization_percent") is Reason.ERROR
    assert "ahead of the clock" in readings.snapshot().failures["a", "utilization_percent"].detail


@pytest.mark.parametrize("other", ["fake", "another"])
def test_an_id_that_is_there_twice_is_refused(readings: Readings, other: str) -> None:
    backend = FakeBackend({}, name=other)
    devices = [TOY, TOY] if other == "fake" else [TOY]
    with pytest.raises(BackendError, match=r"the device id a of .* is there already"):
        readings.set_devices(backend, devices)
    assert len(readings.snapshot().devices) == 1


def test_a_backend_that_was_asked_for_and_shows_nothing_leaves_its_vendor_unseen(
    readings: Readings,
) -> None:
    amd = FakeBackend({}, name="amd")
    readings.set_problem(amd, "no driver", optional=True)
    assert readings.snapshot().unseen_vendors == set()
    readings.set_problem(amd, "no driver")
    assert readings.snapshot().unseen_vendors == {"amd"}
    readings.set_problem(amd, None)
    assert readings.snapshot().unseen_vendors == set()
    readings.set_problem(FakeBackend({}), "its devices are known")
    assert readings.snapshot().unseen_vendors == set()


def test_a_device_that_is_gone_is_forgotten(readings: Readings) -> None:
    take(readings, utilization_percent=40.0)
    readings.set_devices(FakeBackend({}), [])
    snapshot = readings.snapshot([MEAN])
    assert (snapshot.devices, dict(snapshot.samples), dict(snapshot.failures)) == ((), {}, {})
    assert snapshot.series == {}


def test_devices_bear_the_name_of_the_node(readings: Readings) -> None:
    assert readings.snapshot().devices[0].node == "node-a"


def test_intervals_follow_the_tiers(readings: Readings) -> None:
    slow = FakeBackend({"a": {}}, tiers={"process_count": "slow"})  # type: ignore[dict-item]
    readings.declare(slow)
    snapshot = readings.snapshot()
    assert snapshot.interval_of("process_count") == 10.0
    assert snapshot.interval_of("utilization_percent") == 1.0
    assert snapshot.interval_of("energy_rate_watts") == 1.0


def test_who_subscribed_hears_of_every_pass_until_it_leaves(readings: Readings) -> None:
    heard = []
    leave = readings.subscribe(lambda: heard.append(readings.sequence))
    readings.publish()
    readings.publish()
    leave()
    leave()
    readings.publish()
    assert heard == [1, 2]


def test_an_optional_problem_counts_only_while_there_is_no_device(readings: Readings) -> None:
    amd, intel = FakeBackend({}, name="amd"), FakeBackend({}, name="intel")
    readings.set_problem(amd, "no library", optional=True)
    readings.set_problem(intel, "no permission")
    assert readings.snapshot().problems == {"intel": "no permission"}
    readings.set_devices(FakeBackend({}), [])
    assert set(readings.snapshot().problems) == {"amd", "intel"}
    readings.set_problem(intel, None)
    assert set(readings.snapshot().problems) == {"amd"}


def test_processes_are_kept_until_they_are_too_old(readings: Readings) -> None:
    uses = (ProcessUse(10, memory_used_bytes=5.0),)
    readings.take(Reading("a", processes=uses))
    assert readings.snapshot().processes["a"][1] == uses
    readings.take(Reading("a"))
    assert readings.snapshot().processes["a"][1] == uses
    readings.take(Reading("a", processes=()))
    assert readings.snapshot().processes["a"][1] == ()
    readings.set_devices(FakeBackend({}), [])
    assert readings.snapshot().processes == {}
