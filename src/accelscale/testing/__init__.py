"""For authors of plugins: a fake backend, the tests that every backend must pass, recordings.

``BackendConformance`` needs pytest, so it is imported only when it is asked for, as is what replays
a recording of hardware.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelscale.testing.fake import FakeBackend

if TYPE_CHECKING:
    from accelscale.testing.conformance import BackendConformance
    from accelscale.testing.recording import RecordedBackend, recordings, replay, replay_faults

__all__ = [
    "BackendConformance",
    "FakeBackend",
    "RecordedBackend",
    "recordings",
    "replay",
    "replay_faults",
]


def __getattr__(name: str) -> object:
    if name == "BackendConformance":
        from accelscale.testing.conformance import BackendConformance

        return BackendConformance
    if name in __all__:
        from accelscale.testing import recording

        return getattr(recording, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
