"""``accelscale top``: the devices as they are now, again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from accelscale.cli.options import Backends, positive_seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from accelscale.cli.overview import Overview
    from accelscale.metrics import Metric
    from accelscale.model import Snapshot

FIRST_READING_SECONDS = 5.0


class State(Protocol):
    """How a source of readings fares."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def phase(self) -> str:
        """What it is doing, in a word."""


class Watched(Protocol):
    """What can be shown: the monitor of this machine, or the fleet of a scaler."""

    interval: float
    metrics: Mapping[str, Metric]

    def snapshot(self) -> Snapshot:
        """The readings of now."""

    def states(self) -> Sequence[State]:
        """How the sources of readings fare."""


watching_scaler: Callable[[str], AbstractContextManager[Watched]] | None = None
"""Opens the fleet of a scaler. The server sets it, for the library knows no network."""


def top(
    backend: Backends = None,
    interval: Annotated[
        float,
        typer.Option(metavar="SECONDS", parser=positive_seconds, help="Time between two readings."),
    ] = 1.0,
    scaler: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Show the fleet that this scaler watches."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one reading and exit.")] = False,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="Largest first: utilization, memory, power, temperature or any metric.",
        ),
    ] = None,
) -> None:
    """Show the devices live, until Ctrl-C."""
    from accelscale.cli.overview import sort_metric

    with _watched(backend, interval, scaler) as watched:
        order = sort_metric(sort, watched.metrics)
        if sys.stdout.isatty():
            _on_terminal(watched, order, once)
        else:
            _as_lines(watched, order, once)


@contextmanager
def _watched(backend: list[str] | None, interval: float, scaler: str | None) -> Iterator[Watched]:
    """What is to be shown, once there is something."""
    if scaler is not None:
        if watching_scaler is None:
            raise typer.BadParameter("needs the extra `server`", param_hint="--scaler")
        if backend:
            raise typer.BadParameter("names backends of this machine", param_hint="--backend")
        with watching_scaler(scaler) as fleet:
            fleet.interval = interval
            yield fleet
        return
    from accelscale.cli.devices import complain_of_no_devices
    from accelscale.cli.watching import statuses, watching

    with watching(backend, interval=interval, seconds=FIRST_READING_SECONDS + interval) as monitor:
        if not monitor.snapshot().devices:
            complain_of_no_devices(statuses(monitor))
            raise typer.Exit(1)
        yield monitor


def _as_lines(watched: Watched, order: str | None, once: bool) -> None:
    from accelscale.cli.overview import ordered, plain_line

    while True:
        snapshot = watched.snapshot()
        for device in ordered(snapshot, order):
            typer.echo(plain_line(snapshot, device, time.monotonic()))
        if once:
            return
        time.sleep(watched.interval)


def _on_terminal(watched: Watched, order: str | None, once: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if once:
        console.print(_picture(watched, console, order, cropped=False))
        return
    from rich.live import Live

    with (
        _ended_by_signals(),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(_picture(watched, console, order, cropped=True), refresh=True)
            time.sleep(min(watched.interval, 1.0))


def _picture(
    watched: Watched, console: Console, order: str | None, *, cropped: bool
) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from accelscale.cli.overview import overview

    snapshot, now = watched.snapshot(), time.monotonic()
    width, height = console.size
    most_rows = height - 6 if cropped else None
    table = overview(snapshot, width, now, order, most_rows)
    states = " ".join(f"{s.name}:{s.phase}" for s in watched.states())
    count = len(snapshot.devices)
    head = f"{time.strftime('%H:%M:%S')}  {count} device{'s' * (count != 1)}  {states}"
    return Group(
        Text(head, style="bold", no_wrap=True, overflow="ellipsis"),
        _rich_table(table),
        *(Text(note, style="dim") for note in table.notes),
    )


def _rich_table(overview: Overview) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for index, (title, width) in enumerate(zip(overview.titles, overview.widths, strict=True)):
        table.add_column(
            title,
            width=width,
            justify="right" if index else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for row in overview.rows:
        table.add_row(*(Text(cell.text, style=_STYLES[cell.mood]) for cell in row))
    return table


_STYLES = {
    "plain": "",
    "busy": "bold green",
    "absent": "dim",
    "ill": "bold red",
    "late": "yellow",
}


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the stack too, so that the terminal is restored."""
    import signal

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
