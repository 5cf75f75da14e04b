"""The Neuron backend with neuron-monitor's stand-in."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accelscale.errors import BackendError
from accelscale.model import Failure, Reason, Sample
from accelscale.monitor import open_monitor
from accelscale_neuron import NeuronBackend
from accelscale_neuron.monitor import FRESH_SECONDS
from drivers.dated import DatedConformance
from drivers.neuron.tool import process, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from accelscale.backend import Backend
    from drivers.neuron.tool import FakeNeuronMonitor
    from neuron.conftest import NeuronTree


@pytest.fixture
def two_chips(tree: NeuronTree) -> NeuronTree:
    tree.add(0, serial="2010a0")
    tree.add(1, serial="2010b0", ecc=3)
    return tree


class TestNeuron(DatedConformance):
    oldest_seconds = FRESH_SECONDS
    vendor_modules = ("subprocess",)

    @pytest.fixture(autouse=True)
    def _machine(self, two_chips: NeuronTree, tool: FakeNeuronMonitor) -> None:
        self.tree, self.tool = two_chips, tool
        tool.say(report(process({"0": 50, "2": 20}, {"0": 10, "2": 20})))

    def make_backend(self) -> NeuronBackend:
        backend = NeuronBackend(self.tree.root, tool=self.tool.path)
        opened = backend.open

        def open_and_wait() -> None:  # until the tool has spoken, its figures are absent
            opened()
            assert backend._monitor is not None
            assert backend._monitor.wait(8.0)

        backend.open = open_and_wait  # type: ignore[method-assign]
        return backend

    def break_device(self, backend: Backend, device_id: str) -> None:
        folder = self.tree.root / "sys/devices/virtual/neuron_device/neuron0"
        self.tree.write(folder / "stats/hardware/mem_ecc_uncorrected", "?")


@contextmanager
def opened(tree: NeuronTree, tool: FakeNeuronMonitor | None) -> Iterator[NeuronBackend]:
    backend = NeuronBackend(tree.root, tool=tool.path if tool is not None else None)
    backend.open()
    try:
        yield backend
    finally:
        backend.close()


def answers(backend: NeuronBackend, metric: str) -> list[Sample | Failure]:
    """One answer per chip."""
    readings = backend.read(backend.devices(), [metric])
    return [one for reading in readings for one in (*reading.samples, *reading.failures)]


def values(backend: NeuronBackend, metric: str = "utilization_percent") -> list[float]:
    return [one.value for one in answers(backend, metric) if isinstance(one, Sample)]


def failure(backend: NeuronBackend, metric: str = "utilization_percent") -> Failure | None:
    one = answers(backend, metric)[0]
    return one if isinstance(one, Failure) else None


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_figures_by_chip(two_chips: NeuronTree, tool: FakeNeuronMonitor) -> None:
    tool.say(report(process({"0": 80, "1": 40, "3": 10}, {"0": 100, "1": 20, "3": 5})))
    with opened(two_chips, tool) as backend:
        wait_until(lambda: values(backend) == [60.0, 5.0])
        assert values(backend, "memory_used_bytes") == [120.0, 5.0]
        assert values(backend, "memory_total_bytes") == [34_359_738_368.0] * 2
        assert values(backend, "ecc_uncorrected_errors_total") == [0.0, 3.0]
        first, second = backend.devices()
        assert (first.id, first.name, first.vendor) == ("neuron-2010a0", "Inferentia2", "aws")
        assert second.attributes == {"index": "1", "device_file": "/dev/neuron1", "cores": "2"}


def test_a_sample_is_dated_by_the_arrival_of_its_line(
    two_chips: NeuronTree, tool: FakeNeuronMonitor
) -> None:
    with opened(two_chips, tool) as backend:
        wait_until(lambda: len(values(backend)) == 2)
        tool.act(silent=True)
        time.sleep(0.2)  # what was on its way has come
        before = answers(backend, "utilization_percent")
        asked = time.monotonic()
        again = answers(backend, "utilization_percent")
        assert before == again
        assert isinstance(again[0], Sample)
        assert again[0].time < asked


def test_a_report_that_gets_old_is_no_figure(
    two_chips: NeuronTree, tool: FakeNeuronMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accelscale_neuron.monitor.FRESH_SECONDS", 0.5)
    with opened(two_chips, tool) as backend:
        wait_until(lambda: len(values(backend)) == 2)
        tool.act(silent=True)
        wait_until(lambda: values(backend) == [])
        found = failure(backend)
        assert found is not None
        assert (found.reason, "last report" in found.detail) == (Reason.STALE, True)
        assert values(backend, "ecc_uncorrected_errors_total") == [0.0, 3.0]
        tool.act()
        wait_until(lambda: len(values(backend)) == 2)


def test_the_tool_is_asked_for_what_is_needed(
    two_chips: NeuronTree, tool: FakeNeuronMonitor
) -> None:
    with opened(two_chips, tool):
        wait_until(lambda: bool(tool.starts()))
        ((_, configuration),) = tool.starts()
    assert configuration["period"] == "2s"
    (runtimes,) = configuration["neuron_runtimes"]
    assert runtimes["tag_filter"] == ".*"
    assert [one["type"] for one in runtimes["metrics"]] == ["neuroncore_counters", "memory_used"]
    assert configuration["system_metrics"]  # so that it writes also while no process runs


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ({"exit": 3}, "with status 3"),
        ({"silent": True}, "was silent"),
        ({"endless": True}, "more than 100000 bytes"),
    ],
)
def test_a_tool_that_fails_is_started_again(
    two_chips: NeuronTree,
    tool: FakeNeuronMonitor,
    monkeypatch: pytest.MonkeyPatch,
    act: dict[str, object],
    said: str,
) -> None:
    monkeypatch.setattr("accelscale_neuron.monitor.FIRST_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr("accelscale_neuron.monitor.SILENCE_SECONDS", 0.5)
    monkeypatch.setattr("accelscale_neuron.monitor.LINE_BYTES", 100_000)
    tool.act(**act)
    with opened(two_chips, tool) as backend:
        wait_until(lambda: said in str(failure(backend)))
        found = failure(backend)
        assert found is not None
        assert found.reason is Reason.STALE
        tool.act()
        wait_until(lambda: len(values(backend)) == 2)
        pids = [pid for pid, _ in tool.starts()]
        assert len(pids) > 1
        assert [is_running(pid) for pid in pids] == [False] * (len(pids) - 1) + [True]
    wait_until(lambda: not is_running(pids[-1]))


def test_a_tool_that_always_fails_is_started_more_and_more_rarely(
    two_chips: NeuronTree, tool: FakeNeuronMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accelscale_neuron.monitor.FIRST_PAUSE_SECONDS", 0.1)
    pauses: list[float] = []
    tool.act(exit=1)
    with opened(two_chips, tool) as backend:
        monitor = backend._monitor
        assert monitor is not None
        wait = monitor._stopped.wait
        monitor._stopped.wait = lambda seconds=None: pauses.append(seconds or 0.0) or wait(0.01)  # type: ignore[method-assign, func-returns-value]
        wait_until(lambda: len(pauses) > 10)
    assert all(later > earlier or later == 60.0 for earlier, later in itertools.pairwise(pauses))
    assert pauses[-1] == 60.0


@pytest.mark.parametrize("text", ["hello", "[]", '{"neuron_runtime_data": []', "null"])
def test_lines_that_are_no_report_are_no_figures(
    two_chips: NeuronTree, tool: FakeNeuronMonitor, text: str
) -> None:
    tool.act(text=text)
    with opened(two_chips, tool) as backend:
        wait_until(lambda: "no report" in str(failure(backend)))
        tool.act(text="\n\n" + json.dumps(report()))
        wait_until(lambda: values(backend) == [0.0, 0.0])


def test_closing_ends_the_tool_and_its_children_and_opens_again(
    two_chips: NeuronTree, tool: FakeNeuronMonitor
) -> None:
    tool.act(silent=True)
    backend = NeuronBackend(two_chips.root, tool=tool.path)
    for count in (1, 2):
        backend.open()
        wait_until(lambda: len(tool.starts()) == count)  # noqa: B023 - waited for in the loop
        backend.close()
        pid, _ = tool.starts()[-1]
        wait_until(lambda: not is_running(pid))  # noqa: B023 - likewise


def test_a_tool_that_cannot_be_started_says_so(two_chips: NeuronTree, tmp_path: Path) -> None:
    backend = NeuronBackend(two_chips.root, tool=tmp_path / "missing")
    backend.open()
    try:
        wait_until(lambda: "cannot be started" in str(failure(backend)))
        assert values(backend, "ecc_uncorrected_errors_total") == [0.0, 3.0]
    finally:
        backend.close()


def test_without_the_tool_the_way_out_is_named(
    two_chips: NeuronTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACCELSCALE_NEURON_MONITOR", raising=False)
    with opened(two_chips, None) as backend:
        found = failure(backend)
        assert found is not None
        assert (found.reason, found.permanent) == (Reason.NOT_SUPPORTED, False)
        assert "aws-neuronx-tools" in found.detail


def test_the_tool_is_found_where_it_is_installed(
    two_chips: NeuronTree, tool: FakeNeuronMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACCELSCALE_NEURON_MONITOR", raising=False)
    folder = two_chips.root / "opt/aws/neuron/bin"
    folder.mkdir(parents=True)
    (folder / "neuron-monitor").symlink_to(tool.path)
    with opened(two_chips, None) as backend:
        wait_until(lambda: len(values(backend)) == 2)


def test_ids_without_serial_numbers(tree: NeuronTree, tool: FakeNeuronMonitor) -> None:
    for index in (0, 1, 10, 2):
        tree.add(index, serial="0000" if index == 1 else None)
    with opened(tree, tool) as backend:
        names = [device.id for device in backend.devices()]
        assert names == ["neuron0", "neuron1", "neuron2", "neuron10"]


def test_a_driver_that_lacks_or_hides_its_counters(
    two_chips: NeuronTree, tool: FakeNeuronMonitor
) -> None:
    hardware = two_chips.root / "sys/devices/virtual/neuron_device/neuron0/stats/hardware"
    (hardware / "sram_ecc_uncorrected").unlink()
    with opened(two_chips, tool) as backend:
        found = failure(backend, "ecc_uncorrected_errors_total")
        assert found is not None
        assert (found.reason, found.permanent) == (Reason.NOT_SUPPORTED, True)


def test_a_machine_without_chips_starts_nothing(tree: NeuronTree, tool: FakeNeuronMonitor) -> None:
    backend = NeuronBackend(tree.root, tool=tool.path)
    assert not backend.probe().viable
    with pytest.raises(BackendError, match="no Neuron device") as caught:
        backend.open()
    assert caught.value.reason is Reason.NOT_SUPPORTED
    assert tool.starts() == []
    program = (
        "import sys; from pathlib import Path; from accelscale_neuron import NeuronBackend\n"
        "NeuronBackend(Path(sys.argv[1])).probe(); print('subprocess' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tree.root)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "False\n"


def test_the_figures_reach_a_snapshot(two_chips: NeuronTree, tool: FakeNeuronMonitor) -> None:
    tool.say(report(process({"0": 50}, {"0": 2**35})))
    backend = NeuronBackend(two_chips.root, tool=tool.path)
    with open_monitor([backend], interval=0.1) as monitor:
        wait_until(lambda: monitor.snapshot().value("neuron-2010a0", "utilization_percent") == 25.0)
        snapshot = monitor.snapshot()
        assert snapshot.value("neuron-2010b0", "utilization_percent") == 0.0
        assert snapshot.value("neuron-2010b0", "ecc_uncorrected_errors_total") == 3.0


def test_names_in_a_cluster(two_chips: NeuronTree, tool: FakeNeuronMonitor) -> None:
    with opened(two_chips, tool) as backend:
        devices = backend.devices()
        assert backend.device_of("1", devices) == devices[1]
        assert backend.device_of("neuron-2010a0", devices) == devices[0]
        for text in ("2", "01", "", "1::0"):
            assert backend.device_of(text, devices) is None
        assert backend.owns_resource("aws.amazon.com/neuron")
        assert backend.owns_resource("aws.amazon.com/neurondevice")
        assert not backend.owns_resource("aws.amazon.com/neuroncore")
