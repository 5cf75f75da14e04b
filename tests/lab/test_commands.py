"""``accelscale record`` and ``accelscale replay`` as real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelscale.lab.loading import load
from accelscale.lab.parquet import write_parquet
from cli.distributions import write_distribution
from cli.terminal import terminal
from cli.workbench import EXAMPLE, Workbench
from lab.toys import manifest, recording, wave

METRIC = "utilization_percent"
CARD = {"values": {METRIC: 40.0, "power_watts": 300.0}}


class Bench(Workbench):
    """The plugin under a name that no installed one has."""

    def example(self, devices: dict[str, object], **state: object) -> None:
        self.state.write_text(json.dumps({"devices": devices, **state}))
        write_distribution(
            self.plugins,
            "toy-accelerator",
            {"accelscale": {"toy": "toy_accelerator"}},
            {"toy_accelerator": EXAMPLE.replace('"example"', '"toy"')},
        )


@pytest.fixture
def workbench(tmp_path: Path) -> Workbench:
    return Bench(tmp_path)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.parquet"
    load_ = wave(10.0, 95.0, 3600.0)
    found = recording(
        {METRIC: [load_] * 4, "power_watts": [lambda t: 80 + 5 * load_(t)] * 4}, seconds=7200.0
    )
    write_parquet(found, path)
    return path


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return written(tmp_path / "web.yaml", manifest())


def written(path: Path, *documents: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump_all(documents))
    return path


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.parquet"])
def test_the_devices_are_recorded_for_a_time(
    workbench: Workbench, tmp_path: Path, name: str
) -> None:
    workbench.example({"card-0": CARD, "card-1": CARD})
    output = tmp_path / name
    done = workbench.run(
        "record", str(output), "--interval", "0.1", "--for", "2s", "--metric", METRIC
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert f"recorded {output}: 0:00:0" in done.stderr
    found = load([output])
    assert {device.id for device in found.devices} == {"card-0", "card-1"}
    assert found.metrics == (METRIC,)
    assert set(found.columns["card-1", METRIC].values.tolist()) == {40.0}
    assert len(found.columns["card-1", METRIC]) >= 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_recording_in_good_order(
    workbench: Workbench, tmp_path: Path, number: signal.Signals
) -> None:
    workbench.example({"card-0": CARD})
    output = tmp_path / "trace.parquet"
    process = started(workbench, output)
    process.send_signal(number)
    _, complaint = process.communicate(timeout=30)
    assert process.returncode == 0, complaint
    assert load([output]).notes == ()


def started(workbench: Workbench, output: Path, *more: str) -> subprocess.Popen[str]:
    """A recording that has written its first values."""
    process = subprocess.Popen(
        workbench.command("record", str(output), "--interval", "0.1", *more),
        env=workbench.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    journal = output.with_name(f"{output.name}.parts") / "000001.jsonl"
    end = time.monotonic() + 30
    while not journal.exists() or journal.read_text().count('"values"') < 3:
        assert time.monotonic() < end, "nothing was recorded"
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    return process


def test_a_killed_recording_is_replayed_and_gone_on_with(
    workbench: Workbench, tmp_path: Path, policy: Path
) -> None:
    workbench.example({"card-0": CARD})
    output = tmp_path / "trace.parquet"
    process = started(workbench, output)
    process.kill()
    process.communicate(timeout=30)
    assert not output.exists()
    replayed = workbench.run("replay", str(output), "-f", str(policy), "--json")
    assert replayed.returncode == 0, replayed.stderr
    assert any("its writer was stopped" in w for w in json.loads(replayed.stdout)["warnings"])
    refused = workbench.run("record", str(output), "--for", "1s")
    assert refused.returncode == 1
    assert "--append" in refused.stderr
    on = workbench.run("record", str(output), "--for", "1s", "--interval", "0.1", "--append")
    assert on.returncode == 0, on.stderr
    assert output.exists()
    assert not (tmp_path / "trace.parquet.parts").exists()


def test_mistakes_in_a_recording_are_named(workbench: Workbench, tmp_path: Path) -> None:
    workbench.example({"card-0": CARD})
    output = str(tmp_path / "trace.parquet")
    wrong = workbench.run("record", output, "--metric", "utilisation_percent")
    assert wrong.returncode == 2
    assert "did you mean utilization_percent" in wrong.stderr
    nowhere = workbench.run("record", output, "--from", "carrier:pigeon:1")
    assert nowhere.returncode == 1
    assert "no source carrier:pigeon:1" in nowhere.stderr
    rotated = workbench.run("record", output, "--rotate", "1h")
    assert rotated.returncode == 1
    assert "leave the ending out" in rotated.stderr


def test_without_a_device_nothing_is_recorded(workbench: Workbench, tmp_path: Path) -> None:
    workbench.example({}, probe="not here")
    done = workbench.run("record", str(tmp_path / "trace.jsonl"), "--for", "1s")
    assert done.returncode == 1
    assert "no devices found" in done.stderr
    assert not (tmp_path / "trace.jsonl").exists()


def test_progress_is_one_line_on_a_terminal(workbench: Workbench, tmp_path: Path) -> None:
    workbench.example({"card-0": CARD})
    arguments = ["record", str(tmp_path / "t.jsonl"), "--interval", "0.1", "--for", "2s"]
    with terminal(workbench.command(*arguments), workbench.environment, 80) as shown:
        assert shown.finish() == 0
    assert "1 device" in shown.raw
    assert "\r\x1b[2K" in shown.raw


def test_what_others_recorded_is_converted(workbench: Workbench, tmp_path: Path) -> None:
    log = tmp_path / "smi.csv"
    log.write_text(
        "timestamp, uuid, utilization.gpu [%]\n"
        "2026/01/31 12:00:00.000, GPU-a, 37 %\n"
        "2026/01/31 12:00:01.000, GPU-a, ERR!\n"
        "2026/01/31 12:00:02.000, GPU-a, 39 %, 3\n"
        "2026/01/31 12:00:03.000, GPU-a, 40 %\n"
    )
    output = tmp_path / "smi.parquet"
    refused = workbench.run("record", str(output), "--import", str(log))
    assert refused.returncode == 1
    assert "smi.csv:4: has 4 fields where the header has 3" in refused.stderr
    assert not output.exists()
    done = workbench.run("record", str(output), "--import", str(log), "--repair")
    assert done.returncode == 0, done.stderr
    assert "note: left out 1 reading, the first at smi.csv:4" in done.stderr
    assert load([output]).columns["GPU-a", METRIC].values.tolist() == [37.0, 40.0]
    again = workbench.run("record", str(output), "--import", str(log), "--repair")
    assert again.returncode == 2
    assert "exists" in again.stderr


def test_a_replay_prints_figures_warnings_and_assumptions(
    workbench: Workbench, trace: Path, policy: Path
) -> None:
    done = workbench.run("replay", str(trace), "-f", str(policy))
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0].startswith("toys/web on trace.parquet: 4 devices, 2025-10-09")
    labels = " ".join(lines)
    for label in ("replica hours", "energy", "scale events", "time to react", "missed work"):
        assert label in labels
    assert "assumed:" in lines
    assert any(line.startswith("- Open loop:") for line in lines)
    assert "┤" not in done.stdout


def test_json_is_one_document(workbench: Workbench, trace: Path, policy: Path) -> None:
    done = workbench.run("replay", str(trace), "-f", str(policy), "--closed-loop", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout, parse_constant=pytest.fail)
    assert record["policy"] == "toys/web"
    assert record["summary"]["longest_wait_seconds"] >= 0
    assert record["changes"][0] == [0.0, 4]
    assert record["conditions"]["closed_loop"] is True
    assert record["recording"]["seconds"] == 7200.0
    assert any("conserved" in text for text in record["assumptions"])


def test_pictures_are_written_and_drawn(
    workbench: Workbench, trace: Path, policy: Path, tmp_path: Path
) -> None:
    html, png = tmp_path / "r.html", tmp_path / "r.png"
    done = workbench.run(
        *("replay", str(trace), "-f", str(policy), "--plot"),
        *("--html", str(html), "--png", str(png)),
    )
    assert done.returncode == 0, done.stderr
    assert "┤" in done.stdout
    assert html.read_text().startswith("<!doctype html>")
    assert png.read_bytes().startswith(b"\x89PNG")


def test_a_sweep_ranks_its_points(workbench: Workbench, trace: Path, policy: Path) -> None:
    done = workbench.run(
        *("replay", str(trace), "-f", str(policy), "--json"),
        *("--sweep", "threshold=50..90:20", "--sweep", "window=15s,1m"),
    )
    assert done.returncode == 0, done.stderr
    policies = json.loads(done.stdout)["policies"]
    assert len(policies) == 6
    assert [one["cost"] for one in policies] == sorted(one["cost"] for one in policies)
    assert {one["name"] for one in policies} >= {"threshold=50 window=15s"}


def test_manifests_are_compared(
    workbench: Workbench, trace: Path, policy: Path, tmp_path: Path
) -> None:
    other = written(tmp_path / "other.yaml", manifest(threshold="95"), manifest(window="1m"))
    html = tmp_path / "c.html"
    done = workbench.run(
        *("replay", str(trace), "-f", str(policy), "--compare", str(other)), "--html", str(html)
    )
    assert done.returncode == 0, done.stderr
    assert "3 policies on trace.parquet" in done.stdout
    assert "web/web" in done.stdout
    assert "other/web: threshold 95 can never scale out" in done.stdout
    assert "<table>" in html.read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["-f", "nowhere.yaml"], 2, "nowhere.yaml: No such file"),
        (["-f", "web.yaml", "--sweep", "threshold=9..1"], 1, "a range rises"),
        (["-f", "web.yaml", "--sweep", "treshold=1,2"], 1, "no setting treshold"),
        (["-f", "web.yaml", "--kubernetes-version", "new"], 1, "must be such as 1.33"),
        (["-f", "web.yaml", "--load-time", "soon"], 2, "must be a duration"),
        (["-f", "bad.yaml"], 1, "spec.triggers[0].metadata.threshold"),
        (["-f", "power.yaml"], 1, "power_used_percent"),
    ],
)
def test_mistakes_are_one_line(
    workbench: Workbench,
    trace: Path,
    policy: Path,
    tmp_path: Path,
    arguments: list[str],
    status: int,
    text: str,
) -> None:
    written(tmp_path / "bad.yaml", manifest(threshold="lots"))
    written(tmp_path / "power.yaml", manifest(metric="power_used_percent"))
    words = [str(tmp_path / word) if word.endswith(".yaml") else word for word in arguments]
    done = workbench.run("replay", str(trace), *words)
    assert done.returncode == status
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_what_cannot_be_written_is_one_line(
    workbench: Workbench, trace: Path, policy: Path, tmp_path: Path
) -> None:
    for option in ("--html", "--png"):
        target = str(tmp_path / "no" / "where")
        done = workbench.run("replay", str(trace), "-f", str(policy), option, target)
        assert done.returncode == 1
        assert f"{target}: No such file or directory" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_full_disk_ends_a_recording_in_one_line(workbench: Workbench, tmp_path: Path) -> None:
    workbench.example({"card-0": CARD})
    output = tmp_path / "trace.jsonl"
    command = workbench.command("record", str(output), "--interval", "0.05", "--for", "20s")
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 12 && exec "$@"', "limited", *command],
        env=workbench.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"accelscale: {output}: File too large"]
    assert load([output]).samples > 5


def test_a_truncated_trace_is_no_trace(workbench: Workbench, trace: Path, policy: Path) -> None:
    trace.write_bytes(trace.read_bytes()[:-100])
    done = workbench.run("replay", str(trace), "-f", str(policy))
    assert done.returncode == 1
    assert "trace.parquet: cannot be read" in done.stderr
    assert done.stdout == ""
