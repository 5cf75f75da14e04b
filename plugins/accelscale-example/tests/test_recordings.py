"""What was recorded on machines with the hardware still reads as it did there."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelscale.testing import recordings, replay_faults
from accelscale_example import ExampleBackend

FOUND = recordings(Path(__file__).parent / "recordings")


def test_there_is_one() -> None:
    assert FOUND


@pytest.mark.parametrize("folder", FOUND, ids=lambda folder: folder.name)
def test_recording(folder: Path) -> None:
    assert replay_faults(folder, ExampleBackend) == []
