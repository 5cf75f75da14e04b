"""GPM: two samples that belong together, one reading at a time, and nothing left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import pynvml
import pytest

from accelscale.errors import BackendError
from accelscale.metrics import METRICS
from accelscale.model import Failure, Reading, Reason, Sample
from accelscale.nvidia import gpm
from accelscale.nvidia.backend import NvidiaBackend
from accelscale.readings import Readings
from drivers.nvml.state import GPM, FakeNvml

ReadingsOf = Callable[..., Mapping[str, Reading]]

A, B = "GPU-aaaa", "GPU-bbbb"
MIB = 2.0**20
BANDWIDTH = "memory_bandwidth_utilization_percent"
VALUES = {
    "sm_activity_percent": 40.25,
    "sm_occupancy_percent": 30.5,
    "tensor_activity_percent": 20.125,
    BANDWIDTH: 35.75,
    "pcie_transmit_bytes_per_second": 100 * MIB,
    "pcie_receive_bytes_per_second": 200 * MIB,
    "interconnect_receive_bytes_per_second": 300 * MIB,
    "interconnect_transmit_bytes_per_second": 400 * MIB,
}
ITEMS = {
    "sm_activity_percent": 2,
    "sm_occupancy_percent": 3,
    "tensor_activity_percent": 5,
    BANDWIDTH: 10,
    "pcie_transmit_bytes_per_second": 20,
    "pcie_receive_bytes_per_second": 21,
    "interconnect_receive_bytes_per_second": 60,
    "interconnect_transmit_bytes_per_second": 61,
}


def outcome(reading: Reading, metric: str) -> float | Failure:
    found: list[Sample | Failure] = [
        one for one in (*reading.samples, *reading.failures) if one.metric == metric
    ]
    assert len(found) == 1, f"{len(found)} answers for {metric}"
    return found[0].value if isinstance(found[0], Sample) else found[0]


def reason(reading: Reading, metric: str) -> Reason:
    failed = outcome(reading, metric)
    assert isinstance(failed, Failure), f"{metric} is {failed}"
    return failed.reason


def wait() -> None:
    time.sleep(gpm.LEAST_SECONDS)


class TestCard:
    def test_it_says_how_hard_the_card_works(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **GPM).write()
        reading = readings(twice=True)[A]
        assert {metric: outcome(reading, metric) for metric in VALUES} == VALUES

    def test_utilisation_stays_the_counter_that_all_cards_have(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, utilization_gpu=77, **GPM).write()
        assert outcome(readings(twice=True)[A], "utilization_percent") == 77.0

    def test_a_true_zero_is_one(self, fake_nvml: FakeNvml, readings: ReadingsOf) -> None:
        fake_nvml.device(A, **{**GPM, "gpm.5": 0}).write()
        assert outcome(readings(twice=True)[A], "tensor_activity_percent") == 0.0

    def test_two_calls_are_made_whatever_is_asked(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **GPM).write()
        readings(twice=True)
        before = fake_nvml.calls()
        wait()
        list(backend.read(backend.devices(), tuple(backend.metrics)))
        after = fake_nvml.calls()
        for call in ("nvmlGpmSampleGet", "nvmlGpmMetricsGet"):
            assert after[call] == before[call] + 1
        assert after["nvmlGpmSampleAlloc"] == 2
        assert after["nvmlGpmQueryDeviceSupport"] == 1

    def test_who_does_not_ask_for_it_takes_no_sample(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **GPM).write()
        readings(["utilization_percent", "power_watts"], twice=True)
        assert not [call for call in fake_nvml.calls() if call.startswith("nvmlGpm")]

    @pytest.mark.parametrize("value", ["nan", "inf", -1])
    def test_what_is_no_number_is_no_reading(
        self, value: str | int, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **{**GPM, "gpm.2": value}).write()
        assert reason(readings(twice=True)[A], "sm_activity_percent") is Reason.OUT_OF_RANGE

    def test_noise_does_not_lift_a_full_card_out_of_range(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **{**GPM, "gpm.2": "100.0000004"}).write()
        assert outcome(readings(twice=True)[A], "sm_activity_percent") == 100.0


class TestNoGpm:
    @pytest.mark.parametrize(
        "error", [None, "NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH"]
    )
    def test_older_cards_and_drivers_lack_it_for_good(
        self, error: str | None, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, name="NVIDIA A100", utilization_memory=12)
        fake_nvml.fail(error, "nvmlGpmQueryDeviceSupport").write()
        reading = readings(twice=True)[A]
        for metric in set(VALUES) - {BANDWIDTH}:
            failed = outcome(reading, metric)
            assert isinstance(failed, Failure)
            assert (failed.reason, failed.permanent) == (Reason.NOT_SUPPORTED, True)
            assert "NVIDIA A100 has no GPM" in failed.detail
        assert outcome(reading, BANDWIDTH) == 12.0
        assert fake_nvml.calls()["nvmlGpmQueryDeviceSupport"] == 1
        assert "nvmlGpmSampleAlloc" not in fake_nvml.calls()

    @pytest.mark.parametrize("name", ["c_nvmlGpmMetricsGet_t", "nvmlGpmQueryDeviceSupport"])
    def test_an_older_binding_lacks_it(
        self,
        name: str,
        fake_nvml: FakeNvml,
        readings: ReadingsOf,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.delattr(pynvml, name)
        fake_nvml.device(A, **GPM).write()
        reading = readings(twice=True)[A]
        assert reason(reading, "sm_activity_percent") is Reason.NOT_SUPPORTED
        assert outcome(reading, BANDWIDTH) == 20.0

    def test_an_older_binding_may_lack_one_metric(
        self, fake_nvml: FakeNvml, readings: ReadingsOf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(pynvml, "NVML_GPM_METRIC_SM_OCCUPANCY")
        fake_nvml.device(A, **GPM).write()
        reading = readings(twice=True)[A]
        assert reason(reading, "sm_occupancy_percent") is Reason.NOT_SUPPORTED
        assert outcome(reading, "tensor_activity_percent") == 20.125

    def test_no_answer_to_the_question_is_no_answer(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **GPM).fail("UNKNOWN", "nvmlGpmQueryDeviceSupport").write()
        assert outcome(readings(twice=True)[A], "sm_activity_percent") == 40.25


class TestBandwidth:
    """GPM tells the share of what the memory could carry, the older counter the share of time."""

    def test_gpm_comes_first(self, fake_nvml: FakeNvml, readings: ReadingsOf) -> None:
        fake_nvml.device(A, utilization_memory=12, **GPM).write()
        assert outcome(readings(twice=True)[A], BANDWIDTH) == 35.75

    def test_the_two_are_not_mixed_in_one_series(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, utilization_memory=12, **GPM)
        fake_nvml.set(A, {"gpm_error.10": "UNKNOWN"}).write()
        assert reason(readings()[A], BANDWIDTH) is Reason.NO_PROGRESS
        assert reason(readings(twice=True)[A], BANDWIDTH) is Reason.ERROR

    def test_where_gpm_lacks_it_the_older_counter_is_left(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, utilization_memory=12, **{**GPM, "gpm.10": None}).write()
        assert outcome(readings(twice=True)[A], BANDWIDTH) == 12.0


class TestItems:
    @pytest.mark.parametrize("metric", sorted(set(ITEMS) - {BANDWIDTH}))
    @pytest.mark.parametrize(
        ("error", "expected", "permanent"),
        [
            ("NOT_SUPPORTED", Reason.NOT_SUPPORTED, True),
            ("NO_PERMISSION", Reason.PERMISSION, False),
            ("UNKNOWN", Reason.ERROR, False),
        ],
    )
    def test_a_failed_one_spoils_no_other(
        self,
        metric: str,
        error: str,
        expected: Reason,
        permanent: bool,
        fake_nvml: FakeNvml,
        readings: ReadingsOf,
    ) -> None:
        fake_nvml.device(A, **GPM).set(A, {f"gpm_error.{ITEMS[metric]}": error}).write()
        reading = readings(twice=True)[A]
        failed = outcome(reading, metric)
        assert isinstance(failed, Failure)
        assert (failed.reason, failed.permanent) == (expected, permanent)
        assert "NVML_GPM_METRIC_" in failed.detail
        others = {name: value for name, value in VALUES.items() if name != metric}
        assert {name: outcome(reading, name) for name in others} == others

    @pytest.mark.parametrize(
        "call", ["nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet"]
    )
    @pytest.mark.parametrize(
        ("error", "expected"), [("NO_PERMISSION", Reason.PERMISSION), ("UNKNOWN", Reason.ERROR)]
    )
    def test_a_failed_call_fails_them_all_and_nothing_else(
        self,
        call: str,
        error: str,
        expected: Reason,
        fake_nvml: FakeNvml,
        readings: ReadingsOf,
    ) -> None:
        fake_nvml.device(A, **GPM).fail(error, call).write()
        reading = readings(twice=True)[A]
        assert {reason(reading, metric) for metric in VALUES} == {expected}
        assert outcome(reading, "utilization_percent") == 50.0
        fake_nvml.fail(None, call).write()
        assert outcome(readings(twice=True)[A], "sm_activity_percent") == 40.25

    def test_a_failed_sample_is_never_one_of_a_pair(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **GPM).write()
        readings(twice=True)
        fake_nvml.fail("TIMEOUT", "nvmlGpmSampleGet", times=1).write()
        wait()
        assert reason(readings()[A], "sm_activity_percent") is Reason.TIMEOUT
        wait()
        assert reason(readings()[A], "sm_activity_percent") is Reason.NO_PROGRESS
        wait()
        assert outcome(readings()[A], "sm_activity_percent") == 40.25


class TestPair:
    def test_one_sample_is_no_reading(self, fake_nvml: FakeNvml, readings: ReadingsOf) -> None:
        fake_nvml.device(A, **GPM).write()
        reading = readings()[A]
        assert {reason(reading, metric) for metric in VALUES} == {Reason.NO_PROGRESS}
        assert "nvmlGpmMetricsGet" not in fake_nvml.calls()

    def test_less_than_100_ms_are_not_enough_and_the_older_sample_waits(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **GPM).write()
        values: list[float] = []
        while len(values) < 3:
            found = outcome(readings()[A], "sm_activity_percent")
            if isinstance(found, float):
                values.append(found)
            else:
                assert found.reason is Reason.NO_PROGRESS
        assert set(values) == {40.25}
        assert fake_nvml.calls()["nvmlGpmSampleGet"] == len(values) + 1

    def test_a_long_gap_ends_it(
        self, fake_nvml: FakeNvml, readings: ReadingsOf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake_nvml.device(A, **GPM).write()
        readings(twice=True)
        wait()
        with monkeypatch.context() as patch:
            patch.setattr(gpm, "max_age", lambda interval: 0.0)
            failed = outcome(readings()[A], "sm_activity_percent")
        assert isinstance(failed, Failure)
        assert failed.reason is Reason.NO_PROGRESS
        assert " s old" in failed.detail
        wait()
        assert outcome(readings()[A], "sm_activity_percent") == 40.25

    def test_the_gap_is_measured_by_how_often_the_card_is_read(
        self, fake_nvml: FakeNvml, readings: ReadingsOf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A first pair may lie as far apart as an interval; a later one by three."""
        asked = []
        monkeypatch.setattr(gpm, "max_age", lambda interval: asked.append(interval) or 60.0)
        fake_nvml.device(A, **GPM).write()
        readings(twice=True)
        assert asked == []
        wait()
        readings()
        (interval,) = asked
        assert gpm.LEAST_SECONDS <= interval < 5.0

    @pytest.mark.parametrize("event", ["another handle", "another init", "closed"])
    def test_samples_from_before_it_are_not_used(
        self, event: str, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **GPM).write()
        readings(twice=True)
        if event == "another handle":
            fake_nvml.lose(A).restore(A).write()
        elif event == "another init":
            fake_nvml.library(shut_down_by_others=1).write()
        else:
            backend.close()
        wait()
        assert reason(readings()[A], "sm_activity_percent") is Reason.NO_PROGRESS
        wait()
        assert outcome(readings()[A], "sm_activity_percent") == 40.25


