"""The one user of the binding amdsmi: every call goes through here.

The library may not be shut down under a call, and a call may hang. So calls are counted, and the
shutdown waits for a moment without one.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

from accelscale.model import Reason, normal_pci_address
from accelscale_amd import binding
from accelscale_amd.files import UnreadableError
from accelscale_amd.trial import Verdict

_NOT_INITIALISED = 32
_REASONS: Mapping[int, Reason] = {
    2: Reason.NOT_SUPPORTED,
    3: Reason.NOT_SUPPORTED,  # not yet implemented
    8: Reason.TIMEOUT,
    9: Reason.TIMEOUT,  # retry
    10: Reason.PERMISSION,
    11: Reason.TIMEOUT,  # interrupted
    30: Reason.TIMEOUT,  # busy
    40: Reason.NOT_SUPPORTED,  # no data
}
_NEVER = frozenset({2, 3})
_PERMISSION_ADVICE = "; the process needs access to /dev/dri/renderD* (groups render and video)"


class AmdSmi:
    """The library as this process uses it; `open` may follow `close`.

    ``needs_restart`` says that it lost its own state: close it and open it anew.
    """

    def __init__(self) -> None:
        self.needs_restart = False
        self.version = ""
        self._module: Any = None
        self._handles: dict[str, Any] = {}
        self._gate = threading.Lock()
        self._in_flight = 0
        self._close_later = False

    def open(self, verdict: Verdict) -> None:
        """Load and initialise it, after a trial said that it works.

        Raises:
            UnreadableError: it does not work in this process.
        """
        if self._in_flight:
            raise UnreadableError(Reason.ERROR, "an earlier call of it has not come back")
        try:
            with redirect_stdout(io.StringIO()):
                module = binding.load(verdict.package)
                binding.initialise(module)
        except (Exception, SystemExit) as error:
            detail = f"it worked in a trial, but here raised {binding.in_words(error)}"
            raise UnreadableError(Reason.ERROR, detail) from error
        self._module, self.version = module, binding.version(module)
        self.needs_restart = self._close_later = False
        try:
            self.list_cards()
        except UnreadableError:
            self.close()
            raise
        missing = verdict.addresses - self._handles.keys()
        if not self._handles:
            # Seen where something else in the process had loaded librocm_smi64 (rocm-systems#7643).
            self.close()
            detail = f"it lists no GPU in this process, of {len(missing)} in a trial"
            raise UnreadableError(Reason.ERROR, detail)

    def list_cards(self) -> None:
        """Take the handles anew. Of the partitions of one card the first stands for the card.

        Raises:
            UnreadableError: it does not answer.
        """
        found: dict[str, Any] = {}
        for handle in self.call("amdsmi_get_processor_handles"):
            try:
                address = normal_pci_address(str(self.call("amdsmi_get_gpu_device_bdf", handle)))
            except UnreadableError:
                continue  # one card that is ill hides no other; it is read from /sys
            found.setdefault(address, handle)
        self._handles = found

    def handle(self, address: str) -> Any:
        """The library's handle of the card at that PCI address, or None."""
        return self._handles.get(address)

    def value(self, enumeration: str, member: str) -> Any:
        """A member of one of the binding's enumerations."""
        return getattr(getattr(self._module, enumeration), member)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the binding.

        Raises:
            UnreadableError: whatever went wrong, in the library or in the binding.
        """
        with self._passage(name):
            try:
                return getattr(self._module, name)(*arguments)
            except Exception as error:
                raise self._translated(name, error) from error

    def close(self) -> None:
        """Shut the library down; with a call under way, as soon as that returns."""
        with self._gate:
            if self._module is None:
                return
            if self._in_flight:
                self._close_later = True
                return
            module, self._module, self._handles = self._module, None, {}
        _shut_down(module)

    @contextmanager
    def _passage(self, name: str) -> Iterator[None]:
        with self._gate:
            if self._module is None or self._close_later:
                raise UnreadableError(Reason.ERROR, f"{name}: amdsmi is closed")
            self._in_flight += 1
        try:
            yield
        finally:
            with self._gate:
                self._in_flight -= 1
                closes = self._close_later and not self._in_flight
            if closes:
                self.close()

    def _translated(self, name: str, error: Exception) -> UnreadableError:
        code = getattr(error, "err_code", None)
        if not isinstance(code, int):
            detail = f"{name} raised {binding.in_words(error)}"
            return UnreadableError(Reason.ERROR, detail)
        if code == _NOT_INITIALISED:
            self.needs_restart = True
        words = str(getattr(error, "err_info", "")).strip() or "an error without a name"
        reason = _REASONS.get(code, Reason.ERROR)
        advice = _PERMISSION_ADVICE if reason is Reason.PERMISSION else ""
        return UnreadableError(
            reason, f"{name}: {words} ({code}){advice}", code=code, permanent=code in _NEVER
        )


def _shut_down(module: Any) -> None:
    try:
        module.amdsmi_shut_down()
    except Exception:  # noqa: BLE001 - it was shut down already, or its driver is gone
        return
