"""``accelscale demo``: server, load and client as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from accelscale_server.demo.picture import Moment, line
from accelscale_server.demo.processes import CpuLoad
from cli.terminal import terminal
from cli.workbench import Workbench, without
from drivers.nvml import state as nvml

CARD = {"name": "Example 9000", "values": {"utilization_percent": 35.0}}


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    """The processes that this one has started and that still run."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_accelerator_gets_no_load(workbench: Workbench) -> None:
    workbench.example({"card-0": CARD, "card-1": {"lost": "Xid 79"}})
    options_of_another_server = {
        "ACCELSCALE_TLS_CERT": "/nowhere.pem",
        "ACCELSCALE_INTERVAL": "60",
        "ACCELSCALE_CONFIG": "/nowhere.toml",
    }
    result = workbench.run("demo", "--seconds", "1", "--json", **options_of_another_server)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    document = json.loads(result.stdout)
    assert (document["backend"], document["stand_in"]) == ("example", False)
    assert document["devices"] == ["card-0"]
    assert (document["polls"], document["failed_polls"], document["calls"]) == (4, 0, 12)
    assert document["value"] == {"min": 35.0, "max": 35.0}
    assert document["active_polls"] == 4
    assert document["replicas"] == {"min": 1, "max": 1}
    assert document["metadata"]["metric"] == "utilization_percent"
    assert 0 < document["call_seconds"]["median"] <= document["call_seconds"]["max"]


def test_an_idle_device_is_no_failure(workbench: Workbench) -> None:
    workbench.example({"slice": {"values": {"temperature_celsius": 0.0}}})
    result = workbench.run("demo", "--seconds", "1", "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    document = json.loads(result.stdout)
    assert document["metadata"]["metric"] == "temperature_celsius"  # all that it has
    assert document["value"] == {"min": 0.0, "max": 0.0}
    assert document["active_polls"] == 0


def test_nvidia_comes_first(workbench: Workbench, tmp_path: Path, nvml_library: Path) -> None:
    fake = nvml.FakeNvml(tmp_path / "nvml.state").device("GPU-aaaa", utilization_gpu=90).write()
    workbench.example({"card-0": CARD})
    result = workbench.run(
        "demo",
        "--seconds",
        "1",
        "--json",
        ACCELSCALE_DISABLE_PLUGINS=without("nvidia"),
        ACCELSCALE_NVML_LIBRARY=str(nvml_library),
        **{nvml.STATE_VARIABLE: str(fake.path)},
    )
    document = json.loads(result.stdout)
    assert (document["backend"], document["devices"]) == ("nvidia", ["GPU-aaaa"])
    assert document["replicas"] == {"min": 2, "max": 2}


def test_the_cpu_stands_in_and_is_put_under_load(workbench: Workbench) -> None:
    result = workbench.run("demo", "--seconds", "2", ACCELSCALE_DISABLE_PLUGINS=without("host"))
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    assert "no accelerator works here; `accelscale doctor` says more" in lines
    assert any(text.startswith("reading the CPU instead: ") for text in lines)
    polls = [text for text in lines if " s  " in text and "value" in text]
    assert len(polls) == 4
    assert any(" load " in text for text in polls)
    assert not polls[0].count(" load ")
    assert any(text.startswith("4 polls, 12 calls, none failed") for text in lines)


def test_without_any_backend_it_says_what_to_install(workbench: Workbench) -> None:
    workbench.example({}, probe="not here")
    result = workbench.run("demo", "--json")
    assert (result.returncode, result.stdout) == (1, "")
    (text,) = result.stderr.splitlines()
    assert "example: not here" in text
    assert "pip install accelscale-host" in text


def test_the_picture_on_a_narrow_terminal(workbench: Workbench) -> None:
    workbench.example({"card-0": CARD})
    command = workbench.command("demo", "--seconds", "1")
    with terminal(command, workbench.environment, 40) as screen:
        assert screen.finish() == 0
    text = screen.text
    assert "35" in text
    assert "70 for each replica" in text
    assert "1 is what an HPA would ask for" in text
    assert [row for row in screen.rows() if len(row) > 40] == []


def test_a_poll_that_fails_fails_the_demo(workbench: Workbench) -> None:
    workbench.example({"card-0": CARD})
    with terminal(workbench.command("demo", "--seconds", "4"), workbench.environment, 80) as screen:
        screen.wait_for(lambda text: "what an HPA would ask for" in text)
        workbench.example({"card-0": {"lost": "fell off the bus"}})
        assert screen.finish() == 1
    assert "polls failed" in screen.text
    assert "fell off the bus" in " ".join(screen.text.split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_however_it_ends_its_processes_end_too(
    workbench: Workbench, number: signal.Signals
) -> None:
    process = subprocess.Popen(
        workbench.command("demo", "--seconds", "60"),
        env={**workbench.environment, "ACCELSCALE_DISABLE_PLUGINS": without("host")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: len(children(process.pid)) >= 1)
        started = children(process.pid)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == {signal.SIGINT: 130}.get(number, -number)
        assert errors == ""
        wait_until(lambda: not any(is_running(pid) for pid in started))
    finally:
        process.kill()
        process.communicate()


def test_the_load_ends_by_itself_and_with_its_maker() -> None:
    with CpuLoad(0.2) as load:
        pids = children(os.getpid())
        assert pids
        wait_until(lambda: not load.running)
    with CpuLoad(60) as load:
        assert load.running
        pids = children(os.getpid())
    assert not any(is_running(pid) for pid in pids)


def test_a_line_of_text() -> None:
    good = Moment(3.0, busy=True, value=48.25, target=30.0, active=True, replicas=2)
    assert line(good) == "  3.0 s  load  value   48.2  target 30  active      replicas 2"
    bad = Moment(4.0, busy=False, error="GetMetrics: UNAVAILABLE: no fresh reading")
    assert line(bad) == "  4.0 s        GetMetrics: UNAVAILABLE: no fresh reading"
