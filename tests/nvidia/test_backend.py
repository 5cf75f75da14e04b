"""The backend as the collector uses it: late drivers, faults of the whole driver, hangs, leaks."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from accelscale.backend import Backend
from accelscale.errors import BackendError
from accelscale.metrics import Tier
from accelscale.model import Failure, Reason
from accelscale.nvidia import accelscale_register_backends
from accelscale.nvidia.backend import NvidiaBackend
from accelscale.nvidia.gpm import SOURCES
from drivers.nvml.state import GPM, FakeNvml

NEEDS_GPM = set(SOURCES) - {"utilization_percent", "memory_bandwidth_utilization_percent"}

Read = Callable[..., Mapping[tuple[str, str], float | Failure]]

A, B = "GPU-aaaa", "GPU-bbbb"
BUSY = ("utilization_percent",)


def two_cards(fake: FakeNvml) -> FakeNvml:
    return fake.device(A, utilization_gpu=10).device(B, utilization_gpu=90)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def loads(backend: NvidiaBackend) -> dict[str, float | Reason]:
    return {
        reading.device_id: reading.samples[0].value
        if reading.samples
        else reading.failures[0].reason
        for reading in backend.read(backend.devices(), BUSY)
    }


def test_the_hook_registers_the_backend() -> None:
    registered: list[type[Backend]] = []
    accelscale_register_backends(registered.append)
    assert registered == [NvidiaBackend]


def test_costly_readings_are_taken_rarely() -> None:
    slow = {metric for metric, tier in NvidiaBackend.metrics.items() if tier is Tier.SLOW}
    assert slow == {"process_count", "ecc_uncorrected_errors_total"}


class TestProbe:
    def test_it_says_what_was_found(self, fake_nvml: FakeNvml, backend: NvidiaBackend) -> None:
        two_cards(fake_nvml).library(driver_version="570.86.15").write()
        probe = backend.probe()
        assert (probe.viable, probe.version) == (True, "570.86.15")
        assert "570.86.15 lists 2 devices" in probe.reason
        assert [attempt.call for attempt in probe.attempts if attempt.ok][-1] == (
            "nvmlDeviceGetCount"
        )
        assert fake_nvml.users == 0

    def test_it_does_not_disturb_what_is_open(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        two_cards(fake_nvml).write()
        backend.open()
        assert backend.probe().viable
        assert fake_nvml.users == 1
        assert loads(backend) == {A: 10.0, B: 90.0}

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            ("DRIVER_NOT_LOADED", "kernel driver is not loaded"),
            ("NO_PERMISSION", "/dev/nvidia"),
            ("UNKNOWN", "container"),
            ("LIB_RM_VERSION_MISMATCH", "restart the process"),
            ("777", "777"),
        ],
    )
    def test_it_says_what_is_wrong_and_what_to_do(
        self, error: str, words: str, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        two_cards(fake_nvml).library(init=error).write()
        probe = backend.probe()
        assert not probe.viable
        assert error in probe.reason
        assert words in probe.reason
        with pytest.raises(BackendError, match=words):
            backend.open()

    def test_a_driver_without_devices_is_not_viable(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.write()
        probe = backend.probe()
        assert not probe.viable
        assert "lists no device" in probe.reason
        with pytest.raises(BackendError, match="lists no device"):
            backend.open()
        assert fake_nvml.users == 0


class TestLateDriver:
    """utkuozdemir/nvidia_gpu_exporter#65: started before the driver, broken for ever."""

    def test_it_is_picked_up(self, fake_nvml: FakeNvml, backend: NvidiaBackend) -> None:
        two_cards(fake_nvml).library(init="DRIVER_NOT_LOADED").write()
        for _ in range(3):
            with pytest.raises(BackendError, match="DRIVER_NOT_LOADED") as caught:
                backend.open()
            assert not caught.value.needs_restart
            assert caught.value.code == 9
        fake_nvml.library(init=None).write()
        backend.open()
        assert loads(backend) == {A: 10.0, B: 90.0}

    def test_devices_that_appear_late_are_picked_up(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.write()
        with pytest.raises(BackendError):
            backend.open()
        two_cards(fake_nvml).write()
        backend.open()
        assert loads(backend) == {A: 10.0, B: 90.0}

    def test_a_library_that_appears_late_is_picked_up_by_the_same_process(
        self,
        fake_nvml: FakeNvml,
        nvml_library: Path,
        tmp_path: Path,
        run_script: Callable[..., Any],
    ) -> None:
        two_cards(fake_nvml).write()
        late = tmp_path / "late" / "libnvidia-ml.so.1"
        late.parent.mkdir()
        script = f"""
            import json, shutil
            from accelscale.errors import BackendError
            from accelscale.nvidia.backend import NvidiaBackend

            backend = NvidiaBackend()
            reasons = []
            for step in ("nothing", "an empty file", "a driver"):
                try:
                    backend.open()
                except BackendError as error:
                    reasons.append(str(error))
                if step == "nothing":
                    open({str(late)!r}, "w").close()
                elif step == "an empty file":
                    shutil.copy({str(nvml_library)!r}, {str(late)!r})
            reasons.append([device.id for device in backend.devices()])
            backend.close()
            print(json.dumps(reasons))
        """
        nothing, empty, found = run_script(script, fake_nvml.environment(late))
        assert "LIBRARY_NOT_FOUND (12)" in nothing
        assert "cannot open shared object file" in nothing
        assert f"{late}: " in empty
        assert found == [A, B]


class TestDriverAsAWhole:
    def test_a_replaced_driver_needs_a_new_process(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, caplog: pytest.LogCaptureFixture
    ) -> None:
        """NVIDIA/nvidia-docker#584."""
        two_cards(fake_nvml).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.fail("LIB_RM_VERSION_MISMATCH").library(init="LIB_RM_VERSION_MISMATCH").write()
        for _ in range(3):
            for call in (
                lambda: list(backend.read(devices, BUSY)),
                backend.devices,
                backend.open,
            ):
                with pytest.raises(BackendError, match="restart the process") as caught:
                    call()
                assert caught.value.needs_restart
                assert caught.value.code == 18
                assert "LIB_RM_VERSION_MISMATCH" in str(caught.value)
        warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(warnings) <= 3

    @pytest.mark.parametrize("again", ["devices", "open", "read"])
    def test_it_recovers_if_a_later_init_succeeds(
        self, again: str, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        two_cards(fake_nvml).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.fail("LIB_RM_VERSION_MISMATCH").library(init="LIB_RM_VERSION_MISMATCH").write()
        with pytest.raises(BackendError):
            list(backend.read(devices, BUSY))
        with pytest.raises(BackendError):
            backend.devices()
        fake_nvml.fail(None).library(init=None).write()
        if again == "open":
            backend.open()
        elif again == "read":
            list(backend.read(devices, BUSY))
        assert loads(backend) == {A: 10.0, B: 90.0}
        assert fake_nvml.users == 1

    def test_shut_down_by_another_library_of_the_process_costs_nothing(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        """Huanshere/VideoLingo#417: UNINITIALIZED out of the blue."""
        two_cards(fake_nvml).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.library(shut_down_by_others=1).write()
        readings = list(backend.read(devices, BUSY))
        assert [reading.samples[0].value for reading in readings] == [10.0, 90.0]
        fake_nvml.library(shut_down_by_others=2).write()
        assert [device.id for device in backend.devices()] == [A, B]
        assert fake_nvml.users == 1
        backend.close()
        assert fake_nvml.calls()["nvmlShutdown"] == 1

    def test_uninitialized_once_costs_one_init(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        two_cards(fake_nvml).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.fail("UNINITIALIZED", "nvmlDeviceGetUtilizationRates", times=1).write()
        readings = list(backend.read(devices, BUSY))
        assert [reading.samples[0].value for reading in readings] == [10.0, 90.0]
        assert fake_nvml.calls()["initialised"] == 2
        fake_nvml.fail(None, "nvmlDeviceGetUtilizationRates")
        fake_nvml.library(shut_down_by_others=1).write()  # the first init, which only seemed gone
        assert loads(backend) == {A: 10.0, B: 90.0}

    @pytest.mark.parametrize(
        "function",
        [
            "nvmlDeviceGetMigMode",
            "nvmlDeviceGetMaxMigDeviceCount",
            "nvmlDeviceGetMigDeviceHandleByIndex",
            "nvmlDeviceGetVirtualizationMode",
            "nvmlDeviceGetFieldValues",
            "nvmlDeviceGetSupportedEventTypes",
            "nvmlDeviceRegisterEvents",
            "nvmlGpmQueryDeviceSupport",
            "nvmlGpmSampleAlloc",
            "nvmlGpmSampleGet",
            "nvmlGpmMigSampleGet",
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetProcessUtilization",
        ],
    )
    def test_wherever_it_shows_it_spoils_no_reading(
        self, function: str, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A, processes_compute="10:1", process_utilization="10:1:1", **GPM)
        fake_nvml.device(B, mig_mode=1, gpm=1)
        fake_nvml.repartition(B, "MIG-1", memory_total=10, memory_used=4, **GPM)
        fake_nvml.fail("UNINITIALIZED", function, times=1).write()
        backend.open()
        devices = backend.devices()
        assert [device.id for device in devices] == [A, B, "MIG-1"]
        readings = list(backend.read(devices, tuple(backend.metrics)))
        for reading, metric in zip(
            readings, ["utilization_percent", "power_watts", "memory_used_bytes"], strict=True
        ):
            assert metric in {sample.metric for sample in reading.samples}
        assert fake_nvml.calls()["initialised"] == 2
        fake_nvml.library(shut_down_by_others=1).write()  # the first init, which only seemed gone

    def test_unknown_from_everything_is_an_error_that_only_a_restart_heals(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        """NVIDIA/nvidia-container-toolkit#48: the container lost its device nodes."""
        two_cards(fake_nvml).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.fail("UNKNOWN").library(init="UNKNOWN").write()
        failures = [reading.failures[0] for reading in backend.read(devices, BUSY)]
        assert {failure.reason for failure in failures} == {Reason.ERROR}
        assert all("container" in failure.detail for failure in failures)
        for _ in range(2):
            with pytest.raises(BackendError, match="UNKNOWN") as caught:
                backend.devices()
            assert caught.value.reason is Reason.ERROR
            assert caught.value.needs_restart
        backend.close()
        with pytest.raises(BackendError, match="UNKNOWN") as caught:
            backend.open()
        assert caught.value.needs_restart

    def test_unknown_before_anything_worked_does_not_ask_for_a_restart(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        two_cards(fake_nvml).library(init="UNKNOWN").write()
        with pytest.raises(BackendError, match="device nodes") as caught:
            backend.open()
        assert not caught.value.needs_restart

    def test_unknown_by_index_for_all_is_an_error_and_passes(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        two_cards(fake_nvml).write()
        backend.open()
        backend.devices()
        fake_nvml.fail("UNKNOWN", "nvmlDeviceGetHandleByIndex_v2").write()
        with pytest.raises(BackendError, match="UNKNOWN"):
            backend.devices()
        fake_nvml.fail(None, "nvmlDeviceGetHandleByIndex_v2").write()
        assert loads(backend) == {A: 10.0, B: 90.0}


class TestLetGo:
    def test_closing_is_silent_however_often(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        """NVIDIA/go-nvml#206: shutting down without an init must not be tried."""
        backend.close()
        two_cards(fake_nvml).write()
        backend.close()
        backend.open()
        backend.open()
        assert fake_nvml.users == 1
        backend.close()
        backend.close()
        backend.release()
        calls = fake_nvml.calls()
        assert (calls["initialised"], calls["nvmlShutdown"]) == (1, 1)

    def test_what_is_closed_does_not_touch_the_driver(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        two_cards(fake_nvml).write()
        backend.open()
        devices = backend.devices()
        begun = iter(backend.read(devices, BUSY))
        next(begun)
        backend.close()
        before = fake_nvml.calls()
        with pytest.raises(BackendError):
            next(begun)
        with pytest.raises(BackendError, match="not open"):
            list(backend.read(devices, BUSY))
        with pytest.raises(BackendError, match="not open"):
            backend.devices()
        assert fake_nvml.calls() == before

    def test_taken_again_the_cards_have_new_handles_and_old_names(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        two_cards(fake_nvml).write()
        backend.open()
        before = backend.devices()
        backend.release()
        fake_nvml.restore(A).restore(B).write()
        backend.open()
        stale = [reading.failures[0] for reading in backend.read(before, BUSY)]
        assert {failure.reason for failure in stale} == {Reason.TIMEOUT}
        assert backend.devices() == before
        assert loads(backend) == {A: 10.0, B: 90.0}

    def test_a_thousand_polls_leak_nothing(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        """lablup/all-smi#118: 200 000 descriptors after ten days of an init at every poll."""
        two_cards(fake_nvml).write()
        backend.open()
        loads(backend)
        before = open_files()
        for _ in range(1000):
            loads(backend)
        assert fake_nvml.calls()["initialised"] == 1
        for _ in range(1000):
            backend.close()
            backend.open()
            loads(backend)
        gc.collect()
        assert open_files() - before <= 5
        assert fake_nvml.users == 1
        assert fake_nvml.calls()["initialised"] == 1001


@pytest.fixture
def stuck(fake_nvml: FakeNvml, backend: NvidiaBackend) -> Iterator[threading.Thread]:
    """A thread inside a call for card A that hangs until the test writes `resume`."""
    two_cards(fake_nvml).write()
    backend.open()
    devices = backend.devices()
    fake_nvml.hang("nvmlDeviceGetUtilizationRates", device=A).write()
    before = fake_nvml.calls().get(f"nvmlDeviceGetUtilizationRates {A}", 0)

    def read() -> None:
        with suppress(BackendError):  # the test may close the backend meanwhile
            list(backend.read(devices[:1], BUSY))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    while fake_nvml.calls().get(f"nvmlDeviceGetUtilizationRates {A}", 0) == before:
        thread.join(0.002)
    yield thread
    fake_nvml.resume("nvmlDeviceGetUtilizationRates", device=A).write()
    thread.join(10)
    assert not thread.is_alive()


class TestHang:
    def test_the_other_card_is_read_meanwhile(
        self, stuck: threading.Thread, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        devices = backend.devices()
        assert [device.id for device in devices] == [A, B]
        (reading,) = backend.read(devices[1:], BUSY)
        assert reading.samples[0].value == 90.0
        assert stuck.is_alive()

    def test_nobody_shuts_nvml_down_under_the_call(
        self,
        stuck: threading.Thread,
        fake_nvml: FakeNvml,
        backend: NvidiaBackend,
        clock: Any,
    ) -> None:
        fake_nvml.lose(B).write()
        for _ in range(5):
            clock.now += 100
            backend.devices()
        backend.close()
        assert fake_nvml.calls().get("nvmlShutdown", 0) == 0
        fake_nvml.resume("nvmlDeviceGetUtilizationRates", device=A).write()
        stuck.join(10)
        assert fake_nvml.calls()["nvmlShutdown"] == 1
        assert fake_nvml.users == 0

    def test_opened_again_before_the_call_returns_it_stays_open(
        self, stuck: threading.Thread, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        backend.close()
        backend.open()
        fake_nvml.resume("nvmlDeviceGetUtilizationRates", device=A).write()
        stuck.join(10)
        assert loads(backend) == {A: 10.0, B: 90.0}
        assert fake_nvml.calls()["initialised"] == 1


class TestThreads:
    def test_cards_are_read_side_by_side_while_others_look(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        two_cards(fake_nvml).delay(50).write()
        backend.open()
        devices = backend.devices()
        faults: list[object] = []
        ended = threading.Event()

        def read(index: int) -> None:
            expected = (10.0, 90.0)[index]
            while not ended.is_set():
                (reading,) = backend.read(devices[index : index + 1], BUSY)
                if [sample.value for sample in reading.samples] != [expected]:
                    faults.append(reading)

        threads = [threading.Thread(target=read, args=(index,)) for index in (0, 1)]
        for thread in threads:
            thread.start()
        for number in range(50):
            fake_nvml.set(A, temperature=number).write()
            if [device.problem for device in backend.devices()] != [None, None]:
                faults.append("a healthy card was called ill")
        ended.set()
        for thread in threads:
            thread.join(10)
        assert faults == []


class TestDiagnose:
    def test_every_call_is_shown_with_its_result(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        two_cards(fake_nvml).fail("NO_PERMISSION", "nvmlDeviceGetEncoderUtilization", device=A)
        fake_nvml.set(B, {"field_error.82": "NOT_SUPPORTED"}).delay(100).write()
        attempts = list(backend.diagnose())
        shown = {(attempt.call, attempt.device_id): attempt for attempt in attempts}
        assert shown["nvmlDeviceGetUtilizationRates", A].result == "gpu 10, memory 20"
        refused = shown["nvmlDeviceGetEncoderUtilization", A]
        assert (refused.ok, refused.result) == (False, "permission: NVML_ERROR_NO_PERMISSION (4)")
        assert shown["nvmlDeviceGetEncoderUtilization", B].ok
        absent = shown["NVML_FI_DEV_MEMORY_TEMP", B]
        assert absent.result == "not_supported: NVML_ERROR_NOT_SUPPORTED (3)"
        assert shown["nvmlInitWithFlags", None].ok
        called = [attempt for attempt in attempts if attempt.call.startswith("nvmlDeviceGet")]
        assert all(attempt.seconds >= 100e-6 for attempt in called)
        assert fake_nvml.users == 0

    def test_it_tells_of_a_lost_card(self, fake_nvml: FakeNvml, backend: NvidiaBackend) -> None:
        two_cards(fake_nvml).write()
        backend.open()
        backend.devices()
        fake_nvml.lose(A).write()
        results = [attempt.result for attempt in backend.diagnose() if attempt.device_id == A]
        assert results
        assert results[0].startswith("lost: ")

    def test_a_driver_that_does_not_open_is_described(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.library(init="DRIVER_NOT_LOADED").write()
        attempts = list(backend.diagnose())
        assert not any(attempt.ok for attempt in attempts)
        assert "DRIVER_NOT_LOADED" in attempts[-1].result


def test_old_drivers_lack_functions_altogether(
    build_nvml: Callable[..., Path], fake_nvml: FakeNvml, run_script: Callable[..., Any]
) -> None:
    """rapidsai/dask-cuda#909: a new binding on an old driver."""
    library = build_nvml(
        without=(
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetTemperatureV",
            "nvmlDeviceGetFieldValues",
            "nvmlDeviceGetMigMode",
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetComputeRunningProcesses_v2",
            "nvmlDeviceGetMPSComputeRunningProcesses_v3",
            "nvmlDeviceGetVirtualizationMode",
            "nvmlGpmQueryDeviceSupport",
            "nvmlEventSetCreate",
        )
    )
    fake_nvml.device(A, name="Tesla K80", temperature=61, energy_mj=5000).write()
    script = """
        import json, logging
        from accelscale.nvidia.backend import NvidiaBackend

        lines = []
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(record.getMessage())
        logging.getLogger("accelscale.nvidia").addHandler(handler)
        logging.getLogger("accelscale.nvidia").setLevel(logging.INFO)
        backend = NvidiaBackend()
        backend.open()
        for _ in range(3):
            (reading,) = backend.read(backend.devices(), backend.metrics)
        backend.close()
        print(json.dumps({
            "values": {sample.metric: sample.value for sample in reading.samples},
            "failures": {failure.metric: failure.reason for failure in reading.failures},
            "lines": lines,
        }))
    """
    result = run_script(script, fake_nvml.environment(library))
    assert result["values"]["temperature_celsius"] == 61.0
    assert result["values"]["energy_joules_total"] == 5.0
    assert result["values"]["memory_used_bytes"] == 20.5 * 2**30  # with what is reserved
    assert result["failures"] == dict.fromkeys(
        [
            "process_count",
            "xid_errors_total",
            "memory_temperature_celsius",
            "pcie_receive_bytes_total",
            "pcie_transmit_bytes_total",
            "interconnect_receive_bytes_total",
            "interconnect_transmit_bytes_total",
            *sorted(NEEDS_GPM),
        ],
        "not_supported",
    )
    assert len(result["lines"]) == len(set(result["lines"])), "each lack is logged once"
    assert any("nvmlDeviceGetMemoryInfo" in line for line in result["lines"])
