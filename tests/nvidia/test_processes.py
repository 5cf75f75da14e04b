"""Who uses a card: the count, and the figures of each process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from accelscale.model import Failure, ProcessUse, Reading, Reason
from accelscale.nvidia.backend import NvidiaBackend
from drivers.nvml.state import FakeNvml

Read = Callable[..., Mapping[tuple[str, str], float | Failure]]
ReadingsOf = Callable[..., Mapping[str, Reading]]

CARD = "GPU-aaaa"
MIB = 2**20
MICROSECONDS = 1_700_000_000_000_000
"""A time at which a driver may date a sample."""


def uses(readings: ReadingsOf) -> dict[int, ProcessUse]:
    found = readings(["process_count"])[CARD].processes
    assert found is not None
    return {use.pid: use for use in found}


def shares(readings: ReadingsOf) -> dict[int, float | None]:
    return {pid: use.utilization_percent for pid, use in uses(readings).items()}


def at(offset: int) -> int:
    return MICROSECONDS + offset


class TestProcessCount:
    """Syllo/nvtop#432, #110, XuehaiPan/nvitop#181: lists with records of no process."""

    def count(self, fake: FakeNvml, read: Read, **lists: str | None) -> float | Failure:
        fake.device(CARD, **{"memory_total": 16376 * MIB, **lists}).write()
        return read(["process_count"])[CARD, "process_count"]

    def test_a_process_in_several_lists_counts_once(self, fake_nvml: FakeNvml, read: Read) -> None:
        lists = {"processes_compute": "10:1 11:1", "processes_graphics": "11:1 12:1"}
        assert self.count(fake_nvml, read, **lists, processes_mps="13:1") == 4.0

    def test_no_process_is_a_true_zero(self, fake_nvml: FakeNvml, read: Read) -> None:
        assert self.count(fake_nvml, read, processes_compute="") == 0.0

    @pytest.mark.parametrize(
        "garbage",
        ["4294967295:none", "0:0", "99999999:1024", f"10:{17179869184}"],
        ids=["all bits set", "pid 0", "pid beyond what Linux has", "more memory than the card"],
    )
    def test_garbage_does_not_count(self, garbage: str, fake_nvml: FakeNvml, read: Read) -> None:
        assert self.count(fake_nvml, read, processes_compute=f"{garbage} 11:1024") == 1.0

    def test_unknown_memory_of_a_process_is_no_garbage(
        self, fake_nvml: FakeNvml, read: Read
    ) -> None:
        assert self.count(fake_nvml, read, processes_compute="10:none 11:1024") == 2.0

    def test_a_process_that_has_ended_spoils_nothing(self, fake_nvml: FakeNvml, read: Read) -> None:
        """wookayin/gpustat#16: it may be gone before anyone looks it up."""
        assert self.count(fake_nvml, read, processes_compute="4194303:1024") == 1.0

    def test_lists_that_a_driver_lacks_hold_nobody(self, fake_nvml: FakeNvml, read: Read) -> None:
        lists = {"processes_graphics": None, "processes_mps": None}
        assert self.count(fake_nvml, read, processes_compute="10:1", **lists) == 1.0

    def test_a_forbidden_list_is_not_an_empty_one(self, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(CARD, processes_compute="10:1")
        fake_nvml.fail("NO_PERMISSION", "nvmlDeviceGetGraphicsRunningProcesses_v3").write()
        assert isinstance(failed := read()[CARD, "process_count"], Failure)
        assert failed.reason is Reason.PERMISSION

    def test_older_driver_has_the_older_list(self, fake_nvml: FakeNvml, read: Read) -> None:
        fake_nvml.device(CARD, processes_compute="10:1 11:1")
        fake_nvml.fail("FUNCTION_NOT_FOUND", "nvmlDeviceGetComputeRunningProcesses_v3").write()
        assert read()[CARD, "process_count"] == 2.0


class TestMemory:
    def test_each_process_has_its_own(self, fake_nvml: FakeNvml, readings: ReadingsOf) -> None:
        fake_nvml.device(CARD, processes_compute="10:1024 11:2048").write()
        memory = {pid: use.memory_used_bytes for pid, use in uses(readings).items()}
        assert memory == {10: 1024.0, 11: 2048.0}

    def test_a_process_in_several_lists_does_not_count_twice(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        lists = {"processes_compute": "10:1024", "processes_graphics": "10:1024 12:1"}
        fake_nvml.device(CARD, **lists, processes_mps="10:none 13:none").write()
        memory = {pid: use.memory_used_bytes for pid, use in uses(readings).items()}
        assert memory == {10: 1024.0, 12: 1.0, 13: None}

    def test_garbage_is_dropped_and_the_totals_stay(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        """Syllo/nvtop#432: pids that are none, more memory than the card has."""
        garbage = f"4294967295:none 0:1 10:{16 * 1024 * MIB} 11:2048"
        fake_nvml.device(
            CARD, memory_total=16376 * MIB, memory_used=9 * MIB, processes_compute=garbage
        ).write()
        reading = readings()[CARD]
        assert reading.processes == (ProcessUse(11, 2048.0, None),)
        values = {sample.metric: sample.value for sample in reading.samples}
        assert values["memory_used_bytes"] == 9 * MIB
        assert values["process_count"] == 1.0

    def test_they_are_told_only_where_the_count_is_asked_for(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(CARD, processes_compute="10:1024").write()
        assert readings(["utilization_percent"])[CARD].processes is None
        assert "nvmlDeviceGetComputeRunningProcesses_v3" not in fake_nvml.calls()

    def test_a_forbidden_list_tells_of_none(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(CARD, processes_compute="10:1")
        fake_nvml.fail("NO_PERMISSION", "nvmlDeviceGetComputeRunningProcesses_v3").write()
        reading = readings(["process_count"])[CARD]
        assert reading.processes is None
        assert reading.failures[0].reason is Reason.PERMISSION


class TestShare:
    """``nvmlDeviceGetProcessUtilization`` gives what is newer than what one has seen."""

    def test_the_newest_sample_of_each_counts(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        samples = f"10:20:{at(1)} 11:30:{at(2)} 10:40:{at(3)} 10:25:{at(2)}"
        fake_nvml.device(CARD, processes_compute="10:1 11:1", process_utilization=samples).write()
        assert shares(readings) == {10: 40.0, 11: 30.0}

    def test_what_was_seen_is_not_seen_again(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        first = f"10:20:{at(1)} 11:30:{at(2)}"
        fake_nvml.device(CARD, processes_compute="10:1 11:1", process_utilization=first).write()
        shares(readings)
        fake_nvml.set(CARD, process_utilization=f"{first} 10:80:{at(5)}").write()
        assert shares(readings) == {10: 80.0, 11: 0.0}

    def test_without_any_sample_nothing_is_known(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        """Drivers answer NOT_FOUND then."""
        fake_nvml.device(
            CARD, processes_compute="10:1 11:1", process_utilization=f"10:20:{at(1)}"
        ).write()
        assert shares(readings) == {10: 20.0, 11: 0.0}
        assert shares(readings) == {10: None, 11: None}

    @pytest.mark.parametrize(
        "garbage",
        [
            f"11:991:{at(9)}",
            f"4294967295:50:{at(9)}",
            f"0:50:{at(9)}",
            f"77:50:{at(9)}",
        ],
        ids=["more than 100 %", "all bits set", "pid 0", "a process that is not listed"],
    )
    def test_garbage_does_not_count_nor_set_the_time(
        self, garbage: str, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        """XuehaiPan/nvitop#181: a hundred samples for two processes."""
        samples = f"10:20:{at(1)} {garbage}"
        fake_nvml.device(CARD, processes_compute="10:1 11:1", process_utilization=samples).write()
        assert shares(readings)[10] == 20.0
        fake_nvml.set(CARD, process_utilization=f"{samples} 10:30:{at(2)}").write()
        assert shares(readings)[10] == 30.0

    def test_garbage_alone_is_no_sample(self, fake_nvml: FakeNvml, readings: ReadingsOf) -> None:
        fake_nvml.device(
            CARD, processes_compute="10:1", process_utilization=f"10:991:{at(1)}"
        ).write()
        assert shares(readings) == {10: None}

    def test_a_clock_that_was_set_back_hides_nothing(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        now = time.time_ns() // 1000
        ahead = now + 3_600_000_000
        fake_nvml.device(
            CARD, processes_compute="10:1", process_utilization=f"10:20:{ahead}"
        ).write()
        assert shares(readings) == {10: 20.0}
        fake_nvml.set(CARD, process_utilization=f"10:30:{now}").write()
        assert shares(readings) == {10: 30.0}

    def test_a_new_life_of_the_card_starts_anew(
        self, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        samples = f"10:20:{at(1)}"
        fake_nvml.device(CARD, processes_compute="10:1", process_utilization=samples).write()
        shares(readings)
        fake_nvml.restore(CARD).write()
        assert shares(readings) == {10: 20.0}

    @pytest.mark.parametrize("error", ["NOT_SUPPORTED", "NO_PERMISSION", "UNKNOWN"])
    def test_without_them_the_memory_is_left(
        self, error: str, fake_nvml: FakeNvml, readings: ReadingsOf
    ) -> None:
        fake_nvml.device(CARD, processes_compute="10:1024")
        fake_nvml.fail(error, "nvmlDeviceGetProcessUtilization").write()
        assert uses(readings) == {10: ProcessUse(10, 1024.0, None)}

    def test_without_processes_nobody_asks(self, fake_nvml: FakeNvml, readings: ReadingsOf) -> None:
        fake_nvml.device(CARD).write()
        assert uses(readings) == {}
        assert "nvmlDeviceGetProcessUtilization" not in fake_nvml.calls()


def test_the_memory_of_the_card_is_asked_for_once_where_nobody_reads_it(
    fake_nvml: FakeNvml, backend: NvidiaBackend, readings: ReadingsOf
) -> None:
    fake_nvml.device(CARD).write()
    for _ in range(3):
        readings(["process_count"])
    assert fake_nvml.calls()["nvmlDeviceGetMemoryInfo_v2"] == 1
