"""For authors of plugins: a backend to test against, and the tests that a backend must pass."""

from __future__ import annotations

from accelscale.testing.fake import FakeBackend

__all__ = ["FakeBackend"]
