"""Says in one line what is wrong with the machine: missing libraries, files, space on a disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from accelscale.errors import NotFoundError, UnsupportedError

MODULES = ("numpy", "pyarrow", "yaml", "matplotlib", "plotly")


def need_lab(command: str) -> None:
    """Make sure that the extra ``lab`` is installed, without importing any of it.

    Raises:
        UnsupportedError: it is not; the message says how to install it.
    """
    missing = [name for name in MODULES if find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"`accelscale {command}` needs the extra `lab` ({', '.join(missing)} missing):"
            " python -m pip install 'accelscale[lab]'"
        )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the operating system says against a file into one line.

    Raises:
        NotFoundError: it cannot be written; the message says why.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise NotFoundError(f"{error.filename or path}: {reason}") from error
