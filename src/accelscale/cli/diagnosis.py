"""Tries a backend call by call, with an end even where a driver call has none.

A hanging call cannot be interrupted. It runs on a thread of its own, which is left behind when the
time is up; its innermost Python frame names the call.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import FrameType, MappingProxyType

from attrs import field, frozen

from accelscale.backend import Attempt, Probe
from accelscale.model import Reason
from accelscale.plugins import RegisteredBackend, Registry

PROBE_SECONDS = 5.0
"""How long a probe may take where only its answer is wanted."""

WHOLE_SECONDS = 60.0
"""How long one backend may take in all, however quick its single calls are."""

MOST_NAMES = 3
"""How many calls one piece of advice names."""

ADVICE: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.PERMISSION: (
            "the driver refuses it to this user; in a container check its device nodes and"
            " capabilities, and on a shared machine ask its administrator"
        ),
        Reason.LOST: (
            "the driver no longer reaches this device; look for its PCI address in the kernel log"
            " (dmesg), then reset the device or reboot the machine"
        ),
        Reason.RESET_REQUIRED: (
            "the device must be reset: end what runs on it, then reset it with the vendor's tool"
            " or reboot"
        ),
        Reason.TIMEOUT: (
            "the driver does not answer in time; look for driver messages in the kernel log"
            " (dmesg); a hung driver needs a reboot"
        ),
        Reason.OUT_OF_RANGE: (
            "the driver reports an impossible value, so it is refused; look for a driver update"
        ),
        Reason.NO_PROGRESS: (
            "a counter needs two readings; if `accelscale devices` says the same, it stands still"
            " though it cannot while the device lives: look for a driver update"
        ),
        Reason.ERROR: "the driver's own code is above; look for its messages in the kernel log",
    }
)
"""What to do about a missing reading, by its reason."""


@frozen
class Diagnosis:
    """What came of trying one backend; ``hanging`` names the call that did not return."""

    backend: RegisteredBackend
    probe: Probe | None
    attempts: tuple[Attempt, ...] = ()
    hanging: str | None = None
    advice: tuple[str, ...] = field(default=())

    @property
    def works(self) -> bool:
        """Whether it can be used: it was viable, came to an end, and some call succeeded."""
        if self.probe is None or not self.probe.viable or self.hanging:
            return False
        return not self.attempts or any(attempt.ok for attempt in self.attempts)


def diagnose(registry: Registry, name: str, seconds: float) -> Diagnosis:
    """Probe the backend, then make each of its calls; give up after so long without a result."""
    registered = registry.backends[name]
    found: list[Probe] = []

    def steps() -> Iterator[Attempt]:
        backend = registry.create(name)
        probe = backend.probe()
        found.append(probe)
        yield from probe.attempts
        if probe.viable:
            yield from backend.diagnose()

    attempts, hanging = _bounded(steps, seconds)
    probe = found[0] if found else None
    advice = tuple(_advice(probe, attempts, hanging, seconds))
    return Diagnosis(registered, probe, attempts, hanging, advice)


def bounded_probe(registry: Registry, name: str, seconds: float = PROBE_SECONDS) -> Probe:
    """What the backend says about itself; not viable where it raises or says nothing in time."""
    found: list[Probe] = []

    def steps() -> Iterator[Attempt]:
        found.append(registry.create(name).probe())
        return iter(())

    attempts, hanging = _bounded(steps, seconds)
    if found:
        return found[0]
    reason = f"it hangs in {hanging}" if hanging else attempts[-1].result
    return Probe(False, reason)


def _bounded(
    steps: Callable[[], Iterator[Attempt]], seconds: float
) -> tuple[tuple[Attempt, ...], str | None]:
    """The attempts, and the name of the call that hangs, if one does."""
    results: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()

    def work() -> None:
        try:
            for attempt in steps():
                results.put(attempt)
        except Exception as error:  # noqa: BLE001 - a broken backend is what doctor describes
            results.put(Attempt("backend", f"{type(error).__name__}: {error}", False, 0.0))
        results.put(None)

    thread = threading.Thread(target=work, name="accelscale-diagnosis", daemon=True)
    thread.start()
    attempts: list[Attempt] = []
    end = time.monotonic() + max(WHOLE_SECONDS, seconds)
    while True:
        try:
            attempt = results.get(timeout=min(seconds, max(end - time.monotonic(), 0.01)))
        except queue.Empty:
            return tuple(attempts), _where(thread)
        if attempt is None:
            thread.join()
            return tuple(attempts), None
        attempts.append(attempt)


def _where(thread: threading.Thread) -> str:
    """The function that the thread is in: for a driver call, the binding's wrapper of it."""
    frame: FrameType | None = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return "a call that has just ended"
    return f"{frame.f_code.co_qualname} ({frame.f_globals.get('__name__', '?')})"


def _advice(
    probe: Probe | None, attempts: Iterable[Attempt], hanging: str | None, seconds: float
) -> Iterator[str]:
    if hanging:
        yield f"{hanging} did not return within {seconds:g} s: {ADVICE[Reason.TIMEOUT]}"
    if probe is not None and not probe.viable:
        yield probe.reason
    failed = [attempt for attempt in attempts if not attempt.ok]
    for reason, text in ADVICE.items():
        calls = [attempt.call for attempt in failed if reason_of(attempt) is reason]
        if calls:
            yield f"{reason} ({_first(dict.fromkeys(calls))}): {text}"


def _first(names: Collection[str]) -> str:
    shown = list(names)[:MOST_NAMES]
    return ", ".join(shown) + (
        f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    )


def reason_of(attempt: Attempt) -> Reason | None:
    """The reason that the result of a failed attempt begins with."""
    try:
        return Reason(attempt.result.partition(":")[0].strip())
    except ValueError:
        return None
