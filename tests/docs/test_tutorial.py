"""The tutorial for authors of plugins, done by a process: every file written, every command run.

It runs offline, with what the development environment has: the page's `pip install` of accelscale
and pytest finds both installed, and builds happen without isolation.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/plugins/tutorial.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
MARK = "==> command "

# What a new virtual environment of the page has of the development environment.
BORROW = f"""
cat > "$(echo .venv/lib/python3*/site-packages)/development.pth" <<'END'
import site; site.addsitedir({sysconfig.get_path("purelib")!r})
END
cat > .venv/bin/accelscale <<'END'
#!/bin/sh
exec python -m accelscale "$@"
END
cat > .venv/bin/pytest <<'END'
#!/bin/sh
exec python -m pytest "$@"
END
chmod +x .venv/bin/accelscale .venv/bin/pytest
"""


@frozen
class Command:
    line: str
    expected: tuple[str, ...]


@frozen
class File:
    path: str
    text: str


def steps() -> Iterator[Command | File]:
    """What the page has one do, in order."""
    for language, title, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        assert title, f"a block of {language} without a title is run by nobody:\n{text}"
        if title != "Terminal":
            yield File(title, text)
            continue
        assert language == "console"
        for part in text.split("$ ")[1:] if text.startswith("$ ") else ["no command"]:
            line, *expected = part.splitlines()
            yield Command(line, tuple(expected))


STEPS = tuple(steps())
COMMANDS = [step for step in STEPS if isinstance(step, Command)]


def script() -> str:
    """All of it as one script, since a `cd` counts for all that follows."""
    lines = ["set -e"]
    number = 0
    for step in STEPS:
        if isinstance(step, File):
            lines.append(f"mkdir -p {shlex.quote(str(Path(step.path).parent))}")
            lines.append(f"cat > {shlex.quote(step.path)} <<'END OF FILE'\n{step.text}END OF FILE")
            continue
        lines.append(f"echo '{MARK}{number}'")
        lines.append(step.line)
        number += 1
        if step.line.endswith("-m venv .venv"):
            lines.append(BORROW)
    return "\n".join(lines) + f"\necho '{MARK}{number}'\n"


def run_all(folder: Path) -> list[str]:
    """What each command printed, in an empty folder beside a clone of the repository."""
    shutil.copytree(
        ROOT / "plugins/accelscale-example",
        folder / "accelscale/plugins/accelscale-example",
        ignore=shutil.ignore_patterns("__pycache__", ".*"),
    )
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ACCELSCALE_", "PYTEST_", "PIP_", "COV_", "COVERAGE_"))
        and name not in {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"}
    }
    done = subprocess.run(
        ["bash", "-c", script()],
        cwd=folder,
        env={
            **inherited,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this one the wrong way round
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    parts = re.split(rf"^{re.escape(MARK)}\d+\n", done.stdout, flags=re.MULTILINE)[1:-1]
    assert len(parts) == len(COMMANDS)
    return parts


def as_pattern(expected: tuple[str, ...]) -> str:
    """The printed lines; three dots stand for anything."""
    lines = []
    for line in expected:
        any_lines = line == "..."
        lines.append(
            r"(?:.*\n)*?" if any_lines else re.escape(line).replace(r"\.\.\.", ".*?") + r"\n"
        )
    return "".join(lines)


@pytest.mark.timeout(320)
def test_every_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    outputs = run_all(tmp_path)
    for command, output in zip(COMMANDS, outputs, strict=True):
        if command.expected:
            pattern = as_pattern(command.expected)
            assert re.fullmatch(pattern, output), f"$ {command.line}\n{output}"


def test_every_block_of_the_page_is_a_file_or_a_command() -> None:
    fences = len(re.findall(r"^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert fences == 2 * len(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    assert all(command.line != "no command" for command in COMMANDS)
