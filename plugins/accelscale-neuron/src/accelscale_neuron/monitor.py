"""Runs ``neuron-monitor`` for as long as it is wanted, and keeps its newest report.

The tool writes a line of JSON every period. A thread of our own reads it, so nobody who wants a
figure ever waits for it. A tool that ends, is silent or writes a line without end is killed with
its process group and started again, at growing distances. Python starts it by vfork, which gRPC's
threads do not disturb (grpc/grpc#22624).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from accelscale.model import Reason
from accelscale_neuron.chips import Absent
from accelscale_neuron.report import Report, parse

if TYPE_CHECKING:
    import subprocess
    import tempfile

logger = logging.getLogger("accelscale.neuron")

PERIOD_SECONDS = 2
"""What the tool is told; it cannot be asked between."""

FRESH_SECONDS = 3.0 * PERIOD_SECONDS
"""How old the newest report may be."""

SILENCE_SECONDS = 15.0
"""After so long without a line the tool is taken to hang."""

LINE_BYTES = 4 * 2**20
"""Most that one line may hold."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0

_ENDED = "ended, and is started again"

_CONFIGURATION = {
    "period": f"{PERIOD_SECONDS}s",
    "neuron_runtimes": [
        {
            "tag_filter": ".*",
            "metrics": [{"type": "neuroncore_counters"}, {"type": "memory_used"}],
        }
    ],
    # Without a group that is always due, nothing is written while no process uses a chip.
    "system_metrics": [{"type": "neuron_hw_counters"}],
}


class Monitor:
    """The tool at ``path``: started by `start`, ended by `stop`, and read by a thread between."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._report: Report | None = None
        self._trouble = "the first report is awaited"
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._thread = threading.Thread(
            target=self._run, name="accelscale-neuron-monitor", daemon=True
        )

    def start(self) -> None:
        """Begin. A monitor is started once."""
        self._thread.start()

    def stop(self) -> None:
        """End thread and tool; returns soon."""
        self._stopped.set()
        self._thread.join(3.0)

    def newest(self, now: float) -> Report | Absent:
        """The newest report, or why there is none that is fresh."""
        report, trouble = self._report, self._trouble
        if report is None:
            return Absent(Reason.STALE, f"{self.path.name}: {trouble}")
        if now - report.time > FRESH_SECONDS:
            because = f": {trouble}" if trouble else ""
            detail = (
                f"the last report of {self.path.name} is {now - report.time:.0f} s old{because}"
            )
            return Absent(Reason.STALE, detail)
        return report

    def wait(self, seconds: float) -> bool:
        """Wait for the first report, at most so long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._report is not None, seconds)

    def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._stopped.is_set():
            before = self._report
            try:
                self._trouble = self._listen()
            except Exception as error:
                logger.exception("reading neuron-monitor failed")
                self._trouble = f"{type(error).__name__}: {error}"
            status = self._end()
            if self._trouble == _ENDED and status is not None:
                self._trouble = f"{_ENDED}, with status {status}"
            pause = FIRST_PAUSE_SECONDS if self._report is not before else 2 * pause
            self._stopped.wait(min(pause, LONGEST_PAUSE_SECONDS))

    def _listen(self) -> str:
        """Run the tool once, take its lines, and say why no more will come."""
        try:
            descriptor = self._begin()
        except OSError as error:
            return f"cannot be started: {error}"
        waiting = select.poll()  # not `select`, which refuses descriptors above 1,023
        waiting.register(descriptor, select.POLLIN)
        kept = bytearray()
        heard = time.monotonic()
        while not self._stopped.is_set():
            ready = waiting.poll(100)
            now = time.monotonic()
            if not ready:
                if now - heard > SILENCE_SECONDS:
                    return f"was silent for {SILENCE_SECONDS:g} s and is started again"
                continue
            chunk = os.read(descriptor, 65536)
            if not chunk:
                return _ENDED
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                self._take(bytes(kept) + line, now)
                kept.clear()
                heard = now
            kept += rest
            if len(kept) > LINE_BYTES:
                return f"wrote a line of more than {LINE_BYTES} bytes and is started again"
        return "was ended: the backend closed"

    def _begin(self) -> int:
        import subprocess  # with what they import, these two cost more than the rest of the plugin
        import tempfile

        self._folder = tempfile.TemporaryDirectory(
            prefix="accelscale-neuron-", ignore_cleanup_errors=True
        )
        configuration = Path(self._folder.name, "monitor.json")
        configuration.write_text(json.dumps(_CONFIGURATION), encoding="utf-8")
        self._process = subprocess.Popen(  # noqa: S603 - the tool's own path, and no shell
            [str(self.path), "-c", str(configuration)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def _take(self, line: bytes, now: float) -> None:
        if not line.strip():
            return
        try:
            report = parse(line, now)
        except ValueError as error:
            self._trouble = f"wrote what is no report: {str(error)[:100]}"
            return
        with self._changed:
            self._report, self._trouble = report, ""
            self._changed.notify_all()

    def _end(self) -> int | None:
        """Kill what is left of its group; the status with which it ended, if it did.

        Until it has been waited for, its number is its own, and so is that of its group. A process
        that is inside a driver call goes when the call ends.
        """
        status: int | None = None
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(Exception):  # let it end by itself, after its last words
                deadline = time.monotonic() + 0.5
                flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
                while self._trouble == _ENDED and time.monotonic() < deadline:
                    if os.waitid(os.P_PID, process.pid, flags) is not None:
                        break
                    time.sleep(0.01)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(Exception):
                status = process.wait(1.0)
            if process.stdout is not None:
                process.stdout.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        return status
