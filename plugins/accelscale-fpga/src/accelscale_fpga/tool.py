"""Runs one external program, bounded in time and output, and never two at once.

XRT's tool is a shell script that starts a binary, so the whole process group is ended. A process
inside a driver call cannot be ended at all: it is then left behind and noticed, and no other is
started until it is gone. Python starts children by vfork where, as here, nothing runs between fork
and exec; gRPC's threads are therefore no danger to them (grpc/grpc#22624).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelscale.model import Reason
from accelscale_fpga.files import UnreadableError

if TYPE_CHECKING:
    import subprocess

LIMIT_BYTES = 4 * 2**20
"""Most that one run may write; a report of a large card has some 50 kB."""

_POLL_SECONDS = 0.02
_GRACE_SECONDS = 1.0  # for a killed process to go


class Tool:
    """A program that writes a JSON file and is given the name of that file.

    ``timeout`` bounds a run in seconds, ``limit_bytes`` what it may write. One thread calls
    `report`; `stop` may be called from any.
    """

    def __init__(
        self, path: Path, *, timeout: float = 10.0, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        self.path = path
        self.timeout = timeout
        self._limit_bytes = limit_bytes
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None  # only one that has not been reaped

    @property
    def name(self) -> str:
        return self.path.name

    def stop(self) -> None:
        """End a run that is under way, and start no more."""
        self._stopped.set()

    def report(self, arguments: Sequence[str]) -> str:
        """Run it with these arguments; the text that it wrote.

        Raises:
            UnreadableError: it cannot be started, fails, takes too long, or writes nothing or too
                much.
        """
        import tempfile  # with what they import, these two cost more than the rest of the plugin

        if self._process is not None and not self._gone(self._process):
            detail = f"a run of {self.name} that was killed has not ended: its driver hangs"
            raise UnreadableError(Reason.TIMEOUT, detail)
        try:
            with tempfile.TemporaryDirectory(
                prefix="accelscale-fpga-", ignore_cleanup_errors=True
            ) as folder:
                return self._run(Path(folder), arguments)
        except PermissionError as error:
            detail = f"{self.path} may not be run: {error}"
            raise UnreadableError(Reason.PERMISSION, detail) from error
        except OSError as error:
            raise UnreadableError(Reason.ERROR, f"{self.path} cannot be run: {error}") from error

    def _run(self, folder: Path, arguments: Sequence[str]) -> str:
        import subprocess

        output, console = folder / "report.json", folder / "console"
        command = [str(self.path), *arguments, "-f", "JSON", "-o", str(output), "--force"]
        with console.open("wb") as stream:
            process = self._process = subprocess.Popen(  # noqa: S603 - the tool's own path, and no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        problem = self._watch(process, (output, console))
        self._end(process)
        if problem is not None:
            raise problem
        if not output.is_file() or output.stat().st_size == 0:
            said = _last_line(console)
            detail = f"{self.name} ended with status {process.returncode} and no report: {said}"
            raise UnreadableError(Reason.ERROR, detail)
        return output.read_text(encoding="utf-8", errors="replace")

    def _watch(
        self, process: subprocess.Popen[bytes], files: Sequence[Path]
    ) -> UnreadableError | None:
        """Wait until it has ended, or say why it must be."""
        deadline = time.monotonic() + self.timeout
        while True:
            ended = _has_ended(process)
            if sum(_size(path) for path in files) > self._limit_bytes:
                detail = f"{self.name} wrote more than {self._limit_bytes} bytes"
                return UnreadableError(Reason.ERROR, detail)
            if ended:
                return None
            if time.monotonic() > deadline:
                detail = f"{self.name} did not end within {self.timeout:g} s"
                return UnreadableError(Reason.TIMEOUT, detail)
            if self._stopped.wait(_POLL_SECONDS):
                return UnreadableError(Reason.STALE, f"{self.name} was ended: the backend closed")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill what is left of its group, and take note if that does not work.

        While the leader has not been waited for, its number is its own, and so is the group's.
        """
        if process.returncode is None:
            _kill_group(process.pid)
        deadline = time.monotonic() + _GRACE_SECONDS
        while not self._gone(process) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _gone(self, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is None or not _group_is_reaped(process.pid):
            return False
        self._process = None
        return True


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended, without waiting for it: its number stays taken."""
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # somebody else in this process waited for it
        return process.poll() is not None


def _kill_group(number: int) -> None:
    try:
        os.killpg(number, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # nothing left, or nothing that is ours to kill


def _group_is_reaped(number: int) -> bool:
    """Wait for grandchildren that became ours, as they do for process 1 of a container."""
    try:
        while True:
            if os.waitpid(-number, os.WNOHANG) == (0, 0):
                return False
    except ChildProcessError:
        return True


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _last_line(console: Path) -> str:
    with console.open("rb") as stream:
        stream.seek(max(0, _size(console) - 1000))
        lines = stream.read().decode("utf-8", errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:200] if said else "it said nothing"
