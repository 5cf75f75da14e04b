"""Compiles the driver libraries of our own making: plain C, no vendor header.

``cc`` does it where there is one, else the compiler that the package ``ziglang`` carries.
"""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

FLAGS = (
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-shared",
)


def compiler() -> list[str]:
    """The command of a C compiler; raises RuntimeError where there is none."""
    if (found := shutil.which("cc")) is not None:
        return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise RuntimeError("no C compiler: install one, or the package ziglang")


def compile_library(
    sources: Path, folder: Path, soname: str, *, without: Collection[str] = ()
) -> Path:
    """Compile all C files of a folder into ``folder/soname``, unless that is there already.

    The functions in ``without`` stay invisible to the loader, as in a driver that is too old to
    have them. Several processes may ask for the same library at once.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / soname
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(sorted(sources.glob("*.c")), library, without)
    return library


def _compile(sources: list[Path], library: Path, without: Collection[str]) -> None:
    options = [f"-Wl,-soname,{library.name}"]
    if without:
        script = library.with_suffix(".map")
        hidden = " ".join(f"{name};" for name in sorted(without))
        script.write_text(f"{{ local: {hidden} }};\n")
        options.append(f"-Wl,--version-script={script}")
    unfinished = library.with_suffix(".unfinished")
    command = [*compiler(), *FLAGS, *options, *map(str, sources), "-o", str(unfinished)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    unfinished.replace(library)
