"""MIG: the card as a whole, its instances, and what happens when it is cut anew."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

import pytest

from accelscale.attribution import node_workload
from accelscale.collector import Collector
from accelscale.engine import evaluate
from accelscale.errors import NoDataError
from accelscale.metrics import METRICS
from accelscale.model import Device, Failure, Reading, Reason
from accelscale.nvidia.backend import NvidiaBackend
from accelscale.readings import Readings
from accelscale.trigger import parse_trigger
from drivers.nvml.state import GPM, FakeNvml

Results = Mapping[tuple[str, str], float | Failure]
Read = Callable[..., Results]
ReadingsOf = Callable[..., Mapping[str, Reading]]

CARD = "GPU-aaaa"
GIB = 2**30
SLICE = {
    "name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    "memory_total": 10 * GIB,
    "memory_used": 4 * GIB,
    "gpu_instance_slices": 1,
    "multiprocessors": 16,
    "compute_instance_id": 0,
    "processes_compute": "",
}
ON_CARD_ALONE = (
    "power_watts",
    "power_limit_watts",
    "energy_joules_total",
    "temperature_celsius",
    "memory_temperature_celsius",
    "slowdown_temperature_celsius",
    "sm_clock_megahertz",
    "memory_clock_megahertz",
    "throttled_power_seconds_total",
    "throttled_thermal_seconds_total",
    "pcie_receive_bytes_total",
    "pcie_transmit_bytes_total",
    "pcie_receive_bytes_per_second",
    "pcie_transmit_bytes_per_second",
    "interconnect_receive_bytes_total",
    "interconnect_transmit_bytes_total",
    "interconnect_receive_bytes_per_second",
    "interconnect_transmit_bytes_per_second",
    "encoder_utilization_percent",
    "decoder_utilization_percent",
    "ecc_uncorrected_errors_total",
    "xid_errors_total",
)
HARDWARE_SHARES = {
    "utilization_percent": 45.5,
    "sm_activity_percent": 40.25,
    "sm_occupancy_percent": 30.5,
    "tensor_activity_percent": 20.125,
    "memory_bandwidth_utilization_percent": 35.75,
}


def sliced(fake: FakeNvml, *uuids: str, **card: float | str) -> FakeNvml:
    """A card in MIG mode, and these instances of it, each a GPU instance of its own."""
    fake.device(CARD, mig_mode=1, minor_number=4, **card)
    return fake.repartition(CARD, *uuids, **SLICE)


def value(reading: Reading, metric: str) -> float | None:
    return next((one.value for one in reading.samples if one.metric == metric), None)


def failure(reading: Reading, metric: str) -> Failure:
    (found,) = [one for one in reading.failures if one.metric == metric]
    return found


def ids(backend: NvidiaBackend) -> list[str]:
    return [device.id for device in backend.devices()]


class TestCard:
    """NVIDIA/dcgm-exporter#3, dask/distributed#8739: a busy MIG card is not at 0 %."""

    def test_as_a_whole_it_has_no_utilisation(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2").write()
        card = readings()[CARD]
        for metric in (
            "utilization_percent",
            "memory_bandwidth_utilization_percent",
            "encoder_utilization_percent",
        ):
            absent = failure(card, metric)
            assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, False)
            assert "MIG is enabled" in absent.detail
        assert value(card, "power_watts") == 350.0

    def test_with_gpm_its_instances_have_what_it_lacks(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1", **GPM).write()
        absent = failure(readings(twice=True)[CARD], "sm_activity_percent")
        assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, False)
        assert "its instances have it" in absent.detail
        assert f"nvmlGpmSampleGet {CARD}" not in fake_nvml.calls()

    def test_its_memory_may_be_forbidden_and_that_of_instances_readable(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        """NVIDIA/nvidia-container-toolkit#842, NVIDIA/k8s-device-plugin#1683."""
        sliced(fake_nvml, "MIG-1")
        fake_nvml.fail("NO_PERMISSION", "nvmlDeviceGetMemoryInfo_v2", device=CARD).write()
        found = readings()
        forbidden = failure(found[CARD], "memory_used_bytes")
        assert forbidden.reason is Reason.PERMISSION
        assert "MIG is enabled" in forbidden.detail
        assert value(found[CARD], "temperature_celsius") == 45.0
        assert value(found["MIG-1"], "memory_used_bytes") == 4 * GIB
        assert value(found["MIG-1"], "memory_total_bytes") == 10 * GIB

    def test_switched_on_between_two_looks_is_not_called_permanent(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, read: Read
    ) -> None:
        fake_nvml.device(CARD, mig_mode=0).write()
        assert read()[CARD, "utilization_percent"] == 50.0
        devices = backend.devices()
        assert devices[0].attributes["mig"] == "disabled"
        fake_nvml.set(CARD, mig_mode=1).write()
        (reading,) = backend.read(devices, ["utilization_percent"])
        assert "MIG is enabled" in reading.failures[0].detail
        assert not reading.failures[0].permanent
        assert backend.devices()[0].attributes["mig"] == "enabled"

    def test_switched_off_again_reads_again_and_has_no_instances(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, read: Read
    ) -> None:
        sliced(fake_nvml, "MIG-1").write()
        failed = read()[CARD, "utilization_percent"]
        assert isinstance(failed, Failure)
        assert ids(backend) == [CARD, "MIG-1"]
        fake_nvml.set(CARD, mig_mode=0).write()
        assert read()[CARD, "utilization_percent"] == 50.0
        assert ids(backend) == [CARD]

    def test_while_the_mode_is_unknown_nothing_is_called_permanent(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1").fail("UNKNOWN", "nvmlDeviceGetMigMode").write()
        found = readings()
        absent = failure(found[CARD], "utilization_percent")
        assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, False)
        assert value(found["MIG-1"], "memory_used_bytes") == 4 * GIB
        fake_nvml.fail(None, "nvmlDeviceGetMigMode").write()
        assert "MIG is enabled" in failure(readings()[CARD], "utilization_percent").detail

    def test_a_card_without_mig_is_asked_once(self, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(CARD).write()
        for _ in range(3):
            read()
        assert fake_nvml.calls()["nvmlDeviceGetMigMode"] == 1
        assert "nvmlDeviceGetMaxMigDeviceCount" not in fake_nvml.calls()

    def test_what_the_hardware_lacks_with_mig_off_is_permanent(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(CARD, mig_mode=0, encoder=None).write()
        assert failure(readings()[CARD], "encoder_utilization_percent").permanent


class TestInstance:
    def test_it_is_a_device_with_a_parent(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        sliced(fake_nvml, "MIG-1").write()
        backend.open()
        card, instance = backend.devices()
        assert card.attributes["mig"] == "enabled"
        assert instance == Device(
            id="MIG-1",
            name="NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            vendor="nvidia",
            backend="nvidia",
            parent=CARD,
            pci_address=card.pci_address,
            attributes={
                "gpu_instance_id": "1",
                "compute_instance_id": "0",
                "minor_number": "4",
                "profile": "1g.10gb",
                "gpu_instance_slices": "1",
                "compute_instance_slices": "1",
                "multiprocessors": "16",
            },
        )

    @pytest.mark.parametrize(
        "call", ["nvmlDeviceGetName", "nvmlDeviceGetAttributes_v2", "nvmlDeviceGetGpuInstanceId"]
    )
    def test_what_is_not_told_of_it_is_left_out(
        self, call: str, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1").fail("UNKNOWN", call, device="MIG-1").write()
        assert value(readings()["MIG-1"], "memory_used_bytes") == 4 * GIB
        instance = backend.devices()[1]
        assert instance.name.startswith("NVIDIA H100 80GB HBM3 MIG")
        assert len(instance.attributes) < 7

    def test_the_memory_is_its_own(self, fake_nvml: FakeNvml, readings: ReadingsOf) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2", "MIG-3").write()
        for number, used in (("MIG-1", 1), ("MIG-2", 2), ("MIG-3", 3)):
            fake_nvml.set(number, memory_used=used * GIB)
        fake_nvml.write()
        found = readings()
        for number, used in (("MIG-1", 1), ("MIG-2", 2), ("MIG-3", 3)):
            assert value(found[number], "memory_used_bytes") == used * GIB

    @pytest.mark.parametrize("metric", ON_CARD_ALONE)
    def test_nothing_is_copied_from_the_card(
        self, metric: str, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1").write()
        absent = failure(readings()["MIG-1"], metric)
        assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, True)
        assert CARD in absent.detail

    def test_only_what_its_handle_is_good_for_is_asked(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1", **GPM).write()
        readings(twice=True)
        asked = {call.split()[0] for call in fake_nvml.calls() if call.endswith(" MIG-1")}
        assert asked == {
            "nvmlDeviceGetUUID",
            "nvmlDeviceGetName",
            "nvmlDeviceGetAttributes_v2",
            "nvmlDeviceGetGpuInstanceId",
            "nvmlDeviceGetComputeInstanceId",
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetGraphicsRunningProcesses_v3",
            "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        }

    def test_every_metric_ends_as_one_sample_or_failure(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1", **GPM).write()
        reading = readings()["MIG-1"]
        given = [one.metric for one in (*reading.samples, *reading.failures)]
        assert sorted(given) == sorted(NvidiaBackend.metrics)

    def test_a_driver_that_refuses_its_handle_does_not_support_that(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1")
        fake_nvml.fail("INVALID_ARGUMENT", "nvmlDeviceGetMemoryInfo_v2", device="MIG-1").write()
        absent = failure(readings()["MIG-1"], "memory_used_bytes")
        assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, True)

    def test_a_failing_call_spoils_nothing_else(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2", **GPM)
        for uuid in ("MIG-1", "MIG-2"):
            fake_nvml.set(uuid, GPM)
        fake_nvml.fail("UNKNOWN", "nvmlDeviceGetMemoryInfo_v2", device="MIG-1").write()
        found = readings(twice=True)
        assert failure(found["MIG-1"], "memory_used_bytes").reason is Reason.ERROR
        assert value(found["MIG-1"], "utilization_percent") == 45.5
        assert value(found["MIG-2"], "memory_used_bytes") == 4 * GIB

    def test_its_processes_are_its_own(self, fake_nvml: FakeNvml, readings: ReadingsOf) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2").write()
        fake_nvml.set("MIG-1", processes_compute="10:1024 11:2048 12:99999999999999").write()
        found = readings()
        assert value(found["MIG-1"], "process_count") == 2.0
        assert {use.pid: use.memory_used_bytes for use in found["MIG-1"].processes or ()} == {
            10: 1024.0,
            11: 2048.0,
        }
        assert value(found["MIG-2"], "process_count") == 0.0
        assert found["MIG-2"].processes == ()


class TestUtilisation:
    def test_before_hopper_there_is_none(self, fake_nvml: FakeNvml, readings: ReadingsOf) -> None:
        sliced(fake_nvml, "MIG-1", name="NVIDIA A100-SXM4-40GB").write()
        reading = readings(twice=True)["MIG-1"]
        for metric in HARDWARE_SHARES:
            absent = failure(reading, metric)
            assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, True)
            assert "NVIDIA A100-SXM4-40GB has no GPM" in absent.detail

    def test_from_hopper_on_gpm_gives_it(self, fake_nvml: FakeNvml, readings: ReadingsOf) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2", gpm=1)
        fake_nvml.set("MIG-1", GPM).set("MIG-2", {**GPM, "gpm.1": 0.0}).write()
        found = readings(twice=True)
        for metric, expected in HARDWARE_SHARES.items():
            assert value(found["MIG-1"], metric) == expected
        assert value(found["MIG-2"], "utilization_percent") == 0.0

    def test_the_first_sample_is_no_reading(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1", gpm=1).set("MIG-1", GPM).write()
        reading = readings()["MIG-1"]
        for metric in HARDWARE_SHARES:
            assert failure(reading, metric).reason is Reason.NO_PROGRESS

    def test_without_the_number_of_its_gpu_instance_there_is_none(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1", gpm=1).set("MIG-1", {**GPM, "gpu_instance_id": None}).write()
        absent = failure(readings(twice=True)["MIG-1"], "utilization_percent")
        assert absent.reason is Reason.NOT_SUPPORTED


class TestSharedGpuInstance:
    """Several compute instances of one GPU instance: one memory, one set of counters."""

    def shared(self, fake: FakeNvml) -> FakeNvml:
        sliced(fake, "MIG-a", "MIG-b", "MIG-c", gpm=1)
        for place, uuid in enumerate(("MIG-a", "MIG-b"), start=0):
            fake.set(uuid, {**GPM, "gpu_instance_id": 5, "compute_instance_id": place})
        return fake.set("MIG-c", GPM)

    def test_its_memory_counts_once(self, fake_nvml: FakeNvml, readings: ReadingsOf) -> None:
        self.shared(fake_nvml).write()
        found = readings()
        assert value(found["MIG-a"], "memory_used_bytes") == 4 * GIB
        assert value(found["MIG-c"], "memory_used_bytes") == 4 * GIB
        for metric in ("memory_used_bytes", "memory_total_bytes"):
            absent = failure(found["MIG-b"], metric)
            assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, True)
            assert "GPU instance 5" in absent.detail
            assert "MIG-a" in absent.detail

    def test_what_is_of_all_is_marked_as_shared(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        self.shared(fake_nvml).write()
        found = readings(twice=True)
        for uuid in ("MIG-a", "MIG-b"):
            marks = {sample.metric: sample.shared for sample in found[uuid].samples}
            assert marks.pop("process_count") is False
            assert set(marks.values()) == {True}
            assert value(found[uuid], "utilization_percent") == 45.5
        assert not any(sample.shared for sample in found["MIG-c"].samples)

    def test_another_reports_it_when_the_first_is_gone(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        self.shared(fake_nvml).write()
        readings()
        fake_nvml.remove("MIG-a").write()
        found = readings()
        assert value(found["MIG-b"], "memory_used_bytes") == 4 * GIB
        assert not any(sample.shared for sample in found["MIG-b"].samples)


class TestCutAnew:
    """NVIDIA/gpu-monitoring-tools#142, Project-HAMi/HAMi#1903: crashes, and series of the dead."""

    before = tuple(f"MIG-old-{number}" for number in range(7))

    def test_exactly_the_new_ones_are_listed(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, *self.before).write()
        assert set(readings()) == {CARD, *self.before}
        fake_nvml.repartition(CARD, "MIG-new-a", "MIG-new-b", **SLICE).write()
        assert ids(backend) == [CARD, "MIG-new-a", "MIG-new-b"]
        assert value(readings()["MIG-new-a"], "memory_used_bytes") == 4 * GIB

    @pytest.mark.parametrize("answer", ["GPU_IS_LOST", "INVALID_ARGUMENT", "NOT_FOUND"])
    def test_before_that_is_noticed_the_dead_have_no_values(
        self, answer: str, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        """Their handles mean the new ones by now, or nothing."""
        sliced(fake_nvml, *self.before).library(stale_handle=answer).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.repartition(CARD, "MIG-new-a", "MIG-new-b", **SLICE).write()
        readings = list(backend.read(devices, tuple(backend.metrics)))
        assert [reading.device_id for reading in readings] == [CARD, *self.before]
        for reading in readings[1:]:
            assert reading.samples == ()
            assert {failed.reason for failed in reading.failures} == {Reason.LOST}
            assert "no such" in reading.failures[0].detail
        assert ids(backend) == [CARD, "MIG-new-a", "MIG-new-b"]

    def test_the_collector_follows_at_once(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What is lost makes it look again, long before the next refresh is due."""
        sliced(fake_nvml, *self.before).write()
        taken = Readings(METRICS, 0.05)
        collector = Collector([backend], taken, refresh=3600.0)

        def listed() -> set[str]:
            return {device.id for device in taken.snapshot().devices}

        collector.start()
        try:
            assert taken.wait_for(lambda: listed() == {CARD, *self.before}, 10)
            fake_nvml.repartition(CARD, "MIG-new-a", "MIG-new-b", **SLICE).write()
            assert taken.wait_for(lambda: listed() == {CARD, "MIG-new-a", "MIG-new-b"}, 10)
            snapshot = taken.snapshot()
            assert {device for device, _ in (*snapshot.samples, *snapshot.failures)} <= listed()
        finally:
            collector.close()
        assert "broke its contract" not in caplog.text

    def test_one_that_survives_is_read_on_under_another_handle(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        sliced(fake_nvml, *self.before).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.repartition(CARD, "MIG-new", "MIG-old-6", "MIG-old-0", **SLICE)
        fake_nvml.set("MIG-old-0", memory_used=7 * GIB).set("MIG-old-6", memory_used=8 * GIB)
        fake_nvml.write()
        found = {
            reading.device_id: value(reading, "memory_used_bytes")
            for reading in backend.read(devices, ["memory_used_bytes"])
        }
        del found[CARD]
        survivors = {"MIG-old-0": 7.0 * GIB, "MIG-old-6": 8.0 * GIB}
        assert found == {**dict.fromkeys(self.before), **survivors}

    def test_holes_between_the_places_are_skipped(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2", "MIG-3")
        fake_nvml.fail("NOT_FOUND", "nvmlDeviceGetMigDeviceHandleByIndex", device="MIG-2").write()
        backend.open()
        assert ids(backend) == [CARD, "MIG-1", "MIG-3"]

    def test_for_doctor_an_empty_place_is_no_fault(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        sliced(fake_nvml, "MIG-1").write()
        tried = [
            attempt
            for attempt in backend.diagnose()
            if attempt.call == "nvmlDeviceGetMigDeviceHandleByIndex"
        ]
        assert len(tried) == 7
        assert all(attempt.ok for attempt in tried)
        assert "NOT_FOUND" in tried[-1].result

    def test_one_that_this_container_was_not_given_is_not_ours(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2")
        index = "nvmlDeviceGetMigDeviceHandleByIndex"
        fake_nvml.fail("NO_PERMISSION", index, device="MIG-1").write()
        backend.open()
        assert ids(backend) == [CARD, "MIG-2"]

    def test_an_error_that_explains_nothing_hides_no_instance(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2").write()
        backend.open()
        assert ids(backend) == [CARD, "MIG-1", "MIG-2"]
        index = "nvmlDeviceGetMigDeviceHandleByIndex"
        fake_nvml.fail("UNKNOWN", index, device="MIG-1").write()
        devices = {device.id: device for device in backend.devices()}
        assert list(devices) == [CARD, "MIG-1", "MIG-2"]
        assert devices["MIG-1"].problem is Reason.LOST
        assert "UNKNOWN" in devices["MIG-1"].problem_detail
        assert devices["MIG-2"].problem is None
        fake_nvml.fail(None, index, device="MIG-1").write()
        assert {device.problem for device in backend.devices()} == {None}

    def test_without_their_number_all_places_are_tried(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        sliced(fake_nvml, "MIG-1").fail("UNKNOWN", "nvmlDeviceGetMaxMigDeviceCount").write()
        backend.open()
        assert ids(backend) == [CARD, "MIG-1"]

    def test_the_order_is_that_of_the_hardware_and_not_of_the_index(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2", "MIG-3")
        fake_nvml.set("MIG-1", gpu_instance_id=13).write()
        backend.open()
        assert ids(backend) == [CARD, "MIG-2", "MIG-3", "MIG-1"]

    def test_a_known_instance_is_not_asked_who_it_is_in_full(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        sliced(fake_nvml, "MIG-1").write()
        backend.open()
        for _ in range(3):
            backend.devices()
        calls = fake_nvml.calls()
        assert calls["nvmlDeviceGetUUID MIG-1"] == 3
        assert calls["nvmlDeviceGetGpuInstanceId MIG-1"] == 1

    def test_gpm_starts_anew_with_a_new_instance_of_the_same_number(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        """utkuozdemir/nvidia_gpu_exporter#466: two samples of two instances."""
        sliced(fake_nvml, "MIG-old", gpm=1).set("MIG-old", GPM).write()
        assert value(readings(twice=True)["MIG-old"], "utilization_percent") == 45.5
        fake_nvml.repartition(CARD, "MIG-new", **SLICE).set("MIG-new", GPM).write()
        absent = failure(readings()["MIG-new"], "utilization_percent")
        assert absent.reason is Reason.NO_PROGRESS
        assert fake_nvml.calls()["nvmlGpmSampleFree"] == 2


class TestIdentity:
    """NVIDIA/dcgm-exporter#272, NVIDIA/go-dcgm#30: three spellings of one id."""

    @pytest.mark.parametrize(
        "spelling",
        [
            "MIG-8c4c5a27-0000-1111-2222-333333333333",
            "8c4c5a27-0000-1111-2222-333333333333",
            f"MIG-{CARD}/1/0",
            "nvidia4/gi1",
            "nvidia4/gi1/vgpu0",
            "MIG-8c4c5a27-0000-1111-2222-333333333333::1",
        ],
    )
    def test_what_the_kubelet_says_is_found(
        self, spelling: str, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        uuid = "MIG-8c4c5a27-0000-1111-2222-333333333333"
        sliced(fake_nvml, uuid, "MIG-2").write()
        backend.open()
        found = backend.device_of(spelling, backend.devices())
        assert found is not None
        assert found.id == uuid

    @pytest.mark.parametrize(
        "spelling",
        [f"MIG-{CARD}/12/0", "12aa7c89-0000-1111-2222-333333333333", "nvidia4/gi9", "nvidia0/gi1"],
    )
    def test_what_is_not_there_is_not_found(
        self, spelling: str, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        sliced(fake_nvml, "MIG-8c4c5a27-0000-1111-2222-333333333333").write()
        backend.open()
        assert backend.device_of(spelling, backend.devices()) is None

    def test_older_drivers_write_it_with_numbers(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        old = f"MIG-{CARD}/1/0"
        sliced(fake_nvml, "x").set("x", shown_uuid=old).write()
        assert value(readings()[old], "memory_used_bytes") == 4 * GIB
        assert backend.device_of(old, backend.devices()) == backend.devices()[1]

    def test_so_do_we_where_it_is_unreadable(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "x").fail("UNKNOWN", "nvmlDeviceGetUUID", device="x").write()
        assert value(readings()[f"MIG-{CARD}/1/0"], "memory_used_bytes") == 4 * GIB

    def test_a_known_one_keeps_its_id_while_that_is_unreadable(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1").write()
        readings()
        fake_nvml.fail("UNKNOWN", "nvmlDeviceGetUUID", device="MIG-1").write()
        assert value(readings()["MIG-1"], "memory_used_bytes") == 4 * GIB
        assert ids(backend) == [CARD, "MIG-1"]


class TestLost:
    def test_a_lost_card_takes_its_instances_with_it(
        self,
        fake_nvml: FakeNvml,
        backend: NvidiaBackend,
        readings: ReadingsOf,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.INFO, logger="accelscale.nvidia")
        sliced(fake_nvml, "MIG-1", **GPM).write()
        readings(twice=True)
        devices = backend.devices()
        fake_nvml.lose(CARD).write()
        for reading in backend.read(devices, tuple(backend.metrics)):
            assert reading.samples == ()
        assert [device.problem for device in backend.devices()] == [Reason.LOST, Reason.LOST]
        assert ids(backend) == [CARD, "MIG-1"]
        fake_nvml.restore(CARD).write()
        found = readings()
        assert value(found["MIG-1"], "memory_used_bytes") == 4 * GIB
        assert [device.problem for device in backend.devices()] == [None, None]

    def test_one_that_is_lost_alone_spoils_no_other(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2").write()
        readings()
        devices = backend.devices()
        fake_nvml.lose("MIG-1").write()
        found = {r.device_id: r for r in backend.read(devices, ["memory_used_bytes"])}
        assert failure(found["MIG-1"], "memory_used_bytes").reason is Reason.LOST
        assert value(found["MIG-2"], "memory_used_bytes") == 4 * GIB
        assert value(found[CARD], "memory_used_bytes") == 20 * GIB

    def test_a_call_for_one_that_hangs_leaves_the_others_fresh(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2").write()
        backend.open()
        devices = backend.devices()
        fake_nvml.hang("nvmlDeviceGetMemoryInfo_v2", device="MIG-1").write()
        thread = threading.Thread(
            target=lambda: list(backend.read(devices[1:2], ["memory_used_bytes"])), daemon=True
        )
        thread.start()
        while "nvmlDeviceGetMemoryInfo_v2 MIG-1" not in fake_nvml.calls():
            thread.join(0.002)
        asked = fake_nvml.calls()["nvmlDeviceGetUUID MIG-1"]
        assert [device.problem for device in backend.devices()] == [None, None, None]
        for device in (devices[0], devices[2]):
            (reading,) = backend.read([device], ["memory_used_bytes"])
            assert len(reading.samples) == 1
        assert fake_nvml.calls()["nvmlDeviceGetUUID MIG-1"] == asked, "nobody else touches it"
        assert thread.is_alive()
        fake_nvml.resume("nvmlDeviceGetMemoryInfo_v2", device="MIG-1").write()
        thread.join(10)
        assert not thread.is_alive()

    def test_shut_down_by_others_costs_nothing(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        sliced(fake_nvml, "MIG-1").write()
        backend.open()
        devices = backend.devices()
        fake_nvml.library(shut_down_by_others=1).write()
        (reading,) = backend.read(devices[1:], ["memory_used_bytes"])
        assert value(reading, "memory_used_bytes") == 4 * GIB


class TestNumbers:
    """What the engine makes of a sliced card."""

    @pytest.fixture
    def snapshot_of(self, backend: NvidiaBackend, readings: ReadingsOf) -> Callable[..., Readings]:
        def take(**options: bool) -> Readings:
            taken = Readings(METRICS, 1.0)
            taken.declare(backend)
            found = readings(**options)
            taken.set_devices(backend, backend.devices())
            for reading in found.values():
                taken.take(reading, tuple(backend.metrics))
            return taken

        return take

    def evaluation(self, taken: Readings, **metadata: str) -> float:
        trigger = parse_trigger({"threshold": "1", "window": "1", "scope": "node", **metadata})
        snapshot = taken.snapshot(trigger.wanted_series)
        workload = node_workload(trigger, snapshot)
        return evaluate(trigger, snapshot, workload).metric_value()

    def test_memory_shared_by_compute_instances_is_summed_once(
        self, fake_nvml: FakeNvml, snapshot_of: Callable[..., Readings]
    ) -> None:
        TestSharedGpuInstance().shared(fake_nvml).write()
        assert self.evaluation(snapshot_of(), metric="memory_used_bytes") == 8 * GIB
        share = self.evaluation(
            snapshot_of(),
            metric="memory_used_percent",
            metricType="Value",
            replicaAggregation="max",
        )
        assert share == pytest.approx(40.0)

    def test_power_is_that_of_the_card(
        self, fake_nvml: FakeNvml, snapshot_of: Callable[..., Readings]
    ) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2").write()
        assert self.evaluation(snapshot_of(), metric="power_watts") == 350.0

    def test_without_gpm_there_is_no_utilisation_and_the_answer_names_mig(
        self, fake_nvml: FakeNvml, snapshot_of: Callable[..., Readings]
    ) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2").write()
        with pytest.raises(NoDataError, match="MIG is enabled"):
            self.evaluation(snapshot_of(), metric="utilization_percent")

    def test_with_gpm_each_instance_counts_and_the_card_does_not(
        self, fake_nvml: FakeNvml, snapshot_of: Callable[..., Readings]
    ) -> None:
        sliced(fake_nvml, "MIG-1", "MIG-2", gpm=1)
        fake_nvml.set("MIG-1", {**GPM, "gpm.1": 80.0}).set("MIG-2", {**GPM, "gpm.1": 20.0}).write()
        assert self.evaluation(snapshot_of(twice=True), metric="utilization_percent") == 100.0
