"""What NVML's errors mean to us, in one table.

Errors go by the ends of NVML's names for them (``GPU_IS_LOST``), which do not change with versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from accelscale.errors import BackendError
from accelscale.model import Reason

REASONS: Mapping[str, Reason] = MappingProxyType(
    {
        "NOT_SUPPORTED": Reason.NOT_SUPPORTED,
        "FUNCTION_NOT_FOUND": Reason.NOT_SUPPORTED,
        "ARGUMENT_VERSION_MISMATCH": Reason.NOT_SUPPORTED,
        "DEPRECATED": Reason.NOT_SUPPORTED,
        "NO_PERMISSION": Reason.PERMISSION,
        "GPU_IS_LOST": Reason.LOST,
        "GPU_NOT_FOUND": Reason.LOST,
        "RESET_REQUIRED": Reason.RESET_REQUIRED,
        "TIMEOUT": Reason.TIMEOUT,
        "NOT_READY": Reason.TIMEOUT,
    }
)
"""Our reasons, by the ends of NVML's error names; every other error is `Reason.ERROR`."""

DRIVER_WIDE = frozenset(
    {"UNINITIALIZED", "DRIVER_NOT_LOADED", "LIBRARY_NOT_FOUND", "LIB_RM_VERSION_MISMATCH"}
)
"""Errors that concern no single device, whichever call they answer."""

TOO_OLD = frozenset({"FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "DEPRECATED"})
"""How a driver says that it does not have this form of a call."""

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "LIB_RM_VERSION_MISMATCH": "the NVIDIA driver was replaced, and this process still has the"
        " old library loaded: restart the process (in Kubernetes, the pod)",
        "DRIVER_NOT_LOADED": "the NVIDIA kernel driver is not loaded here (yet)",
        "LIBRARY_NOT_FOUND": "install the NVIDIA driver; in a container, have the NVIDIA container"
        " toolkit mount its library",
        "NO_PERMISSION": "this process may not use the device: it needs access to /dev/nvidia*",
        "GPU_IS_LOST": "the card fell off the bus or cannot be reached",
        "RESET_REQUIRED": "the card must be reset before it can be used again",
        "UNKNOWN": "in a container the usual cause is that it lost the device nodes /dev/nvidia*,"
        " which only a restart of the container heals",
        "FUNCTION_NOT_FOUND": "the driver is too old to have it",
    }
)


class CallError(Exception):
    """An NVML call that failed; ``name`` is the end of NVML's name for ``code``.

    Never leaves this package: the backend makes a `Failure` or a `BackendError` of it.
    """

    def __init__(self, call: str, code: int | None, name: str, detail: str = "") -> None:
        self.call = call
        self.code = code
        self.name = name
        number = "" if code is None else f" ({code})"
        advice = detail or ADVICE.get(name, "")
        super().__init__(f"{call} gave {name}{number}" + (f": {advice}" if advice else ""))

    @property
    def reason(self) -> Reason:
        """The nearest of our reasons."""
        return REASONS.get(self.name, Reason.ERROR)

    @property
    def in_brief(self) -> str:
        """Our reason, and NVML's name and number, as ``accelscale doctor`` shows an attempt."""
        if self.code is None:
            return f"{self.reason}: {self.name}"
        return f"{self.reason}: NVML_ERROR_{self.name} ({self.code})"

    @property
    def is_driver_wide(self) -> bool:
        """Whether this says something about the driver and not about one device."""
        return self.name in DRIVER_WIDE

    def as_backend_error(self, *, needs_restart: bool = False) -> BackendError:
        """The same for callers outside this package; chain it with ``from``."""
        return BackendError(
            f"NVML: {self}",
            reason=self.reason,
            code=self.code,
            needs_restart=needs_restart or self.name == "LIB_RM_VERSION_MISMATCH",
        )
