"""An example of a plugin: cards that do not exist, as devices of accelscale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelscale.hookspecs import hookimpl
from accelscale_example.backend import ExampleBackend

if TYPE_CHECKING:
    from collections.abc import Callable

    from accelscale.backend import Backend

__all__ = ["ExampleBackend"]


@hookimpl
def accelscale_register_backends(register: Callable[[type[Backend]], None]) -> None:
    """Register the one backend of this plugin."""
    register(ExampleBackend)
