"""The command line.

Commands are thin: they print what the library says. Each imports what it needs when it runs, so
that ``accelscale --help`` stays quick. Other distributions add commands through the entry-point
group ``accelscale.commands``: a callable that takes a `typer.Typer` and registers on it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    0 is success, 1 a failure that one line on standard error explains, 2 a mistake in the
    arguments, 130 an interrupt, 141 a reader that closed the pipe.
    """
    try:
        from accelscale.cli.app import run
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.stderr.write(
            "accelscale: the command line needs the extra `cli`:"
            " python -m pip install 'accelscale[cli]'\n"
        )
        return 1
    except KeyboardInterrupt:
        return 130
    return run(sys.argv[1:] if arguments is None else arguments)
