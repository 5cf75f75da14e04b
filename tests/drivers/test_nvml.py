"""The fake NVML driver itself, through the binding and nothing else."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from drivers.nvml.state import GPM, FakeNvml, counter

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


def test_instances_take_over_the_handles_of_those_before_them(nvml: FakeNvml) -> None:
    nvml.set(A, mig_mode=1).repartition(A, "MIG-old-1", "MIG-old-2", gpu_instance_slices=2).write()
    card = handle(0)
    old = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index) for index in (0, 1)]
    assert pynvml.nvmlDeviceGetAttributes(old[0]).gpuInstanceSliceCount == 2
    nvml.repartition(A, "MIG-new").write()
    new = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)
    assert ctypes.addressof(new.contents) == ctypes.addressof(old[0].contents)
    assert pynvml.nvmlDeviceGetUUID(old[0]) == "MIG-new"
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetUUID(old[1])
    nvml.lose(A).write()
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetUUID(new)


def gpm_of(card: object, *metrics: int, pause: float = 0.1) -> list[tuple[int, float]]:
    """Two samples, and for each metric its error and value."""
    request = pynvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(metrics))
    request.sample1, request.sample2 = (pynvml.nvmlGpmSampleAlloc() for _ in range(2))
    for place, metric in enumerate(metrics):
        request.metrics[place].metricId = metric
    try:
        pynvml.nvmlGpmSampleGet(card, request.sample1)
        time.sleep(pause)
        pynvml.nvmlGpmSampleGet(card, request.sample2)
        pynvml.nvmlGpmMetricsGet(request)
    finally:
        pynvml.nvmlGpmSampleFree(request.sample1)
        pynvml.nvmlGpmSampleFree(request.sample2)
    return [(item.nvmlReturn, item.value) for item in request.metrics[: len(metrics)]]


def test_gpm_lies_between_two_samples_and_each_metric_has_an_error_of_its_own(
    nvml: FakeNvml,
) -> None:
    nvml.set(A, {**GPM, "gpm.5": None, "gpm_error.3": "NO_PERMISSION"}).write()
    assert pynvml.nvmlGpmQueryDeviceSupport(handle(0)).isSupportedDevice == 1
    assert pynvml.nvmlGpmQueryDeviceSupport(handle(1)).isSupportedDevice == 0
    sm, occupancy, tensor = gpm_of(handle(0), 2, 3, 5)
    assert sm == (0, 40.25)
    assert (occupancy[0], tensor[0]) == (4, 3)
    assert occupancy[1] != 30.5
    with pytest.raises(pynvml.NVMLError_NotSupported):
        gpm_of(handle(1), 2)
    assert not [what for what in nvml.calls() if what.startswith("gpm")]


def test_gpm_samples_too_close_are_nonsense_and_counted(nvml: FakeNvml) -> None:
    nvml.set(A, GPM).write()
    ((error, value),) = gpm_of(handle(0), 2, pause=0.001)
    assert (error, value > 100) == (0, True)
    assert nvml.calls()["gpm samples less than 100 ms apart"] == 1


def test_gpm_samples_of_two_devices_do_not_go_together(nvml: FakeNvml) -> None:
    nvml.set(A, GPM).set(B, GPM).write()
    request = pynvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=1)
    request.sample1, request.sample2 = (pynvml.nvmlGpmSampleAlloc() for _ in range(2))
    pynvml.nvmlGpmSampleGet(handle(0), request.sample1)
    pynvml.nvmlGpmSampleGet(handle(1), request.sample2)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlGpmMetricsGet(request)
    for sample in (request.sample1, request.sample2):
        pynvml.nvmlGpmSampleFree(sample)
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlGpmSampleFree(sample)


def test_two_threads_in_gpm_are_counted(nvml: FakeNvml) -> None:
    nvml.set(A, GPM).delay(20_000, "nvmlGpmSampleGet").write()
    threads = [threading.Thread(target=gpm_of, args=(handle(0), 2)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert nvml.calls()["gpm used by two threads at once"] > 0


def test_gpm_of_an_instance_is_found_by_its_number(nvml: FakeNvml) -> None:
    nvml.set(A, mig_mode=1, gpm=1).repartition(A, "MIG-1", "MIG-2", **{"gpm.1": 12.5}).write()
    sample = pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmMigSampleGet(handle(0), 2, sample)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlGpmMigSampleGet(handle(0), 3, sample)
    pynvml.nvmlGpmSampleFree(sample)


def test_events_since_the_registration_are_told_once(nvml: FakeNvml) -> None:
    nvml.event(A, 13).write()
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle(0), 8, events)
    pynvml.nvmlDeviceRegisterEvents(handle(1), 8, events)
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait(events, 0)
    nvml.event(A, 48).event(A, kind=2).event(B, 79).write()
    told = [pynvml.nvmlEventSetWait(events, 0) for _ in range(2)]
    assert [(event.eventType, event.eventData) for event in told] == [(8, 48), (8, 79)]
    assert pynvml.nvmlDeviceGetUUID(told[1].device) == B
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait(events, 5)
    nvml.lose(B).write()
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlEventSetWait(events, 0)
    pynvml.nvmlEventSetFree(events)


def test_a_kind_of_event_too_many_registers_none(nvml: FakeNvml) -> None:
    nvml.set(A, event_types=8).write()
    assert pynvml.nvmlDeviceGetSupportedEventTypes(handle(0)) == 8
    events = pynvml.nvmlEventSetCreate()
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceRegisterEvents(handle(0), 10, events)
    nvml.event(A, 48).write()
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait(events, 0)
    pynvml.nvmlEventSetFree(events)


def test_what_is_not_freed_is_counted_at_the_last_shutdown(nvml: FakeNvml) -> None:
    nvml.set(A, GPM).write()
    pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlEventSetCreate()
    pynvml.nvmlShutdown()
    calls = nvml.calls()
    assert (calls["leaked gpm sample"], calls["leaked event set"]) == (1, 1)
    pynvml.nvmlInit()


def test_uses_of_processes_newer_than_a_time(nvml: FakeNvml) -> None:
    nvml.set(A, process_utilization="10:20:100 11:30:200").write()
    samples = pynvml.nvmlDeviceGetProcessUtilization(handle(0), 0)
    assert [(one.pid, one.smUtil, one.timeStamp) for one in samples] == [
        (10, 20, 100),
        (11, 30, 200),
    ]
    assert len(pynvml.nvmlDeviceGetProcessUtilization(handle(0), 100)) == 1
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetProcessUtilization(handle(0), 200)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetProcessUtilization(handle(1), 0)


def test_power_of_the_gpu_and_of_its_module(nvml: FakeNvml) -> None:
    nvml.set(A, power_mw=400, module_power_mw=650).write()
    of_gpu, of_module, of_memory = pynvml.nvmlDeviceGetFieldValues(
        handle(0), [(pynvml.NVML_FI_DEV_POWER_AVERAGE, scope) for scope in range(3)]
    )
    assert (of_gpu.value.uiVal, of_module.value.uiVal) == (400, 650)
    assert of_memory.nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetPowerUsage(handle(0)) == 650
    assert pynvml.nvmlDeviceGetPowerUsage(handle(1)) == 350_000


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
