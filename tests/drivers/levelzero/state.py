"""Builds the fake Level Zero loader and writes the file that says what it answers."""

from __future__ import annotations

import fcntl
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from drivers.build import FLAGS, compiler

STATE_VARIABLE = "ACCELSCALE_FAKE_LEVEL_ZERO_STATE"

SONAME = "/usr/lib/x86_64-linux-gnu/libze_loader.so.1"
"""The path that pyzes opens: a library of this very name that is loaded already is taken for it."""

Value = str | int | float | Mapping[str, "Value"] | Sequence[Mapping[str, "Value"]]

_SOURCES = Path(__file__).parent


def build(folder: Path, *, without: str | None = None) -> Path:
    """Compile the fake into ``folder``, unless it is there; several processes may do so at once.

    The function ``without`` is then missing, as in a loader that is too old to have it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libze_loader.so.1"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if library.exists():
            return library
        unfinished = library.with_suffix(".unfinished")
        options = [f"-Wl,-soname,{SONAME}", *([f"-D{without}=old_{without}"] if without else [])]
        sources = map(str, sorted(_SOURCES.glob("*.c")))
        command = [*compiler(), *FLAGS, *options, *sources, "-o", str(unfinished)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
        unfinished.replace(library)
    return library


def growing(base: float, per_second: float) -> str:
    """A counter that stands at ``base`` now and grows by itself."""
    return f"{base:.0f}+{per_second}@{time.monotonic()}"


@frozen
class FakeLevelZero:
    """The state file of the fake."""

    path: Path

    def write(self, *devices: Mapping[str, Value], **loader: Value) -> None:
        """Replace what the fake answers, at once: these devices, and keys of the loader itself."""
        lines = [*_lines("", loader), f"devices = {len(devices)}"]
        for index, device in enumerate(devices):
            lines += _lines(f"{index}.", device)
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(self.path)


def _lines(prefix: str, values: Mapping[str, Value]) -> list[str]:
    lines = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            lines += _lines(f"{name}.", value)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            lines.append(f"{name} = {len(value)}")
            for index, item in enumerate(value):
                lines += _lines(f"{name}.{index}.", item)
        else:
            lines.append(f"{name} = {value}")
    return lines
