"""Whether Level Zero can be used here, found out once, in a process of its own.

The binding pyzes opens the loader while it is imported, an old loader lacks functions, and the
driver behind it may print, hang or crash. None of that may happen to an agent that reads other
cards too.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

from attrs import frozen

LOADER = "usr/lib/x86_64-linux-gnu/libze_loader.so.1"
"""Where pyzes looks for the loader, below the root of the file system, and nowhere else."""

LIMIT_SECONDS = 5.0
"""How long the trial may take. Init takes well under a second with a few cards."""

RETRY_SECONDS = 300.0
"""A verdict against Level Zero is looked at again after this long."""

_PROGRAM = Path(__file__).with_name("sysman_trial.py")


@frozen
class Verdict:
    """Whether Level Zero works; ``reason`` says what was found, or what is in the way.

    ``is_final`` tells what only an installation changes from what may pass by itself.
    """

    works: bool
    reason: str
    is_final: bool = False
    seconds: float = 0.0


_lock = threading.Lock()
_verdicts: dict[tuple[object, ...], tuple[float, Verdict]] = {}


def verdict(root: Path) -> Verdict:
    """Whether Level Zero works here. Takes long only when nobody has asked yet.

    ``root`` is where the loader is looked for beforehand; pyzes itself knows but one place.
    """
    binding = importlib.util.find_spec("pyzes")
    if binding is None:
        text = "the binding pyzes is not installed (pip install accelscale-intel[sysman])"
        return Verdict(works=False, reason=text, is_final=True)
    loader = root / LOADER
    try:
        status = loader.stat()
    except OSError as error:
        text = (
            f"{loader}: {error.strerror}; pyzes opens this path only: install the Level Zero loader"
            " and Intel's GPU driver there"
        )
        return Verdict(works=False, reason=text, is_final=True)
    key = (binding.origin, str(loader), status.st_ino, status.st_mtime_ns, status.st_size)
    with _lock:
        known = _verdicts.get(key)
        if known is None or not (known[1].works or time.monotonic() - known[0] < RETRY_SECONDS):
            known = _verdicts[key] = (time.monotonic(), _tried())
    return known[1]


def forget_verdicts() -> None:
    """Try anew when next asked."""
    with _lock:
        _verdicts.clear()


def _tried() -> Verdict:
    started = time.monotonic()
    try:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, with a program of our own
            [sys.executable, "-P", str(_PROGRAM)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        return Verdict(works=False, reason=f"no process to try Level Zero in: {error}")
    text, works = _answer_of(process)
    return Verdict(works, text, seconds=time.monotonic() - started)


def _answer_of(process: subprocess.Popen[bytes]) -> tuple[str, bool]:
    try:
        output, _ = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        _abandon(process)
        return f"Level Zero did not start within {LIMIT_SECONDS:g} s", False
    try:
        answer = json.loads(output)
        return str(answer["text"]), bool(answer["ok"])
    except (ValueError, LookupError, TypeError):
        return f"Level Zero ended the process that tried it (status {process.returncode})", False


def _abandon(process: subprocess.Popen[bytes]) -> None:
    """Kill it; one that hangs inside the kernel cannot be waited for."""
    process.kill()
    if process.stdout is not None:
        process.stdout.close()
    try:
        process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:
        threading.Thread(target=process.wait, name="accelscale-intel-trial", daemon=True).start()
