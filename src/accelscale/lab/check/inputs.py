"""From what was named on the command line to texts: files, folders, standard input.

A folder means the YAML below it. In there, what does not speak of ScaledObjects or ScaledJobs and
cannot be read is none of ours: a chart's templates, a broken file of someone else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from attrs import frozen

LARGEST = 32 * 2**20
"""Bytes of one file that are read; the largest object that a cluster stores has 1.5 MiB."""

SUFFIXES = (".yaml", ".yml", ".json")
STANDARD_INPUT = "-"

_OURS = re.compile(r"Scaled(?:Object|Job)")


@frozen
class Source:
    """One input: its name as given, and its text, or the problem that kept it from being read.

    ``named`` says that the user named it, rather than a folder above it.
    """

    name: str
    text: str = ""
    problem: str | None = None
    line: int = 1
    column: int = 1
    named: bool = True

    @property
    def counts(self) -> bool:
        """Whether a problem with it is worth a word."""
        return self.named or _OURS.search(self.text) is not None


def sources(names: Iterable[str], standard_input: BinaryIO) -> Iterator[Source]:
    """Every input once, in the order given; the files of a folder by name."""
    seen: set[str] = set()
    for name in names:
        if name == STANDARD_INPUT:
            if name not in seen:
                yield _standard_input(standard_input)
            seen.add(name)
            continue
        path = Path(name)
        inside = path.is_dir()
        for file in _below(path) if inside else [path]:
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                yield _file(file, named=not inside)
        if inside and not any(True for _ in _below(path)):
            yield Source(name, problem=f"no {', '.join(SUFFIXES)} file is in this folder")


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for file in sorted(files):
            if file.lower().endswith(SUFFIXES):
                yield Path(parent) / file


def _standard_input(stream: BinaryIO) -> Source:
    source = _decoded(STANDARD_INPUT, stream.read(LARGEST + 1), named=True)
    if source.problem is None and not source.text.strip():
        problem = "standard input is empty; did the command before it fail?"
        return Source(STANDARD_INPUT, problem=problem)
    return source


def _file(path: Path, *, named: bool) -> Source:
    try:
        with path.open("rb") as file:
            return _decoded(str(path), file.read(LARGEST + 1), named=named)
    except OSError as error:
        return Source(str(path), problem=f"cannot be read: {error.strerror or error}")


def _decoded(name: str, content: bytes, *, named: bool) -> Source:
    if len(content) > LARGEST:
        problem = f"is larger than {LARGEST // 2**20} MiB"
        return Source(name, problem=problem, named=named)
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        return Source(name, content.decode("utf-16" if wide else "utf-8-sig"), named=named)
    except UnicodeDecodeError as error:
        before = content[: error.start]
        return Source(
            name,
            content.decode("latin-1"),  # only to see whether it is worth a word
            f"is not text in UTF-8 (byte 0x{content[error.start]:02X})",
            before.count(b"\n") + 1,
            error.start - before.rfind(b"\n"),
            named,
        )
