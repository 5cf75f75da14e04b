"""What the documents say is what the code does."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import accelscale
from accelscale.cli import app as cli
from accelscale.trigger import parse_trigger

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted(ROOT.glob("plugins/*/README.md"))
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            if match[2] == language:
                indent = len(match[1])
                text = "\n".join(line[indent:] for line in match[3].splitlines())
                yield f"{page.relative_to(ROOT)}:{text.splitlines()[0][:40]}", text + "\n"


def parameters(language: str) -> list[object]:
    return [pytest.param(text, id=name) for name, text in blocks(language)]


@pytest.mark.parametrize("text", parameters("python"))
def test_python_runs_as_printed(text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", parameters("yaml"))
def test_triggers_in_yaml_are_accepted(text: str) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs, in the extra dev")
    page = yaml.safe_load(text)
    triggers = page.get("triggers") or page["spec"]["triggers"]
    for trigger in triggers:
        assert trigger["type"] in {"external", "external-push"}
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        parsed = parse_trigger(trigger["metadata"])
        assert parsed.warnings == ()
        assert trigger.get("metricType", "AverageValue") == parsed.metric_type


def commands() -> list[object]:
    return [
        pytest.param(line[2:], id=f"{name.split(':')[0]}: {line}")
        for name, text in blocks("console")
        for line in text.splitlines()
        if line.startswith("$ ")
    ]


@pytest.mark.parametrize("line", commands())
def test_commands_exist_with_their_options(line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets
    elif words[:2] == ["pip", "install"]:
        for word in words[2:]:
            name, _, extra = word.rstrip("]").partition("[")
            home = ROOT if name == "accelscale" else ROOT / "plugins" / name
            text = (home / "pyproject.toml").read_text()
            assert not extra or f"\n{extra} = [" in text
    else:
        assert words[0] == "accelscale", f"a command that no test knows: {line}"
        known = options_of(words[1])
        for word in words[2:]:
            if word.startswith("-"):
                assert word.partition("=")[0] in known, f"{words[1]} has no option {word}"


def options_of(command: str) -> set[str]:
    group = cli._command()
    found = group.commands[command]  # type: ignore[attr-defined]
    return {option for parameter in found.params for option in parameter.opts}


def test_every_public_name_is_explained_in_the_library_guide() -> None:
    guide = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    reference = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    missing = [name for name in accelscale.__all__ if f"`{name}`" not in guide + reference]
    assert missing == []


def test_tables_are_in_step_with_the_code() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "reference.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
