"""Gathers the commands, runs one of them, and turns every error into one line and a status."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

import accelscale
from accelscale.cli.check import check
from accelscale.cli.devices import devices
from accelscale.cli.doctor import doctor
from accelscale.cli.options import one_line
from accelscale.cli.plugins import plugins
from accelscale.cli.record import record
from accelscale.cli.record_hardware import record_hardware
from accelscale.cli.replay import replay
from accelscale.cli.simulate import simulate
from accelscale.cli.top import top
from accelscale.errors import AccelscaleError

COMMAND_GROUP = "accelscale.commands"


def run(arguments: Sequence[str]) -> int:
    """Run one command; see `accelscale.cli.main` for the statuses."""
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        _never_fail_to_encode(stream)
    # Commands say themselves what matters; `serve` sets up its own log.
    logging.getLogger("accelscale").addHandler(logging.NullHandler())
    try:
        # Not typer's own `main`, which has its own way with errors and interrupts.
        with _command().make_context("accelscale", list(arguments)) as context:
            context.command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as exit_:
        return _flushed(exit_.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _flushed(130)
    except BrokenPipeError:
        return _reader_left()
    except AccelscaleError as error:
        _complain(f"accelscale: {error}")
        return 1
    except OSError as error:  # a full disk behind standard output, for one
        _silence(sys.stdout)
        _complain(f"accelscale: {error}")
        return 1
    except Exception as error:
        message = _usage_message(error)
        if message is None:
            raise
        _complain(message)
        return int(getattr(error, "exit_code", 2))
    return 0


def _command() -> Any:
    """The group of all commands: ours, then those of other distributions."""
    # Rich markup makes the help half as slow again (0.16 s in place of 0.11 s): plain it is.
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help="Read accelerators, and see what an autoscaler would make of them.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for function in (
        devices,
        top,
        doctor,
        plugins,
        check,
        record,
        replay,
        simulate,
        record_hardware,
    ):
        app.command()(function)
    group = typer.main.get_group(app)
    for entry_point in _command_entry_points():
        for name, command in _commands_of(entry_point, group.commands):
            group.add_command(command, name)
    return group


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            is_eager=True,
            callback=lambda wanted: _print_version() if wanted else None,
        ),
    ] = False,
) -> None:
    pass


def _print_version() -> None:
    typer.echo(f"accelscale {accelscale.__version__}")
    raise typer.Exit


def _command_entry_points() -> list[metadata.EntryPoint]:
    """Those of our group, our own first.

    They are gathered one distribution at a time, so that malformed metadata spoils no other.
    """
    found: dict[str, list[metadata.EntryPoint]] = {}
    for distribution in metadata.distributions():
        try:
            if f"[{COMMAND_GROUP}]" not in (distribution.read_text("entry_points.txt") or ""):
                continue
            name = distribution.metadata["Name"]
            if name not in found:  # else it is shadowed by one that stands earlier on the path
                found[name] = list(distribution.entry_points.select(group=COMMAND_GROUP))
        except Exception as error:  # noqa: BLE001 - the parser fails in several ways
            origin = distribution.locate_file("")
            _complain(f"accelscale: commands in {origin} cannot be read: {one_line(error)}")
    names = sorted(found, key=lambda name: (name != "accelscale", name))
    return [entry_point for name in names for entry_point in found[name]]


def _commands_of(entry_point: metadata.EntryPoint, taken: Collection[str]) -> list[tuple[str, Any]]:
    """The commands that it registers, or none of them and a line that says why."""
    try:
        return _registered_by(entry_point, taken)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a foreign package may raise anything
        distribution = entry_point.dist
        origin = f"{distribution.name} {distribution.version}" if distribution else "?"
        reason = one_line(f"{type(error).__name__}: {error}")
        _complain(f"accelscale: the commands of {origin} are missing ({reason})")
        return []


def _registered_by(
    entry_point: metadata.EntryPoint, taken: Collection[str]
) -> list[tuple[str, Any]]:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    entry_point.load()(app)
    commands = typer.main.get_group(app).commands
    clash = sorted(set(commands) & set(taken))
    if clash:
        raise ValueError(f"the command {clash[0]!r} exists already")
    return list(commands.items())


def _usage_message(error: Exception) -> str | None:
    """One line about a mistake in the arguments, or None for any other exception.

    Newer versions of typer carry click inside and older ones depend on it, so the exceptions have
    no common class to import: they are told by what they offer.
    """
    format_message = getattr(error, "format_message", None)
    if format_message is None or not hasattr(error, "exit_code"):
        return None
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "accelscale"
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(format_message())
    return f"{path}: {one_line(format_message())} (try `{path} --help`)"


def _complain(line: str) -> None:
    try:
        typer.echo(line, err=True)
    except BrokenPipeError:
        _silence(sys.stderr)


def _flushed(status: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_left()
    except OSError as error:
        _silence(sys.stdout)
        _complain(f"accelscale: {error}")
        return status or 1
    return status


def _reader_left() -> int:
    """What a program gets that does not handle SIGPIPE: quiet, 128 + 13."""
    _silence(sys.stdout)
    return 141


def _silence(stream: TextIO) -> None:
    """Send what is still buffered nowhere, so that the interpreter can flush it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _open_what_is_closed() -> None:
    """Python has None for a standard stream that was closed before the start."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - for good


def _never_fail_to_encode(stream: TextIO) -> None:
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
