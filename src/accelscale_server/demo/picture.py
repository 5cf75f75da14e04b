"""What the demonstration shows: a live picture on a terminal, a line for each poll elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import frozen

from accelscale.cli.options import say
from accelscale_server.poll import decimal

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from accelscale_server.demo.subject import Subject

_BARS = "▁▂▃▄▅▆▇█"


@frozen
class Moment:
    """One poll: when, whether the load was on, and the answers or the error."""

    seconds: float
    busy: bool
    value: float | None = None
    target: float | None = None
    active: bool | None = None
    replicas: int | None = None
    error: str = ""


class Screen:
    """Where the demonstration shows itself; a quiet one shows nothing."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live: Live | None = None
        self._moments: list[Moment] = []
        self._title = ""

    def say(self, text: str) -> None:
        """Print a remark."""
        if not self._quiet:
            say(text)

    @contextmanager
    def live(self, subject: Subject) -> Iterator[None]:
        """While this lasts, `show` draws."""
        metadata = subject.request.metadata
        self._title = (
            f"{metadata['metric']}, threshold {metadata['threshold']},"
            f" active above {metadata['activationThreshold']}, window {metadata['window']}"
        )
        self.say(self._title)
        if self._quiet or not sys.stdout.isatty():
            yield
            return
        from rich.live import Live

        with Live(auto_refresh=False) as self._live:
            yield

    def show(self, moment: Moment) -> None:
        """Draw this poll."""
        self._moments.append(moment)
        if self._live is not None:
            self._live.update(_picture(self._moments, self._live.console.width), refresh=True)
        else:
            self.say(line(moment))


def line(moment: Moment) -> str:
    """A poll on one line."""
    lead = f"{moment.seconds:5.1f} s" + ("  load" if moment.busy else "      ")
    if moment.value is None or moment.target is None:
        return f"{lead}  {moment.error}"
    return (
        f"{lead}  value {decimal(round(moment.value, 1)):>6}  target {decimal(moment.target)}"
        f"  {'active    ' if moment.active else 'not active'}  replicas {moment.replicas}"
    )


def _picture(moments: list[Moment], width: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    last = moments[-1]
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    if last.value is None or last.target is None:
        table.add_row("error", Text(last.error, style="bold red"))
    else:
        busy = last.value > last.target
        style = "bold yellow" if busy else "bold green"
        table.add_row("value", Text(decimal(round(last.value, 1)), style=style))
        table.add_row("target", Text(f"{decimal(last.target)} for each replica"))
        table.add_row("active", Text("yes" if last.active else "no"))
        table.add_row("replicas", Text(f"{last.replicas} is what an HPA would ask for"))
    table.add_row("load", Text("on" if last.busy else "off"))
    table.add_row("history", Text(_history(moments[-max(width - 12, 8) :]), style="cyan"))
    return table


def _history(moments: list[Moment]) -> str:
    """A bar for each poll, scaled to the largest value or twice the target; ``!`` for an error."""
    top = max((max(m.value or 0.0, 2 * (m.target or 0.0)) for m in moments), default=0.0)
    bars = ""
    for moment in moments:
        if moment.value is None or top <= 0:
            bars += "!"
        else:
            bars += _BARS[min(int(moment.value / top * len(_BARS)), len(_BARS) - 1)]
    return bars
