"""Recordings of hardware: what a backend read where the hardware is, replayed where it is not.

`record` makes one (``accelscale record-hardware`` is its command), `replay` puts it in the place of
the hardware, and `replay_faults` is the test that its plugin still makes the same of it.
"""

from __future__ import annotations

from accelscale.testing.recording.record import HardwareRecording, Outcome
from accelscale.testing.recording.recorder import record
from accelscale.testing.recording.replaying import (
    RecordedBackend,
    recordings,
    replay,
    replay_faults,
)

__all__ = [
    "HardwareRecording",
    "Outcome",
    "RecordedBackend",
    "record",
    "recordings",
    "replay",
    "replay_faults",
]
