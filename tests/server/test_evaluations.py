from __future__ import annotations

import asyncio
import time

from accelscale.engine import Evaluation
from accelscale.errors import NoDataError
from accelscale.model import Workload
from accelscale.monitor import open_monitor
from accelscale.testing import FakeBackend
from accelscale.trigger import Trigger, parse_trigger
from accelscale_server._proto import externalscaler_pb2 as pb
from accelscale_server.evaluations import Evaluations
from accelscale_server.serve import LocalDevices

UTILIZATION = "utilization_percent"


def trigger(**keys: str):
    metadata = {"metric": UTILIZATION, "threshold": "70", "windowStatistic": "last", **keys}
    return parse_trigger(metadata, scopes=("node",))


def test_one_evaluation_for_all_who_ask_within_a_snapshot() -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}})
    with open_monitor([fake], interval=60.0) as monitor:
        assert monitor.wait(10.0)
        evaluations = Evaluations(LocalDevices(monitor))
        first = evaluations.of(trigger())
        assert all(evaluations.of(trigger()) is first for _ in range(100))
        assert evaluations.of(trigger(threshold="50")) is not first
        assert evaluations.made == 2


def test_a_new_snapshot_brings_a_new_evaluation_and_drops_the_old_ones() -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}})
    with open_monitor([fake], interval=0.05) as monitor:
        assert monitor.wait(10.0)
        evaluations = Evaluations(LocalDevices(monitor))
        assert evaluations.of(trigger()).value == 60.0
        fake.set("a", UTILIZATION, 20.0)
        passes = monitor.states()[0].collections
        assert monitor.wait(10.0, passes + 2)
        assert evaluations.of(trigger()).value == 20.0


def test_a_sample_that_grows_too_old_ends_an_evaluation_without_a_new_snapshot() -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}}, isolates_devices=False)
    with open_monitor([fake], interval=0.05, deadline=60.0) as monitor:
        assert monitor.wait(10.0)
        fake.hang("a")
        evaluations = Evaluations(LocalDevices(monitor))
        limited = trigger(maxAge="0.3s")
        while not fake.hanging:
            time.sleep(0.01)
        sequence = monitor.sequence
        assert evaluations.of(limited).value == 60.0
        while not isinstance(evaluations.of(limited).value, NoDataError):
            time.sleep(0.01)
        assert monitor.sequence == sequence
        made = evaluations.made
        assert "stale" in str(evaluations.of(limited).value)
        assert evaluations.made == made  # once it says so, it is not made again and again
        fake.unhang()


async def test_hardware_is_read_once_per_interval_however_many_ask(start) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}}, latency_seconds=0.3)
    server = await start(fake, interval=0.5)
    reads = fake.reads["a", UTILIZATION]
    passes = server.monitor.states()[0].collections
    metadata = {"metric": UTILIZATION, "threshold": "70", "windowStatistic": "last"}
    metric = "accelscale-utilization-percent"
    for _ in range(3):
        answers = await asyncio.gather(
            *(
                server.scaler.GetMetrics(
                    pb.GetMetricsRequest(
                        scaledObjectRef=pb.ScaledObjectRef(
                            name=f"web-{n}", namespace="shop", scalerMetadata=metadata
                        ),
                        metricName=metric,
                    ),
                    timeout=5,
                )
                for n in range(100)
            )
        )
        assert {answer.metricValues[0].metricValueFloat for answer in answers} == {60.0}
    grown = server.monitor.states()[0].collections - passes
    assert fake.reads["a", UTILIZATION] - reads <= grown + 1


class Slow:
    """A source whose every evaluation takes a while."""

    names_matter = True
    first_answer_seconds = 0.0
    sequence = 0

    def __init__(self, seconds: float, fresh_for: float = 60.0) -> None:
        self.seconds = seconds
        self.fresh_for = fresh_for

    def evaluate(self, namespace: str, name: str, wanted: Trigger) -> Evaluation:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        now = time.monotonic()
        workload = Workload(name, (), namespace)
        return Evaluation(wanted, workload, now, 1.0, True, fresh_until=now + self.fresh_for)


def test_a_costly_evaluation_counts_for_longer_than_others() -> None:
    slow = Slow(0.02)
    evaluations = Evaluations(slow)
    first = evaluations.of(trigger(), "shop", "web")
    slow.sequence = 1
    assert evaluations.of(trigger(), "shop", "web") is first
    assert evaluations.of(trigger(), "shop", "api") is not first
    time.sleep(0.25)
    slow.sequence = 2
    assert evaluations.of(trigger(), "shop", "web") is not first
    assert evaluations.made == 3


def test_a_costly_evaluation_counts_no_longer_than_its_samples() -> None:
    slow = Slow(0.02, fresh_for=0.01)
    evaluations = Evaluations(slow)
    first = evaluations.of(trigger())
    time.sleep(0.02)
    slow.sequence = 1
    assert evaluations.of(trigger()) is not first


def test_a_quick_evaluation_is_made_anew_when_there_is_news() -> None:
    quick = Slow(0.0)
    evaluations = Evaluations(quick)
    first = evaluations.of(trigger())
    assert evaluations.of(trigger()) is first
    quick.sequence = 1
    assert evaluations.of(trigger()) is not first
