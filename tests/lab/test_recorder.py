"""Recording from a collector that runs, through kills, rotation and restarts."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest
from attrs import evolve

from accelscale.errors import ConfigurationError, NotFoundError
from accelscale.lab.loading import load
from accelscale.lab.recorder import Recorder
from accelscale.lab.recording import Recording
from accelscale.lab.sinks import begun, open_sink, parts_folder
from accelscale.lab.sources import SOURCES, Observed, Wanted, open_source, passes_of
from accelscale.metrics import Metric
from accelscale.model import Device, Failure, Reason, Sample, Snapshot
from accelscale.monitor import open_monitor
from accelscale.testing import FakeBackend

METRIC = "utilization_percent"


def passes(
    count: int, *, begin: float = 5000.0, devices: int = 1, first: int = 0
) -> list[Observed]:
    """So many passes, a second apart, of devices whose utilisation is the number of the pass."""
    known = tuple(Device(f"GPU-{n}", "A", "nvidia", "nvidia") for n in range(devices))
    result = []
    for number in range(first, first + count):
        now = begin + number
        samples = {
            (device.id, METRIC): Sample(device.id, METRIC, float(number % 100), now - 0.01)
            for device in known
        }
        result.append(Observed(Snapshot(now, number, 1.0, known, samples=samples)))
    return result


def recorded(path: Path, observed: list[Observed], **options: float) -> Recording:
    with Recorder(open_sink(path, **options)) as recorder:  # type: ignore[arg-type]
        for one in observed:
            recorder.take(one)
    return load([path])


def killed(path: Path, observed: list[Observed]) -> None:
    """Leave on disk what a recorder leaves that is killed after these passes."""
    live = path.with_name(f"live-{path.name}")
    with Recorder(open_sink(live)) as recorder:
        for one in observed:
            recorder.take(one)
        if live.is_file():
            shutil.copy(live, path)
        elif live.is_dir():
            shutil.copytree(live, path)
        else:
            shutil.copytree(parts_folder(live), parts_folder(path))


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.parquet", "folder"])
def test_every_sample_is_recorded_once(tmp_path: Path, name: str) -> None:
    observed = passes(50, devices=3)
    twice = [one for each in observed for one in (each, each)]  # a pass of another backend
    found = recorded(tmp_path / name, twice)
    assert found.samples == 150
    assert found.columns["GPU-2", METRIC].values.tolist() == list(range(50))
    assert found.columns["GPU-2", METRIC].times == pytest.approx(list(range(50)), abs=1e-6)
    assert found.start == pytest.approx(time.time() - time.monotonic() + 5000.0 - 0.01, abs=1.0)
    assert found.notes == ()


def test_a_failure_is_recorded_with_its_reason_until_the_next_value(tmp_path: Path) -> None:
    observed = passes(10)
    failure = Failure("GPU-0", METRIC, Reason.LOST, "Xid 79", 5003.0)
    for number in range(3, 6):
        snapshot = observed[number].snapshot
        failures = {("GPU-0", METRIC): failure}
        observed[number] = Observed(evolve(snapshot, samples={}, failures=failures))
    found = recorded(tmp_path / "trace.parquet", observed)
    (absence,) = found.absences["GPU-0", METRIC]
    assert (absence.reason, absence.detail) == (Reason.LOST, "Xid 79")
    assert (absence.start, absence.end) == pytest.approx((3.01, 6.0), abs=1e-6)
    assert len(found.columns["GPU-0", METRIC]) == 7


def test_devices_and_holders_are_recorded_as_they_come_and_go(tmp_path: Path) -> None:
    observed = passes(10, devices=2)
    for number, one in enumerate(observed):
        pod = "web-a" if number < 4 else "web-b"
        snapshot = one.snapshot
        if number >= 6:
            only = {k: s for k, s in snapshot.samples.items() if k[0] == "GPU-0"}
            snapshot = evolve(snapshot, devices=snapshot.devices[:1], samples=only)
        observed[number] = Observed(snapshot, frozenset({("GPU-0", "ns", pod, "main")}))
    found = recorded(tmp_path / "trace.jsonl", observed)
    assert found.spans_of("GPU-1")[0].end == pytest.approx(6.01, abs=1e-6)
    assert sorted((h.pod, round(h.end)) for h in found.holders) == [("web-a", 4), ("web-b", 9)]


def test_a_folder_rotates_and_keeps_the_newest_parts(tmp_path: Path) -> None:
    found = recorded(tmp_path / "ring", passes(100), seconds=10.0, keep=3)
    names = sorted(path.name for path in (tmp_path / "ring").iterdir())
    assert len(names) == 3
    assert all(name.endswith(".parquet") for name in names)
    times = found.columns["GPU-0", METRIC].values
    assert times[-1] == 99
    assert 20 <= len(times) <= 30


def test_what_is_absent_for_long_stays_so_in_every_part(tmp_path: Path) -> None:
    failure = Failure("GPU-0", "power_watts", Reason.PERMISSION, "denied", 5000.0)
    observed = [
        Observed(evolve(one.snapshot, failures={("GPU-0", "power_watts"): failure}))
        for one in passes(40)
    ]
    found = recorded(tmp_path / "ring", observed, seconds=10.0)
    (absence,) = found.absences["GPU-0", "power_watts"]
    assert (absence.start, round(absence.end)) == (pytest.approx(0.01, abs=1e-6), 39)


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.parquet", "ring"])
def test_what_a_kill_leaves_can_be_read_and_gone_on_with(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    killed(path, passes(10))
    left = load([path])
    assert left.samples == 10
    assert any("its writer was stopped" in note for note in left.notes)
    with pytest.raises(ConfigurationError, match="--append"):
        open_sink(path)
    start, last = begun(path) or (0.0, 0.0)
    assert last == pytest.approx(9.0, abs=0.1)
    with Recorder(open_sink(path, append=True), start=start, offset=60.0) as recorder:
        for one in passes(10, begin=90000.0, first=10):
            recorder.take(one)
    whole = load([path])
    assert whole.columns["GPU-0", METRIC].values.tolist() == list(range(20))
    assert whole.start == start
    assert whole.end == pytest.approx(69.01, abs=0.1)


def test_a_torn_line_is_cut_before_the_file_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    killed(path, passes(3))
    with path.open("a") as file:
        file.write('{"time":3.0,"dev')
    start, _ = begun(path) or (0.0, 0.0)
    with Recorder(open_sink(path, append=True), start=start, offset=30.0) as recorder:
        for one in passes(3, begin=7000.0, first=3):
            recorder.take(one)
    assert load([path]).columns["GPU-0", METRIC].values.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_journal_whose_part_is_complete_says_nothing_twice(tmp_path: Path) -> None:
    folder = tmp_path / "ring"
    recorded(folder, passes(5))
    (part,) = folder.glob("*.parquet")
    killed(tmp_path / "same.jsonl", passes(5))
    (tmp_path / "same.jsonl").rename(part.with_suffix(".jsonl"))
    assert load([folder]).samples == 5
    with Recorder(open_sink(folder, append=True), start=begun(folder)[0], offset=60.0) as recorder:  # type: ignore[index]
        for one in passes(5, begin=9000.0, first=5):
            recorder.take(one)
    assert load([folder]).samples == 10
    assert not list(folder.glob("*.jsonl"))


def test_a_finished_file_is_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    recorded(path, passes(3))
    before = path.read_bytes()
    for append in (False, True):
        with pytest.raises(ConfigurationError, match="exists"):
            open_sink(path, append=append)
    assert path.read_bytes() == before
    assert not parts_folder(path).exists()


def test_one_file_does_not_rotate_and_a_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a rotated recording is a folder"):
        open_sink(tmp_path / "trace.parquet", seconds=60.0)
    with pytest.raises(ConfigurationError, match="there is no folder"):
        open_sink(tmp_path / "no" / "trace.parquet")
    assert begun(tmp_path / "trace.parquet") is None


def test_a_recording_of_a_live_monitor_holds_what_it_read(tmp_path: Path) -> None:
    depth = Metric("acme_depth", "requests", "Requests that wait.")
    fake = FakeBackend({"fake-0": {METRIC: 40.0}}, extra_metrics=[depth])
    fake.set("fake-0", "acme_depth", 3.0)
    stop = threading.Event()
    with open_monitor([fake], interval=0.05) as monitor:
        assert monitor.wait(10)
        with Recorder(open_sink(tmp_path / "trace.parquet")) as recorder:
            for number, observed in enumerate(passes_of(monitor, stop)):
                recorder.take(observed)
                if number == 4:
                    fake.lose("fake-0", detail="fell off the bus")
                if number >= 10 and observed.snapshot.failures.get(("fake-0", METRIC)):
                    stop.set()
    found = load([tmp_path / "trace.parquet"])
    assert set(found.columns["fake-0", METRIC].values.tolist()) == {40.0}
    assert found.units["acme_depth"] == "requests"
    assert found.metrics_table()["acme_depth"].unit == "requests"
    (absence,) = found.absences["fake-0", METRIC]
    assert (absence.reason, absence.detail) == (Reason.LOST, "fell off the bus")
    assert recorder.progress.samples == found.samples


def test_a_source_ends_soon_after_it_is_told(tmp_path: Path) -> None:
    stop = threading.Event()
    with open_monitor([FakeBackend({"fake-0": {METRIC: 1.0}})], interval=60.0) as monitor:
        assert monitor.wait(10)
        source = passes_of(monitor, stop)
        next(source)
        threading.Timer(0.1, stop.set).start()
        assert list(source) == []


def test_another_package_adds_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def opened(address: str, wanted: Wanted, stop: threading.Event) -> object:
        seen.append(address)
        return object()

    monkeypatch.setitem(SOURCES, "agent", opened)
    open_source("agent:node-1:6001", Wanted(1.0), threading.Event())
    assert seen == ["node-1:6001"]
    for address in ("carrier:pigeon", "agent:", "nothing"):
        with pytest.raises(NotFoundError, match="agent:HOST:PORT"):
            open_source(address, Wanted(1.0), threading.Event())
