"""Which cards there are, while they get lost, come back, change places and hide."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accelscale.errors import BackendError
from accelscale.model import Device, Failure, Reason
from accelscale.nvidia.backend import NvidiaBackend
from drivers.nvml.state import FakeNvml

if TYPE_CHECKING:
    from conftest import Clock

Read = Callable[..., Mapping[tuple[str, str], float | Failure]]

A, B, C, D = "GPU-aaaa", "GPU-bbbb", "GPU-cccc", "GPU-dddd"
BUSY = ("utilization_percent",)


def four_cards(fake: FakeNvml) -> FakeNvml:
    for uuid, load in ((A, 10), (B, 20), (C, 70), (D, 30)):
        fake.device(uuid, utilization_gpu=load)
    return fake


def problems(backend: NvidiaBackend) -> dict[str, Reason | None]:
    return {device.id: device.problem for device in backend.devices()}


def loads(backend: NvidiaBackend) -> dict[str, float | Reason]:
    return {
        reading.device_id: reading.samples[0].value
        if reading.samples
        else reading.failures[0].reason
        for reading in backend.read(backend.devices(), BUSY)
    }


def plug(kernel: Path, address: str, vendor: str = "0x10de", kind: str = "0x030200") -> None:
    folder = kernel / address
    folder.mkdir()
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


class TestIdentity:
    def test_it_is_the_uuid_with_name_address_and_minor_number(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A, name="NVIDIA L4", pci="0000000F:01:00.0", minor_number=5).write()
        backend.open()
        assert backend.devices() == [
            Device(
                id=A,
                name="NVIDIA L4",
                vendor="nvidia",
                backend="nvidia",
                pci_address="000f:01:00.0",
                attributes={"minor_number": "5"},
            )
        ]

    def test_an_order_of_its_own_and_not_of_the_index(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """gpuopenanalytics/pynvml#28: a reboot may swap the indices."""
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        fake_nvml.device(A, utilization_gpu=90).device(B, utilization_gpu=10).write()
        backend.open()
        before = loads(backend)
        fake_nvml.reorder(B, A).write()
        assert loads(backend) == before == {A: 90.0, B: 10.0}
        backend.close()
        backend.open()
        assert list(loads(backend).items()) == list(before.items())

    @pytest.mark.parametrize("uuid", [None, "GPU-00000000-0000-0000-0000-000000000000"])
    def test_without_a_uuid_it_is_the_pci_address(
        self, uuid: str | None, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        for card in (A, B):
            fake_nvml.device(card, shown_uuid=uuid)
        if uuid is None:
            fake_nvml.fail("UNKNOWN", "nvmlDeviceGetUUID")
        fake_nvml.write()
        backend.open()
        assert loads(backend) == {"0000:01:00.0": 50.0, "0000:02:00.0": 50.0}

    @pytest.mark.parametrize("call", ["nvmlDeviceGetUUID", "nvmlDeviceGetName"])
    def test_what_was_unreadable_at_first_is_asked_for_again(
        self, call: str, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A, name="NVIDIA L4").fail("UNKNOWN", call).write()
        backend.open()
        backend.devices()
        fake_nvml.fail(None, call).write()
        assert [(device.id, device.name) for device in backend.devices()] == [(A, "NVIDIA L4")]

    def test_a_known_card_keeps_its_uuid_while_that_is_unreadable(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).device(B).write()
        backend.open()
        before = backend.devices()
        backend.close()
        fake_nvml.fail("UNKNOWN", "nvmlDeviceGetUUID").write()
        backend.open()
        assert backend.devices() == before

    def test_a_short_uuid_is_one(self, fake_nvml: FakeNvml, backend: NvidiaBackend) -> None:
        fake_nvml.device("GPU-0").write()
        backend.open()
        assert loads(backend) == {"GPU-0": 50.0}

    def test_two_cards_with_one_uuid_are_kept_apart(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A, shown_uuid="GPU-same", utilization_gpu=90)
        fake_nvml.device(B, shown_uuid="GPU-same", utilization_gpu=10).write()
        backend.open()
        assert loads(backend) == {"0000:01:00.0": 90.0, "0000:02:00.0": 10.0}
        fake_nvml.reorder(B, A).write()
        assert loads(backend) == {"0000:01:00.0": 90.0, "0000:02:00.0": 10.0}

    def test_two_with_one_uuid_and_no_address_do_not_pass_for_one(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        for card in (A, B):
            fake_nvml.device(card, shown_uuid="GPU-same", pci=None)
        fake_nvml.write()
        backend.open()
        assert list(problems(backend).values()) == [Reason.LOST, Reason.LOST]
        assert "GPU-same" in backend.devices()[0].problem_detail

    def test_new_cards_show_at_the_next_look(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        fake_nvml.device(A).write()
        backend.open()
        assert list(problems(backend)) == [A]
        fake_nvml.device(B).write()
        assert list(problems(backend)) == [A, B]

    def test_a_known_handle_is_not_asked_who_it_is_again(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        for _ in range(3):
            backend.devices()
        assert fake_nvml.calls()["nvmlDeviceGetUUID"] == 4


class TestLost:
    def test_card_lost_from_the_start_hides_no_other(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        """NVIDIA/k8s-device-plugin#231: one dead card failed the tool for the whole node."""
        four_cards(fake_nvml).lose(C).write()
        backend.open()
        assert loads(backend) == {
            A: 10.0,
            B: 20.0,
            D: 30.0,
            "nvidia-unidentified-1": Reason.LOST,
        }
        (lost,) = [device for device in backend.devices() if device.problem is not None]
        assert "nvmlDeviceGetHandleByIndex gave GPU_IS_LOST" in lost.problem_detail
        assert lost.pci_address is None

    def test_it_is_named_by_its_address_where_the_driver_confirms_that(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, kernel: Path
    ) -> None:
        four_cards(fake_nvml).lose(C).write()
        plug(kernel, "0000:01:00.0")  # A, known by now
        plug(kernel, "0000:03:00.0")  # C
        plug(kernel, "0000:07:00.0")  # given to a virtual machine: the driver knows none there
        plug(kernel, "0000:09:00.0", vendor="0x8086")
        plug(kernel, "0000:0a:00.0", kind="0x040300")  # the audio device of a card
        backend.open()
        assert loads(backend) == {A: 10.0, B: 20.0, "0000:03:00.0": Reason.LOST, D: 30.0}

    def test_it_gets_its_uuid_when_it_comes_back(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, kernel: Path
    ) -> None:
        plug(kernel, "0000:03:00.0")
        four_cards(fake_nvml).lose(C).write()
        backend.open()
        assert problems(backend)["0000:03:00.0"] is Reason.LOST
        fake_nvml.restore(C).write()
        assert loads(backend) == {A: 10.0, B: 20.0, C: 70.0, D: 30.0}

    def test_the_unidentified_one_is_gone_when_all_are_identified(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).lose(B).lose(C).write()
        backend.open()
        assert list(problems(backend)) == [A, D, "nvidia-unidentified-1", "nvidia-unidentified-2"]
        fake_nvml.restore(C).write()
        assert list(problems(backend)) == [A, C, D, "nvidia-unidentified-1"]
        fake_nvml.restore(B).write()
        assert list(problems(backend)) == [A, B, C, D]

    def test_lost_under_way_it_keeps_its_id_and_place(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.lose(C).write()
        reasons = [
            {failure.reason for failure in reading.failures if not failure.permanent}
            for reading in backend.read(devices, tuple(backend.metrics))
        ]
        assert reasons == [set(), set(), {Reason.LOST}, set()]
        assert problems(backend) == {A: None, B: None, C: Reason.LOST, D: None}

    def test_once_lost_it_is_not_touched_by_reading(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).lose(C).write()
        backend.open()
        devices = backend.devices()
        before = fake_nvml.calls()
        list(backend.read(devices, tuple(backend.metrics)))
        after = fake_nvml.calls()
        assert not [
            call for call in after if call.endswith(C) and after[call] != before.get(call, 0)
        ]

    def test_it_comes_back_with_a_new_handle_and_no_restart(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, logger="accelscale.nvidia")
        four_cards(fake_nvml).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.lose(C).write()
        for _ in range(5):
            list(backend.read(devices, BUSY))
            backend.devices()
        fake_nvml.restore(C).write()
        assert problems(backend)[C] is None
        assert loads(backend)[C] == 70.0
        told = [record.getMessage() for record in caplog.records if C in record.getMessage()]
        assert len(told) == 2, "one line for the loss and one for the return"

    def test_back_within_one_look_it_is_read_by_its_new_handle(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        backend.devices()
        fake_nvml.lose(C).restore(C).write()
        assert loads(backend)[C] == 70.0

    @pytest.mark.parametrize("answer", ["GPU_IS_LOST", "INVALID_ARGUMENT"])
    def test_an_old_handle_never_reads_the_card_that_came_back(
        self, answer: str, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).library(stale_handle=answer).write()
        backend.open()
        devices = backend.devices()
        fake_nvml.restore(C).write()
        readings = {reading.device_id: reading for reading in backend.read(devices, BUSY)}
        assert readings[C].samples == ()
        assert loads(backend)[C] == 70.0

    def test_it_stays_listed_when_the_driver_lists_it_no_longer(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        backend.devices()
        fake_nvml.remove(C).write()
        (gone,) = [device for device in backend.devices() if device.id == C]
        assert gone.problem is Reason.LOST
        assert "no longer lists" in gone.problem_detail
        assert loads(backend) == {A: 10.0, B: 20.0, C: Reason.LOST, D: 30.0}

    def test_another_card_in_its_slot_takes_its_place(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        place = backend.devices()[2].pci_address
        fake_nvml.remove(C).device("GPU-new", pci=place, utilization_gpu=5).write()
        assert loads(backend) == {A: 10.0, B: 20.0, "GPU-new": 5.0, D: 30.0}

    @pytest.mark.parametrize("address", ["00000000:03:00.0", None])
    def test_a_card_that_no_index_leads_to_is_found_by_address_or_uuid(
        self, address: str | None, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).set(C, pci=address).write()
        backend.open()
        backend.devices()
        fake_nvml.fail("UNKNOWN", "nvmlDeviceGetHandleByIndex_v2", device=C).write()
        assert problems(backend) == dict.fromkeys([A, B, C, D])
        assert loads(backend)[C] == 70.0

    def test_all_cards_lost_is_no_fault_of_the_driver(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        backend.devices()
        for uuid in (A, B, C, D):
            fake_nvml.lose(uuid)
        fake_nvml.write()
        assert set(loads(backend).values()) == {Reason.LOST}

    def test_unknown_error_by_index_counts_as_lost(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        backend.devices()
        fake_nvml.lose(C, "UNKNOWN").write()
        assert problems(backend)[C] is Reason.LOST

    def test_a_look_up_alone_is_no_sign_of_life(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        """NVML still gives handle and UUID of a card whose every reading says that it is lost."""
        four_cards(fake_nvml).write()
        backend.open()
        devices = backend.devices()
        for function in (
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetMemoryInfo",
            "nvmlDeviceGetTemperature",
        ):
            fake_nvml.fail("GPU_IS_LOST", function, device=C)
        fake_nvml.write()
        list(backend.read(devices, BUSY))
        for _ in range(2):
            assert problems(backend)[C] is Reason.LOST

    def test_one_reading_that_says_so_is_no_lost_card(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).fail("GPU_IS_LOST", "nvmlDeviceGetUtilizationRates", device=C).write()
        backend.open()
        assert loads(backend)[C] is Reason.LOST
        assert problems(backend)[C] is None


class TestInitAnew:
    """Real drivers list at init: a card that came back shows only after another one."""

    def test_it_happens_after_a_pause_that_doubles(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, clock: Clock
    ) -> None:
        four_cards(fake_nvml).library(enumerate_at_init=1).write()
        backend.open()
        backend.devices()
        fake_nvml.lose(C).write()
        assert problems(backend)[C] is Reason.LOST
        inits = []
        for _ in range(60):
            clock.now += 1
            backend.devices()
            inits.append(fake_nvml.calls()["initialised"])
        changes = [second for second in range(1, 60) if inits[second] != inits[second - 1]]
        assert changes == [4, 14, 34]
        assert fake_nvml.users == 1

    def test_the_card_is_found_and_the_others_go_on(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, clock: Clock
    ) -> None:
        four_cards(fake_nvml).library(enumerate_at_init=1).write()
        backend.open()
        backend.devices()
        fake_nvml.remove(C).write()
        assert problems(backend)[C] is Reason.LOST
        clock.now += 5
        backend.devices()  # lists three from here on
        fake_nvml.device(C, pci="00000000:03:00.0", utilization_gpu=70).write()
        assert loads(backend) == {A: 10.0, B: 20.0, C: Reason.LOST, D: 30.0}
        clock.now += 10
        assert loads(backend) == {A: 10.0, B: 20.0, C: 70.0, D: 30.0}

    def test_a_card_that_is_well_again_resets_the_pause(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, clock: Clock
    ) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        for _ in range(2):
            fake_nvml.lose(C).write()
            backend.devices()
            before = fake_nvml.calls()["initialised"]
            clock.now += 5
            backend.devices()
            assert fake_nvml.calls()["initialised"] == before + 1
            fake_nvml.restore(C).write()
            backend.devices()

    def test_nothing_is_done_where_all_are_well(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend, clock: Clock
    ) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        for _ in range(5):
            clock.now += 1000
            backend.devices()
        assert fake_nvml.calls()["initialised"] == 1


class TestIll:
    def test_reset_required_shows_on_the_device_and_passes(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        """utkuozdemir/nvidia_gpu_exporter#393."""
        four_cards(fake_nvml).fail("RESET_REQUIRED", device=A).write()
        backend.open()
        first = loads(backend)
        assert Reason.RESET_REQUIRED in first.values()
        assert {B: 20.0, C: 70.0, D: 30.0}.items() <= first.items()
        assert Reason.RESET_REQUIRED in problems(backend).values()
        fake_nvml.fail(None, device=A).write()
        assert loads(backend) == {A: 10.0, B: 20.0, C: 70.0, D: 30.0}
        assert set(problems(backend).values()) == {None}

    def test_reset_required_of_a_known_card_keeps_its_id(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        backend.devices()
        fake_nvml.fail("RESET_REQUIRED", device=A).write()
        assert loads(backend)[A] is Reason.RESET_REQUIRED
        (ill, *_) = backend.devices()
        assert (ill.id, ill.problem) == (A, Reason.RESET_REQUIRED)
        assert "RESET_REQUIRED" in ill.problem_detail

    def test_a_card_that_only_says_unknown_is_ill_but_is_asked_again(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        backend.devices()
        fake_nvml.fail("UNKNOWN", device=A).write()
        assert loads(backend)[A] is Reason.ERROR
        assert problems(backend)[A] is Reason.ERROR
        fake_nvml.fail(None, device=A).write()
        assert loads(backend)[A] == 10.0
        assert problems(backend)[A] is None

    def test_a_timeout_is_no_illness(self, fake_nvml: FakeNvml, backend: NvidiaBackend) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        backend.devices()
        fake_nvml.fail("TIMEOUT", device=A).write()
        assert loads(backend)[A] is Reason.TIMEOUT
        assert problems(backend)[A] is None


class TestHidden:
    def test_cards_that_this_container_may_not_use_are_not_ours(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml)
        for uuid in (A, C, D):
            fake_nvml.fail("NO_PERMISSION", "nvmlDeviceGetHandleByIndex_v2", device=uuid)
        fake_nvml.write()
        backend.open()
        assert loads(backend) == {B: 20.0}

    def test_a_card_that_was_ours_and_is_forbidden_now_is_lost(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).write()
        backend.open()
        backend.devices()
        fake_nvml.lose(C, "NO_PERMISSION").write()
        (gone,) = [device for device in backend.devices() if device.id == C]
        assert gone.problem is Reason.LOST
        assert "NO_PERMISSION" in gone.problem_detail

    def test_all_forbidden_is_said_as_such(
        self, fake_nvml: FakeNvml, backend: NvidiaBackend
    ) -> None:
        four_cards(fake_nvml).fail("NO_PERMISSION", "nvmlDeviceGetHandleByIndex_v2").write()
        backend.open()
        with pytest.raises(BackendError, match="NO_PERMISSION") as caught:
            backend.devices()
        assert caught.value.reason is Reason.PERMISSION
        assert "/dev/nvidia" in str(caught.value)
