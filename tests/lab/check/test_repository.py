"""What this repository shows to its readers is clean, and its hook is what pre-commit wants."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from accelscale.cli import app
from accelscale.lab.check import RULES, Source, check
from lab.check.texts import CLEAN, changed, text

ROOT = Path(__file__).parents[3]
FENCE = re.compile(r"^( *)```yaml\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    return [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("plugins/*/README.md")]


def examples() -> Iterator[object]:
    for page in sorted(pages()):
        for number, match in enumerate(FENCE.finditer(page.read_text(encoding="utf-8"))):
            lines = [line[len(match[1]) :] for line in match[2].splitlines()]
            yield pytest.param("\n".join(lines), id=f"{page.relative_to(ROOT)}-{number}")


@pytest.mark.parametrize("example", list(examples()))
def test_manifests_in_documents_are_clean(example: str) -> None:
    document = yaml.safe_load(example)
    if "triggers" in document:  # a part, shown by itself
        example = text(changed(CLEAN, {"spec": document}))
    report = check([Source("example.yaml", example)])
    assert (report.objects, report.foreign) == (1, 0)
    assert [f"{each.rule.id} {each.message}" for each in report.findings] == []
    assert report.unusable == ()


def manifests() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.yaml", "*.yml"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and "templates" not in path.parts]


def test_manifests_in_files_are_clean() -> None:
    sources = [
        Source(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"), named=False)
        for path in manifests()
    ]
    report = check(sources)
    # The example of a ScaledJob warns of this itself, and says how it may be done all the same.
    known = ["deploy/examples/scaledjob.yaml AS602"]
    assert [f"{each.file} {each.rule.id}" for each in report.findings] == known
    assert report.unusable == ()


def test_the_hook_runs_a_command_that_exists() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, command = hook["entry"].split()
    assert program == "accelscale"
    assert command in app._command().commands
    assert re.search(hook["exclude"], "chart/templates/scaledobject.yaml")
    assert not re.search(hook["exclude"], "deploy/scaledobject.yaml")


def test_every_finding_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "lab" / "check.md").read_text(encoding="utf-8")
    assert [rule for rule in RULES if f"| {rule} |" not in page] == []
