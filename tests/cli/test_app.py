"""The frame around all commands: help, mistakes, foreign commands, interrupts, closed pipes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys

import pytest

import accelscale
from cli.distributions import write_distribution
from cli.workbench import Workbench

COMMANDS = ("devices", "top", "doctor", "plugins", "serve", "demo", "poll")


def commands(workbench: Workbench, name: str, source: str, value: str = "register") -> None:
    """Install a distribution that brings commands."""
    module = name.replace("-", "_")
    points = {"accelscale.commands": {name: f"{module}:{value}"}}
    write_distribution(workbench.plugins, name, points, {module: source})


def test_help_lists_every_command(workbench: Workbench) -> None:
    result = workbench.run("--help")
    assert result.returncode == 0
    assert result.stderr == ""
    listed = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ")]
    assert set(COMMANDS) <= set(listed)
    assert all(len(line) <= 80 and "..." not in line for line in result.stdout.splitlines()[5:])


def test_help_imports_nothing_heavy(workbench: Workbench) -> None:
    heavy = "grpc google rich pynvml psutil accelscale.monitor accelscale.plugins pluggy numpy"
    code = (
        "import sys; from accelscale.cli import main; status = main(['--help']);"
        f"print('loaded:', *[m for m in '{heavy}'.split() if m in sys.modules]); sys.exit(status)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=workbench.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(workbench: Workbench, command: str) -> None:
    result = workbench.run(command, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith(f"Usage: accelscale {command} ")


def test_version(workbench: Workbench) -> None:
    result = workbench.run("--version")
    assert (result.returncode, result.stdout) == (0, f"accelscale {accelscale.__version__}\n")


def test_no_command_prints_the_help_as_a_mistake(workbench: Workbench) -> None:
    result = workbench.run()
    assert result.returncode == 2
    assert "Commands:" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["devises"], ["No such command 'devises'", "Did you mean 'devices'"]),
        (["devices", "--jsn"], ["accelscale devices: No such option: --jsn", "--json"]),
        (["devices", "extra"], ["accelscale devices:", "unexpected extra argument", "extra"]),
        (["devices", "--wait", "nan"], ["'--wait'", "must be a duration"]),
        (["devices", "--wait", "0"], ["'--wait'", "greater than 0"]),
        (["top", "--interval", "-1"], ["'--interval'", "must be a duration"]),
        (["poll"], ["accelscale poll: Missing argument", "HOST:PORT"]),
        (["poll", "localhost"], ["HOST:PORT", "'localhost'"]),
        (["poll", "localhost:1", "-m", "metric"], ["-m", "'metric' must be KEY=VALUE"]),
        (["poll", "localhost:1", "-m", "a=1", "-m", "a=2"], ["-m", "'a' is there twice"]),
        (["poll", "localhost:1", "--metric-type", "Mean"], ["--metric-type", "AverageValue"]),
        (["poll", "localhost:1", "--cert", "x"], ["--cert and --key"]),
        (["poll", "localhost:1", "--replicas", "-1"], ["'--replicas'", "0"]),
    ],
)
def test_a_mistake_gives_one_line_and_status_2(
    workbench: Workbench, arguments: list[str], words: list[str]
) -> None:
    result = workbench.run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    for word in words:
        assert word in line
    assert "--help`)" in line


def test_an_unknown_backend_names_those_there_are(workbench: Workbench) -> None:
    workbench.example({})
    result = workbench.run("devices", "--backend", "exmaple")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "no backend 'exmaple', did you mean 'example'?; there are: example" in line


def test_commands_of_another_distribution_are_found(workbench: Workbench) -> None:
    source = (
        "import typer\n"
        "def register(app):\n"
        "    @app.command()\n"
        "    def hello(name: str):\n"
        "        typer.echo(f'hello {name}')\n"
    )
    commands(workbench, "greeter", source)
    result = workbench.run("hello", "there")
    assert (result.returncode, result.stdout, result.stderr) == (0, "hello there\n", "")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise KeyError('lib.so')", "KeyError: 'lib.so'"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("x = 1", "has no attribute 'register'"),
        ("def register(app): raise RuntimeError('half\\nway')", "RuntimeError: half way"),
        (
            "def register(app):\n    @app.command()\n    def good(): pass\n    raise OSError('no')",
            "OSError: no",
        ),
        (
            "def register(app):\n    @app.command()\n    def bad(x: nothing): pass",
            "the commands of broken 1.2 are missing",
        ),
        (
            "def register(app):\n    @app.command()\n    def poll(): pass",
            "the command 'poll' exists already",
        ),
    ],
)
def test_broken_commands_spoil_no_others(workbench: Workbench, source: str, reason: str) -> None:
    commands(workbench, "broken", source)
    result = workbench.run("--help")
    assert result.returncode == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("accelscale: the commands of ")
    assert reason in line
    listed = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ")]
    assert set(COMMANDS) <= set(listed)
    assert "good" not in listed
    assert "bad" not in listed


def test_malformed_entry_points_spoil_no_others(workbench: Workbench) -> None:
    commands(workbench, "garbled", "")
    (info,) = workbench.plugins.glob("garbled*.dist-info")
    (info / "entry_points.txt").write_text("[accelscale.commands]\nno equals sign here\n")
    result = workbench.run("--version")
    assert result.returncode == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"accelscale: commands in {workbench.plugins} cannot be read: ")


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [
        ("typer", "devices", "cli"),
        ("grpc", "serve", "server"),
        ("grpc", "poll", "server"),
        ("grpc", "demo", "server"),
    ],
)
def test_a_missing_extra_is_named(
    workbench: Workbench, missing: str, command: str, extra: str
) -> None:
    arguments = [command, *(["localhost:1"] if command == "poll" else [])]
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {missing!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        f"from accelscale.cli import main; sys.exit(main({arguments}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=workbench.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert f"pip install 'accelscale[{extra}]'" in line


def test_a_reader_that_leaves_is_no_error(workbench: Workbench) -> None:
    devices = {f"device-{n}": {"values": {"power_watts": 1.0}} for n in range(300)}
    workbench.example(devices)
    read, write = os.pipe()
    process = subprocess.Popen(
        workbench.command("devices", "--json"),
        env=workbench.environment,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert os.read(read, 10)
    os.close(read)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (141, "")


def test_an_interrupt_is_quiet(workbench: Workbench) -> None:
    workbench.example({"device-0": {"values": {"power_watts": 1.0}}})
    process = subprocess.Popen(
        workbench.command("top", "--interval", "0.1"),
        env=workbench.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "device-0" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "2>&-", ">&- 2>&-"])
def test_a_closed_or_full_stream_gives_no_traceback(redirection: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m accelscale plugins --json {redirection}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert done.returncode == (1 if "full" in redirection else 0)
    if "full" in redirection:
        assert "No space left on device" in done.stderr
