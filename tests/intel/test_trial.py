"""Trying Level Zero out in a process of its own: whatever it does, there is a reason."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from accelscale_intel import trial
from drivers.levelzero.state import FakeLevelZero
from intel.trees import Tree

DEVICE = {"address": "0000:03:00.0"}


def test_a_loader_that_works_is_found_to_work(tree: Tree, fake_levelzero: FakeLevelZero) -> None:
    fake_levelzero.write(DEVICE)
    found = trial.verdict(tree.root)
    assert found.works
    assert found.reason == "1 drivers"
    assert 0 < found.seconds < trial.LIMIT_SECONDS


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        ({"init": 0x78000001}, "zesInit answered 0x78000001"),
        ({"init": {"crash": 1}}, "ended the process that tried it (status -6)"),
    ],
)
def test_what_does_not_work_says_how(
    tree: Tree, fake_levelzero: FakeLevelZero, loader: dict[str, int], words: str
) -> None:
    fake_levelzero.write(DEVICE, **loader)
    found = trial.verdict(tree.root)
    assert not found.works
    assert words in found.reason
    assert not found.is_final


def test_a_driver_without_devices_does_not_work(tree: Tree, fake_levelzero: FakeLevelZero) -> None:
    fake_levelzero.write()
    assert "0 drivers" in trial.verdict(tree.root).reason


def test_one_that_hangs_is_given_up(
    tree: Tree, fake_levelzero: FakeLevelZero, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_levelzero.write(DEVICE, init={"hang": 60})
    monkeypatch.setattr(trial, "LIMIT_SECONDS", 0.5)
    found = trial.verdict(tree.root)
    assert not found.works
    assert "did not start within 0.5 s" in found.reason
    assert not [t for t in threading.enumerate() if t.name.startswith("accelscale-intel")]


def test_one_that_prints_is_not_heard(
    tree: Tree, fake_levelzero: FakeLevelZero, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_levelzero.write(DEVICE, init={"print": '{"ok": false, "text": "noise"}'})
    assert trial.verdict(tree.root).works
    assert capfd.readouterr() == ("", "")


def test_a_loader_that_is_too_old_is_named(
    tree: Tree,
    fake_levelzero: FakeLevelZero,
    build_levelzero: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Debian 12 ships 1.8, which has no zesInit."""
    fake_levelzero.write(DEVICE)
    monkeypatch.setenv("LD_PRELOAD", str(build_levelzero(without="zesInit")))
    found = trial.verdict(tree.root)
    assert not found.works
    assert "zesInit raised AttributeError" in found.reason


@pytest.mark.skipif(Path("/", trial.LOADER).exists(), reason="there is a real loader")
def test_a_loader_that_cannot_be_loaded_is_no_exception(
    tree: Tree, fake_levelzero: FakeLevelZero, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_PRELOAD")
    found = trial.verdict(tree.root)
    assert not found.works
    assert "import pyzes raised OSError" in found.reason


def test_without_a_loader_no_process_is_started(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_PROGRAM", Path("/there/is/no/such/program"))
    found = trial.verdict(tree.root)
    assert not found.works
    assert found.is_final
    assert trial.LOADER in found.reason
    assert found.seconds == 0.0


def test_without_the_binding_it_says_what_to_install(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = trial.verdict(tree.root)
    assert not found.works
    assert "accelscale-intel[sysman]" in found.reason


def test_a_verdict_is_reached_once(tree: Tree, fake_levelzero: FakeLevelZero) -> None:
    fake_levelzero.write(DEVICE, init=0x78000001)
    first = trial.verdict(tree.root)
    fake_levelzero.write(DEVICE)
    assert trial.verdict(tree.root) is first


def test_another_loader_gets_another_verdict(tree: Tree, fake_levelzero: FakeLevelZero) -> None:
    fake_levelzero.write(DEVICE, init=0x78000001)
    assert not trial.verdict(tree.root).works
    fake_levelzero.write(DEVICE)
    tree.write(trial.LOADER, "an upgrade")
    assert trial.verdict(tree.root).works


def test_a_verdict_against_it_is_looked_at_again_in_time(
    tree: Tree, fake_levelzero: FakeLevelZero, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_levelzero.write(DEVICE, init=0x78000001)
    assert not trial.verdict(tree.root).works
    fake_levelzero.write(DEVICE)
    monkeypatch.setattr(trial, "RETRY_SECONDS", 0.0)
    assert trial.verdict(tree.root).works
