"""``accelscale serve`` as a real process, asked by ``accelscale poll``."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from accelscale_server.config import ServeConfig
from cli.workbench import Workbench

METADATA = ("-m", "metric=utilization_percent", "-m", "threshold=30", "-m", "window=1s")
CARDS = {
    "card-0": {"values": {"utilization_percent": 80.0}},
    "card-1": {"values": {"utilization_percent": 40.0}},
}


def free_address() -> str:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{trial.getsockname()[1]}"


@contextmanager
def serving(workbench: Workbench, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        workbench.command("serve", *arguments),
        env=workbench.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def poll_until(workbench: Workbench, address: str, key: str, *arguments: str) -> dict[str, Any]:
    """Poll until the answer has the key, which is ``values`` or ``error``."""
    end = time.monotonic() + 20
    while True:
        result = workbench.run("poll", address, "--json", *arguments)
        document: dict[str, Any] = json.loads(result.stdout)
        if key in document or time.monotonic() > end:
            return document


def test_every_option_of_the_server_is_a_flag(workbench: Workbench) -> None:
    words = workbench.run("serve", "--help").stdout.split()
    names = [field.name.replace("_", "-") for field in attrs.fields(ServeConfig)]
    assert {f"--{name}" for name in [*names, "config"]} <= set(words)


def test_a_server_answers_what_poll_asks(workbench: Workbench) -> None:
    workbench.example(CARDS)
    address = free_address()
    with serving(workbench, "--listen", address, "--interval", "0.1") as process:
        document = poll_until(workbench, address, "values", *METADATA)
        assert document == {
            "spec": [{"name": "accelscale-utilization-percent", "target": 30.0}],
            "values": [{"name": "accelscale-utilization-percent", "value": 120.0}],
            "active": True,
        }
        text = workbench.run("poll", address, *METADATA, "--replicas", "2").stdout
        assert "replicas  4 (an HPA that sees 2 replicas)" in text
        workbench.example({card: {"lost": "Xid 79"} for card in CARDS})
        error = poll_until(workbench, address, "error", *METADATA)["error"]
        assert error["code"] == "UNAVAILABLE"
        assert "Xid 79" in error["message"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_every_fault_of_the_metadata_reaches_the_user(workbench: Workbench) -> None:
    workbench.example(CARDS)
    address = free_address()
    with serving(workbench, "--listen", address):
        poll_until(workbench, address, "values", *METADATA)
        bad = ("-m", "metric=utilisation_percent", "-m", "treshold=80%")
        error = poll_until(workbench, address, "error", *bad)["error"]
    assert error["code"] == "INVALID_ARGUMENT"
    for word in ("utilization_percent", "treshold", "threshold"):
        assert word in error["message"]


def test_push_follows_the_activity(workbench: Workbench) -> None:
    workbench.example(CARDS)
    address = free_address()
    with serving(workbench, "--listen", address, "--interval", "0.1"):
        poll_until(workbench, address, "values", *METADATA)
        following = subprocess.Popen(
            workbench.command("poll", address, *METADATA, "--push", "--count", "2", "--json"),
            env=workbench.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["active"] is True
        workbench.example({card: {"values": {"utilization_percent": 0.0}} for card in CARDS})
        rest, _ = following.communicate(timeout=30)
    assert json.loads(rest)["active"] is False
    assert following.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "6000"], ["--listen='6000'", "HOST:PORT"]),
        (["--interval", "never", "--log-level", "loud"], ["--interval", "--log-level"]),
        (["--config", "/nowhere.toml"], ["--config", "cannot be read"]),
        (["--backend", "exmaple"], ["no backend 'exmaple'", "did you mean 'example'"]),
        (["--tls-cert", "/nowhere.pem"], ["--tls-key", "is required"]),
    ],
)
def test_bad_options_are_one_line(
    workbench: Workbench, arguments: list[str], words: list[str]
) -> None:
    workbench.example(CARDS)
    result = workbench.run("serve", *arguments)
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    line = result.stderr.splitlines()[-1]
    for word in words:
        assert word in line


def test_a_taken_port_is_one_line(workbench: Workbench) -> None:
    workbench.example(CARDS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        result = workbench.run("serve", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert result.returncode != 0
    assert "address in use" in result.stderr
    assert "Traceback" not in result.stderr
