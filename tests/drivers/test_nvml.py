"""The fake NVML driver itself, through the binding and nothing else."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from drivers.nvml.state import FakeNvml, counter

A, B = "GPU-aaaa", "GPU-bbbb"


@pytest.fixture
def nvml(fake_nvml: FakeNvml, nvml_library: Path) -> Iterator[FakeNvml]:
    """Two cards, and NVML initialised; the binding finds the library by its name once loaded."""
    ctypes.CDLL(str(nvml_library))
    fake_nvml.device(A, utilization_gpu=37).device(B, utilization_gpu=90).write()
    pynvml.nvmlInit()
    yield fake_nvml
    pynvml.nvmlShutdown()


def handle(index: int) -> object:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def load(device: object) -> int:
    load: int = pynvml.nvmlDeviceGetUtilizationRates(device).gpu
    return load


def test_without_a_state_the_driver_is_not_loaded(fake_nvml: FakeNvml, nvml_library: Path) -> None:
    ctypes.CDLL(str(nvml_library))
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlInit()


def test_before_init_everything_is_uninitialized(fake_nvml: FakeNvml, nvml_library: Path) -> None:
    ctypes.CDLL(str(nvml_library))
    fake_nvml.device(A).write()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    for call in (pynvml.nvmlDeviceGetCount, pynvml.nvmlShutdown):
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            call()


def test_a_change_shows_with_the_next_call(nvml: FakeNvml) -> None:
    card = handle(0)
    assert load(card) == 37
    nvml.set(A, utilization_gpu=38).write()
    assert load(card) == 38


def test_counters_advance_by_themselves_and_keep_their_level(nvml: FakeNvml) -> None:
    nvml.set(A, energy_mj=counter(5000, 1e6)).write()
    card = handle(0)
    first = pynvml.nvmlDeviceGetTotalEnergyConsumption(card)
    time.sleep(0.02)
    second = pynvml.nvmlDeviceGetTotalEnergyConsumption(card)
    nvml.set(A, utilization_gpu=1).write()
    third = pynvml.nvmlDeviceGetTotalEnergyConsumption(card)
    assert first >= 5000
    assert first + 20_000 <= second <= third


def test_an_error_may_be_for_a_function_a_device_or_some_times(nvml: FakeNvml) -> None:
    first, second = handle(0), handle(1)
    nvml.fail("NO_PERMISSION", "nvmlDeviceGetUtilizationRates", device=A).write()
    with pytest.raises(pynvml.NVMLError_NoPermission):
        load(first)
    assert load(second) == 90
    assert pynvml.nvmlDeviceGetPowerUsage(first) == 350_000
    nvml.fail("TIMEOUT", "nvmlDeviceGetUtilizationRates", device=A, times=1).write()
    with pytest.raises(pynvml.NVMLError_Timeout):
        load(first)
    assert load(first) == 37


def test_a_returning_card_has_a_new_handle(nvml: FakeNvml) -> None:
    old = handle(0)
    nvml.lose(A).write()
    for call in (lambda: handle(0), lambda: load(old)):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            call()
    assert load(handle(1)) == 90
    nvml.restore(A).write()
    assert load(handle(0)) == 37
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        load(old)


def test_latency_of_one_thread_holds_up_no_other(nvml: FakeNvml) -> None:
    slow, quick = handle(0), handle(1)
    nvml.hang(device=A).write()
    thread = threading.Thread(target=load, args=(slow,))
    thread.start()
    assert load(quick) == 90
    assert thread.is_alive()
    nvml.resume(device=A).write()
    thread.join(10)
    assert not thread.is_alive()


def test_a_hang_has_an_end(nvml: FakeNvml) -> None:
    nvml.library(hang_limit_s=0.05).hang("nvmlDeviceGetUtilizationRates").write()
    with pytest.raises(pynvml.NVMLError_Timeout):
        load(handle(0))


def test_instances_of_a_sliced_card_are_listed(nvml: FakeNvml) -> None:
    nvml.set(A, mig_mode=1)
    for number in (3, 7):
        nvml.instance(A, f"MIG-{number}", gpu_instance_id=number, memory_total=10, memory_used=4)
    nvml.write()
    card = handle(0)
    assert pynvml.nvmlDeviceGetMigMode(card) == [1, 1]
    with pytest.raises(pynvml.NVMLError_NotSupported):
        load(card)
    slices = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index) for index in (0, 1)]
    assert [pynvml.nvmlDeviceGetUUID(one) for one in slices] == ["MIG-3", "MIG-7"]
    assert [pynvml.nvmlDeviceGetGpuInstanceId(one) for one in slices] == [3, 7]
    assert pynvml.nvmlDeviceGetMemoryInfo(slices[0]).used == 4
    assert pynvml.nvmlDeviceIsMigDeviceHandle(slices[0]).value == 1
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(slices[1])
    assert pynvml.nvmlDeviceGetUUID(parent) == A
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 2)
    nvml.remove("MIG-3").write()
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetUUID(slices[0])


def test_unused_bytes_of_a_field_hold_garbage(nvml: FakeNvml) -> None:
    memory, unknown = pynvml.nvmlDeviceGetFieldValues(
        handle(0), [pynvml.NVML_FI_DEV_MEMORY_TEMP, pynvml.NVML_FI_DEV_ECC_CURRENT]
    )
    assert (memory.nvmlReturn, memory.valueType) == (0, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT)
    assert memory.value.uiVal == 50
    assert memory.value.ullVal != 50
    assert unknown.nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert unknown.value.ullVal != 0


def test_values_are_passed_on_raw(nvml: FakeNvml) -> None:
    nvml.set(A, power_mw=-1, memory_total=-1, temperature=-40).write()
    card = handle(0)
    assert pynvml.nvmlDeviceGetPowerUsage(card) == 2**32 - 1
    assert pynvml.nvmlDeviceGetMemoryInfo(card).total == 2**64 - 1
    assert pynvml.nvmlDeviceGetTemperatureV(card, pynvml.NVML_TEMPERATURE_GPU) == -40


def test_calls_are_counted_by_function_and_device(nvml: FakeNvml) -> None:
    first, second = handle(0), handle(1)
    for device in (first, first, second):
        load(device)
    calls = nvml.calls()
    assert calls["nvmlDeviceGetUtilizationRates"] == 3
    assert calls[f"nvmlDeviceGetUtilizationRates {A}"] == 2
    assert calls[f"nvmlDeviceGetUtilizationRates {B}"] == 1
    assert nvml.users == 1


def test_a_handle_that_it_never_gave_is_refused(nvml: FakeNvml) -> None:
    stranger = ctypes.cast(ctypes.create_string_buffer(8), pynvml.c_nvmlDevice_t)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        load(stranger)


def test_readers_survive_any_number_of_changes(nvml: FakeNvml) -> None:
    seen: set[int] = set()
    ended = threading.Event()

    def read() -> None:
        card = handle(0)
        while not ended.is_set():
            seen.add(load(card))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(200):
        nvml.set(A, utilization_gpu=number % 100).write()
    ended.set()
    for thread in threads:
        thread.join(10)
    assert seen <= set(range(100))
