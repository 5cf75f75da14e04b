"""Each reading against the state of the fake driver: units, fallbacks, and what is no number."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pynvml
import pytest

from accelscale.metrics import METRICS
from accelscale.model import Failure, Reason
from accelscale.nvidia.backend import NvidiaBackend
from drivers.nvml.state import FakeNvml

Results = Mapping[tuple[str, str], float | Failure]
Read = Callable[..., Results]

CARD = "GPU-aaaa"
MIB = 2**20

HEALTHY_VALUES = {
    "utilization_percent": ({"utilization_gpu": 37}, 37.0),
    "memory_bandwidth_utilization_percent": ({"utilization_memory": 12}, 12.0),
    "memory_used_bytes": ({"memory_used": 11448 * MIB}, 11448.0 * MIB),
    "memory_total_bytes": ({"memory_total": 23028 * MIB}, 23028.0 * MIB),
    "temperature_celsius": ({"temperature": 64}, 64.0),
    "memory_temperature_celsius": ({"memory_temperature": 71}, 71.0),
    "slowdown_temperature_celsius": ({"temperature_slowdown": 88}, 88.0),
    "power_watts": ({"power_mw": 69437}, 69.437),
    "power_limit_watts": ({"power_limit_mw": 450000}, 450.0),
    "energy_joules_total": ({"energy_mj": 123456789}, 123456.789),
    "throttled_power_seconds_total": ({"violation_power_ns": 2_500_000_000}, 2.5),
    "throttled_thermal_seconds_total": ({"violation_thermal_ns": 750_000_000}, 0.75),
    "sm_clock_megahertz": ({"clock_sm": 1410}, 1410.0),
    "memory_clock_megahertz": ({"clock_memory": 1593}, 1593.0),
    "pcie_receive_bytes_total": ({"pcie_receive_bytes": 5_000_000_001}, 5_000_000_001.0),
    "pcie_transmit_bytes_total": ({"pcie_transmit_bytes": 7_000_000_001}, 7_000_000_001.0),
    "interconnect_receive_bytes_total": ({"nvlink_receive_kib": 3}, 3072.0),
    "interconnect_transmit_bytes_total": ({"nvlink_transmit_kib": 5}, 5120.0),
    "encoder_utilization_percent": ({"encoder": 9}, 9.0),
    "decoder_utilization_percent": ({"decoder": 11}, 11.0),
    "ecc_uncorrected_errors_total": ({"ecc_uncorrected": 4}, 4.0),
    "process_count": ({"processes_compute": "10:1024 11:2048"}, 2.0),
    "xid_errors_total": ({}, 0.0),
}

NEEDS_GPM = {
    "sm_activity_percent",
    "sm_occupancy_percent",
    "tensor_activity_percent",
    "pcie_receive_bytes_per_second",
    "pcie_transmit_bytes_per_second",
    "interconnect_receive_bytes_per_second",
    "interconnect_transmit_bytes_per_second",
}
"""What only newer cards measure; the rates follow from counters elsewhere."""

FUNCTIONS = {
    "utilization_percent": ("nvmlDeviceGetUtilizationRates",),
    "memory_bandwidth_utilization_percent": ("nvmlDeviceGetUtilizationRates",),
    "memory_used_bytes": ("nvmlDeviceGetMemoryInfo_v2",),
    "memory_total_bytes": ("nvmlDeviceGetMemoryInfo_v2",),
    "temperature_celsius": ("nvmlDeviceGetTemperatureV",),
    "slowdown_temperature_celsius": ("nvmlDeviceGetTemperatureThreshold",),
    "encoder_utilization_percent": ("nvmlDeviceGetEncoderUtilization",),
    "decoder_utilization_percent": ("nvmlDeviceGetDecoderUtilization",),
    "ecc_uncorrected_errors_total": ("nvmlDeviceGetTotalEccErrors",),
    "process_count": ("nvmlDeviceGetComputeRunningProcesses_v3",),
}


def failure(results: Results, metric: str, device: str = CARD) -> Failure:
    found = results[device, metric]
    assert isinstance(found, Failure), f"{metric} is {found}"
    return found


def test_every_metric_of_the_backend_has_a_row_here() -> None:
    assert set(HEALTHY_VALUES) | NEEDS_GPM == set(NvidiaBackend.metrics)


@pytest.mark.parametrize("metric", HEALTHY_VALUES)
def test_value_comes_in_the_unit_of_the_table(metric: str, fake_nvml: FakeNvml, read: Read) -> None:
    values, expected = HEALTHY_VALUES[metric]
    fake_nvml.device(CARD, **values).write()
    assert read([metric]) == {(CARD, metric): expected}
    assert METRICS[metric].minimum <= expected <= METRICS[metric].maximum


def test_healthy_card_lacks_nothing(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD).write()
    missing = {name for (_, name), result in read().items() if isinstance(result, Failure)}
    assert missing == NEEDS_GPM


def test_idle_card_reads_true_zeros(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD, utilization_gpu=0, utilization_memory=0, memory_used=0).write()
    results = read(["utilization_percent", "memory_used_bytes"])
    assert results == {(CARD, "utilization_percent"): 0.0, (CARD, "memory_used_bytes"): 0.0}


def test_one_pass_makes_each_call_once_for_each_card(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD).device("GPU-bbbb").write()
    read()
    before = fake_nvml.calls()
    read()
    after = fake_nvml.calls()
    made = {
        call: count - before.get(call, 0)
        for call, count in after.items()
        if call.endswith((CARD, "GPU-bbbb")) and count > before.get(call, 0)
    }
    twice = {  # two clocks; the fields of a pass, and the recovery action of a look
        f"{call} {card}"
        for call in ("nvmlDeviceGetClockInfo", "nvmlDeviceGetFieldValues")
        for card in (CARD, "GPU-bbbb")
    }
    assert {call: count for call, count in made.items() if count != 1} == dict.fromkeys(twice, 2)
    assert after["initialised"] == 1


def test_the_call_that_blocks_is_never_made(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD, pcie_receive_bytes=None, pcie_transmit_bytes=None).write()
    results = read(["pcie_receive_bytes_total", "pcie_transmit_bytes_total"])
    assert {result.reason for result in results.values() if isinstance(result, Failure)} == {
        Reason.NOT_SUPPORTED
    }
    assert "nvmlDeviceGetPcieThroughput" not in fake_nvml.calls()


@pytest.mark.parametrize("metric", FUNCTIONS)
def test_failing_call_spoils_no_other_metric(metric: str, fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD)
    for function in FUNCTIONS[metric]:
        fake_nvml.fail("UNKNOWN", function)
    fake_nvml.write()
    results = read()
    absent = {name for (_, name), result in results.items() if isinstance(result, Failure)}
    absent -= NEEDS_GPM
    together = {name for name, functions in FUNCTIONS.items() if functions == FUNCTIONS[metric]}
    assert absent == together
    assert failure(results, metric).reason is Reason.ERROR
    assert failure(results, metric).code == 999
    assert FUNCTIONS[metric][0].removesuffix("_v2") in failure(results, metric).detail


@pytest.mark.parametrize(
    ("error", "reason", "permanent"),
    [
        ("NOT_SUPPORTED", Reason.NOT_SUPPORTED, True),
        ("FUNCTION_NOT_FOUND", Reason.NOT_SUPPORTED, True),
        ("NO_PERMISSION", Reason.PERMISSION, False),
        ("GPU_IS_LOST", Reason.LOST, False),
        ("RESET_REQUIRED", Reason.RESET_REQUIRED, False),
        ("TIMEOUT", Reason.TIMEOUT, False),
        ("NOT_READY", Reason.TIMEOUT, False),
        ("NO_DATA", Reason.ERROR, False),
        ("INVALID_ARGUMENT", Reason.ERROR, False),
        ("MEMORY", Reason.ERROR, False),
        ("UNKNOWN", Reason.ERROR, False),
        ("777", Reason.ERROR, False),
    ],
)
def test_error_becomes_the_reason(
    error: str, reason: Reason, permanent: bool, fake_nvml: FakeNvml, read: Read
) -> None:
    fake_nvml.device(CARD).fail(error, "nvmlDeviceGetEncoderUtilization").write()
    absent = failure(read(), "encoder_utilization_percent")
    assert (absent.reason, absent.permanent) == (reason, permanent)
    assert "nvmlDeviceGetEncoderUtilization" in absent.detail


def test_what_the_hardware_lacks_names_its_model(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD, name="NVIDIA GeForce RTX 4090", ecc_uncorrected=None).write()
    absent = failure(read(), "ecc_uncorrected_errors_total")
    assert absent.permanent
    assert "NVIDIA GeForce RTX 4090" in absent.detail


class TestMemory:
    """NVIDIA/dcgm-exporter#136, wookayin/gpustat#168: reserved memory is not used memory."""

    sizes: Mapping[str, int] = {
        "memory_total": 23028 * MIB,
        "memory_used": 11448 * MIB,
        "memory_reserved": 513 * MIB,
        "memory_free": 11067 * MIB,
    }

    def test_used_leaves_out_what_is_reserved(self, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(CARD, **self.sizes).write()
        results = read()
        used, total = results[CARD, "memory_used_bytes"], results[CARD, "memory_total_bytes"]
        assert isinstance(used, float)
        assert isinstance(total, float)
        assert round(100 * used / total, 2) == 49.71

    @pytest.mark.parametrize("error", ["FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH"])
    def test_older_driver_gives_the_first_version(
        self, error: str, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD, **self.sizes).fail(error, "nvmlDeviceGetMemoryInfo_v2").write()
        assert read()[CARD, "memory_used_bytes"] == 11961 * MIB

    def test_an_error_that_is_not_about_age_is_not_hidden(
        self, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD).fail("UNKNOWN", "nvmlDeviceGetMemoryInfo_v2").write()
        assert failure(read(), "memory_used_bytes").reason is Reason.ERROR
        assert "nvmlDeviceGetMemoryInfo" not in fake_nvml.calls()

    def test_nothing_used_of_nothing_is_no_reading(self, fake_nvml: FakeNvml, read: Read) -> None:
        """Syllo/nvtop#411: success with zeros."""
        fake_nvml.device(CARD, memory_total=0, memory_used=0, memory_reserved=0).write()
        results = read()
        assert failure(results, "memory_used_bytes").reason is Reason.OUT_OF_RANGE
        assert results[CARD, "memory_total_bytes"] == 0.0
        assert METRICS["memory_total_bytes"].minimum > 0  # so the zero goes no further

    def test_more_used_than_there_is_is_no_reading(self, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(CARD, memory_total=80 * MIB, memory_used=81 * MIB).write()
        results = read()
        assert failure(results, "memory_used_bytes").reason is Reason.OUT_OF_RANGE
        assert results[CARD, "memory_total_bytes"] == 80 * MIB


class TestUnifiedMemory:
    """wookayin/gpustat#179, kubernetes-sigs/dra-driver-nvidia-gpu#1073."""

    def test_the_rest_is_served_and_memory_says_why_not(
        self, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(
            CARD,
            name="NVIDIA GB10",
            memory_total=None,
            memory_used=None,
            utilization_gpu=37,
            power_mw=11170,
        ).write()
        results = read()
        assert results[CARD, "utilization_percent"] == 37.0
        assert results[CARD, "power_watts"] == 11.17
        for metric in ("memory_used_bytes", "memory_total_bytes"):
            absent = failure(results, metric)
            assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, True)
            assert "unified memory" in absent.detail

    def test_a_card_with_memory_of_its_own_is_not_taken_for_one(
        self, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD, name="NVIDIA H100", memory_total=None).write()
        absent = failure(read(), "memory_used_bytes")
        assert absent.reason is Reason.NOT_SUPPORTED
        assert "unified" not in absent.detail

    @pytest.mark.parametrize("name", ["NVIDIA GB100", "NVIDIA GB102"])
    def test_a_like_name_is_not_taken_for_one(
        self, name: str, fake_nvml: FakeNvml, read: Read
    ) -> None:
        fake_nvml.device(CARD, name=name, memory_total=None).write()
        assert "unified" not in failure(read(), "memory_used_bytes").detail

    def test_a_loss_is_not_hidden(self, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(CARD, name="NVIDIA GB10")
        fake_nvml.fail("GPU_IS_LOST", "nvmlDeviceGetMemoryInfo_v2").write()
        results = read()
        assert failure(results, "memory_used_bytes").reason is Reason.LOST
        assert results[CARD, "utilization_percent"] == 50.0


ALL_BITS_32 = {
    "utilization_percent": "utilization_gpu",
    "memory_bandwidth_utilization_percent": "utilization_memory",
    "temperature_celsius": "temperature",
    "slowdown_temperature_celsius": "temperature_slowdown",
    "memory_temperature_celsius": "memory_temperature",
    "power_watts": "power_mw",
    "power_limit_watts": "power_limit_mw",
    "sm_clock_megahertz": "clock_sm",
    "memory_clock_megahertz": "clock_memory",
    "encoder_utilization_percent": "encoder",
    "decoder_utilization_percent": "decoder",
    "memory_used_bytes": "memory_used",
    "memory_total_bytes": "memory_total",
    "energy_joules_total": "energy_mj",
    "throttled_power_seconds_total": "violation_power_ns",
    "throttled_thermal_seconds_total": "violation_thermal_ns",
    "pcie_receive_bytes_total": "pcie_receive_bytes",
    "pcie_transmit_bytes_total": "pcie_transmit_bytes",
    "interconnect_receive_bytes_total": "nvlink_receive_kib",
    "interconnect_transmit_bytes_total": "nvlink_transmit_kib",
    "ecc_uncorrected_errors_total": "ecc_uncorrected",
}


@pytest.mark.parametrize("metric", ALL_BITS_32)
def test_all_bits_set_stands_for_no_value(metric: str, fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD, **{ALL_BITS_32[metric]: -1}).write()
    assert failure(read(), metric).reason is Reason.OUT_OF_RANGE


def test_absurd_values_are_left_to_the_check_of_ranges(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD, utilization_gpu=991, temperature=4000).write()
    results = read()
    assert results[CARD, "utilization_percent"] == 991.0
    assert results[CARD, "temperature_celsius"] == 4000.0


def test_temperature_below_zero_is_read(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD, temperature=-5).write()
    assert read()[CARD, "temperature_celsius"] == -5.0


@pytest.mark.parametrize("error", ["FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH"])
def test_temperature_of_an_older_driver(error: str, fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD, temperature=66).fail(error, "nvmlDeviceGetTemperatureV").write()
    assert read()[CARD, "temperature_celsius"] == 66.0


def test_without_any_list_of_processes_only_their_count_is_missing(
    fake_nvml: FakeNvml, read: Read
) -> None:
    """gpuopenanalytics/pynvml#43: one missing function must not stop the rest."""
    fake_nvml.device(CARD)
    for version in (2, 3):
        fake_nvml.fail("FUNCTION_NOT_FOUND", f"nvmlDeviceGetComputeRunningProcesses_v{version}")
    fake_nvml.write()
    results = read()
    absent = {name for (_, name), result in results.items() if isinstance(result, Failure)}
    assert absent - NEEDS_GPM == {"process_count"}
    assert failure(results, "process_count").reason is Reason.NOT_SUPPORTED


def test_names_as_bytes_and_as_text_are_the_same(
    fake_nvml: FakeNvml, backend: NvidiaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rapidsai/dask-cuda#1123: older versions of the binding give bytes."""
    fake_nvml.device(CARD, name="NVIDIA L4").write()
    backend.open()
    as_text = backend.devices()
    backend.close()
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda _: b"NVIDIA L4")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda _: CARD.encode())
    backend.open()
    assert backend.devices() == as_text
    assert (as_text[0].id, as_text[0].name) == (CARD, "NVIDIA L4")


def test_a_name_that_is_no_text_spoils_nothing(fake_nvml: FakeNvml, read: Read) -> None:
    fake_nvml.device(CARD, name=b"NVIDIA \xff\xfe".decode("utf-8", "surrogateescape")).write()
    assert read()[CARD, "utilization_percent"] == 50.0
