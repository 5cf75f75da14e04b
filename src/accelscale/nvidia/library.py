"""Finds the NVML library that works among those that are there.

The binding `pynvml` asks the loader for the bare name ``libnvidia-ml.so.1`` and takes the first
hit. In containers that is not always the driver's: a directory left by a mount that failed, an
empty file, or the stub that CUDA ships for linking may come first
(kubernetes-sigs/dra-driver-nvidia-gpu#1272, NVIDIA/dcgm-exporter#27, Syllo/nvtop#225). So each
candidate is tried, and what speaks against each is kept for the user.
"""

from __future__ import annotations

import ctypes
import os
import platform
from _ctypes import dlclose  # ctypes has no public name for it
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import frozen

SONAME = "libnvidia-ml.so.1"
OVERRIDE_VARIABLE = "ACCELSCALE_NVML_LIBRARY"
"""Names the library to use, and no other is tried."""

_MACHINE = platform.machine()
_USUAL_FOLDERS = (
    f"/usr/lib/{_MACHINE}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    f"/usr/lib/{_MACHINE}-linux-gnu/nvidia/current",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    f"/run/nvidia/driver/usr/lib/{_MACHINE}-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
    "/home/kubernetes/bin/nvidia/lib64",
)


@frozen
class Rejected:
    """A candidate that is there but cannot be used; ``code`` is the NVML error of its init."""

    path: str
    why: str
    code: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


@frozen
class Search:
    """The library that was found, initialised once for the caller, and what was passed over.

    ``is_override`` says that the user named the library, and no other was tried.
    """

    library: ctypes.CDLL | None
    path: str | None
    rejected: tuple[Rejected, ...]
    is_override: bool

    @property
    def code(self) -> int | None:
        """The most telling NVML error: that of the first candidate which is a library at all."""
        return next((one.code for one in self.rejected if one.code is not None), None)


def search(error_name: Callable[[int], str]) -> Search:
    """Try the candidates in the order of the loader, then the usual folders, until one works.

    A library works if its init succeeds; it is left initialised, so the caller owes one shutdown.
    One that fails is unloaded again, so that a driver installed later under the same name is seen.
    ``error_name`` puts the number of an NVML error into words.
    """
    rejected: list[Rejected] = []
    override = os.environ.get(OVERRIDE_VARIABLE)
    is_override = bool(override)
    for candidate in [override] if override else _candidates():
        outcome = _try(candidate, error_name)
        if isinstance(outcome, ctypes.CDLL):
            return Search(outcome, candidate, tuple(rejected), is_override)
        rejected.append(outcome)
    return Search(None, None, tuple(rejected), is_override)


def _candidates() -> Iterator[str]:
    seen: set[str] = set()
    for folder in os.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
        if folder:
            yield from _unseen(Path(folder).absolute() / SONAME, seen)
    yield SONAME
    for folder in _USUAL_FOLDERS:
        yield from _unseen(Path(folder) / SONAME, seen)


def _unseen(path: Path, seen: set[str]) -> Iterator[str]:
    real = os.path.realpath(path)
    if os.path.lexists(path) and real not in seen:
        seen.add(real)
        yield str(path)


def _try(candidate: str, error_name: Callable[[int], str]) -> ctypes.CDLL | Rejected:
    if os.sep in candidate and os.path.isdir(candidate):  # noqa: PTH112 - Path.is_dir may raise
        return Rejected(candidate, "is a directory")
    if "stubs" in Path(os.path.realpath(candidate)).parts:
        return Rejected(candidate, "is a stub for linking, not a driver's library")
    try:
        library = ctypes.CDLL(candidate)
    except OSError as error:
        return Rejected(candidate, str(error))
    try:
        code = int(library.nvmlInitWithFlags(0))
    except AttributeError:
        code = None
    if code == 0:
        return library
    dlclose(library._handle)
    if code is None:
        return Rejected(candidate, "has no function nvmlInitWithFlags: too old, or no NVML at all")
    return Rejected(candidate, f"nvmlInitWithFlags answered {error_name(code)}", code)
