"""AWS Inferentia and Trainium chips as devices of accelscale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelscale.hookspecs import hookimpl
from accelscale_neuron.backend import NeuronBackend

if TYPE_CHECKING:
    from collections.abc import Callable

    from accelscale.backend import Backend

__all__ = ["NeuronBackend"]


@hookimpl
def accelscale_register_backends(register: Callable[[type[Backend]], None]) -> None:
    """Register the one backend of this plugin."""
    register(NeuronBackend)
