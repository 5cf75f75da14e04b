"""``accelscale record-hardware`` as a process: with files, without, and where it cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from accelscale.testing import replay_faults
from accelscale.testing.recording import HardwareRecording
from cli.workbench import Workbench, without

EXAMPLE_TESTS = Path(__file__).parents[2] / "plugins/accelscale-example/tests"
SERIAL = "EX4K-0017-3391"


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a card of the example plugin, as a folder."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLE_TESTS), *sys.path])
    from trees import Tree  # type: ignore[import-not-found]

    monkeypatch.delitem(sys.modules, "trees")
    Tree(tmp_path / "host").card(0, "0000:17:00.0", serial_number=SERIAL)
    return tmp_path / "host"


def test_a_recording_replays_and_holds_no_serial_number(
    workbench: Workbench, cards: Path, tmp_path: Path
) -> None:
    pytest.importorskip("accelscale_example")
    folder = tmp_path / "recorded"
    result = workbench.run(
        *("record-hardware", str(folder), "--backend", "example", "--root", str(cards)),
        ACCELSCALE_DISABLE_PLUGINS=without("example-cards"),
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    home = folder / "example"
    assert lines[0] == f"example: 1 devices, 8 values, 0 absent, saved in {home}"
    assert lines[1].startswith("  the plugin can be replayed over ")
    assert any("serial number or unique id" in line for line in lines)
    assert lines[-1] == f"Look through {folder} before you give it away."
    assert not any(SERIAL in path.read_text() for path in home.iterdir())
    recording = HardwareRecording.load(home)
    assert recording.versions["accelscale-example"] == "0.1.0"
    assert replay_faults(home) == []


def test_what_works_here_is_recorded_by_default(workbench: Workbench, tmp_path: Path) -> None:
    workbench.example({"card-0": {"values": {"utilization_percent": 40.0}}})
    result = workbench.run("record-hardware", str(tmp_path / "recorded"))
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("example: 1 devices, 1 values, ")
    assert "  its readings alone can be replayed: it takes no root" in lines[1]
    recording = HardwareRecording.load(tmp_path / "recorded/example")
    assert [sample.value for sample in recording.live.readings[0].samples] == [40.0]


def test_a_hang_is_told_and_the_rest_is_kept(workbench: Workbench, tmp_path: Path) -> None:
    workbench.example({"card-0": {"values": {"power_watts": 50.0}}, "card-1": {"hang": True}})
    folder = tmp_path / "recorded"
    result = workbench.run("record-hardware", str(folder), "--limit", "1")
    assert result.returncode == 0, result.stderr
    assert "  it hung in " in result.stdout
    assert len(HardwareRecording.load(folder / "example").live.readings) == 2


def test_nothing_to_record(workbench: Workbench, tmp_path: Path) -> None:
    workbench.example({}, probe="the example driver is not loaded")
    result = workbench.run("record-hardware", str(tmp_path / "recorded"))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "accelscale: no backend works here; name one with --backend\n"
    assert not (tmp_path / "recorded").exists()


def test_asked_for_what_does_not_work_is_recorded_with_the_reason(
    workbench: Workbench, tmp_path: Path
) -> None:
    workbench.example({}, probe="the example driver is not loaded")
    folder = tmp_path / "recorded"
    result = workbench.run("record-hardware", str(folder), "--backend", "example")
    assert result.returncode == 0, result.stderr
    assert "  it could not be opened: the example driver is not loaded" in result.stdout
    assert HardwareRecording.load(folder / "example").live.refusal


def test_mistakes_are_told_in_a_line(workbench: Workbench, tmp_path: Path) -> None:
    workbench.example({"card-0": {}})
    folder = str(tmp_path / "recorded")
    unknown = workbench.run("record-hardware", folder, "--backend", "exampel")
    assert unknown.returncode == 1
    assert "did you mean 'example'" in unknown.stderr
    rootless = workbench.run("record-hardware", folder, "--backend", "example", "--root", "/host")
    assert rootless.returncode == 1
    assert "example was not recorded: Example takes no root" in rootless.stderr
    alone = workbench.run("record-hardware", folder, "--root", "/host")
    assert alone.returncode == 2
    assert "needs --backend too" in alone.stderr
    (tmp_path / "recorded/example").mkdir(parents=True)
    again = workbench.run("record-hardware", folder)
    assert again.returncode == 1
    assert "exists already" in again.stderr
    for result in (unknown, rootless, alone, again):
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1
