"""The one user of `pyhlml`: tries it in a process of its own first, then loads it in this one.

The binding prints when its library does not load, and what the library itself prints, or whether it
ends the process, is the driver's affair. Standard output belongs to whoever runs us.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import frozen

from accelscale.errors import BackendError
from accelscale.model import Reason

if TYPE_CHECKING:
    import subprocess

LIBRARY = "usr/lib/habanalabs/libhlml.so"
"""Where the binding, and nothing else, looks for the library."""

TRIAL_SECONDS = 20.0
"""How long a trial may take."""

RETRY_SECONDS = 60.0
"""Seconds before a trial that failed is repeated."""

_TRIAL = """
import sys, warnings
warnings.simplefilter("ignore")
try:
    import pyhlml
    pyhlml.hlmlInit()
    pyhlml.hlmlShutdown()
except BaseException as error:
    sys.stderr.write(f"\\naccelscale: {type(error).__name__}: {error}\\n")
    sys.exit(3)
"""

REASONS: Mapping[int, Reason] = MappingProxyType(
    {
        2: Reason.NOT_SUPPORTED,  # INVALID_ARGUMENT: this version lacks the call or the sensor
        3: Reason.NOT_SUPPORTED,
        6: Reason.LOST,  # NOT_FOUND
        10: Reason.TIMEOUT,
        15: Reason.LOST,  # AIP_IS_LOST
    }
)
"""Our reasons, by HLML's codes; every other code is `Reason.ERROR`."""

DRIVER_WIDE = frozenset({1, 9})
"""UNINITIALIZED and DRIVER_NOT_LOADED concern no single card."""


class CallError(Exception):
    """A call of HLML that failed. Never leaves this package."""

    def __init__(self, call: str, code: int | None, text: str) -> None:
        super().__init__(f"{call}: {text}")
        self.code = code
        self.reason = Reason.ERROR if code is None else REASONS.get(code, Reason.ERROR)
        self.is_permanent = code == 3  # NOT_SUPPORTED


@frozen
class Verdict:
    """What a trial found; ``prints`` says that it wrote to standard output."""

    works: bool
    text: str
    prints: bool = False


class Trial:
    """The binding, imported and initialised once in a process that may print, crash or hang."""

    def __init__(self) -> None:
        import subprocess
        import tempfile

        self._folder = tempfile.TemporaryDirectory(prefix="accelscale-gaudi-")
        self._started = time.monotonic()
        self._process: subprocess.Popen[bytes]
        with (
            Path(self._folder.name, "out").open("wb") as out,
            Path(self._folder.name, "err").open("wb") as err,
        ):
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with a program of our own
                [sys.executable, "-c", _TRIAL],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def wait(self, seconds: float) -> Verdict | None:
        """The verdict, or None if there is none after so many seconds."""
        deadline = time.monotonic() + seconds
        while self._process.poll() is None:
            if time.monotonic() - self._started > TRIAL_SECONDS:
                self.end()
                return Verdict(works=False, text=f"no answer within {TRIAL_SECONDS:g} s")
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)
        verdict = self._verdict(self._process.returncode)
        self._folder.cleanup()
        return verdict

    def end(self) -> None:
        """Let go of a trial that is not wanted any more."""
        self._process.kill()
        with contextlib.suppress(Exception):  # inside a driver call it cannot end now
            self._process.wait(1.0)
        self._folder.cleanup()

    def _verdict(self, status: int) -> Verdict:
        prints = Path(self._folder.name, "out").stat().st_size > 0
        if status == 0:
            return Verdict(works=True, text="works", prints=prints)
        with Path(self._folder.name, "err").open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - 2000))
            said = stream.read().decode("utf-8", errors="replace").split("\n")
        told = [line.removeprefix("accelscale: ") for line in said if line.startswith("accelscale")]
        text = told[-1][:200] if told else f"the process ended with status {status}"
        return Verdict(works=False, text=text)


class Library:
    """HLML as this process uses it, through the binding."""

    def __init__(self, verdict: Verdict) -> None:
        """Load and initialise.

        Raises:
            BackendError: it cannot be loaded, or the driver does not answer.
        """
        try:
            ctypes.CDLL(f"/{LIBRARY}")  # else the binding would find out, and print
        except OSError as error:
            raise BackendError(
                f"{LIBRARY} cannot be loaded: {error}", reason=Reason.ERROR
            ) from error
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the binding warns of its own modules
            self._binding: Any = importlib.import_module("pyhlml")
        away = _standard_output_away() if verdict.prints else contextlib.nullcontext()
        with away:
            try:
                self.call("hlmlInit")
            except CallError as error:
                raise BackendError(
                    f"HLML: {error}", reason=error.reason, code=error.code
                ) from error

    def close(self) -> None:
        with contextlib.suppress(CallError, BackendError):
            self.call("hlmlShutdown")

    def call(self, name: str, *arguments: object) -> Any:
        """Make a call of the binding.

        Raises:
            CallError: HLML answered an error about this card or call.
            BackendError: HLML answered that it or its driver is not there.
        """
        function: Callable[..., Any] | None = getattr(self._binding, name, None)
        if function is None:
            raise CallError(name, 3, "this version of the binding does not have it")
        try:
            return function(*arguments)
        except Exception as error:
            value = getattr(error, "value", None)
            code = int(value) if isinstance(value, int) else None
            text = f"{type(error).__name__} ({code})" if code is not None else repr(error)
            if code in DRIVER_WIDE:
                raise BackendError(
                    f"HLML: {name}: {text}", reason=Reason.ERROR, code=code
                ) from error
            raise CallError(name, code, text) from error


@contextlib.contextmanager
def _standard_output_away() -> Iterator[None]:
    """What C code writes to standard output meanwhile goes to standard error.

    For the whole process, therefore only around a call that is known to write.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
