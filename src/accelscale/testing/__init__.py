"""For authors of plugins: a backend to test against, and the tests that a backend must pass.

``BackendConformance`` needs pytest, so it is imported only when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelscale.testing.fake import FakeBackend

if TYPE_CHECKING:
    from accelscale.testing.conformance import BackendConformance

__all__ = ["BackendConformance", "FakeBackend"]


def __getattr__(name: str) -> object:
    if name == "BackendConformance":
        from accelscale.testing.conformance import BackendConformance

        return BackendConformance
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
