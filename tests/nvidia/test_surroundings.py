"""Cards that are not what they seem: in a virtual machine, under Windows, or part of a chip."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from accelscale.model import Failure, Reason
from accelscale.nvidia import cards
from drivers.nvml.state import FakeNvml

Results = Mapping[tuple[str, str], float | Failure]
Read = Callable[..., Results]

CARD = "GPU-aaaa"


def failure(results: Results, metric: str) -> Failure:
    found = results[CARD, metric]
    assert isinstance(found, Failure), f"{metric} is {found}"
    return found


class TestVirtualMachine:
    @pytest.mark.parametrize(
        ("mode", "words"), [(1, "passed through to a virtual machine"), (2, "as a virtual GPU")]
    )
    def test_what_a_guest_lacks_says_so(
        self, mode: int, words: str, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD, name="NVIDIA A40", virtualization=mode, temperature=None).write()
        results = read()
        for metric in ("temperature_celsius", "sm_activity_percent"):
            absent = failure(results, metric)
            assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, True)
            assert f"NVIDIA A40 {words}" in absent.detail
        assert results[CARD, "utilization_percent"] == 50.0

    @pytest.mark.parametrize("mode", [0, 3, 4, 99])
    def test_in_other_modes_the_card_itself_lacks_it(
        self, mode: int, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD, virtualization=mode, temperature=None).write()
        absent = failure(read(), "temperature_celsius")
        assert absent.detail.startswith("NVIDIA H100 80GB HBM3 does not give it")

    def test_the_mode_is_asked_for_once(self, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(CARD).write()
        for _ in range(3):
            read()
        assert fake_nvml.calls()["nvmlDeviceGetVirtualizationMode"] == 1


class TestWsl:
    def test_what_windows_does_not_pass_on_says_so(
        self, fake_nvml: FakeNvml, read: Read, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cards, "_WSL_DEVICE", Path("/dev/null"))
        fake_nvml.device(
            CARD, name="NVIDIA GeForce RTX 4090", event_types=0, processes_compute=None
        ).write()
        results = read()
        for metric in ("process_count", "xid_errors_total"):
            assert "NVIDIA GeForce RTX 4090 under WSL" in failure(results, metric).detail
        assert results[CARD, "utilization_percent"] == 50.0


class TestJetson:
    """The driver of these answers what it does not implement with success and zero."""

    @pytest.mark.parametrize("name", ["Orin (nvgpu)", "NVIDIA Jetson Xavier NX", "Tegra X2"])
    def test_its_zeros_are_not_believed(self, name: str, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(
            CARD,
            name=name,
            utilization_gpu=0,
            power_mw=0,
            memory_total=0,
            memory_used=0,
            energy_mj=0,
            processes_compute="4294967295:none",
            pcie_receive_bytes=0,
        ).write()
        results = read()
        for metric in (
            "utilization_percent",
            "power_watts",
            "energy_joules_total",
            "process_count",
            "pcie_receive_bytes_total",
        ):
            absent = failure(results, metric)
            assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, False)
            assert name in absent.detail
        assert isinstance(results[CARD, "memory_used_bytes"], Failure)

    def test_what_it_does_give_is(self, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(CARD, name="Orin (nvgpu)", utilization_gpu=37, temperature=51).write()
        results = read()
        assert results[CARD, "utilization_percent"] == 37.0
        assert results[CARD, "temperature_celsius"] == 51.0

    @pytest.mark.parametrize("name", ["NVIDIA Thor", "NVIDIA GB10", "NVIDIA H100"])
    def test_zeros_of_others_are(self, name: str, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(CARD, name=name, utilization_gpu=0).write()
        assert read()[CARD, "utilization_percent"] == 0.0

    def test_our_own_count_is_no_answer_of_the_driver(
        self, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD, name="Orin (nvgpu)").write()
        assert read()[CARD, "xid_errors_total"] == 0.0
