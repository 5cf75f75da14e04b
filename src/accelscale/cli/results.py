"""What commands of the policy lab share: manifests in, figures, tables and pictures out."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from accelscale.cli.options import say

if TYPE_CHECKING:
    from accelscale.lab.page import Page
    from accelscale.lab.pictures import Picture
    from accelscale.lab.policy import Document
    from accelscale.lab.report import Row
    from accelscale.lab.sweep import Candidate


class Targets:
    """Where the result goes."""

    def __init__(self, html: Path | None, png: Path | None, plot: bool, as_json: bool) -> None:
        self.html = html
        self.png = png
        self.plot = plot
        self.as_json = as_json

    @property
    def wants_picture(self) -> bool:
        return self.html is not None or self.png is not None or self.plot

    def draw(self, picture: Picture | None) -> None:
        """The picture to the terminal and to a PNG."""
        if picture is None:
            return
        if self.plot:
            from accelscale.lab.terminal import lines_of

            for line in lines_of(picture, shutil.get_terminal_size().columns):
                typer.echo(line)
        if self.png is not None:
            from accelscale.lab.extra import writing
            from accelscale.lab.png import write_png

            with writing(self.png):
                write_png(picture, self.png)

    def write(self, page: Page) -> None:
        """The page to its file, where one is wanted."""
        if self.html is not None:
            from accelscale.lab.extra import writing
            from accelscale.lab.page import render

            with writing(self.html):
                self.html.write_text(render(page), encoding="utf-8")


def candidates_from(
    first: Path,
    others: Sequence[Path],
    sweeps: Sequence[str],
    prepared: Callable[[Document], Document] = lambda document: document,
) -> list[Candidate]:
    """Every ScaledObject of the files (``-`` is standard input), with every setting to be tried.

    ``prepared`` is applied to each manifest before its settings are changed.
    """
    from accelscale.lab.policy import scaled_objects
    from accelscale.lab.sweep import grid, parse_sweep

    parsed = [parse_sweep(text) for text in sweeps]
    documents = []
    for path in (first, *others):
        text = sys.stdin.read() if str(path) == "-" else _text(path)
        for document in scaled_objects(text, subject=str(path)):
            name = str((document.get("metadata") or {}).get("name", "unnamed"))
            documents.append((path, name, prepared(document)))
    names = [name for _, name, _ in documents]
    candidates: list[Candidate] = []
    for path, name, document in documents:
        label = name if names.count(name) == 1 else f"{path.stem}/{name}"
        alone = len(documents) == 1 and bool(parsed)
        candidates += grid("" if alone else label, document, parsed)
    return candidates


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no UTF-8 text"
        raise typer.BadParameter(f"{path}: {reason}", param_hint="--scaledobject") from error


def progress(total: int) -> Callable[[int], None]:
    """Counts on a terminal what is done; silent elsewhere."""
    if not sys.stderr.isatty():
        return lambda done: None

    def show(done: int) -> None:
        sys.stderr.write("\r\x1b[2K" + (f"{done} of {total}" if done < total else ""))
        sys.stderr.flush()

    return show


def say_figures(figures: Sequence[tuple[str, str]]) -> None:
    """Print labels and figures."""
    width = max(len(label) for label, _ in figures)
    for label, text in figures:
        typer.echo(f"  {label:<{width}}  {text}")


def say_table(titles: Sequence[str], rows: Sequence[Row]) -> None:
    """Print a table whose second column holds names."""
    table = [titles, *rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(titles))]
    for row in table:
        cells = [
            f"{cell:<{width}}" if at == 1 else f"{cell:>{width}}"
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(cells).rstrip())


def say_list(title: str, texts: Sequence[str]) -> None:
    """Print sentences under a title, or nothing."""
    if texts:
        say(f"{title}:")
    for text in texts:
        say(f"  - {text}")
