"""Real threads over a backend in memory; every wait is for a condition, with a deadline."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from accelscale.backend_loop import MOST_STUCK
from accelscale.collector import Collector
from accelscale.errors import BackendError
from accelscale.metrics import METRICS, Tier
from accelscale.model import Reason, Series, SeriesValue
from accelscale.readings import Readings
from accelscale.testing import FakeBackend

PATIENCE = 20.0
UTILIZATION = "utilization_percent"
Start = Callable[..., tuple[Collector, Readings]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a collector over backends, at 20 Hz and with a deadline of 0.3 s."""
    started: list[tuple[Collector, tuple[FakeBackend, ...]]] = []

    def begin(*backends: FakeBackend, deadline: float = 0.3) -> tuple[Collector, Readings]:
        readings = Readings(METRICS, 0.05)
        collector = Collector(backends, readings, deadline=deadline, refresh=0.1)
        collector.start()
        started.append((collector, backends))
        return collector, readings

    yield begin
    for collector, backends in started:
        for backend in backends:
            backend.unhang()
        collector.close()
    assert until(lambda: not threads()), threads()


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("accelscale-")]


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def value(readings: Readings, device_id: str) -> float | None:
    return readings.snapshot().value(device_id, UTILIZATION)


def reason(readings: Readings, device_id: str, metric: str = UTILIZATION) -> Reason | None:
    failure = readings.snapshot().failure(device_id, metric)
    return None if failure is None else failure.reason


def two_devices() -> FakeBackend:
    return FakeBackend({"a": {UTILIZATION: 10.0}, "b": {UTILIZATION: 20.0}})


def test_what_the_driver_says_arrives_and_follows(start: Start) -> None:
    backend = two_devices()
    collector, readings = start(backend)
    assert until(lambda: value(readings, "b") == 20.0)
    backend.set("b", UTILIZATION, 90.0)
    assert until(lambda: value(readings, "b") == 90.0)
    (state,) = collector.states()
    assert (state.phase, state.devices, state.timeouts) == ("ready", 2, 0)


def test_two_backends_are_read_side_by_side(start: Start) -> None:
    slow = FakeBackend({"s": {UTILIZATION: 1.0}}, name="slow", latency_seconds=0.2)
    quick = FakeBackend({"q": {UTILIZATION: 2.0}}, name="quick")
    collector, readings = start(slow, quick, deadline=5.0)
    assert until(lambda: value(readings, "s") == 1.0 and value(readings, "q") == 2.0)
    assert until(lambda: collector.states()[1].collections >= 10)
    assert collector.states()[0].collections < collector.states()[1].collections


def test_a_device_that_comes_late_and_one_that_leaves(start: Start) -> None:
    backend = two_devices()
    _collector, readings = start(backend)
    assert until(lambda: value(readings, "a") == 10.0)
    backend.add("c", {UTILIZATION: 30.0})
    backend.remove("a")
    assert until(lambda: value(readings, "c") == 30.0)
    assert [device.id for device in readings.snapshot().devices] == ["b", "c"]
    assert value(readings, "a") is None
    assert reason(readings, "a") is None


def test_a_lost_card_is_lost_at_once_and_returns_by_itself(start: Start) -> None:
    backend = two_devices()
    _, readings = start(backend)
    assert until(lambda: value(readings, "a") == 10.0)
    backend.lose("a")
    assert until(lambda: reason(readings, "a") is Reason.LOST)
    assert until(lambda: readings.snapshot().devices[0].problem is Reason.LOST)
    assert value(readings, "b") == 20.0
    series = Series(UTILIZATION, 15.0, "mean")
    assert not isinstance(readings.snapshot([series]).series["a", series], SeriesValue)
    backend.restore("a")
    assert until(lambda: value(readings, "a") == 10.0)


def test_a_driver_that_appears_late_is_picked_up(start: Start) -> None:
    backend = two_devices()
    backend.break_open(BackendError("driver not loaded", reason=Reason.ERROR))
    collector, readings = start(backend)
    assert until(lambda: collector.states()[0].phase == "failed")
    assert readings.snapshot().problems == {"fake": "driver not loaded"}
    backend.mend()
    assert until(lambda: value(readings, "a") == 10.0)
    assert readings.snapshot().problems == {}


@pytest.mark.parametrize("broken", ["break_devices", "break_read"])
def test_a_driver_that_fails_as_a_whole_fails_every_device(start: Start, broken: str) -> None:
    backend = two_devices()
    collector, readings = start(backend)
    assert until(lambda: value(readings, "a") == 10.0)
    error = BackendError("replaced", reason=Reason.ERROR, code=18, needs_restart=True)
    getattr(backend, broken)(error)
    assert until(lambda: reason(readings, "a") is Reason.ERROR)
    assert reason(readings, "b") is Reason.ERROR
    (state,) = collector.states()
    assert (state.phase, state.reason, state.needs_restart) == ("failed", "replaced", True)
    backend.mend()
    assert until(lambda: value(readings, "a") == 10.0)
    assert not collector.states()[0].needs_restart


