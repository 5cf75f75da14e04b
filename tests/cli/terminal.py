"""A command in a pseudo-terminal of a given size."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

DEADLINE_SECONDS = 30.0

ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """A running command and all that it has written so far."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], columns: int, rows: int = 24
    ) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        self._process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**environment, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(slave)
        self.raw = ""

    def resize(self, columns: int, rows: int = 24) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, condition: Callable[[str], bool]) -> str:
        """Read until the text so far, without its colours, meets the condition."""
        end = time.monotonic() + DEADLINE_SECONDS
        while not condition(self.text):
            assert time.monotonic() < end, f"not in time: {self.text!r}"
            assert self._read(0.2) or self._process.poll() is None, f"ended: {self.text!r}"
        return self.text

    @property
    def text(self) -> str:
        """All that was written, without control sequences."""
        return _CONTROL.sub("", self.raw)

    def rows(self) -> list[str]:
        """What was written between two line ends or movements of the cursor to another line."""
        parts = re.split(r"\r|\n|\x1b\[[0-9]*[AH]", self.raw)
        return [_CONTROL.sub("", part) for part in parts]

    def frames(self) -> list[str]:
        """What was drawn, from each return of the cursor to the upper left corner to the next."""
        parts = [_CONTROL.sub("", part) for part in self.raw.split("\x1b[H")[1:]]
        return [part for part in parts if part.strip()]

    def interrupt(self) -> int:
        """Press Ctrl-C, and give the exit status."""
        return self.end(signal.SIGINT)

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and give the exit status."""
        self._process.send_signal(number)
        return self.finish()

    def finish(self) -> int:
        """Wait for the end of the command, and give its exit status."""
        end = time.monotonic() + DEADLINE_SECONDS
        while self._read(0.1) or self._process.poll() is None:
            assert time.monotonic() < end, f"still running: {self.text!r}"
        return self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._master)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # how Linux says that the other side is closed
            return False
        self.raw += chunk.decode(errors="replace")
        return bool(chunk)


@contextlib.contextmanager
def terminal(
    command: Sequence[str], environment: Mapping[str, str], columns: int, rows: int = 24
) -> Iterator[Terminal]:
    """The command in a terminal; it is killed at the end if it still runs."""
    running = Terminal(command, environment, columns, rows)
    try:
        yield running
    finally:
        running.close()
