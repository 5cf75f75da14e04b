"""The processes of the demonstration: the server, and the load. Neither outlives it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from types import TracebackType

import attrs

from accelscale.cli.options import one_line
from accelscale_server.config import PREFIX, ServeConfig

STOP_SECONDS = 10.0
INTERVAL = "0.25"

# The kernel ends the server with us, however we end (PR_SET_PDEATHSIG is 1, SIGTERM is 15).
_SERVE = """
import ctypes, os, sys
parent = int(sys.argv[1])
try:
    ctypes.CDLL(None).prctl(1, 15)
except (AttributeError, OSError):
    pass
if os.getppid() != parent:
    sys.exit(1)
from accelscale.cli import main
sys.exit(main(sys.argv[2:]))
"""

_BURN = """
import os, sys, time
end, parent = time.monotonic() + float(sys.argv[1]), int(sys.argv[2])
os.nice(10)
while time.monotonic() < end and os.getppid() == parent:
    sum(range(100_000))
"""


class ServerProcess:
    """``accelscale serve`` on a free port of the loopback interface."""

    def __init__(self, backend: str) -> None:
        self.address = f"127.0.0.1:{_free_port()}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        arguments = [
            "serve",
            "--listen",
            self.address,
            "--backend",
            backend,
            "--interval",
            INTERVAL,
        ]
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-P", "-c", _SERVE, str(os.getpid()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=_environment(),
            process_group=0,  # Ctrl-C reaches us alone, and we stop it
        )

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    @property
    def status(self) -> int | None:
        """Its exit status, or None while it runs."""
        return self._process.poll()

    def last_words(self) -> str:
        """The end of what it logged, on one line."""
        self._log.seek(0)
        return one_line(self._log.read().decode(errors="replace"))[-500:] or "it logged nothing"


class CpuLoad:
    """Keeps half of the cores busy for so many seconds, at a low priority."""

    def __init__(self, seconds: float) -> None:
        cores = max(len(os.sched_getaffinity(0)) // 2, 1)
        self._processes = [
            subprocess.Popen(  # noqa: S603 - our own code
                [sys.executable, "-S", "-E", "-c", _BURN, f"{seconds}", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
            for _ in range(cores)
        ]

    def __enter__(self) -> CpuLoad:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    @property
    def running(self) -> bool:
        """Whether it still burns."""
        return any(process.poll() is None for process in self._processes)


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def _environment() -> dict[str, str]:
    """Ours without the options of a server: they are meant for another one."""
    options = {f"{PREFIX}{field.name.upper()}" for field in attrs.fields(ServeConfig)}
    options.add(f"{PREFIX}CONFIG")
    return {name: value for name, value in os.environ.items() if name not in options}