def test_a_backend_that_breaks_its_contract_is_contained(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(FakeBackend):
        def devices(self) -> list[object]:  # type: ignore[override]
            raise ZeroDivisionError("oops")

    collector, readings = start(Wrong({"a": {}}, name="wrong"), two_devices())
    assert until(lambda: value(readings, "a") == 10.0)
    assert until(lambda: "ZeroDivisionError: oops" in collector.states()[0].reason)
    assert "broke its contract" in caplog.text


def test_a_backend_that_gives_too_few_readings_fails(start: Start) -> None:
    class Short(FakeBackend):
        def read(self, devices: object, metrics: object) -> Iterator[object]:  # type: ignore[override]
            return iter(())

    collector, _ = start(Short({"a": {}}))
    assert until(lambda: "gave no reading for a" in collector.states()[0].reason)


def test_a_hung_call_leaves_the_other_devices_fresh(start: Start) -> None:
    backend = FakeBackend({f"d{n}": {UTILIZATION: float(n)} for n in range(4)})
    collector, readings = start(backend)
    assert until(lambda: value(readings, "d3") == 3.0)
    backend.hang("d1")
    assert until(lambda: reason(readings, "d1") is Reason.TIMEOUT)
    for number in (0, 2, 3):
        backend.set(f"d{number}", UTILIZATION, 50.0 + number)
        assert until(lambda n=number: value(readings, f"d{n}") == 50.0 + n)  # type: ignore[misc]
    assert collector.states()[0].phase == "ready"
    assert len(threads()) == 3  # the watchdog, the one that reads, the one that hangs
    backend.unhang("d1")
    assert until(lambda: value(readings, "d1") == 1.0)
    assert until(lambda: len(threads()) == 2)


def test_what_a_hung_call_brings_at_last_is_not_taken(start: Start) -> None:
    backend = two_devices()
    _, readings = start(backend)
    assert until(lambda: value(readings, "a") == 10.0)
    backend.hang("a")
    assert until(lambda: reason(readings, "a") is Reason.TIMEOUT)
    taken = readings.snapshot().failures["a", UTILIZATION].time
    backend.unhang("a")
    assert until(lambda: value(readings, "a") == 10.0)
    assert readings.snapshot().samples["a", UTILIZATION].time > taken


def test_hanging_again_and_again_leaves_a_bounded_number_of_threads(start: Start) -> None:
    backend = FakeBackend({f"d{n}": {UTILIZATION: 1.0} for n in range(MOST_STUCK + 4)})
    collector, _readings = start(backend, deadline=0.1)
    assert until(lambda: collector.states()[0].collections > 1)
    for number in range(MOST_STUCK + 4):
        backend.hang(f"d{number}")
    assert until(lambda: collector.states()[0].timeouts > MOST_STUCK)
    assert until(lambda: collector.states()[0].phase == "failed")
    time.sleep(0.5)
    assert len(threads()) == MOST_STUCK + 2
    backend.unhang()
    assert until(lambda: collector.states()[0].phase == "ready")
    assert until(lambda: len(threads()) == 2)


def test_several_cards_that_hang_at_once_do_not_make_the_others_stale(start: Start) -> None:
    backend = FakeBackend({f"d{n}": {UTILIZATION: 1.0} for n in range(8)})
    collector, readings = start(backend, deadline=2.0)
    assert until(lambda: value(readings, "d7") == 1.0)
    for number in range(4):
        backend.hang(f"d{number}")
    stale = []

    def all_timed_out() -> bool:
        stale.extend(n for n in range(4, 8) if value(readings, f"d{n}") is None)
        return all(reason(readings, f"d{n}") is Reason.TIMEOUT for n in range(4))

    assert until(all_timed_out)
    assert stale == []
    assert collector.states()[0].phase == "ready"


def test_a_listing_that_hangs_before_any_device_is_known_is_a_problem(start: Start) -> None:
    backend = FakeBackend({})
    backend.hang()
    collector, readings = start(backend)
    assert until(lambda: collector.states()[0].phase == "failed")
    assert readings.snapshot().unseen_vendors == {"fake"}
    backend.unhang()
    assert until(lambda: readings.snapshot().unseen_vendors == set())


def test_no_thread_to_be_had_is_survived(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = two_devices()
    collector, readings = start(backend)
    assert until(lambda: value(readings, "a") == 10.0)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        backend.hang("a")
        assert until(lambda: collector.states()[0].phase == "failed")
    backend.unhang("a")
    assert until(lambda: collector.states()[0].phase == "ready")
    assert until(lambda: value(readings, "a") == 10.0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_whatever_ends_the_thread_readings_go_on(start: Start, error: type[BaseException]) -> None:
    class Leaves(FakeBackend):
        left = False

        def read(self, devices: object, metrics: object) -> object:  # type: ignore[override]
            if not self.left:
                self.left = True
                raise error
            return super().read(devices, metrics)  # type: ignore[arg-type]

    _, readings = start(Leaves({"a": {UTILIZATION: 10.0}}))
    assert until(lambda: value(readings, "a") == 10.0)


def test_a_backend_that_does_not_isolate_times_out_as_a_whole(start: Start) -> None:
    backend = FakeBackend(
        {"a": {UTILIZATION: 10.0}, "b": {UTILIZATION: 20.0}}, isolates_devices=False
    )
    other = FakeBackend({"c": {UTILIZATION: 30.0}}, name="other")
    _collector, readings = start(backend, other)
    assert until(lambda: value(readings, "b") == 20.0)
    backend.hang("a")
    assert until(lambda: reason(readings, "b") is Reason.TIMEOUT)
    assert reason(readings, "a") is Reason.TIMEOUT
    assert value(readings, "c") == 30.0
    assert len(threads()) == 3
    backend.unhang("a")
    assert until(lambda: value(readings, "b") == 20.0)


def test_a_driver_that_hangs_as_a_whole(start: Start) -> None:
    backend = two_devices()
    _collector, readings = start(backend)
    assert until(lambda: value(readings, "a") == 10.0)
    backend.hang()
    assert until(lambda: reason(readings, "a") is Reason.TIMEOUT)
    assert until(lambda: reason(readings, "b") is Reason.TIMEOUT)
    backend.unhang()
    assert until(lambda: value(readings, "a") == 10.0 and value(readings, "b") == 20.0)


def test_costly_metrics_are_read_rarely_and_none_twice_in_a_pass(start: Start) -> None:
    backend = FakeBackend(
        {"a": {UTILIZATION: 1.0, "process_count": 3.0}}, tiers={"process_count": Tier.SLOW}
    )
    collector, readings = start(backend)
    assert until(lambda: collector.states()[0].collections >= 20)
    assert backend.reads["a", "process_count"] == 1
    collections = collector.states()[0].collections
    assert backend.reads["a", UTILIZATION] <= collections + 1
    assert readings.snapshot().value("a", "process_count") == 3.0


def test_a_new_device_gets_its_costly_metrics_at_once(start: Start) -> None:
    backend = FakeBackend({"a": {"process_count": 3.0}}, tiers={"process_count": Tier.SLOW})
    _, readings = start(backend)
    assert until(lambda: readings.snapshot().value("a", "process_count") == 3.0)
    backend.add("b", {"process_count": 4.0})
    assert until(lambda: readings.snapshot().value("b", "process_count") == 4.0)
    assert backend.reads["a", "process_count"] == 2


def test_release_lets_go_and_resume_takes_again(start: Start) -> None:
    backend = two_devices()
    collector, readings = start(backend)
    assert until(lambda: value(readings, "a") == 10.0)
    assert collector.release()
    assert not backend.is_open
    assert collector.states()[0].phase == "released"
    assert reason(readings, "a") is Reason.STALE
    assert "maintained" in readings.snapshot().problems["fake"]
    collector.resume()
    assert until(lambda: value(readings, "a") == 10.0)


def test_release_during_a_hang_says_so_and_closes_when_it_ends(start: Start) -> None:
    backend = two_devices()
    collector, readings = start(backend)
    assert until(lambda: value(readings, "a") == 10.0)
    backend.hang("a")
    assert until(lambda: reason(readings, "a") is Reason.TIMEOUT)
    assert not collector.release()
    backend.unhang("a")
    assert until(lambda: not backend.is_open)


def test_a_change_of_phase_is_logged_once(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="accelscale.collector")
    backend = two_devices()
    backend.break_open(BackendError("driver not loaded", reason=Reason.ERROR))
    collector, _ = start(backend)
    assert until(lambda: collector.states()[0].phase == "failed")
    time.sleep(0.3)
    backend.mend()
    assert until(lambda: collector.states()[0].phase == "ready")
    lines = [r.getMessage() for r in caplog.records if r.name == "accelscale.collector"]
    assert lines == ["fake: failed: driver not loaded", "fake: ready: 2 devices"]


def test_opening_and_closing_many_times_leaves_no_thread(start: Start) -> None:
    for _ in range(20):
        collector = Collector([two_devices()], Readings(METRICS, 0.05))
        collector.start()
        collector.close()
    assert until(lambda: not threads())
