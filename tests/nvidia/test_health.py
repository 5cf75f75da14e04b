"""Whether a card is fit for use: what its driver asks for, and which XIDs mean the end of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pynvml
import pytest

from accelscale.model import Device, Reading, Reason
from accelscale.nvidia import events, xid
from accelscale.nvidia.backend import NvidiaBackend
from accelscale.nvidia.health import ACTIONS
from drivers.nvml.state import FakeNvml

ReadingsOf = Callable[..., Mapping[str, Reading]]

A, B = "GPU-aaaa", "GPU-bbbb"
PATIENCE = 10.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "POLL_SECONDS", 0.005)


def device(backend: NvidiaBackend, device_id: str = A) -> Device:
    return next(one for one in backend.devices() if one.id == device_id)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


class TestRecoveryAction:
    @pytest.mark.parametrize("action", range(1, 8))
    def test_it_shows_on_the_device_and_readings_go_on(
        self, action: int, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A, recovery_action=action).device(B).write()
        found = readings()
        reason, words = ACTIONS[action]
        ill = device(backend)
        assert (ill.problem, ill.problem_detail) == (reason, f"the driver asks for {words}")
        assert device(backend, B).problem is None
        values = {sample.metric: sample.value for sample in found[A].samples}
        assert values["utilization_percent"] == 50.0
        assert values["power_watts"] == 350.0

    def test_it_passes_when_the_driver_asks_for_nothing_any_more(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, caplog: pytest.LogCaptureFixture
    ) -> None:
        fake_nvml.device(A, recovery_action=1).write()
        backend.open()
        for _ in range(3):
            assert device(backend).problem is Reason.RESET_REQUIRED
        fake_nvml.set(A, recovery_action=0).write()
        assert device(backend).problem is None
        assert len(caplog.records) == 1, "one line for the fault, however often it is seen"

    def test_a_number_that_nobody_knows_is_shown_as_such(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A, recovery_action=42).write()
        backend.open()
        assert device(backend).problem is Reason.ERROR
        assert "recovery action 42" in device(backend).problem_detail

    def test_all_bits_set_is_no_action(self, fake_nvml: FakeNvml, backend: NvidiaBackend) -> None:
        fake_nvml.device(A, recovery_action=-1).write()
        backend.open()
        assert device(backend).problem is None

    @pytest.mark.parametrize("error", ["NOT_SUPPORTED", "INVALID_ARGUMENT"])
    def test_a_driver_that_does_not_know_it_is_asked_once(
        self, error: str, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).set(A, {"field_error.230": error}).write()
        backend.open()
        for _ in range(3):
            assert device(backend).problem is None
        assert fake_nvml.calls()["nvmlDeviceGetFieldValues"] == 1

    def test_a_driver_without_fields_is_asked_once(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).fail("FUNCTION_NOT_FOUND", "nvmlDeviceGetFieldValues").write()
        backend.open()
        for _ in range(3):
            assert device(backend).problem is None
        assert fake_nvml.calls()["nvmlDeviceGetFieldValues"] == 1

    def test_an_older_binding_does_not_know_it(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(pynvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION")
        fake_nvml.device(A, recovery_action=1).write()
        backend.open()
        assert device(backend).problem is None

    @pytest.mark.parametrize("what", ["the call", "the field"])
    def test_an_answer_that_is_missing_once_changes_nothing(
        self, what: str, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A, recovery_action=1).write()
        backend.open()
        assert device(backend).problem is Reason.RESET_REQUIRED
        if what == "the call":
            fake_nvml.fail("TIMEOUT", "nvmlDeviceGetFieldValues").write()
        else:
            fake_nvml.set(A, {"field_error.230": "UNKNOWN"}).write()
        assert device(backend).problem is Reason.RESET_REQUIRED
        fake_nvml.fail(None, "nvmlDeviceGetFieldValues").set(A, {"field_error.230": None})
        fake_nvml.set(A, recovery_action=0).write()
        assert device(backend).problem is None

    def test_instances_of_the_card_show_it_too(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A, mig_mode=1, recovery_action=4).repartition(A, "MIG-1").write()
        backend.open()
        assert device(backend, "MIG-1").problem is Reason.RESET_REQUIRED

    def test_a_card_that_is_lost_says_so_first(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A, recovery_action=2).write()
        backend.open()
        backend.devices()
        fake_nvml.lose(A).write()
        lost = device(backend)
        assert lost.problem is Reason.LOST
        assert "GPU_IS_LOST" in lost.problem_detail
        assert "a reboot of the node" in lost.problem_detail


class TestXid:
    @pytest.mark.parametrize("number", list(xid.FATAL))
    def test_the_end_of_a_card_shows_on_the_device_and_readings_go_on(
        self, number: int, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A).device(B).write()
        readings()
        fake_nvml.event(A, number).write()
        until(lambda: device(backend).problem is not None)
        ill = device(backend)
        assert ill.problem is (Reason.LOST if number == 79 else Reason.RESET_REQUIRED)
        assert f"XID {number}, {xid.FATAL[number]}" in ill.problem_detail
        assert device(backend, B).problem is None
        values = {sample.metric: sample.value for sample in readings()[A].samples}
        assert values["utilization_percent"] == 50.0
        assert values["xid_errors_total"] == 1.0

    @pytest.mark.parametrize("number", [74, 94, 109, 145, 999])
    def test_one_that_leaves_the_card_usable_is_counted_alone(
        self, number: int, fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(A).write()
        readings()
        fake_nvml.event(A, number).write()
        until(lambda: readings(["xid_errors_total"])[A].samples[0].value == 1.0)
        assert device(backend).problem is None

    def test_it_is_over_when_the_recovery_is(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        backend.devices()
        fake_nvml.event(A, 95).write()
        until(lambda: device(backend).problem is not None)
        fake_nvml.set(A, recovery_action=1).write()
        detail = device(backend).problem_detail
        assert "a reset of the GPU" in detail
        assert "XID 95" in detail
        fake_nvml.set(A, recovery_action=0).write()
        assert device(backend).problem is None

    def test_it_is_over_when_the_card_was_gone_and_came_back(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        backend.devices()
        fake_nvml.event(A, 79).write()
        until(lambda: device(backend).problem is Reason.LOST)
        fake_nvml.lose(A).write()
        assert "GPU_IS_LOST" in device(backend).problem_detail
        fake_nvml.restore(A).write()
        assert device(backend).problem is None

    @pytest.mark.parametrize("let_go", ["close", "release"])
    def test_it_is_over_when_we_let_go_so_that_the_card_can_be_reset(
        self, let_go: str, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        backend.devices()
        fake_nvml.event(A, 119).write()
        until(lambda: device(backend).problem is Reason.RESET_REQUIRED)
        getattr(backend, let_go)()
        backend.open()
        assert device(backend).problem is None

    def test_an_init_anew_for_another_card_does_not_end_it(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        backend.devices()
        fake_nvml.event(A, 119).write()
        until(lambda: device(backend).problem is Reason.RESET_REQUIRED)
        assert backend._restart()
        assert device(backend).problem is Reason.RESET_REQUIRED
