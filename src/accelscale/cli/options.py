"""Options that several commands share, and the few ways in which all of them print."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import Annotated, Any

import typer


def seconds(text: str | float) -> float:
    """A duration as in a trigger: ``0.5``, ``15s``, ``2m``."""
    if isinstance(text, int | float):  # the default value passes through here too
        return float(text)
    from accelscale import values

    try:
        return values.duration(text, values.LONGEST_STAY)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def positive_seconds(text: str | float) -> float:
    """A duration above 0."""
    duration = seconds(text)
    if duration <= 0:
        raise typer.BadParameter("must be greater than 0")
    return duration


Backends = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="Use this backend; may be repeated. [default: all that work here, except host]",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(record: Any, *, indent: int | None = 2) -> None:
    """Print one JSON document; a number that JSON lacks is a bug and raises ValueError."""
    typer.echo(json.dumps(record, allow_nan=False, indent=indent, ensure_ascii=False))


def say(text: str, *, err: bool = False) -> None:
    """Print a paragraph; on a terminal it breaks between words and keeps its indentation."""
    if (sys.stderr if err else sys.stdout).isatty():
        indent = text[: len(text) - len(text.lstrip())]
        lines = textwrap.wrap(
            text.strip(),
            max(shutil.get_terminal_size().columns, 20),
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        text = "\n".join(lines)
    typer.echo(text, err=err)


def one_line(text: object) -> str:
    """The text without line breaks and repeated blanks."""
    return " ".join(str(text).split())
