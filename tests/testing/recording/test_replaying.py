"""A recording takes the place of the hardware, and shows when its plugin has changed."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from attrs import evolve

from accelscale.backend import Backend
from accelscale.errors import BackendError, NotFoundError
from accelscale.model import Reason
from accelscale.monitor import open_monitor
from accelscale.testing import (
    BackendConformance,
    RecordedBackend,
    recordings,
    replay,
    replay_faults,
)
from accelscale.testing.recording import HardwareRecording, record
from accelscale.testing.recording.tree import Entry
from testing.recording.trees import REGISTERED, SERIAL, WidgetBackend, card


@pytest.fixture
def recording(tmp_path: Path) -> HardwareRecording:
    root = tmp_path / "root"
    card(root, 1, SERIAL, temperature=61_000)
    card(root, 2, "PCB23107-56X", power="N/A")
    return record(REGISTERED, root=root)


@pytest.fixture
def folder(recording: HardwareRecording, tmp_path: Path) -> Path:
    folder = tmp_path / "recordings/widget-two-cards"
    recording.save(folder)
    return folder


def test_the_plugin_itself_is_replayed(folder: Path, recording: HardwareRecording) -> None:
    with replay(folder, WidgetBackend) as backend:
        assert isinstance(backend, WidgetBackend)
        backend.open()
        devices = backend.devices()
        assert [device.id for device in devices] == [d.id for d in recording.live.devices]
        (reading, _) = backend.read(devices, ["power_watts"])
        assert [sample.value for sample in reading.samples] == [55.0]


def test_errors_of_the_kernel_are_replayed(folder: Path, recording: HardwareRecording) -> None:
    path = "sys/devices/pci0000:00/0000:01:00.0/power"
    files = {**(recording.files or {}), path: Entry("file", error=errno.EACCES)}
    evolve(recording, files=files).save(folder)
    with replay(folder, WidgetBackend) as backend:
        backend.open()
        (reading, _) = backend.read(backend.devices(), ["power_watts"])
    assert [failure.reason for failure in reading.failures] == [Reason.PERMISSION]
    (fault,) = replay_faults(folder, WidgetBackend)
    assert fault.startswith("power_watts of W-")
    assert fault.endswith("expected 55.0, got permission")


class Renamed(WidgetBackend):
    def _device(self, place: Path):
        return evolve(super()._device(place), name="Widget")


class Halved(WidgetBackend):
    files = {**WidgetBackend.files, "power_watts": ("power", 5e-7)}  # noqa: RUF012


class Blind(WidgetBackend):
    def devices(self):
        return super().devices()[:1]


class Closed(WidgetBackend):
    def open(self) -> None:
        raise BackendError("not today", reason=Reason.ERROR)


class Lasting(WidgetBackend):
    def _answer(self, device, metric):
        answer = super()._answer(device, metric)
        return evolve(answer, permanent=True) if hasattr(answer, "reason") else answer


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (Renamed, "expected card1, got Widget"),
        (Halved, "expected 55.0, got 27.5"),
        (Blind, "devices: expected W-"),
        (Closed, "open: expected nothing, got refused (error)"),
        (Lasting, "expected error, got error, permanent"),
    ],
)
def test_a_changed_plugin_is_noticed(folder: Path, kind: type[Backend], fault: str) -> None:
    assert replay_faults(folder, WidgetBackend) == []
    assert any(fault in found for found in replay_faults(folder, kind))


def test_without_a_class_the_installed_one_is_replayed(folder: Path) -> None:
    with pytest.raises(NotFoundError, match="no backend 'widget'"), replay(folder):
        pass


def test_recordings_are_found_for_parametrize(folder: Path) -> None:
    assert recordings(folder.parent) == [folder]
    assert recordings(folder) == [folder]
    assert recordings(folder.parent / "none") == []


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}', '{"format": 99}', "[]"])
def test_what_is_no_recording_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(BackendError, match=str(tmp_path)):
        HardwareRecording.load(tmp_path)
    with pytest.raises(BackendError, match=r"holds no hardware recording: FileNotFoundError"):
        HardwareRecording.load(tmp_path / "missing")


def test_a_recorded_backend_gives_what_was_read(recording: HardwareRecording) -> None:
    backend = RecordedBackend(recording)
    with pytest.raises(BackendError, match="is not open"):
        backend.devices()
    with open_monitor([backend], interval=0.1) as monitor:
        assert monitor.wait(10)
        snapshot = monitor.snapshot()
    assert [device.id for device in snapshot.devices] == [d.id for d in recording.live.devices]
    for reading in recording.live.readings:
        for sample in reading.samples:
            assert snapshot.value(sample.device_id, sample.metric) == sample.value
        for failure in reading.failures:
            found = snapshot.failure(failure.device_id, failure.metric)
            assert found is not None
            assert (found.reason, found.detail) == (failure.reason, failure.detail)


def test_a_recorded_refusal_is_raised_again(recording: HardwareRecording) -> None:
    live = evolve(recording.live, refusal="in use by another", refusal_reason=Reason.ERROR)
    with pytest.raises(BackendError, match="in use by another") as caught:
        RecordedBackend(evolve(recording, live=live)).open()
    assert caught.value.reason is Reason.ERROR


class TestRecordedBackend(BackendConformance):
    @pytest.fixture(autouse=True)
    def of_a_recording(self, folder: Path) -> None:
        self.kind = RecordedBackend(HardwareRecording.load(folder)).as_class()

    def make_backend(self) -> Backend:
        return self.kind()


class TestReplayedFiles(BackendConformance):
    """Conformance of a plugin over the files of hardware that nobody here has."""

    @pytest.fixture(autouse=True)
    def over_a_recording(self, folder: Path) -> Iterator[None]:
        with ExitStack() as self.replays:
            self.folder = folder
            yield

    def make_backend(self) -> Backend:
        return self.replays.enter_context(replay(self.folder, WidgetBackend))


def test_the_manifest_is_for_people(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["backend"] == "widget"
    assert manifest["replays"] == "files"
    assert manifest["replaced"][0]["kind"] == "serial number or unique id"
    assert manifest["differences"] == []
