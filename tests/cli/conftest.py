"""Real processes of the command line, and a scaler to poll."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.scripted import ScriptedScaler
from cli.workbench import Workbench


@pytest.fixture
def workbench(tmp_path: Path) -> Workbench:
    """Where commands run."""
    return Workbench(tmp_path)


@pytest.fixture
def scaler() -> Iterator[ScriptedScaler]:
    """An external scaler on a loopback port that answers as the test says."""
    with ScriptedScaler() as server:
        yield server
