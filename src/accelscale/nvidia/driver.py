"""The one user of `pynvml`: every call to NVML goes through here.

NVML is thread-safe, but shutting it down under a call is not. So calls are counted in and out, and
init and shutdown wait for a moment without any; a call that hangs merely puts them off.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from accelscale.backend import Attempt
from accelscale.nvidia.call_error import ADVICE, TOO_OLD, CallError
from accelscale.nvidia.library import OVERRIDE_VARIABLE, SONAME, Rejected, Search, search

logger = logging.getLogger("accelscale.nvidia")


class Driver:
    """NVML as this process uses it: initialised at most once, whoever else uses it here.

    ``generation`` changes with every init; a handle belongs to one generation. While ``record`` is
    set, it is given every call with its result and duration.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.is_open = False
        self.record: Callable[[Attempt], None] | None = None
        self.rejected: tuple[Rejected, ...] = ()
        self._nvml: Any = None
        self._names: dict[int, str] = {}
        self._missing: set[str] = set()
        self._gate = threading.Condition()
        self._in_flight = 0
        self._is_changing = False  # an init or a shutdown is under way
        self._is_wanted = False  # between open and close

    def open(self) -> None:
        """Initialise NVML if it is not.

        Raises:
            CallError: init failed, or no library works; the message says what was tried.
        """
        with self._gate:
            self._is_wanted = True
        self.reopen()

    def reopen(self) -> None:
        """Initialise NVML if it should be and is not, because an attempt failed.

        Raises what `open` raises.
        """
        with self._gate:
            self._gate.wait_for(lambda: not self._is_changing)
            if self.is_open or not self._is_wanted:
                return
            self._is_changing = True
        with self._change():
            self._init()

    def close(self) -> None:
        """Shut NVML down if it is not; what is under way there now ends first, unwaited for."""
        with self._gate:
            self._is_wanted = False
        self._close_if_idle()

    def restart(self) -> bool:
        """Shut down and initialise anew, which lets NVML list its devices afresh.

        False, and nothing done, while a call is under way. Raises what `open` raises.
        """
        with self._gate:
            is_idle = not self._in_flight and not self._is_changing
            if not (is_idle and self.is_open and self._is_wanted):
                return False
            self._is_changing = True
        with self._change():
            self._shut_down()
            self._init()
        return True

    def initialise_again(self, generation: int) -> None:
        """Initialise after somebody else in this process shut NVML down; once per generation.

        Raises what `open` raises.
        """
        with self._gate:
            self._gate.wait_for(lambda: not self._is_changing)
            if self.generation != generation or not self._is_wanted:
                return
            self._is_changing = True
        with self._change():
            self.is_open = False
            self._init()

    def call(self, name: str, *arguments: object, normal: str = "") -> Any:
        """Call a function of the binding; to fail with the error ``normal`` is no fault of it.

        Raises:
            CallError: whatever went wrong, in NVML or in the binding.
        """
        with self._passage(name):
            started = time.perf_counter()
            try:
                result = self._function(name)(*arguments)
            except Exception as error:
                failed = self._translated(name, error)
                self.note(name, failed.in_brief, ok=failed.name == normal, since=started)
                raise failed from error
            self.note(name, result, ok=True, since=started)
            return result

    def call_first(self, *alternatives: tuple[Any, ...]) -> Any:
        """Call the first of these forms, each ``(name, *arguments)``, that the driver has."""
        *newer, oldest = alternatives
        for name, *arguments in newer:
            try:
                return self.call(name, *arguments)
            except CallError as error:
                if error.name not in TOO_OLD:
                    raise
                self.note_missing(error)
        name, *arguments = oldest
        return self.call(name, *arguments)

    def constant(self, name: str) -> int | None:
        """A constant of the binding, or None where it is too old to know it."""
        value: int | None = self.attribute(name)
        return value

    def attribute(self, name: str) -> Any:
        """Whatever the binding has under this name, such as a structure, or None."""
        return getattr(self._nvml, name, None)

    def error(self, call: str, code: int) -> CallError:
        """The error of that code, as if ``call`` had answered it."""
        return CallError(call, code, self._name(code))

    def note(self, call: str, result: object, *, ok: bool, since: float | None = None) -> None:
        """Hand a call to ``record``."""
        if self.record is not None:
            seconds = 0.0 if since is None else time.perf_counter() - since
            self.record(Attempt(call, in_words(result), ok, seconds))

    def note_missing(self, error: CallError) -> None:
        """Log, once per function, that the driver lacks it."""
        if error.name in TOO_OLD and error.call not in self._missing:
            self._missing.add(error.call)
            logger.info("%s; an older call takes its place, or its reading is missing", error)

    @contextmanager
    def _passage(self, name: str) -> Iterator[None]:
        with self._gate:
            self._gate.wait_for(lambda: not self._is_changing)
            if not (self.is_open and self._is_wanted):
                raise CallError(name, None, "UNINITIALIZED", "NVML is closed")
            self._in_flight += 1
        try:
            yield
        finally:
            with self._gate:
                self._in_flight -= 1
            self._close_if_idle()

    @contextmanager
    def _change(self) -> Iterator[None]:
        """The end of an init or a shutdown, however it ends: calls may pass again."""
        try:
            yield
        finally:
            with self._gate:
                self._is_changing = False
                self._gate.notify_all()
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        with self._gate:
            is_idle = not self._in_flight and not self._is_changing
            if self._is_wanted or not self.is_open or not is_idle:
                return
            self._is_changing = True
        with self._change():
            self._shut_down()

    def _init(self) -> None:
        if self._nvml is None:
            self._nvml = _binding()
            self._names = _error_names(self._nvml)
        started = time.perf_counter()
        found = self._find_library()
        try:
            self._nvml.nvmlInit()
        except Exception as error:
            if found is not None and found.library is None:
                raise self._nothing_found(found) from error
            raise self._translated("nvmlInitWithFlags", error) from error
        finally:
            if found is not None and found.library is not None:
                found.library.nvmlShutdown()  # the search left it initialised
        self.note("nvmlInitWithFlags", "SUCCESS", ok=True, since=started)
        self.generation += 1
        self.is_open = True

    def _find_library(self) -> Search | None:
        """Give the binding the library that works, unless it has one already.

        Where there is no candidate at all, the binding may know a place of its own. One that is
        there but fails is kept from it: it would stay loaded, and hide what is installed later.
        """
        if getattr(self._nvml, "nvmlLib", None) is not None:
            return None
        found = search(lambda code: f"{self._name(code)} ({code})")
        self.rejected = found.rejected
        for one in found.rejected:
            self.note(one.path, one.why, ok=False)
        if found.library is not None:
            # The binding asks the loader for the bare name only while this is unset. Should it
            # stop to, the loader still finds this library by its name, since it is loaded.
            self._nvml.nvmlLib = found.library
        elif found.code is not None or found.is_override:
            raise self._nothing_found(found)
        return found

    def _nothing_found(self, found: Search) -> CallError:
        code = 12 if found.code is None else found.code
        name = self._name(code)
        advice = f"{ADVICE[name]}. " if name in ADVICE else ""
        detail = f"{advice}Tried {'; '.join(map(str, found.rejected))}."
        return CallError(
            f"loading {SONAME}", code, name, f"{detail} {OVERRIDE_VARIABLE} can name one"
        )

    def _shut_down(self) -> None:
        self.is_open = False
        try:
            self._nvml.nvmlShutdown()
        except Exception as error:  # noqa: BLE001 - nothing is left to undo, whatever it was
            logger.debug("nvmlShutdown: %s", error)

    def _function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] | None = getattr(self._nvml, name, None)
        if function is None:  # the binding is older than the function
            raise self._nvml.NVMLError(self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return function

    def _translated(self, call: str, error: Exception) -> CallError:
        code = getattr(error, "value", None)
        if isinstance(error, self._nvml.NVMLError) and isinstance(code, int):
            return self.error(call, code)
        return CallError(call, None, type(error).__name__, str(error))

    def _name(self, code: int) -> str:
        return self._names.get(code, f"error {code}")


def address(handle: Any) -> int:
    """What tells two handles of one generation apart."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def text(value: str | bytes) -> str:
    """One type for what some versions of the binding give as bytes (rapidsai/dask-cuda#1123)."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def in_words(result: object) -> str:
    """What a call returned, on one short line."""
    if isinstance(result, ctypes.Structure):
        parts = [f"{name} {in_words(getattr(result, name))}" for name, *_ in result._fields_]
        words = ", ".join(parts)
    elif isinstance(result, ctypes.Array):
        words = f"{len(result)} items"
    elif isinstance(result, list | tuple):
        words = f"[{', '.join(in_words(item) for item in result)}]"
    elif isinstance(result, str | bytes):
        words = text(result)
    elif isinstance(result, int | float):
        words = str(result)
    else:
        words = "SUCCESS"
    return words if len(words) <= 160 else f"{words[:157]}..."


def _binding() -> Any:
    try:
        import pynvml
    except Exception as error:
        detail = f"{error}; install the distribution nvidia-ml-py"
        raise CallError("import pynvml", None, type(error).__name__, detail) from error
    return pynvml


def _error_names(nvml: Any) -> dict[int, str]:
    prefix = "NVML_ERROR_"
    names = (name for name in dir(nvml) if name.startswith(prefix))
    return {int(getattr(nvml, name)): name.removeprefix(prefix) for name in names}
