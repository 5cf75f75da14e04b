"""Recordings are made without secrets, are complete, and say what they cannot promise."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest

from accelscale.backend import Attempt
from accelscale.errors import BackendError
from accelscale.metrics import Tier
from accelscale.model import Device, ProcessUse, Reading, Reason, Sample
from accelscale.plugins import RegisteredBackend
from accelscale.testing import FakeBackend
from accelscale.testing.recording import HardwareRecording, record, replay_faults
from accelscale.testing.recording.scrub import HOST, Scrubber
from testing.recording import trees
from testing.recording.trees import MAC, REGISTERED, SERIAL, UUID, WidgetBackend, card, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two cards; the second shows no temperature, and its power is no number."""
    root = tmp_path / "root"
    card(root, 1, SERIAL, temperature=61_000)
    card(root, 2, "PCB23107-56X", power="N/A", asleep="")
    return root


def registered(backend: FakeBackend | type[FakeBackend]) -> RegisteredBackend:
    kind = backend if isinstance(backend, type) else backend.as_class()
    return RegisteredBackend(kind.name, kind, "accelscale-fake", "1.0", kind.name)


def saved(recording: HardwareRecording, folder: Path) -> str:
    """All the text that it writes."""
    recording.save(folder)
    return "\n".join(path.read_text() for path in sorted(folder.iterdir()))


def test_devices_readings_and_files_are_recorded(root: Path) -> None:
    recording = record(REGISTERED, root=root)
    assert recording.probe.viable
    assert recording.versions == {
        "accelscale": recording.versions["accelscale"],
        "accelscale-widget": "0.3",
        "driver": "7.1",
    }
    first, second = recording.live.readings
    assert {sample.metric: sample.value for sample in first.samples} == {
        "utilization_percent": 41.0,
        "power_watts": 55.0,
        "temperature_celsius": 61.0,
        "widget_jobs_total": 7.0,
    }
    assert {failure.metric: failure.reason for failure in second.failures} == {
        "power_watts": Reason.ERROR,
        "temperature_celsius": Reason.NOT_SUPPORTED,
    }
    assert recording.replays_files
    assert recording.differences == ()
    assert recording.files is not None
    data = recording.files["sys/devices/pci0000:00/0000:01:00.0/busy"].data
    assert data == b"41\n"
    assert [attempt.call for attempt in recording.attempts][:2] == ["open", "devices"]


def test_it_is_the_same_on_disk(root: Path, tmp_path: Path) -> None:
    recording = record(REGISTERED, root=root)
    recording.save(tmp_path / "recording")
    assert HardwareRecording.load(tmp_path / "recording") == recording
    assert replay_faults(tmp_path / "recording", WidgetBackend) == []


def test_no_secret_is_written(root: Path, tmp_path: Path) -> None:
    write(root, "sys/devices/pci0000:00/0000:01:00.0/busy", f"{UUID} {MAC} trainer-3")
    scrubber = Scrubber([("trainer-3", HOST)])
    text = saved(record(REGISTERED, root=root, scrubber=scrubber), tmp_path / "recording")
    for secret in (SERIAL, "PCB23107-56X", UUID, MAC, "trainer-3", str(root), str(tmp_path)):
        assert secret not in text
    # Ids, links and contents still agree, or the plugin would find nothing again.
    assert replay_faults(tmp_path / "recording", WidgetBackend) == []


def test_it_says_what_was_replaced(root: Path) -> None:
    (replaced,) = record(REGISTERED, root=root, scrubber=Scrubber(())).replaced
    assert replaced.kind == "serial number or unique id"
    assert "/sys/devices/pci0000:00/0000:01:00.0/serial_number" in replaced.places
    assert "readings" in replaced.places


def test_ids_of_a_backend_without_files_are_replaced(tmp_path: Path) -> None:
    fake = FakeBackend({f"GPU-{UUID}": {"power_watts": 50.0}, "card-1322221045678": {}})
    fake.add("part", parent="card-1322221045678", attributes={"board_serial": "ABC-99121"})
    recording = record(registered(fake))
    text = saved(recording, tmp_path / "recording")
    for secret in (UUID, "1322221045678", "ABC-99121"):
        assert secret not in text
    whole, part = recording.live.devices[1:]
    assert part.parent == whole.id
    assert recording.live.readings[0].device_id == recording.live.devices[0].id


def test_results_of_calls_that_ask_for_an_id_are_replaced(tmp_path: Path) -> None:
    class Calls(FakeBackend):
        def diagnose(self) -> Iterator[Attempt]:
            yield Attempt("cardGetSerial", "'S-4477-Q'", ok=True, seconds=0.25, device_id="fake-0")
            yield Attempt("cardGetName", "card S-4477-Q", ok=True, seconds=0.25)

    text = saved(record(registered(Calls)), tmp_path / "recording")
    assert "S-4477-Q" not in text
    assert "cardGetSerial" in text


