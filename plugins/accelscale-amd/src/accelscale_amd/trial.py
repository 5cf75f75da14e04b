"""Whether amdsmi works here: tried in a process of its own, silent, bounded in time, and again.

The trial runs beside everything else; until it is decided, and where it fails, cards are read from
``/sys``. A node without AMD hardware, or without the library, pays for no process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from attrs import field, frozen

from accelscale.model import normal_pci_address
from accelscale_amd import binding

LIBRARY = "libamd_smi.so"
SOURCE_VARIABLE = "ACCELSCALE_AMD_SOURCE"
"""Set to ``sysfs``, it keeps amdsmi out."""

LIMIT_SECONDS = 10.0
"""How long a trial may take: a large node needs seconds for the first use of the library."""

RETRY_SECONDS = (60.0, 120.0, 300.0, 600.0)
"""Waits before a failed trial is repeated, unless library or binding changed; the last repeats."""

_SYSTEM_FOLDERS = ("lib", "lib64", "lib/x86_64-linux-gnu", "usr/lib", "usr/lib64", "usr/local/lib")


@frozen
class Verdict:
    """What a trial found: the addresses of the GPUs, or why amdsmi is not used.

    ``package`` is the folder of the binding where that is ROCm's own copy.
    """

    works: bool
    reason: str
    version: str = ""
    addresses: frozenset[str] = frozenset()
    package: str | None = None


@frozen
class Finding:
    """What there is to try; two findings that differ deserve two trials."""

    package: str | None
    binding: tuple[tuple[str, int], ...]
    libraries: tuple[tuple[str, int], ...]


@frozen
class _Running:
    finding: Finding
    process: subprocess.Popen[bytes]
    report: int
    started: float = field(factory=time.monotonic)


class Trial:
    """Decides whether amdsmi is used; `verdict` never waits."""

    def __init__(self, root: Path, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._root = root
        self._limit = limit_seconds
        self._running: _Running | None = None
        self._stuck: subprocess.Popen[bytes] | None = None
        self._tried: Finding | None = None
        self._verdict: Verdict | None = None
        self._failures = 0
        self._next = 0.0

    def verdict(self) -> Verdict | None:
        """What is known now; None while the first trial runs. Starts a trial where one is due."""
        if self._running is not None:
            self._take_report(self._running)
            return self._verdict
        finding = self._found()
        if isinstance(finding, str):
            self._verdict, self._tried = Verdict(works=False, reason=finding), None
            return self._verdict
        failed = self._verdict is None or not self._verdict.works
        if finding != self._tried or (failed and time.monotonic() >= self._next):
            self._start(finding)
        return self._verdict

    def wait(self, seconds: float) -> Verdict | None:
        """As `verdict`, but waits for a trial that runs, at most so long."""
        end = time.monotonic() + seconds
        verdict = self.verdict()
        while self._running is not None and time.monotonic() < end:
            time.sleep(0.01)
            verdict = self.verdict()
        return verdict

    def failed_here(self, reason: str) -> None:
        """Take note that it worked in a trial, and then not in this process."""
        self._fail(reason)

    def close(self) -> None:
        """End a trial that runs."""
        if self._running is not None:
            self._end(self._running)

    def _found(self) -> Finding | str:
        """What there is to try, or in words why there is nothing."""
        if os.environ.get(SOURCE_VARIABLE, "").strip().lower() == "sysfs":
            return f"{SOURCE_VARIABLE} is sysfs"
        package = _rocm_package(self._root)
        initial = package / "__init__.py" if package else _installed_package()
        if initial is None:
            return "the Python package amdsmi is not installed"
        libraries = tuple(_stamps(_libraries(self._root, initial.parent)))
        if not libraries:
            return f"there is no {LIBRARY}: install ROCm's amd-smi-lib, or mount it"
        return Finding(str(package) if package else None, tuple(_stamps([initial])), libraries)

    def _start(self, finding: Finding) -> None:
        self._tried = finding
        if self._stuck is not None and self._stuck.poll() is None:
            self._fail("the process of an earlier trial is stuck in the driver")
            return
        if not sys.executable:
            self._fail("this process does not know its Python interpreter to try it in")
            return
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
        for name in ("PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONSTARTUP"):
            environment.pop(name, None)
        command = [sys.executable, "-P", binding.__file__, str(writing)]
        try:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, with a file of our own
                [*command, finding.package] if finding.package else command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[writing],
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            os.close(reading)
            self._fail(f"no process could be started to try it in: {error}")
            return
        finally:
            os.close(writing)
        self._running = _Running(finding, process, reading)

    def _take_report(self, running: _Running) -> None:
        if running.process.poll() is None:
            if time.monotonic() - running.started > self._limit:
                self._end(running)
                self._fail(f"a trial of it did not end within {self._limit:g} s")
            return
        report = _read(running.report)
        self._end(running)
        if "addresses" not in report:
            status = running.process.returncode
            ended = f"a trial of it ended its process (status {status})"
            self._fail(str(report.get("error", ended)))
            return
        addresses = report["addresses"]
        if not (isinstance(addresses, list) and addresses):
            self._fail("it lists no GPU")
            return
        self._failures = 0
        self._verdict = Verdict(
            works=True,
            reason=f"it lists {len(addresses)} GPUs",
            version=str(report.get("version", "")),
            addresses=frozenset(normal_pci_address(str(address)) for address in addresses),
            package=running.finding.package,
        )

    def _fail(self, reason: str) -> None:
        pause = RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
        self._failures += 1
        self._next = time.monotonic() + pause
        self._verdict = Verdict(works=False, reason=reason)

    def _end(self, running: _Running) -> None:
        """Kill what is left of the trial, its own children included, and forget it."""
        self._running = None
        if running.process.poll() is None:
            try:
                os.killpg(running.process.pid, signal.SIGKILL)
                running.process.wait(1.0)
            except (ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
                self._stuck = running.process  # ends when the driver lets it go
        os.close(running.report)


def _read(descriptor: int) -> dict[str, object]:
    try:
        found = json.loads(os.read(descriptor, 1 << 16))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _rocm_folders(root: Path) -> Iterator[Path]:
    """Where ROCm may be installed, in the order in which the binding looks."""
    for variable in ("ROCM_HOME", "ROCM_PATH"):
        if folder := os.environ.get(variable):
            yield Path(folder)
    yield root / "opt/rocm"


def _rocm_package(root: Path) -> Path | None:
    """ROCm's own copy of the binding, which fits its library where another version may not."""
    packages = (folder / "share/amd_smi/amdsmi" for folder in _rocm_folders(root))
    return next((package for package in packages if (package / "__init__.py").is_file()), None)


def _installed_package() -> Path | None:
    try:
        spec = importlib.util.find_spec("amdsmi")
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


def _libraries(root: Path, package: Path) -> Iterator[Path]:
    """Every place where the loader may find the library."""
    for folder in _rocm_folders(root):
        yield from (folder / "lib" / LIBRARY, folder / "lib64" / LIBRARY)
    for name in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if name:
            yield Path(name, LIBRARY)
    yield package / LIBRARY
    yield from (root / folder / LIBRARY for folder in _SYSTEM_FOLDERS)
    cache = root / "etc/ld.so.cache"
    try:
        if LIBRARY.encode() in cache.read_bytes():
            yield cache
    except OSError:
        return


def _stamps(paths: Iterator[Path] | list[Path]) -> Iterator[tuple[str, int]]:
    """The files that exist, with the time of their last change."""
    for path in paths:
        try:
            yield str(path), path.stat().st_mtime_ns
        except OSError:
            continue
