"""Makes the pictures of these pages by the commands that the pages show: ``pictures.py [--check]``.

A line ``$ accelscale ... --png pictures/NAME.png`` of a console block is run as it stands, beside
the folder ``manifests``; so is one that makes a recording for a later one. What the command says in
figures is kept beside the picture, in ``pictures/NAME.json``: the tables of the pages are made of
it, and a test runs the commands again and compares.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
FENCE = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
TOLERANCE = 0.02
"""By how much a figure may differ on another machine; a share, and an absolute for those near 0."""


class Shown:
    """A command of a page: ``picture`` is its name, None for one that only makes a recording."""

    def __init__(self, line: str) -> None:
        self.words = shlex.split(line)[1:]
        self.picture: str | None = None
        if "--png" in self.words:
            path = Path(self.words[self.words.index("--png") + 1])
            self.picture = path.stem if path.parent.name == PICTURES.name else None

    @property
    def makes(self) -> bool:
        """Whether it makes something that a page shows or that a later command reads."""
        ours = any(word.startswith("manifests/") for word in self.words)
        return self.picture is not None or (ours and "--recording" in self.words)

    def figures_words(self) -> list[str]:
        """The same command, for its figures."""
        at = self.words.index("--png")
        return [*self.words[:at], *self.words[at + 2 :], "--json"]


def shown() -> list[Shown]:
    """The commands of the pages that make something, in order."""
    found = []
    for page in sorted(HERE.glob("*.md")):
        for block in FENCE.finditer(page.read_text(encoding="utf-8")):
            lines = [line for line in block[1].splitlines() if line.startswith("$ accelscale ")]
            found += [command for line in lines if (command := Shown(line[2:])).makes]
    return found


def run(words: Sequence[str], folder: Path) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run(  # noqa: S603  # the commands are those of our own pages
        [sys.executable, "-m", "accelscale", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"accelscale {shlex.join(words)}: {done.stderr}")
    return done.stdout


def workplace(folder: Path) -> Path:
    """A folder in which the commands of the pages can run."""
    shutil.copytree(HERE / "manifests", folder / "manifests")
    (folder / "pictures").mkdir()
    return folder


def figures(commands: Sequence[Shown], folder: Path) -> Iterator[tuple[str, Any]]:
    """For each picture the figures of its command."""
    for command in commands:
        if command.picture is None:
            run(command.words, folder)
        else:
            yield command.picture, reduced(json.loads(run(command.figures_words(), folder)))


def reduced(record: dict[str, Any]) -> Any:
    """What tables and tests look at."""
    if "policies" in record:
        return [{"name": one["name"], **numbers(one["summary"])} for one in record["policies"]]
    return {**numbers(record["summary"]), "changes": record["changes"]}


def numbers(summary: dict[str, Any]) -> dict[str, float | None]:
    """The numbers of a summary in one level, with five digits."""
    found: dict[str, float | None] = {}
    for name, value in summary.items():
        if isinstance(value, dict):
            found.update({f"{name}_{key}": digits(inner) for key, inner in value.items()})
        else:
            found[name] = digits(value)
    return found


def digits(value: float | None) -> float | None:
    """A number with five digits."""
    return None if value is None else float(f"{value:.5g}")


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """What differs between two records by more than chance."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from differences(old[key], new[key], f"{where}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif isinstance(old, int | float) and isinstance(new, int | float):
        if not math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{where}: {old} was, {new} is"
    elif old != new:
        yield f"{where}: {old} was, {new} is"


def main() -> int:
    """Make every picture, or with ``--check`` say whose figures differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail on a difference")
    check = parser.parse_args().check
    commands = shown()
    found: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = workplace(Path(name))
        for picture, new in figures(commands, folder):
            kept = PICTURES / f"{picture}.json"
            if check:
                old = json.loads(kept.read_text(encoding="utf-8"))
                found += [f"{picture}{text}" for text in differences(old, new)]
            else:
                kept.write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")
        for command in () if check else commands:
            if command.picture is not None:
                run(command.words, folder)
                made = folder / "pictures" / f"{command.picture}.png"
                shutil.copyfile(made, PICTURES / made.name)
    for text in found:
        sys.stderr.write(f"{text}; run docs/lab/pictures.py\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