@pytest.mark.parametrize("call", ["open", "devices", "read"])
def test_a_backend_that_fails_is_recorded_too(call: str, tmp_path: Path) -> None:
    fake = FakeBackend({"fake-0": {"power_watts": 50.0}})
    getattr(fake, f"break_{call}")(BackendError("the driver is upset", reason=Reason.PERMISSION))
    recording = record(registered(fake))
    if call == "open":
        assert recording.live.refusal == "the driver is upset"
        assert recording.live.refusal_reason is Reason.PERMISSION
    assert any("upset" in attempt.result for attempt in recording.attempts)
    recording.save(tmp_path / "recording")
    assert replay_faults(tmp_path / "recording") == []


def test_a_hang_is_recorded_as_far_as_it_came() -> None:
    fake = FakeBackend({name: {"power_watts": 50.0} for name in ("fake-0", "fake-1", "fake-2")})
    fake.hang("fake-1")
    try:
        recording = record(registered(fake), limit_seconds=0.5)
    finally:
        fake.unhang()
    assert recording.hanging is not None
    readings = {reading.device_id: reading for reading in recording.live.readings}
    assert [sample.value for sample in readings["fake-0"].samples] == [50.0]
    for late in ("fake-1", "fake-2"):
        assert readings[late].samples == ()
        assert {failure.reason for failure in readings[late].failures} == {Reason.TIMEOUT}
    for thread in threading.enumerate():
        if thread.name == "accelscale-recording":
            thread.join(10)


def test_a_backend_without_root_replays_its_readings_only() -> None:
    recording = record(registered(FakeBackend({"fake-0": {}})))
    assert not recording.replays_files
    assert recording.why_no_files == "it takes no root, so its files cannot be elsewhere"
    with pytest.raises(BackendError, match="takes no root"):
        record(registered(FakeBackend()), root=Path("/host"))


def test_a_backend_that_reads_beside_its_root_replays_its_readings_only(root: Path) -> None:
    class Beside(WidgetBackend):
        def devices(self) -> Sequence[Device]:
            Path("/proc/meminfo").read_text()
            return super().devices()

    recording = record(RegisteredBackend("widget", Beside, "x", "1", "widget"), root=root)
    assert not recording.replays_files
    assert recording.why_no_files == "it reads beside its root: /proc/meminfo"


def test_what_does_not_come_from_files_is_set_aside(root: Path, tmp_path: Path) -> None:
    """A library gave the power, or another time the number differs."""
    given = iter([55.0, 56.0, 57.0, 58.0, 59.0, 60.0, 61.0, 62.0])

    class Mixed(WidgetBackend):
        def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
            for reading in super().read(devices, metrics):
                samples = [s for s in reading.samples if s.metric != "power_watts"]
                live = str(self._cards).startswith(str(root))
                value = next(given) if live or "power_watts" in metrics else 0.0
                failures = [f for f in reading.failures if f.metric != "power_watts"]
                if "power_watts" in metrics:
                    time = samples[0].time if samples else 0.0
                    samples.append(Sample(reading.device_id, "power_watts", value, time))
                yield Reading(reading.device_id, tuple(samples), tuple(failures))

        def diagnose(self) -> Iterator[Attempt]:
            yield from ()

    recording = record(RegisteredBackend("widget", Mixed, "x", "1", "widget"), root=root)
    assert recording.replays_files
    devices = [device.id for device in recording.live.devices]
    what = [difference.what for difference in recording.differences]
    assert what == [f"power_watts of {device}" for device in devices]
    recording.save(tmp_path / "recording")
    assert replay_faults(tmp_path / "recording", WidgetBackend) == []


def test_odd_values_and_processes_are_kept(tmp_path: Path) -> None:
    class Odd(FakeBackend):
        def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
            use = ProcessUse(7, memory_used_bytes=4096.0)
            for device in devices:
                values = (float("nan"), float("inf"), 3.0)
                samples = tuple(
                    Sample(device.id, metric, value, 1.0, shared=value == 3.0)
                    for metric, value in zip(self.metrics, values, strict=False)
                )
                yield Reading(device.id, samples, processes=(use,))

    fake = Odd({"fake-0": {}}, tiers={"power_watts": Tier.SLOW})
    recording = record(registered(fake))
    recording.save(tmp_path / "recording")
    loaded = HardwareRecording.load(tmp_path / "recording")
    (reading,) = loaded.live.readings
    assert [str(sample.value) for sample in reading.samples] == ["nan", "inf", "3.0"]
    assert [sample.shared for sample in reading.samples] == [False, False, True]
    assert reading.processes == (ProcessUse(7, memory_used_bytes=4096.0),)
    assert loaded.metrics["power_watts"] is Tier.SLOW
    faults = replay_faults(tmp_path / "recording")
    assert all("expected nothing" in fault for fault in faults), "what was read differs"


def test_the_tree_below_the_root_alone_counts(root: Path) -> None:
    recording = record(REGISTERED, root=root)
    assert recording.files is not None
    assert {path.partition("/")[0] for path in recording.files} == {"sys"}
    assert trees.CARDS in recording.files
