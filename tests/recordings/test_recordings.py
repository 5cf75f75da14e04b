"""Every plugin still makes of each recording what it made of it when it was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accelscale.testing import RecordedBackend, recordings, replay_faults
from accelscale.testing.recording import HardwareRecording
from accelscale.testing.recording.replaying import differences, outcome_of

FOUND = recordings(Path(__file__).parent)


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vendor's library of this machine must not answer in place of the recorded files."""
    for name in ("ROCM_HOME", "ROCM_PATH", "LD_LIBRARY_PATH", "ACCELSCALE_AMD_SOURCE"):
        monkeypatch.delenv(name, raising=False)


def test_there_are_some() -> None:
    kinds = {HardwareRecording.load(folder).replays_files for folder in FOUND}
    assert kinds == {True, False}


@pytest.mark.parametrize("folder", FOUND, ids=lambda folder: folder.name)
def test_replayed_it_reads_as_recorded(folder: Path) -> None:
    assert replay_faults(folder) == []


@pytest.mark.parametrize("folder", FOUND, ids=lambda folder: folder.name)
def test_the_recorded_backend_gives_devices_and_readings(folder: Path) -> None:
    recording = HardwareRecording.load(folder)
    assert recording.live.devices
    assert any(reading.samples for reading in recording.live.readings)
    assert differences(recording.live, outcome_of(RecordedBackend(recording))) == {}


@pytest.mark.parametrize("folder", FOUND, ids=lambda folder: folder.name)
def test_it_says_that_it_is_no_real_hardware(folder: Path) -> None:
    """These were made by ``make.py``. A recording of hardware goes into a list of its own here."""
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["recorded"] == "from a stand-in"
