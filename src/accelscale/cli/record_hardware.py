"""``accelscale record-hardware``: recordings of what backends read, without serial numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accelscale.cli.options import positive_seconds, say
from accelscale.errors import AccelscaleError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from accelscale.plugins import Registry
    from accelscale.testing.recording import HardwareRecording

_MOST_SHOWN = 5


def record_hardware(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where each backend gets a folder of its own.")
    ],
    backend: Annotated[
        list[str] | None,
        typer.Option(
            "--backend",
            metavar="NAME",
            help="Record this backend; may be repeated. [default: all that work here, except host]",
            show_default=False,
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Look for /sys, /proc and /dev below this, such as a host's that is mounted;"
            " needs --backend.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            parser=positive_seconds,
            help="Record a backend as far as it has come after so long.",
        ),
    ] = 60.0,
) -> None:
    """Save what backends read here, for tests elsewhere."""
    from accelscale.plugins import load_plugins
    from accelscale.testing.recording import record

    registry = load_plugins()
    for name in backend or ():
        registry.create(name)  # says which names there are if this is none of them
    if root is not None and not backend:
        raise typer.BadParameter("needs --backend too", param_hint="--root")
    names = list(dict.fromkeys(backend)) if backend else _viable(registry)
    if not names:
        say("accelscale: no backend works here; name one with --backend", err=True)
        raise typer.Exit(1)
    taken = [name for name in names if (folder / name).exists()]
    if taken:
        say(f"accelscale: {folder / taken[0]} exists already; name another folder", err=True)
        raise typer.Exit(1)
    failed = False
    for name in names:
        try:
            recording = record(registry.backends[name], root=root, limit_seconds=limit)
            recording.save(folder / name)
        except (AccelscaleError, OSError) as error:
            failed = True
            say(f"accelscale: {name} was not recorded: {error}", err=True)
        else:
            for line in _lines(recording, folder / name):
                say(line)
    if failed:
        raise typer.Exit(1)
    say(f"Look through {folder} before you give it away.")


def _viable(registry: Registry) -> list[str]:
    from accelscale.cli.diagnosis import bounded_probe

    return [
        name
        for name, registered in registry.backends.items()
        if not registered.backend.on_request_only and bounded_probe(registry, name).viable
    ]


def _lines(recording: HardwareRecording, folder: Path) -> Iterator[str]:
    live = recording.live
    samples = sum(len(reading.samples) for reading in live.readings)
    failures = sum(len(reading.failures) for reading in live.readings)
    yield (
        f"{recording.backend}: {len(live.devices)} devices, {samples} values, {failures} absent,"
        f" saved in {folder}"
    )
    if live.refusal:
        yield f"  it could not be opened: {live.refusal}"
    if recording.hanging:
        yield f"  it hung in {recording.hanging}; what came before is recorded"
    if recording.replays_files:
        yield f"  the plugin can be replayed over {len(recording.files or ())} recorded paths"
    else:
        yield f"  its readings alone can be replayed: {recording.why_no_files}"
    if recording.replaced:
        kinds = ", ".join(f"{replaced.kind} ({replaced.count})" for replaced in recording.replaced)
        yield f"  replaced, with the number of occurrences: {kinds}"
    paths = list(recording.left_out)
    if paths:
        more = f" and {len(paths) - _MOST_SHOWN} more" if len(paths) > _MOST_SHOWN else ""
        yield f"  left out: {', '.join(paths[:_MOST_SHOWN])}{more}"
    for difference in recording.differences:
        yield (
            f"  {difference.what} differs when replayed: {difference.live} here,"
            f" {difference.replayed} there"
        )
