"""``accelscale simulate`` as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.browser import document, needs_chromium
from lab.simulate.cases import queue_trigger
from lab.toys import manifest


def run(*arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "accelscale", "simulate", *map(str, arguments)],
        capture_output=True,
        text=True,
        input=text,
        timeout=100,
    )


def written(path: Path, *manifests: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump_all(manifests))
    return path


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return written(tmp_path / "policy.yaml", manifest(threshold="60"))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    rows = "".join(f"2023-11-16 18:00:{n:02}.0000000,{400 + n},{20 + n}\n" for n in range(60))
    path = tmp_path / "trace.csv"
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    return path


def test_a_trace_is_simulated(policy: Path, trace: Path, tmp_path: Path) -> None:
    done = run(trace, "-f", policy, "--server", "llama-8b")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "toys/web on trace.csv: 60 requests" in done.stdout
    assert "first token" in done.stdout
    assert "assumed:" in done.stdout
    assert "loads for 90 s" in done.stdout


def test_the_same_call_prints_the_same(policy: Path) -> None:
    options = ("-f", policy, "--duration", "5m", "--rate", "1..4", "--period", "5m", "--json")
    one, same = (run(*options) for _ in range(2))
    assert one.returncode == 0, one.stderr
    assert one.stdout == same.stdout
    record = json.loads(one.stdout)
    assert record["summary"]["requests"] == record["arrivals"]["requests"] > 300
    assert run(*options, "--seed", "2").stdout != one.stdout


def test_policies_are_compared_with_a_queue_of_their_own(policy: Path, tmp_path: Path) -> None:
    queue = manifest(spec={"triggers": [queue_trigger("sum(vllm:num_requests_waiting)", "3")]})
    queue["metadata"] = {"name": "queue"}
    other = written(tmp_path / "queue.yaml", queue)
    options = ("-f", policy, "--compare", other, "--duration", "5m", "--load", "2")
    done = run(*options, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert {one["name"] for one in record["policies"]} == {"web", "queue"}
    assert record["assumptions"][0].startswith("Ranking: policies with at most 5 %")
    table = run(*options)
    assert table.returncode == 0, table.stderr
    assert table.stdout.splitlines()[1].split()[:2] == ["policy", "late"]


def test_a_sweep_reaches_the_triggers_of_other_scalers(tmp_path: Path) -> None:
    queue = manifest(spec={"triggers": [queue_trigger("sum(vllm:num_requests_waiting)", "3")]})
    path = written(tmp_path / "queue.yaml", queue)
    done = run("-f", path, "--sweep", "queue.threshold=1,9", "--duration", "2m", "--json")
    assert done.returncode == 0, done.stderr
    names = {one["name"] for one in json.loads(done.stdout)["policies"]}
    assert names == {"queue.threshold=1", "queue.threshold=9"}


def test_a_recording_closes_the_circle(policy: Path, tmp_path: Path) -> None:
    """What was simulated can be replayed, and tells the figures of its servers again."""
    kept = tmp_path / "fleet.parquet"
    options = ("-f", policy, "--duration", "20m", "--rate", "1..9", "--period", "20m")
    done = run(*options, "--recording", kept, "--set", "idle_watts=80", "--set", "load_seconds=50s")
    assert done.returncode == 0, done.stderr
    fit = run(*options, "--fit", kept, "--json")
    assert fit.returncode == 0, fit.stderr
    record = json.loads(fit.stdout)
    assert record["server"]["idle_watts"] == pytest.approx(80, abs=2)
    assert record["server"]["load_seconds"] == pytest.approx(50, abs=3)
    assert any(text.startswith("Fitted: load time") for text in record["assumptions"])
    replay = subprocess.run(
        [sys.executable, "-m", "accelscale", "replay", kept, "-f", policy, "--json"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert replay.returncode == 0, replay.stderr
    assert json.loads(replay.stdout)["summary"]["device_hours"] > 0


def test_silent_agents_are_told(policy: Path) -> None:
    done = run("-f", policy, "--duration", "20m", "--silent", "5m..10m:1", "--silent", "12m..14m")
    assert done.returncode == 0, done.stderr
    assert "From 5 min to 10 min no agent tells anything of the 1 oldest replicas" in done.stdout
    assert "time without answer" in done.stdout


def test_a_day_may_be_simulated(policy: Path) -> None:
    """A trigger's window ends at six hours, a simulation does not."""
    options = ("--rate", "0.01", "--duration", "30h", "--period", "12h", "--silent", "20h..21h")
    done = run("-f", policy, *options, "--interval", "15", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["arrivals"]["seconds"] == 108_000.0


@needs_chromium
def test_the_page_shows_its_charts(policy: Path, tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    png = tmp_path / "fleet.png"
    done = run("-f", policy, "--duration", "10m", "--html", page, "--png", png, "--plot")
    assert done.returncode == 0, done.stderr
    assert "Time to the first token: p95 (seconds)" in done.stdout
    assert png.read_bytes().startswith(b"\x89PNG")
    shown = document(tmp_path / "profile", page)
    assert 'data-drawn="5"' in shown
    assert "Power of all devices" in shown


@pytest.mark.parametrize(
    ("options", "status", "complaint"),
    [
        ((), 2, "is needed: whose policy?"),
        (("-f", "none.yaml"), 2, "none.yaml: No such file"),
        (("-f", "POLICY", "none.csv"), 1, "none.csv: No such file"),
        (("-f", "POLICY", "--rate", "fast"), 1, "rate='fast'"),
        (("-f", "POLICY", "--server", "gpt"), 1, "no setup gpt"),
        (("-f", "POLICY", "--set", "max_batch=3"), 1, "is no figure of a server"),
        (("-f", "POLICY", "--set", "max_requests"), 2, "must be KEY=VALUE"),
        (("-f", "POLICY", "--silent", "5m"), 2, "must be FROM..TO"),
        (("-f", "POLICY", "--silent", "5m..4m"), 2, "must be FROM..TO"),
        (("-f", "POLICY", "--signal", "inbox=requests_waiting"), 1, "no trigger inbox"),
        (("-f", "POLICY", "--recording", "x.csv", "--duration", "1m"), 2, "must end in"),
        (
            ("-f", "POLICY", "--recording", "x.jsonl", "--sweep", "threshold=60,70"),
            2,
            "is for one policy",
        ),
    ],
)
def test_mistakes_end_in_one_line(
    policy: Path, options: tuple[str, ...], status: int, complaint: str
) -> None:
    done = run(*(str(policy) if option == "POLICY" else option for option in options))
    assert done.returncode == status
    assert complaint in " ".join(done.stderr.split())
    assert done.stdout == ""
