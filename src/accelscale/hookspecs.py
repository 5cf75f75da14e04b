"""The one hook that a plugin implements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Callable

    from accelscale.backend import Backend

hookspec = pluggy.HookspecMarker("accelscale")
hookimpl = pluggy.HookimplMarker("accelscale")


@hookspec
def accelscale_register_backends(register: Callable[[type[Backend]], None]) -> None:
    """Call ``register(MyBackend)`` for each backend class of this plugin.

    The classes are registered together when the hook returns; if it raises, none of them is.
    """
