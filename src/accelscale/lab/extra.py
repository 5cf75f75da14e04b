"""Says in one line what to install where the libraries of the lab are missing."""

from __future__ import annotations

from importlib.util import find_spec

from accelscale.errors import UnsupportedError

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
