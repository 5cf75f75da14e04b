"""The host backend on the machine that runs the tests, and on trees of other machines."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from accelscale.errors import BackendError
from accelscale.model import Failure, Reason, Sample
from accelscale.plugins import load_plugins
from accelscale.testing import BackendConformance
from accelscale_host import HostBackend

if TYPE_CHECKING:
    from collections.abc import Iterator

    from host.trees import Tree

pytestmark = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux")


class TestHostOnThisMachine(BackendConformance):
    vendor_modules = ("psutil",)

    def make_backend(self) -> HostBackend:
        return HostBackend()


class TestHostWithEverySensor(BackendConformance):
    vendor_modules = ("psutil",)

    @pytest.fixture(autouse=True)
    def _machine(self, tree: Tree) -> None:
        self.tree = tree
        tree.write("etc/machine-id", "0123456789abcdef0123456789abcdef")
        for number in (0, 1):
            tree.package(number, 1_000_000)
            folder = f"sys/class/powercap/intel-rapl:{number}"
            tree.write(f"{folder}/constraint_0_name", "long_term")
            tree.write(f"{folder}/constraint_0_power_limit_uw", 125_000_000)
        tree.sensor(0, "coretemp", 1, label="Package id 0", input=50_000, crit=100_000)

    def make_backend(self) -> HostBackend:
        return HostBackend(self.tree.root)

    def break_device(self, backend: HostBackend, device_id: str) -> None:  # type: ignore[override]
        self.tree.write("sys/class/powercap/intel-rapl:1/energy_uj", "N/A")


@pytest.fixture
def host() -> Iterator[HostBackend]:
    backend = HostBackend()
    backend.open()
    yield backend
    backend.close()


def read_one(backend: HostBackend, metric: str) -> Sample | Failure:
    (reading,) = backend.read(backend.devices(), [metric])
    (answer,) = (*reading.samples, *reading.failures)
    return answer


def next_percent(backend: HostBackend) -> float:
    """The first utilisation that is a number, within a deadline."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        answer = read_one(backend, "utilization_percent")
        if isinstance(answer, Sample):
            return answer.value
        assert answer.reason is Reason.NO_PROGRESS
        time.sleep(0.02)
    pytest.fail("the CPU times of this machine stand still")


def test_the_first_utilisation_is_missing_and_the_next_is_a_share(host: HostBackend) -> None:
    first = read_one(host, "utilization_percent")
    assert isinstance(first, Failure)
    assert first.reason is Reason.NO_PROGRESS
    assert "two readings" in first.detail
    assert 0.0 <= next_percent(host) <= 100.0


def test_closing_forgets_the_previous_reading(host: HostBackend) -> None:
    next_percent(host)
    host.close()
    host.open()
    assert isinstance(read_one(host, "utilization_percent"), Failure)


def test_work_raises_utilisation(host: HostBackend) -> None:
    """One busy process must show as at least most of one CPU, whatever else runs."""
    seconds = 1.0
    next_percent(host)
    started = time.monotonic()
    code = (
        f"import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)
    passed = time.monotonic() - started
    percent = next_percent(host)
    cpus = int(host.devices()[0].attributes["logical_cpus"])
    worked = percent / 100 * cpus * passed
    assert worked >= 0.7 * seconds


def test_memory_is_that_of_the_machine(host: HostBackend) -> None:
    total, used = read_one(host, "memory_total_bytes"), read_one(host, "memory_used_bytes")
    assert isinstance(total, Sample)
    assert isinstance(used, Sample)
    (line,) = [x for x in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in x]
    assert total.value == int(line.split()[1]) * 1024
    assert 0 < used.value < total.value


def test_memory_that_does_not_add_up_is_no_number(host: HostBackend) -> None:
    class Psutil:
        @staticmethod
        def virtual_memory() -> object:
            return type("Memory", (), {"total": 100, "available": 101})

    with patch.object(host, "_psutil", Psutil):
        answer = read_one(host, "memory_used_bytes")
    assert isinstance(answer, Failure)
    assert answer.reason is Reason.OUT_OF_RANGE


def test_a_call_that_raises_fails_its_metric_alone(host: HostBackend) -> None:
    class Psutil:
        @staticmethod
        def cpu_times() -> object:
            raise PermissionError(13, "Permission denied", "/proc/stat")

    metrics = ["utilization_percent", "memory_total_bytes"]
    with patch.object(host, "_psutil", Psutil):
        (reading,) = host.read(host.devices(), metrics)
    reasons = {failure.metric: failure.reason for failure in reading.failures}
    assert reasons == {"utilization_percent": Reason.PERMISSION, "memory_total_bytes": Reason.ERROR}


def test_readings_of_a_tree(tree: Tree) -> None:
    tree.write("etc/machine-id", "0123456789abcdef0123456789abcdef")
    model = "model name\t: AMD EPYC 7543 32-Core Processor\nphysical id\t: {}\n"
    tree.write(
        "proc/cpuinfo",
        "\n".join(f"processor\t: {n}\n{model.format(n // 2)}" for n in range(4)),
    )
    tree.package(0, 5_000_000)
    tree.sensor(0, "k10temp", 1, label="Tctl", input=45_000)
    backend = HostBackend(tree.root)
    backend.open()
    (device,) = backend.devices()
    assert device.name == "AMD EPYC 7543 32-Core Processor"
    assert device.attributes == {"logical_cpus": "4", "packages": "2"}
    (reading,) = backend.read([device], ["energy_joules_total", "temperature_celsius"])
    assert {sample.metric: sample.value for sample in reading.samples} == {
        "energy_joules_total": 5.0,
        "temperature_celsius": 45.0,
    }
    tree.sensor(0, "k10temp", 1, input=900_000)
    answer = read_one(backend, "temperature_celsius")
    assert isinstance(answer, Failure)
    assert answer.reason is Reason.OUT_OF_RANGE
    backend.close()


def test_a_wrap_over_close_and_open_does_not_take_the_total_back(tree: Tree) -> None:
    tree.package(0, 262_143_000_000)
    backend = HostBackend(tree.root)
    backend.open()
    before = read_one(backend, "energy_joules_total")
    tree.energy(0, 100_000)
    read_one(backend, "energy_joules_total")
    backend.close()
    backend.open()
    after = read_one(backend, "energy_joules_total")
    assert isinstance(before, Sample)
    assert isinstance(after, Sample)
    assert after.value > before.value
    backend.close()


def test_it_is_read_only_while_open() -> None:
    backend = HostBackend()
    with pytest.raises(BackendError, match="not open"):
        backend.devices()
    with pytest.raises(BackendError, match="not open"):
        list(backend.read([], []))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ImportError("No module named 'psutil'"), "install it"),
        (FileNotFoundError(2, "No such file", "/proc/stat"), "/proc/stat"),
    ],
)
def test_without_psutil_it_says_so(error: Exception, text: str) -> None:
    backend = HostBackend()
    with patch("accelscale_host.backend.importlib.import_module", side_effect=error):
        probe = backend.probe()
        assert not probe.viable
        assert text in probe.reason
        with pytest.raises(BackendError, match="psutil") as caught:
            backend.open()
    assert caught.value.reason is not None


def test_it_comes_through_its_entry_point_and_only_on_request() -> None:
    registered = load_plugins().backends["host"]
    assert registered.distribution == "accelscale-host"
    assert registered.backend is HostBackend
    assert registered.backend.on_request_only
