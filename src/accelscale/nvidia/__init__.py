"""The NVIDIA backend: cards read through NVML, by the binding of the distribution nvidia-ml-py."""

from __future__ import annotations

from collections.abc import Callable

from accelscale.backend import Backend
from accelscale.hookspecs import hookimpl


@hookimpl
def accelscale_register_backends(register: Callable[[type[Backend]], None]) -> None:
    """Register `accelscale.nvidia.backend.NvidiaBackend`; neither binding nor driver is touched."""
    from accelscale.nvidia.backend import NvidiaBackend

    register(NvidiaBackend)
