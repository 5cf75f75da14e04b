"""Fixtures of the Intel backend's tests."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accelscale_intel import trial
from drivers.levelzero import state as levelzero
from intel.trees import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "root")


@pytest.fixture(scope="session")
def build_levelzero(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles the fake loader, or one without a function; gives its path."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # all workers of one run share the parent folder
        folder = folder.parent

    def build(without: str | None = None) -> Path:
        return levelzero.build(folder / "levelzero-driver" / (without or "whole"), without=without)

    return build


@pytest.fixture
def fake_levelzero(
    tmp_path: Path,
    tree: Tree,
    build_levelzero: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[levelzero.FakeLevelZero]:
    """The fake loader in this process and its children; no state is written yet."""
    library = build_levelzero()
    ctypes.CDLL(str(library))
    fake = levelzero.FakeLevelZero(tmp_path / "levelzero.state")
    monkeypatch.setenv(levelzero.STATE_VARIABLE, str(fake.path))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    tree.install_loader()
    trial.forget_verdicts()
    yield fake
    trial.forget_verdicts()
