"""One backend to readings: a thread of its own, one collection at a time, hanging calls given up.

A driver call can hang for tens of seconds and cannot be interrupted. When one does, its device
fails as ``timeout``; where the backend allows it (`Backend.isolates_devices`) the thread is left
inside the call and another goes on with the remaining devices, so that they stay fresh. The device
is read again once its call has come back. The number of threads left behind is bounded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from attrs import define, frozen

from accelscale.backend import Backend
from accelscale.errors import BackendError
from accelscale.metrics import Tier
from accelscale.model import Device, Reason
from accelscale.readings import Readings, interval_of

logger = logging.getLogger("accelscale.collector")

T = TypeVar("T")

REFRESH_SECONDS = 5.0
"""How often a backend looks for devices that came, went or changed."""

REOPEN_SECONDS = (1.0, 1.0, 1.0, 2.0, 4.0, 8.0, 10.0)
"""Waits between attempts to open a backend that does not open; the last one repeats."""

MOST_STUCK = 16
"""Threads of one backend that may be left inside hanging calls."""

ENUMERATION = ""
"""Stands for the call that lists devices, where a device id says which call is running."""


@frozen
class BackendState:
    """How one backend is doing.

    ``phase`` is opening, ready, failed or released. ``time`` is that of the last complete
    collection, in monotonic seconds, and ``last_seconds`` is how long it took. ``timeouts``
    counts calls that outlasted the deadline. ``needs_restart`` says that only a new process helps.
    """

    name: str
    vendor: str
    phase: str
    reason: str
    needs_restart: bool
    devices: int
    collections: int
    failed_collections: int
    timeouts: int
    last_seconds: float | None
    time: float | None


@define
class _Call:
    """The driver call that a thread is in: of which device, since when, by which thread."""

    device_id: str
    since: float
    thread: threading.Thread
    given_up: bool = False


class _Superseded(Exception):  # noqa: N818 - no error: the thread learns that another took over
    """This thread came back from a call that was given up; another does its work."""


class BackendLoop:
    """Reads one backend over and over, in a thread of its own."""

    def __init__(
        self,
        backend: Backend,
        readings: Readings,
        *,
        deadline: float,
        refresh: float,
        optional: bool,
    ) -> None:
        self.backend = backend
        self._optional = optional
        self._readings = readings
        self._deadline = deadline
        self._refresh_seconds = max(refresh, readings.interval)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._call: _Call | None = None
        self._stuck: dict[str, threading.Thread] = {}
        self._suspects: set[str] = set()
        self._devices: tuple[Device, ...] = ()
        self._is_open = False
        self._next_refresh = 0.0
        self._next_slow = 0.0
        self._phase, self._reason, self._needs_restart = "opening", "not tried yet", False
        self._failed_opens = self._collections = self._failed = self._timeouts = 0
        self._last_seconds: float | None = None
        self._last_time: float | None = None
        readings.declare(backend)

    @property
    def state(self) -> BackendState:
        """How this backend is doing now."""
        return BackendState(
            name=self.backend.name,
            vendor=self.backend.vendor,
            phase=self._phase,
            reason=self._reason,
            needs_restart=self._needs_restart,
            devices=len(self._devices),
            collections=self._collections,
            failed_collections=self._failed,
            timeouts=self._timeouts,
            last_seconds=self._last_seconds,
            time=self._last_time,
        )

    def start(self) -> None:
        """Start, or start again after `stop`."""
        with self._lock:
            self._stopped = False
            self._wake.clear()
            self._phase, self._reason = "opening", "not tried yet"
            self._start_thread()
        if self._last_time is None:
            self._readings.set_problem(self.backend, "not opened yet", optional=self._optional)

    def stop(self, seconds: float) -> bool:
        """End the thread and close the backend; False if a hanging call kept it open."""
        self._stopped = True
        self._wake.set()
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        with self._lock:
            hanging = any(t.is_alive() for t in (*self._stuck.values(), thread) if t is not None)
            self._phase, self._reason = "released", "let go of the driver"
            self._thread = None
        if hanging:
            logger.warning("%s: a driver call hangs, so it stays open", self.backend.name)
            return False
        self._close()
        text = "let go of, so that the driver can be maintained"
        self._readings.set_problem(self.backend, text)
        self._readings.fail(self._devices, tuple(self.backend.metrics), Reason.STALE, text)
        self._readings.publish()
        return True

    def check(self, now: float) -> None:
        """Give up on a call that has outlasted the deadline; the watchdog calls this."""
        with self._lock:
            self._revive()
            call, patience = self._call, self._patience()
            if call is None or call.given_up or now - call.since <= patience:
                return
            call.given_up = True
            self._timeouts += 1
            replaced = self._can_go_on(call) and self._replace(call)
        text = f"a driver call did not come back within {patience:g} s"
        if replaced:
            hung = [device for device in self._devices if device.id == call.device_id]
            logger.warning("%s: %s: %s", self.backend.name, call.device_id or "listing", text)
            self._readings.fail(hung, tuple(self.backend.metrics), Reason.TIMEOUT, text)
            self._readings.publish()
        else:
            self._fall(f"{text}; nothing else can be read meanwhile", Reason.TIMEOUT)

    def _patience(self) -> float:
        """Seconds that a call may take now.

        Less while others hang, so that several hanging devices, found one after the other, do not
        together outlast the age limit of the rest.
        """
        return float(self._deadline / 2 ** min(len(self._stuck), 3))

    def _can_go_on(self, call: _Call) -> bool:
        """Whether there is something else to read, and another thread may read it."""
        return (
            self.backend.isolates_devices
            and self._is_open
            and any(device.id != call.device_id for device in self._devices)
            and len(self._stuck) < MOST_STUCK
        )

    def _replace(self, call: _Call) -> bool:
        """Leave a thread inside its call and have another go on; False where none can be had."""
        if not self._start_thread():
            return False
        self._stuck[call.device_id] = call.thread
        self._suspects.add(call.device_id)
        self._call = None
        return True

    def _revive(self) -> None:
        """Start anew what ended without being asked to; whatever ended it, readings must go on."""
        if self._stopped or (self._thread is not None and self._thread.is_alive()):
            return
        self._call = None
        self._start_thread()

    def _start_thread(self) -> bool:
        """Have a new thread read from now on; False where the system has none left for us."""
        before = self._thread
        self._thread = threading.Thread(
            target=self._run, name=f"accelscale-{self.backend.name}", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = before
            logger.debug("%s: %s", self.backend.name, error)
            return False
        return True

    def _run(self) -> None:
        tick = time.monotonic()
        while not self._stopped and threading.current_thread() is self._thread:
            try:
                self._pass()
            except _Superseded:
                if self._thread is None:
                    self._close()  # stopped while the call hung: nobody else will
                return
            tick = max(tick + self._readings.interval, time.monotonic())
            if not self._is_open:
                tick = time.monotonic() + self._reopen_pause()
            self._wake.wait(tick - time.monotonic())

    def _reopen_pause(self) -> float:
        return REOPEN_SECONDS[min(self._failed_opens, len(REOPEN_SECONDS)) - 1]

    def _pass(self) -> None:
        started = time.monotonic()
        try:
            if not self._is_open:
                self._open()
            self._refresh(started)
            self._read(started)
        except BackendError as error:
            self._failed += 1
            self._close()
            self._fall(str(error), error.reason or Reason.ERROR, error)
        except _Superseded:
            raise
        except (Exception, SystemExit) as error:
            logger.exception("%s: the backend broke its contract", self.backend.name)
            self._failed += 1
            self._close()
            self._fall(f"{type(error).__name__}: {error}", Reason.ERROR)

    def _open(self) -> None:
        self._within(ENUMERATION, self.backend.open)
        self._is_open = True
        self._next_refresh = self._next_slow = 0.0

    def _refresh(self, now: float) -> None:
        if now < self._next_refresh or ENUMERATION in self._stuck:
            return
        found = self._within(ENUMERATION, self.backend.devices)
        named = self._readings.set_devices(self.backend, found)
        healthy = {device.id for device in self._devices if device.problem is None}
        if any(device.problem is None and device.id not in healthy for device in named):
            self._next_slow = 0.0  # one that is new or came back
        self._devices = named
        self._next_refresh = now + self._refresh_seconds

    def _read(self, now: float) -> None:
        metrics = self._due(now)
        with self._lock:
            devices = [device for device in self._devices if device.id not in self._stuck]
            devices.sort(key=lambda device: device.id in self._suspects)
        readings = self._within(ENUMERATION, lambda: iter(self.backend.read(devices, metrics)))
        for device in devices:
            reading = self._within(device.id, lambda: next(readings, None))
            if reading is None or reading.device_id != device.id:
                raise BackendError(f"{self.backend.name} gave no reading for {device.id}")
            self._suspects.discard(device.id)
            self._readings.take(reading, metrics)
            if any(failure.reason is Reason.LOST for failure in reading.failures):
                self._next_refresh = min(self._next_refresh, now + self._readings.interval)
        self._collections += 1
        self._last_time = time.monotonic()
        self._last_seconds = self._last_time - now
        self._failed_opens = 0
        self._needs_restart = False
        self._set_phase("ready", f"{len(self._devices)} devices")
        self._readings.set_problem(self.backend, None)
        self._readings.publish()

    def _due(self, now: float) -> tuple[str, ...]:
        slow_due = now >= self._next_slow
        if slow_due:
            self._next_slow = now + interval_of(Tier.SLOW, self._readings.interval) - 0.05
        return tuple(
            name for name, tier in self.backend.metrics.items() if slow_due or tier is Tier.FAST
        )

    def _within(self, device_id: str, call: Callable[[], T]) -> T:
        """Make a driver call that the watchdog sees."""
        me = threading.current_thread()
        with self._lock:
            if me is not self._thread:
                raise _Superseded
            self._call = _Call(device_id, time.monotonic(), me)
        try:
            return call()
        finally:
            self._came_back(device_id, me)

    def _came_back(self, device_id: str, me: threading.Thread) -> None:
        """Clear the mark; a thread that was given up frees its device and learns that."""
        with self._lock:
            if self._call is not None and self._call.thread is me:
                self._call = None
            if self._stuck.get(device_id) is me:
                del self._stuck[device_id]
                self._next_slow = 0.0  # what it missed meanwhile
            if me is not self._thread:
                raise _Superseded

    def _fall(self, text: str, reason: Reason, error: BackendError | None = None) -> None:
        """The backend as a whole gives nothing at present."""
        self._failed_opens += 1
        self._needs_restart = error is not None and error.needs_restart
        self._set_phase("failed", text)
        self._readings.set_problem(
            self.backend, text, optional=self._optional and self._last_time is None
        )
        code = error.code if error is not None else None
        self._readings.fail(self._devices, tuple(self.backend.metrics), reason, text, code)
        self._readings.publish()

    def _set_phase(self, phase: str, reason: str) -> None:
        if phase != self._phase:
            never_ready = self._last_time is None
            level = logging.INFO if phase == "ready" or never_ready else logging.WARNING
            logger.log(level, "%s: %s: %s", self.backend.name, phase, reason)
        self._phase, self._reason = phase, reason

    def _close(self) -> None:
        self._is_open = False
        try:
            self.backend.close()
        except (Exception, SystemExit):
            logger.exception("%s: closing failed", self.backend.name)