class TestLetGo:
    def samples(self, fake: FakeNvml) -> int:
        calls = fake.calls()
        return calls.get("nvmlGpmSampleAlloc", 0) - calls.get("nvmlGpmSampleFree", 0)

    def test_a_lost_card_leaves_none(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **GPM).device(B, **GPM).write()
        readings(twice=True)
        assert self.samples(fake_nvml) == 4
        fake_nvml.lose(A).write()
        readings()
        backend.devices()
        assert self.samples(fake_nvml) == 2

    def test_closing_leaves_none(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **GPM).write()
        readings(twice=True)
        backend.close()
        assert self.samples(fake_nvml) == 0
        assert fake_nvml.users == 0

    def test_a_second_sample_that_cannot_be_had_costs_the_first(
        self, fake_nvml: FakeNvml, readings: ReadingsOf, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        alloc = pynvml.nvmlGpmSampleAlloc
        given = []

        def once() -> object:
            if given:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_MEMORY)
            given.append(alloc())
            return given[0]

        monkeypatch.setattr(pynvml, "nvmlGpmSampleAlloc", once)
        fake_nvml.device(A, **GPM).write()
        assert reason(readings()[A], "sm_activity_percent") is Reason.ERROR
        assert self.samples(fake_nvml) == 0


class TestOneAtATime:
    """plazonic/nvidia_gpu_prometheus_exporter#7: two threads in GPM, and the driver is down."""

    def test_side_by_side_the_cards_take_turns(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A, **GPM).device(B, **GPM)
        for call in ("nvmlGpmSampleGet", "nvmlGpmMetricsGet"):
            fake_nvml.delay(2000, call)
        fake_nvml.write()
        backend.open()
        devices = backend.devices()
        values: dict[str, set[float]] = {A: set(), B: set()}
        ended = time.monotonic() + 1.0

        def read(index: int) -> None:
            while time.monotonic() < ended:
                (reading,) = backend.read(devices[index : index + 1], list(VALUES))
                found = outcome(reading, "sm_activity_percent")
                if isinstance(found, float):
                    values[reading.device_id].add(found)

        threads = [threading.Thread(target=read, args=(index,)) for index in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert values == {A: {40.25}, B: {40.25}}
        # the fixture of the backend asserts that nobody was in GPM beside another

    def test_who_hangs_there_keeps_others_from_gpm_and_from_nothing_else(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A, **GPM).device(B, **GPM).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.hang("nvmlGpmSampleGet", device=A).write()

        def read() -> None:
            with suppress(BackendError):
                list(backend.read(devices[:1], list(VALUES)))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        while f"nvmlGpmSampleGet {A}" not in fake_nvml.calls():
            thread.join(0.002)
        for _ in range(2):
            (reading,) = backend.read(devices[1:], tuple(backend.metrics))
            assert reason(reading, "sm_activity_percent") is Reason.TIMEOUT
            assert outcome(reading, "utilization_percent") == 50.0
        assert thread.is_alive()
        assert [device.id for device in backend.devices()] == [A, B]
        fake_nvml.resume("nvmlGpmSampleGet", device=A).write()
        thread.join(10)
        assert not thread.is_alive()
        (reading,) = backend.read(devices[1:], tuple(backend.metrics))
        assert reason(reading, "sm_activity_percent") is Reason.NO_PROGRESS


RATES = [metric for metric in VALUES if metric.endswith("_per_second")]


class TestRates:
    """A rate comes from the counter where the card has one, else from GPM."""

    def snapshot_values(
        self, backend: NvidiaBackend, readings: ReadingsOf
    ) -> dict[str, float | None]:
        taken = Readings(METRICS, 1.0)
        taken.declare(backend)
        for _ in range(2):
            found = readings()
            taken.set_devices(backend, backend.devices())
            taken.take(found[A], tuple(backend.metrics))
            wait()
        snapshot = taken.snapshot()
        return {metric: snapshot.value(A, metric) for metric in RATES}

    def test_from_the_counters(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **GPM).write()
        found = self.snapshot_values(backend, readings)
        for metric in RATES:
            rate = found[metric]
            assert rate is not None
            assert 0 < rate < VALUES[metric] / 10, "GPM would give much more here"

    def test_from_gpm_where_counters_are_missing(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, **GPM, pcie_receive_bytes=None, pcie_transmit_bytes=None)
        fake_nvml.set(A, nvlink_receive_kib=None, nvlink_transmit_kib=None).write()
        found = self.snapshot_values(backend, readings)
        assert found == {metric: VALUES[metric] for metric in RATES}
