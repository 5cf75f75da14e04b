"""Backends that each break one promise; `test_conformance` runs the conformance tests on them.

Not collected by itself. ``BREAKS`` names, for each test class, exactly the tests that must fail.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import ClassVar

from attrs import evolve

from accelscale.backend import Attempt, Probe
from accelscale.errors import BackendError
from accelscale.metrics import Kind, Metric, Tier
from accelscale.model import Failure, Reading, Reason
from accelscale.testing import BackendConformance, FakeBackend

VALUES = {
    "utilization_percent": 30.0,
    "energy_joules_total": lambda now: 300 * now,
    "memory_used_bytes": 2.0**30,
}
READING_TESTS = frozenset(
    {
        "test_every_metric_ends_as_one_sample_or_failure",
        "test_a_metric_it_does_not_list_is_a_failure",
        "test_reading_again_works_and_counters_do_not_go_back",
        "test_a_device_that_is_gone_spoils_no_other",
        "test_a_failing_device_spoils_no_other",
        "test_a_read_may_be_abandoned",
        "test_devices_are_read_side_by_side_where_that_is_promised",
        "test_opening_twice_is_harmless",
        "test_it_opens_again_with_the_same_devices",
    }
)
"""The tests in which every reading is checked."""

BREAKS: dict[str, frozenset[str]] = {}


class Right(FakeBackend):
    """Breaks no promise; the others change one thing."""

    metrics: ClassVar = dict.fromkeys((*VALUES, "power_watts"), Tier.FAST)


class Conformance(BackendConformance):
    backend: ClassVar[type[FakeBackend]] = Right
    limit_seconds = 5.0
    # It starts an interpreter, and none of these classes is about that.
    test_import_touches_nothing = None

    def make_backend(self):
        return self.backend({"fake-a": VALUES, "fake-b": VALUES})

    def break_device(self, backend, device_id):
        backend.lose(device_id)


class TestRight(Conformance):
    pass


def breaks(*tests: str):
    """Make a conformance class for a wrong backend, and note which tests must fail."""

    def decorate(backend):
        title = f"Test{backend.__name__}"
        attributes = {"backend": backend, **vars(backend).get("conformance", {})}
        globals()[title] = type(title, (Conformance,), attributes)
        BREAKS[title] = frozenset(tests)
        return backend

    return decorate


def changed(device_reading, change):
    """The reading with every sample of utilisation changed."""
    samples = [
        change(sample) if sample.metric == "utilization_percent" else sample
        for sample in device_reading.samples
    ]
    return evolve(device_reading, samples=tuple(samples))


class Changing(Right):
    """Reads as it should, then spoils every reading."""

    def spoil(self, reading):
        raise NotImplementedError

    def read(self, devices, metrics):
        for reading in super().read(devices, metrics):
            yield self.spoil(reading)


# What the class says of itself.


@breaks("test_class_data_keep_the_rules")
class ListsDerivedMetric(Right):
    metrics: ClassVar = {**Right.metrics, "memory_used_percent": Tier.FAST}


@breaks("test_class_data_keep_the_rules")
class ExtraMetricWithoutPrefix(Right):
    extra_metrics = (Metric("fan_percent", "percent", "Fan."),)


@breaks("test_class_data_keep_the_rules")
class UpperCaseName(Right):
    name = "Fake"


# Probe, open, close.


@breaks(
    "test_probe_gives_a_reason_and_leaves_nothing_open",
    "test_open_agrees_with_probe",
)
class ProbeRaises(Right):
    def probe(self):
        raise KeyError("libfake.so")


@breaks("test_probe_gives_a_reason_and_leaves_nothing_open")
class ProbeSaysNothing(Right):
    def probe(self):
        return Probe(viable=True, reason=" ")


@breaks("test_probe_gives_a_reason_and_leaves_nothing_open")
class ProbeLeavesFileOpen(Right):
    def probe(self):
        self.left = Path(__file__).open()  # noqa: SIM115 - the fault
        return super().probe()

    def close(self):
        if hasattr(self, "left"):
            self.left.close()
        super().close()

    def __del__(self):
        self.close()


@breaks("test_probe_gives_a_reason_and_leaves_nothing_open")
class ProbeLeavesThreadRunning(Right):
    def probe(self):
        threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
        return super().probe()


@breaks("test_open_agrees_with_probe")
class ProbeSaysNo(Right):
    def probe(self):
        return Probe(viable=False, reason="there is no driver")


@breaks("test_open_agrees_with_probe")
class OpenRefusesWithoutReason(Right):
    conformance: ClassVar = {"hardware_optional": True}

    def probe(self):
        return Probe(viable=False, reason="there is no driver")

    def open(self):
        raise BackendError("there is no driver")


@breaks("test_open_agrees_with_probe")
class OpenContradictsProbe(Right):
    conformance: ClassVar = {"hardware_optional": True}

    def open(self):
        raise BackendError("there is no driver", reason=Reason.NOT_SUPPORTED)


@breaks("test_opening_twice_is_harmless")
class OpensOnce(Right):
    def open(self):
        if self.is_open:
            raise BackendError("open already", reason=Reason.ERROR)
        super().open()


@breaks("test_letting_go_twice_or_unopened_is_harmless[close]")
class ClosesOnce(Right):
    def close(self):
        if not self.is_open and not getattr(self, "closed", False):
            self.closed = True
            return
        if not self.is_open and self.opened_before:
            raise RuntimeError("closed already")
        super().close()

    def open(self):
        self.opened_before = True
        super().open()

    def release(self):
        FakeBackend.close(self)

    opened_before = False


@breaks("test_letting_go_twice_or_unopened_is_harmless[release]")
class ReleaseNeedsOpen(Right):
    def release(self):
        if not self.is_open:
            raise RuntimeError("not open")
        self.close()


@breaks("test_it_opens_again_with_the_same_devices[release]")
class ReleasedForGood(Right):
    released = False

    def release(self):
        self.released = True
        super().release()

    def open(self):
        if self.released:
            raise BackendError("released", reason=Reason.ERROR)
        super().open()


@breaks("test_diagnose_describes_and_never_raises")
class DiagnoseRaises(Right):
    def diagnose(self):
        yield Attempt("open", "opened", True, 0.0)
        raise OSError("no such device")


# Devices.


class Renaming(Right):
    """Lists and reads its devices by other ids than it holds them."""

    def outside(self, inside):
        raise NotImplementedError

    def devices(self):
        return [evolve(device, id=self.outside(device.id)) for device in super().devices()]

    def read(self, devices, metrics):
        inside = {self.outside(device.id): device.id for device in super().devices()}
        for device in devices:
            (reading,) = super().read([evolve(device, id=inside.get(device.id, "-"))], metrics)
            yield Reading(
                device.id,
                tuple(evolve(sample, device_id=device.id) for sample in reading.samples),
                tuple(evolve(failure, device_id=device.id) for failure in reading.failures),
            )

    def lose(self, device_id):
        for device in super().devices():
            if self.outside(device.id) == device_id:
                super().lose(device.id)


@breaks("test_ids_are_unique_stable_and_no_index")
class IndexAsId(Renaming):
    def outside(self, inside):
        return {"fake-a": "0", "fake-b": "1"}[inside]


@breaks(
    "test_it_opens_again_with_the_same_devices[close]",
    "test_it_opens_again_with_the_same_devices[release]",
    "test_opening_twice_is_harmless",
)
class IdsChangeWithOpening(Renaming):
    def outside(self, inside):
        return f"{inside}-{self.calls['open']}"


@breaks("test_ids_are_unique_stable_and_no_index")
class IdsDifferBetweenInstances(Renaming):
    made: ClassVar[list[int]] = []

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.made.append(0)
        self.number = len(self.made)

    def outside(self, inside):
        return f"{inside}-{self.number}"


@breaks("test_ids_are_unique_stable_and_no_index")
class SameIdTwice(Right):
    def devices(self):
        first, _ = super().devices()
        return [first, first]

    # The rest cannot tell: it asks for what was listed.
    conformance: ClassVar = {"test_a_failing_device_spoils_no_other": None}


@breaks("test_devices_say_whose_they_are")
class ForeignVendor(Right):
    def devices(self):
        return [evolve(device, vendor="other") for device in super().devices()]


@breaks("test_devices_say_whose_they_are")
class LongPciAddress(Right):
    def devices(self):
        address = "0000000F:01:00.0"
        return [evolve(device, pci_address=address) for device in super().devices()]


# Readings.


@breaks(*READING_TESTS)
class NotANumber(Changing):
    def spoil(self, reading):
        return changed(reading, lambda sample: evolve(sample, value=float("nan")))


@breaks(*READING_TESTS)
class OutOfRange(Changing):
    def spoil(self, reading):
        return changed(reading, lambda sample: evolve(sample, value=100.5))


@breaks(*READING_TESTS)
class TextForNumber(Changing):
    def spoil(self, reading):
        return changed(reading, lambda sample: evolve(sample, value="39"))


@breaks(*READING_TESTS)
class WallClock(Changing):
    def spoil(self, reading):
        return changed(reading, lambda sample: evolve(sample, time=time.time()))


@breaks(*READING_TESTS)
class SampleOfOtherDevice(Changing):
    def spoil(self, reading):
        return changed(reading, lambda sample: evolve(sample, device_id="fake-c"))


@breaks(*READING_TESTS)
class DropsFailures(Changing):
    def spoil(self, reading):
        return evolve(reading, failures=())


@breaks(*READING_TESTS)
class AnswersTwice(Changing):
    def spoil(self, reading):
        return evolve(reading, samples=(*reading.samples, *reading.samples[:1]))


@breaks(*READING_TESTS)
class FailsWithoutDetail(Changing):
    def spoil(self, reading):
        failures = tuple(evolve(failure, detail="") for failure in reading.failures)
        return evolve(reading, failures=failures)


@breaks(*READING_TESTS)
class FailsWithTextAsReason(Changing):
    def spoil(self, reading):
        failures = tuple(evolve(failure, reason="broken") for failure in reading.failures)
        return evolve(reading, failures=failures)


@breaks("test_every_metric_ends_as_one_sample_or_failure")
class GivesAllMetricsAlways(Right):
    def read(self, devices, metrics):
        return super().read(devices, {*metrics, *self.metrics})


@breaks(*READING_TESTS - {"test_devices_are_read_side_by_side_where_that_is_promised"})
class OtherOrder(Right):
    def read(self, devices, metrics):
        return super().read(devices[::-1], metrics)


@breaks("test_a_metric_it_does_not_list_is_a_failure")
class KnowsOnlyItsOwnMetrics(Right):
    def read(self, devices, metrics):
        tiers = [self.metrics[metric] for metric in metrics]
        assert tiers is not None
        yield from super().read(devices, metrics)


@breaks("test_reading_again_works_and_counters_do_not_go_back")
class CounterGoesBack(Right):
    extra_metrics = (Metric("fake_jobs_total", "jobs", "Jobs.", kind=Kind.COUNTER),)

    def read(self, devices, metrics):
        for device in super().devices():
            self.set(device.id, "fake_jobs_total", 100.0 - self.calls["read"])
        yield from super().read(devices, metrics)


@breaks("test_reading_again_works_and_counters_do_not_go_back")
class ReadsThrice(Right):
    def read(self, devices, metrics):
        if self.calls["read"] >= 3 and len(metrics) == len(self.metrics) and len(devices) == 2:
            raise BackendError("too many reads", reason=Reason.ERROR)
        yield from super().read(devices, metrics)


@breaks(
    *READING_TESTS - {"test_devices_are_read_side_by_side_where_that_is_promised"},
    "test_diagnose_describes_and_never_raises",
)
class Hangs(Right):
    conformance: ClassVar = {
        "limit_seconds": 0.1,
        "test_devices_are_read_side_by_side_where_that_is_promised": None,
    }

    def read(self, devices, metrics):
        time.sleep(0.3)
        yield from super().read(devices, metrics)


@breaks("test_a_read_may_be_abandoned")
class CannotBeAbandoned(Right):
    conformance: ClassVar = {"limit_seconds": 0.3}
    isolates_devices = False
    reading = False

    def read(self, devices, metrics):
        if self.reading:
            raise BackendError("still reading", reason=Reason.ERROR)
        self.reading = True
        yield from super().read(devices, metrics)
        self.reading = False


@breaks("test_a_device_that_is_gone_spoils_no_other")
class LooksUpDevices(Right):
    def read(self, devices, metrics):
        present = {device.id: device for device in super().devices()}
        yield from super().read([present[device.id] for device in devices], metrics)


@breaks("test_a_device_that_is_gone_spoils_no_other")
class ZeroForWhatIsGone(Right):
    def read(self, devices, metrics):
        absent = {device.id for device in devices} - {device.id for device in super().devices()}
        for device_id in absent:
            self.add(device_id, dict.fromkeys(VALUES, 0.0))
        yield from super().read(devices, metrics)


@breaks("test_a_failing_device_spoils_no_other")
class OneFailureRaises(Right):
    def read(self, devices, metrics):
        for device in super().devices():
            if device.problem is not None:
                raise BackendError(device.problem_detail, reason=device.problem)
        yield from super().read(devices, metrics)


@breaks("test_a_failing_device_spoils_no_other")
class OneFailureFailsAll(Right):
    def read(self, devices, metrics):
        ill = any(device.problem for device in super().devices())
        for reading in super().read(devices, metrics):
            answers = (*reading.samples, *reading.failures)
            failures = tuple(
                Failure(reading.device_id, answer.metric, Reason.ERROR, "a device failed")
                for answer in answers
            )
            yield Reading(reading.device_id, (), failures) if ill else reading


@breaks("test_a_failing_device_spoils_no_other")
class LastValueOfBrokenDevice(Right):
    def lose(self, device_id):
        """Goes on with the values from before."""


@breaks("test_devices_are_read_side_by_side_where_that_is_promised")
class NotSideBySide(Right):
    inside = 0

    def read(self, devices, metrics):
        self.inside += 1
        try:
            time.sleep(0.002)
            if self.inside > 1:
                raise BackendError("busy", reason=Reason.ERROR)
            yield from super().read(devices, metrics)
        finally:
            self.inside -= 1


# Names in a cluster.


@breaks("test_odd_names_are_answered")
class TrustsResourceNames(Right):
    def owns_resource(self, resource):
        domain, _name = resource.split("/")
        return domain == "fake.example"


@breaks("test_odd_names_are_answered")
class InventsDevices(Right):
    def device_of(self, allocated_id, devices):
        found = super().device_of(allocated_id, devices)
        return found or evolve(self.devices()[0], id=allocated_id)


@breaks("test_odd_names_are_answered")
class TakesIdsForIndexes(Right):
    def device_of(self, allocated_id, devices):
        return devices[int(allocated_id)] if allocated_id.isdecimal() else None
