"""The command, as processes: statuses, streams, forms of output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.check.texts import CLEAN, QUEUE, scaled_object, text, trigger

WARNED = scaled_object(maxReplicaCount=None)
FAULTY = scaled_object(trigger(threshold="95"), fallback={"failureThreshold": 3, "replicas": 0})
NOTED = scaled_object(trigger(), trigger(window="5m"))


def run(
    *arguments: str, stdin: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "accelscale", "check", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


@pytest.mark.parametrize(
    ("document", "options", "status"),
    [
        (CLEAN, [], 0),
        (NOTED, ["--strict"], 0),
        (WARNED, [], 0),
        (WARNED, ["--strict"], 1),
        (WARNED, ["--strict", "--ignore", "AS501"], 0),
        (FAULTY, [], 1),
        (FAULTY, ["--ignore", "AS203", "--ignore", "AS502"], 0),
    ],
)
def test_the_status_is_for_pipelines(
    document: dict[str, object], options: list[str], status: int
) -> None:
    done = run("-", *options, stdin=text(document))
    assert (done.returncode, done.stderr) == (status, "")


def test_findings_are_lines_that_editors_understand(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text(FAULTY, FAULTY))
    done = run("a.yaml", cwd=tmp_path)
    lines = done.stdout.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    places = [re.match(r"a\.yaml:(\d+):(\d+): error (AS\d+) ", line) for line in heads[:-1]]
    assert [match and match[3] for match in places] == ["AS203", "AS502", "AS203", "AS502"]
    assert sum(line.startswith("    why: ") for line in lines) == 2
    assert sum(line.startswith("    fix: ") for line in lines) == 4
    assert heads[-1] == "2 objects checked in 1 file; 4 errors"


def test_json_holds_everything(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text(FAULTY))
    (tmp_path / "b.yaml").write_text(text({**CLEAN, "spec": {"triggers": [QUEUE]}}))
    done = run("a.yaml", "none.yaml", "b.yaml", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "")
    record = json.loads(done.stdout)
    first = record["findings"][0]
    assert {key: first[key] for key in ("id", "severity", "file", "line", "column", "path")} == {
        "id": "AS203",
        "severity": "error",
        "file": "a.yaml",
        "line": 15,
        "column": 7,
        "path": "spec.triggers[0].metadata.threshold",
    }
    assert first["explanation"]
    assert first["fix"]
    (missing,) = record["unusable"]
    assert (missing["id"], missing["file"]) == ("AS001", "none.yaml")
    assert record["summary"] == {
        "files": 3,
        "objects": 2,
        "without_accelscale": 1,
        "errors": 2,
        "warnings": 0,
        "notes": 0,
        "unusable": 1,
    }


def test_sarif_is_one_document() -> None:
    done = run("-", "--sarif", stdin=text(FAULTY))
    assert done.returncode == 1
    assert json.loads(done.stdout)["version"] == "2.1.0"


def test_one_bad_file_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [\n")
    (tmp_path / "good.yaml").write_text(text(FAULTY))
    done = run("bad.yaml", "good.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "bad.yaml:2:1: error AS002" in done.stdout
    assert "good.yaml:15:7: error AS203" in done.stdout
    assert done.stdout.endswith("1 object checked in 2 files; 2 errors; 1 input not usable\n")


@pytest.mark.parametrize("stdin", ["", "\n"])
def test_nothing_to_check_is_no_success(stdin: str) -> None:
    done = run("-", stdin=stdin)
    assert done.returncode == 2
    assert "standard input is empty" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing argument 'FILE"),
        (["-", "--json", "--sarif"], "--json or --sarif"),
        (["-", "--ignore", "AS999"], "no finding has the id AS999"),
        (["-", "--load-time", "soon"], "must be a duration"),
    ],
)
def test_mistakes_in_the_arguments(arguments: list[str], words: str) -> None:
    done = run(*arguments, stdin=text(CLEAN))
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_times_can_be_told() -> None:
    document = scaled_object(trigger(), QUEUE, minReplicaCount=0)
    assert run("-", "--strict", stdin=text(document)).returncode == 0
    done = run("-", "--strict", "--load-time", "10m", "--interval", "20s", stdin=text(document))
    assert done.returncode == 1
    assert "600 s that a replica takes to load (given)" in done.stdout
    assert "shorter than the 20 s between two readings" in done.stdout


def test_a_large_file_is_read_to_its_end(tmp_path: Path) -> None:
    other = text({"kind": "ConfigMap", "data": {f"key-{n}": "x" * 60 for n in range(200)}})
    with (tmp_path / "large.yaml").open("w") as file:
        for _ in range(10_000_000 // len(other)):
            file.write(f"---\n{other}")
        file.write(f"---\n{text(FAULTY)}")
    done = run("large.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.endswith("1 object checked in 1 file; 2 errors\n")


def test_without_pyyaml_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise ModuleNotFoundError('no yaml', name='yaml')\n")
    done = subprocess.run(
        [sys.executable, "-m", "accelscale", "check", "-"],
        input=text(CLEAN),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "pip install 'accelscale[lab]'" in done.stderr


def test_help_says_what_it_takes() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "Usage: accelscale check [OPTIONS] " in done.stdout


def test_what_a_file_says_cannot_steer_a_terminal() -> None:
    content = text(CLEAN).replace("'70'", r'"\e[31m70\n80"')
    done = run("-", stdin=content)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert [line for line in done.stdout.splitlines() if "AS101" in line]


def test_very_long_values_are_cut() -> None:
    done = run("-", stdin=text(scaled_object(trigger(threshold="x" * 100_000))))
    assert done.returncode == 1
    assert len(done.stdout) < 2000


def test_a_closed_standard_input_is_an_empty_one() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec '{sys.executable}' -m accelscale check - <&-"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert "standard input is empty" in done.stdout
