"""The fake backend does what a test tells it, at once and from any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from accelscale.errors import BackendError
from accelscale.metrics import METRICS, Metric, Tier
from accelscale.model import Failure, Reading, Reason, Sample
from accelscale.plugins import load_plugins
from accelscale.testing import FakeBackend


def read_one(fake: FakeBackend, device_id: str, metric: str) -> Sample | Failure:
    devices = [device for device in fake.devices() if device.id == device_id]
    (reading,) = fake.read(devices, [metric])
    (answer,) = (*reading.samples, *reading.failures)
    return answer


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited for 10 s in vain"
        time.sleep(0.001)


@pytest.fixture
def fake() -> FakeBackend:
    backend = FakeBackend(
        {
            "fake-0": {"utilization_percent": 30.0, "power_watts": 70.0},
            "fake-1": {"utilization_percent": 90.0},
        }
    )
    backend.open()
    return backend


def test_values_are_read_and_changed(fake: FakeBackend) -> None:
    before = time.monotonic()
    sample = read_one(fake, "fake-0", "utilization_percent")
    assert isinstance(sample, Sample)
    assert sample.value == 30.0
    assert before <= sample.time <= time.monotonic()
    fake.set("fake-0", "utilization_percent", 0.0)
    assert read_one(fake, "fake-0", "utilization_percent").value == 0.0  # type: ignore[union-attr]
    fake.unset("fake-0", "utilization_percent")
    failure = read_one(fake, "fake-0", "utilization_percent")
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.permanent) == (Reason.NOT_SUPPORTED, True)


def test_every_metric_that_is_not_derived_is_offered(fake: FakeBackend) -> None:
    assert set(fake.metrics) == {row.name for row in METRICS.values() if row.derivation is None}
    assert set(fake.metrics.values()) == {Tier.FAST}


def test_a_metric_fails_until_it_is_set(fake: FakeBackend) -> None:
    fake.fail("fake-0", "power_watts", Reason.PERMISSION, detail="root only", code=4)
    failure = read_one(fake, "fake-0", "power_watts")
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.detail, failure.code) == (Reason.PERMISSION, "root only", 4)
    assert failure.time > 0
    assert isinstance(read_one(fake, "fake-1", "utilization_percent"), Sample)
    fake.set("fake-0", "power_watts", 71.0)
    assert isinstance(read_one(fake, "fake-0", "power_watts"), Sample)


def test_a_lost_device_stays_listed_and_comes_back_with_its_values(fake: FakeBackend) -> None:
    fake.lose("fake-0")
    lost, well = fake.devices()
    assert (lost.id, lost.problem) == ("fake-0", Reason.LOST)
    assert lost.problem_detail
    assert well.problem is None
    failure = read_one(fake, "fake-0", "utilization_percent")
    assert isinstance(failure, Failure)
    assert failure.reason is Reason.LOST
    fake.restore("fake-0")
    assert fake.devices()[0].problem is None
    assert read_one(fake, "fake-0", "utilization_percent").value == 30.0  # type: ignore[union-attr]


def test_devices_come_and_go(fake: FakeBackend) -> None:
    card = fake.devices()[0]
    fake.remove("fake-0")
    fake.add("fake-2", {"power_watts": 5.0}, parent="fake-1", pci_address="0000:05:00.0")
    assert [device.id for device in fake.devices()] == ["fake-1", "fake-2"]
    assert fake.devices()[1].parent == "fake-1"
    (reading,) = fake.read([card], ["power_watts"])
    assert [failure.reason for failure in reading.failures] == [Reason.LOST]


def test_counters_advance_by_hand_or_with_the_clock() -> None:
    now = 100.0
    fake = FakeBackend(
        {"fake-0": {"energy_joules_total": 10.0, "ecc_uncorrected_errors_total": lambda t: 2 * t}},
        clock=lambda: now,
    )
    fake.open()
    fake.advance("fake-0", "energy_joules_total", 5.0)
    assert read_one(fake, "fake-0", "energy_joules_total") == Sample(
        "fake-0", "energy_joules_total", 15.0, 100.0
    )
    now = 110.0
    assert read_one(fake, "fake-0", "ecc_uncorrected_errors_total") == Sample(
        "fake-0", "ecc_uncorrected_errors_total", 220.0, 110.0
    )
    with pytest.raises(TypeError, match="no number"):
        fake.advance("fake-0", "power_watts", 1.0)


def test_a_misspelt_name_is_refused(fake: FakeBackend) -> None:
    with pytest.raises(KeyError, match="utilisation"):
        fake.set("fake-0", "utilisation", 1.0)
    with pytest.raises(KeyError, match="fake-9"):
        fake.fail("fake-9", "power_watts", Reason.ERROR)


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_a_hanging_device_hangs_alone_until_it_is_released(fake: FakeBackend) -> None:
    devices = fake.devices()
    readings: list[Reading] = []
    fake.hang("fake-1")
    thread = in_thread(lambda: readings.extend(fake.read(devices, ["utilization_percent"])))
    wait_until(lambda: fake.hanging == {"fake-1"})
    assert [reading.device_id for reading in readings] == ["fake-0"]
    assert isinstance(read_one(fake, "fake-0", "utilization_percent"), Sample)
    fake.unhang("fake-1")
    thread.join(10)
    assert [reading.device_id for reading in readings] == ["fake-0", "fake-1"]
    assert fake.hanging == frozenset()


def test_a_hanging_driver_hangs_every_call(fake: FakeBackend) -> None:
    fake.hang()
    threads = [in_thread(fake.open), in_thread(fake.devices)]
    threads.append(in_thread(lambda: list(fake.read([], []))))
    wait_until(lambda: fake.calls["open"] == 2 and fake.calls["read"] == 1)
    wait_until(lambda: fake.hanging == {""})
    assert all(thread.is_alive() for thread in threads)
    fake.unhang()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_calls_break_and_mend(fake: FakeBackend) -> None:
    fake.break_devices(BackendError("no answer", reason=Reason.ERROR))
    fake.break_read(BackendError("no answer", reason=Reason.ERROR))
    with pytest.raises(BackendError, match="no answer"):
        fake.devices()
    with pytest.raises(BackendError, match="no answer"):
        list(fake.read([], []))
    fake.break_open(BackendError("replaced", needs_restart=True))
    with pytest.raises(BackendError, match="replaced"):
        fake.open()
    fake.mend()
    fake.open()
    assert len(fake.devices()) == 2


def test_a_probe_that_says_no() -> None:
    fake = FakeBackend()
    assert fake.probe().viable
    fake.break_probe("there is no driver")
    assert not fake.probe().viable
    assert fake.probe().reason == "there is no driver"
    with pytest.raises(BackendError, match="there is no driver"):
        fake.open()
    assert not fake.is_open


def test_it_is_read_only_while_open(fake: FakeBackend) -> None:
    devices = fake.devices()
    fake.close()
    for call in (fake.devices, lambda: list(fake.read(devices, ["power_watts"]))):
        with pytest.raises(BackendError, match="not open"):
            call()


def test_calls_and_reads_are_counted(fake: FakeBackend) -> None:
    devices = fake.devices()
    for _ in range(3):
        list(fake.read(devices, ["utilization_percent"]))
    list(fake.read(devices[:1], ["power_watts"]))
    assert fake.calls["open"] == 1
    assert fake.calls["read"] == 4
    assert fake.reads["fake-1", "utilization_percent"] == 3
    assert fake.reads["fake-0", "power_watts"] == 1
    assert fake.reads["fake-1", "power_watts"] == 0


def test_two_fakes_live_side_by_side() -> None:
    row = Metric("other_fan_percent", "percent", "Fan.", 0.0, 100.0)
    other = FakeBackend(
        {"other-0": {"other_fan_percent": 40.0}},
        name="other",
        tiers={"power_watts": Tier.SLOW},
        extra_metrics=[row],
        isolates_devices=False,
    )
    other.open()
    (device,) = other.devices()
    assert (device.backend, device.vendor) == ("other", "other")
    assert other.metrics["power_watts"] is Tier.SLOW
    assert other.extra_metrics == (row,)
    assert not other.isolates_devices
    assert read_one(other, "other-0", "other_fan_percent").value == 40.0  # type: ignore[union-attr]
    assert (FakeBackend().name, FakeBackend().metrics["power_watts"]) == ("fake", Tier.FAST)


def test_an_instance_stands_in_for_a_class(fake: FakeBackend) -> None:
    other = FakeBackend(name="other", on_request_only=True)
    registry = load_plugins(extra=[fake.as_class(), other.as_class()])
    assert registry.create("fake") is fake
    assert registry.create("other") is other
    assert registry.backends["other"].backend.on_request_only


def test_changes_from_many_threads_lose_nothing(fake: FakeBackend) -> None:
    fake.set("fake-0", "energy_joules_total", 0.0)

    def work() -> None:
        for _ in range(200):
            fake.advance("fake-0", "energy_joules_total", 1.0)
            read_one(fake, "fake-0", "energy_joules_total")

    threads = [in_thread(work) for _ in range(4)]
    for thread in threads:
        thread.join(30)
    assert read_one(fake, "fake-0", "energy_joules_total").value == 800.0  # type: ignore[union-attr]
    assert fake.reads["fake-0", "energy_joules_total"] == 801


def test_latency_delays_each_device() -> None:
    fake = FakeBackend({"fake-0": {}, "fake-1": {}}, latency_seconds=0.01)
    fake.open()
    started = time.monotonic()
    list(fake.read(fake.devices(), []))
    assert time.monotonic() - started >= 0.02
