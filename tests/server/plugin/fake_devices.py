"""A plugin as users install it; its one backend is a fake with a busy and an idle device."""

from __future__ import annotations

from collections.abc import Callable

from accelscale import hookimpl
from accelscale.backend import Backend
from accelscale.testing import FakeBackend

fake = FakeBackend(
    {"fake-0": {"utilization_percent": 63.0}, "fake-1": {"utilization_percent": 7.0}},
    on_request_only=True,
)


@hookimpl
def accelscale_register_backends(register: Callable[[type[Backend]], None]) -> None:
    register(fake.as_class())
