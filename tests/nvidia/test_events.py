"""XIDs and memory errors: heard by a thread, counted, and never in the way of letting go."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from accelscale.model import Device, Failure, Reading, Reason
from accelscale.nvidia import events, xid
from accelscale.nvidia.backend import NvidiaBackend
from drivers.nvml.state import ECC_EVENT, FakeNvml

Read = Callable[..., Mapping[tuple[str, str], float | Failure]]
ReadingsOf = Callable[..., Mapping[str, Reading]]

A, B = "GPU-aaaa", "GPU-bbbb"
XIDS = ("xid_errors_total",)
PATIENCE = 10.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "POLL_SECONDS", 0.005)


def listeners() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "accelscale-nvidia-events"]


def counts(backend: NvidiaBackend) -> dict[str, float | Reason]:
    return {
        reading.device_id: reading.samples[0].value
        if reading.samples
        else reading.failures[0].reason
        for reading in backend.read(backend.devices(), XIDS)
    }


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


def device(backend: NvidiaBackend, device_id: str) -> Device:
    return next(one for one in backend.devices() if one.id == device_id)


def polls(fake: FakeNvml) -> int:
    return fake.calls().get("nvmlEventSetWait_v2", 0)


class TestCount:
    def test_it_begins_at_a_true_zero(self, fake_nvml: FakeNvml, backend: NvidiaBackend) -> None:
        fake_nvml.device(A).write()
        backend.open()
        assert counts(backend) == {A: 0.0}

    def test_what_happened_before_we_listened_is_not_counted(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).event(A, 79).event(A, 48).write()
        backend.open()
        assert counts(backend) == {A: 0.0}
        seen = polls(fake_nvml)
        until(lambda: polls(fake_nvml) > seen + 2)
        assert counts(backend) == {A: 0.0}

    def test_each_counts_for_its_card(self, fake_nvml: FakeNvml, backend: NvidiaBackend) -> None:
        fake_nvml.device(A).device(B).write()
        backend.open()
        counts(backend)
        fake_nvml.event(A, 48).event(A, 95).event(B, 94).write()
        until(lambda: counts(backend) == {A: 2.0, B: 1.0})
        fake_nvml.event(B, 48).write()
        until(lambda: counts(backend) == {A: 2.0, B: 2.0})

    def test_other_kinds_of_events_are_not_registered(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        counts(backend)
        fake_nvml.event(A, kind=4).event(A, kind=1).event(A, 74).write()
        until(lambda: counts(backend) == {A: 1.0})

    @pytest.mark.parametrize("number", [*xid.OF_PROGRAMS, *xid.FOR_INFORMATION])
    def test_faults_of_programs_are_logged_and_not_counted(
        self,
        number: int,
        fake_nvml: FakeNvml,
        backend: NvidiaBackend,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.INFO, logger="accelscale.nvidia")
        fake_nvml.device(A).write()
        backend.open()
        counts(backend)
        fake_nvml.event(A, number).write()
        until(lambda: f"XID {number}" in caplog.text)
        assert counts(backend) == {A: 0.0}
        assert device(backend, A).problem is None

    @pytest.mark.parametrize("number", [*xid.FATAL, 74, 94, 109, 999, 4711])
    def test_every_other_one_is_counted_unknown_ones_too(
        self, number: int, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        counts(backend)
        fake_nvml.event(A, number).write()
        until(lambda: counts(backend) == {A: 1.0})

    def test_the_sets_do_not_overlap(self) -> None:
        every = [*xid.FATAL, *xid.OF_PROGRAMS, *xid.FOR_INFORMATION]
        assert len(every) == len(set(every))
        assert xid.LOST in xid.FATAL

    def test_a_memory_error_is_told(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, caplog: pytest.LogCaptureFixture
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        counts(backend)
        fake_nvml.event(A, kind=ECC_EVENT).write()
        until(lambda: "memory error" in caplog.text)
        assert counts(backend) == {A: 0.0}

    def test_a_flood_is_taken_in_portions(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        counts(backend)
        fake_nvml.set(A, events=" ".join(["8:94"] * 700)).write()
        until(lambda: counts(backend) == {A: 700.0})

    def test_the_count_goes_on_over_a_close(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        counts(backend)
        fake_nvml.event(A, 94).write()
        until(lambda: counts(backend) == {A: 1.0})
        backend.close()
        fake_nvml.event(A, 94).write()  # nobody listens
        backend.open()
        assert counts(backend) == {A: 1.0}

    def test_a_card_that_its_handle_does_not_tell_is_known_by_its_uuid(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        """The event may name a handle that was given out before the card was lost."""
        fake_nvml.device(A).write()
        backend.open()
        counts(backend)
        (card,) = backend._listener._heard.values()
        backend._listener._heard = {(0, 0): card}
        fake_nvml.event(A, 94).write()
        until(lambda: card.health.xid_errors == 1)

    def test_an_event_of_nobody_is_logged(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, caplog: pytest.LogCaptureFixture
    ) -> None:
        fake_nvml.device(A).device(B).write()
        backend.open()
        counts(backend)
        backend._listener._heard = {
            life: card for life, card in backend._listener._heard.items() if card.id == B
        }
        fake_nvml.event(A, 94).write()
        until(lambda: "a card that NVML does not name" in caplog.text)
        fake_nvml.fail("UNKNOWN", "nvmlDeviceGetUUID").event(A, 95).write()
        until(lambda: caplog.text.count("a card that NVML does not name") == 2)

    def test_a_fault_of_ours_does_not_end_the_thread(
        self,
        fake_nvml: FakeNvml,
        backend: NvidiaBackend,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        counts(backend)
        with monkeypatch.context() as patch:
            patch.delattr(events.Listener, "_hear")
            fake_nvml.event(A, 94).write()
            until(lambda: "hearing events of NVML failed" in caplog.text)
        fake_nvml.event(A, 95).write()
        until(lambda: counts(backend) == {A: 2.0})


class TestNobodyListens:
    def test_a_driver_without_events_has_no_count(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        """On Windows, and so under WSL, the mask is empty."""
        fake_nvml.device(A, event_types=0).write()
        (failed,) = readings(XIDS)[A].failures
        assert (failed.reason, failed.permanent) == (Reason.NOT_SUPPORTED, True)
        assert listeners() == []
        assert "nvmlEventSetCreate" not in fake_nvml.calls()

    def test_kinds_that_a_driver_lacks_are_not_asked_for(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        """One kind too many, and none would be registered."""
        fake_nvml.device(A, event_types=8).write()
        backend.open()
        counts(backend)
        fake_nvml.event(A, 94).write()
        until(lambda: counts(backend) == {A: 1.0})

    @pytest.mark.parametrize(
        ("call", "error", "reason", "permanent"),
        [
            ("nvmlEventSetCreate", "FUNCTION_NOT_FOUND", Reason.NOT_SUPPORTED, True),
            ("nvmlDeviceRegisterEvents", "NO_PERMISSION", Reason.PERMISSION, False),
            ("nvmlDeviceRegisterEvents", "UNKNOWN", Reason.ERROR, False),
            ("nvmlDeviceGetSupportedEventTypes", "UNKNOWN", Reason.ERROR, False),
        ],
    )
    def test_a_card_that_cannot_be_heard_spoils_no_other(
        self,
        call: str,
        error: str,
        reason: Reason,
        permanent: bool,
        fake_nvml: FakeNvml,
        backend: NvidiaBackend,
        readings: ReadingsOf,
    ) -> None:
        fake_nvml.device(A).device(B)
        alone = A if call.startswith("nvmlDevice") else None
        fake_nvml.fail(error, call, device=alone).write()
        found = readings()
        failed = next(one for one in found[A].failures if one.metric == "xid_errors_total")
        assert (failed.reason, failed.permanent) == (reason, permanent)
        assert "cannot be heard" in failed.detail
        assert any(sample.metric == "utilization_percent" for sample in found[A].samples)
        if alone:
            fake_nvml.event(B, 94).write()
            until(lambda: counts(backend) == {A: reason, B: 1.0})

    def test_one_that_was_refused_is_not_asked_again_and_again(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).fail("NO_PERMISSION", "nvmlDeviceRegisterEvents").write()
        backend.open()
        for _ in range(3):
            backend.devices()
        assert fake_nvml.calls()["nvmlDeviceRegisterEvents"] == 1

    def test_a_timeout_is_tried_again(self, fake_nvml: FakeNvml, backend: NvidiaBackend) -> None:
        fake_nvml.device(A).fail("TIMEOUT", "nvmlDeviceRegisterEvents", times=1).write()
        backend.open()
        backend.devices()
        assert counts(backend) == {A: 0.0}


class TestInterrupted:
    def test_a_lost_card_does_not_deafen_us_to_others(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).device(B).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.lose(A).write()
        until(lambda: not backend._listener._heard)  # the set says GPU_IS_LOST from now on
        list(backend.read(devices, tuple(backend.metrics)))
        backend.devices()
        fake_nvml.event(B, 94).write()
        until(lambda: counts(backend)[B] == 1.0)

    def test_what_nobody_listened_to_is_no_count(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).device(B).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.lose(A).write()
        until(lambda: not backend._listener._heard)
        (reading,) = backend.read(devices[1:], XIDS)
        assert reading.samples == ()
        assert reading.failures[0].reason is Reason.NO_PROGRESS
        assert not reading.failures[0].permanent

    def test_a_card_that_came_back_is_heard_again(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        counts(backend)
        fake_nvml.event(A, 79).write()
        until(lambda: counts(backend) == {A: 1.0})
        fake_nvml.lose(A).write()
        until(lambda: counts(backend) == {A: Reason.LOST})
        fake_nvml.restore(A).write()
        until(lambda: counts(backend) == {A: 1.0})
        fake_nvml.event(A, 94).write()
        until(lambda: counts(backend) == {A: 2.0})

    def test_shut_down_by_others_we_listen_again(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        counts(backend)
        devices = backend.devices()
        fake_nvml.library(shut_down_by_others=1).write()
        (reading,) = backend.read(devices, ["utilization_percent", *XIDS])
        assert [sample.value for sample in reading.samples] == [50.0, 0.0]
        fake_nvml.event(A, 94).write()
        until(lambda: counts(backend) == {A: 1.0})


class TestLost:
    def test_the_count_is_no_sign_of_life(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        """A process whose cards give nothing but errors must be seen as such
        (NVIDIA/nvidia-container-toolkit#48)."""
        fake_nvml.device(A).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.fail("UNKNOWN").write()
        (reading,) = backend.read(devices, tuple(backend.metrics))
        assert reading.samples == ()

    def test_the_reason_of_the_loss_stays_readable(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        counts(backend)
        fake_nvml.event(A, 79).write()
        until(lambda: device(backend, A).problem is Reason.LOST)
        fake_nvml.lose(A).write()
        until(lambda: "GPU_IS_LOST" in device(backend, A).problem_detail)
        assert "XID 79, the GPU has fallen off the bus" in device(backend, A).problem_detail


class TestLetGo:
    def test_closing_ends_it_at_once_and_frees_the_set(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        for _ in range(20):
            backend.open()
            backend.devices()
            assert len(listeners()) == 1
            backend.close()
            assert listeners() == []
            assert fake_nvml.users == 0
        calls = fake_nvml.calls()
        assert calls["nvmlEventSetCreate"] == calls["nvmlEventSetFree"] == 20

    def test_a_wait_that_hangs_holds_up_nobody(self, fake_nvml: FakeNvml, kernel: Path) -> None:
        backend = NvidiaBackend(pci_devices=kernel)
        fake_nvml.device(A, utilization_gpu=77).write()
        backend.open()
        backend.devices()
        fake_nvml.hang("nvmlEventSetWait_v2").write()
        seen = polls(fake_nvml)
        until(lambda: polls(fake_nvml) > seen)
        devices = backend.devices()
        (reading,) = backend.read(devices, ["utilization_percent"])
        assert reading.samples[0].value == 77.0
        backend.close()
        assert fake_nvml.users == 1, "not under the call that hangs"
        fake_nvml.resume("nvmlEventSetWait_v2").write()
        until(lambda: fake_nvml.users == 0 and not listeners())
        assert fake_nvml.calls()["leaked event set"] == 1, "whose wait was under way"
        backend.open()
        assert counts(backend) == {A: 0.0}
        fake_nvml.event(A, 94).write()
        until(lambda: counts(backend) == {A: 1.0})
        backend.close()

    def test_an_init_anew_is_not_put_off_by_it(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        counts(backend)
        for _ in range(20):
            assert backend._restart()
            assert counts(backend) == {A: 0.0}
        assert fake_nvml.users == 1

    def test_doctor_shows_that_we_can_listen_and_nothing_of_the_thread(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        backend.devices()
        assert len(listeners()) == 1
        shown = [attempt.call for attempt in backend.diagnose()]
        assert "nvmlDeviceRegisterEvents" in shown
        assert "nvmlEventSetWait" not in shown
        assert listeners() == []

    def test_a_probe_does_not_listen(self, fake_nvml: FakeNvml, backend: NvidiaBackend) -> None:
        fake_nvml.device(A).write()
        assert backend.probe().viable
        assert listeners() == []


def test_the_page_about_nvidia_names_the_sets_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "hardware" / "nvidia.md").read_text()
    for title, numbers in (
        ("unusable", xid.FATAL),
        ("programs", xid.OF_PROGRAMS),
        ("information", xid.FOR_INFORMATION),
    ):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {title} |")]
        cell = row.split("|")[2]
        assert [int(number) for number in cell.split(",")] == sorted(numbers)
