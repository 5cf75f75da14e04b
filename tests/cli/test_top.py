"""``accelscale top`` in a pseudo-terminal and in a pipe."""

from __future__ import annotations

import signal
import subprocess

import pytest

from cli.terminal import ENTER_SCREEN, HIDE_CURSOR, LEAVE_SCREEN, SHOW_CURSOR, Terminal, terminal
from cli.workbench import Workbench

CARD = "GPU-0a2b3c4d-1111-2222-3333-444444444444"
LOST = "GPU-1a2b3c4d-1111-2222-3333-444444444444"

DEVICES = {
    CARD: {
        "name": "Example 9000",
        "values": {
            "utilization_percent": 37.0,
            "memory_used_bytes": 20 * 2**30,
            "memory_total_bytes": 80 * 2**30,
            "temperature_celsius": 54.0,
        },
        "failures": {"power_watts": "permission"},
    },
    LOST: {"name": "Example 9000", "lost": "fell off the bus (Xid 79)"},
}


def complete(text: str) -> bool:
    return text.count("0a2b3c4d") >= 2


def assert_restored(screen: Terminal) -> None:
    """The alternative screen is left and the cursor is back, in this order, at the very end."""
    assert screen.raw.count(ENTER_SCREEN) == screen.raw.count(LEAVE_SCREEN) == 1
    assert screen.raw.rindex(LEAVE_SCREEN) > screen.raw.rindex("0a2b3c4d")
    assert screen.raw.rindex(SHOW_CURSOR) > screen.raw.rindex(HIDE_CURSOR)
    assert "Traceback" not in screen.text


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_the_live_view_fits_and_restores_the_terminal(workbench: Workbench, columns: int) -> None:
    workbench.example(DEVICES)
    command = workbench.command("top", "--interval", "0.1")
    with terminal(command, workbench.environment, columns) as screen:
        screen.wait_for(complete)
        assert screen.interrupt() == 130
        assert_restored(screen)
        frame = screen.frames()[0]
        lines = [line.rstrip() for line in frame.splitlines()]
        assert all(len(line) <= columns for line in lines)
        assert "2 devices  example:ready" in lines[0]
        busy = next(line for line in lines if "0a2b3c4d" in line)
        assert "37 %" in busy
        assert "25 %" in busy
        lost = next(line for line in lines if "1a2b3c4d" in line)
        assert lost.split()[-1] == "none"
        assert " 0" not in lost
        assert lost.count("lost") >= 3
        if columns >= 60:
            assert "denied" in busy
            assert "denied = permission" in frame
        assert "fell off the bus" in frame


def test_it_follows_what_changes(workbench: Workbench) -> None:
    workbench.example(DEVICES)
    command = workbench.command("top", "--interval", "0.1")
    with terminal(command, workbench.environment, 80) as screen:
        screen.wait_for(complete)
        workbench.example({CARD: {"values": {"utilization_percent": 91.5}}})
        screen.wait_for(lambda text: "91.5 %" in text)
        screen.resize(40)
        screen.wait_for(lambda _: any("0a2b3c4d  " in frame for frame in screen.frames()[-1:]))
        assert screen.interrupt() == 130
        assert_restored(screen)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_restore_the_terminal_too(
    workbench: Workbench, number: signal.Signals
) -> None:
    workbench.example(DEVICES)
    command = workbench.command("top", "--interval", "0.1")
    with terminal(command, workbench.environment, 80) as screen:
        screen.wait_for(complete)
        assert screen.end(number) == 128 + number
        assert_restored(screen)


def test_more_devices_than_lines_are_counted(workbench: Workbench) -> None:
    many = {f"card-{n}": {"values": {"utilization_percent": 1.0}} for n in range(30)}
    workbench.example(many)
    command = workbench.command("top", "--interval", "0.1")
    with terminal(command, workbench.environment, 60, rows=12) as screen:
        text = screen.wait_for(lambda text: "more devices" in text)
        assert "30 devices" in text
        assert "and 24 more devices" in text
        screen.interrupt()


def test_once_on_a_terminal_prints_a_table(workbench: Workbench) -> None:
    workbench.example(DEVICES)
    with terminal(workbench.command("top", "--once"), workbench.environment, 80) as screen:
        assert screen.finish() == 0
        assert ENTER_SCREEN not in screen.raw
        assert "DEVICE" in screen.text
        assert "0a2b3c4d" in screen.text


def test_once_in_a_pipe_is_a_line_for_each_device(workbench: Workbench) -> None:
    workbench.example(DEVICES)
    result = workbench.run("top", "--once", "--sort", "utilization")
    assert (result.returncode, result.stderr) == (0, "")
    first, second = (line.split() for line in result.stdout.splitlines())
    assert first[1:3] == ["example", CARD]
    assert "utilization_percent=37" in first
    assert "power_watts=permission" in first
    assert "problem=lost" in second
    assert "\x1b" not in result.stdout


def test_lines_in_a_pipe_go_on(workbench: Workbench) -> None:
    workbench.example(DEVICES)
    process = subprocess.Popen(
        workbench.command("top", "--interval", "0.1"),
        env=workbench.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(6)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert [CARD in line for line in lines] == [True, False] * 3


def test_without_a_device_it_ends(workbench: Workbench) -> None:
    workbench.example({}, probe="not here")
    result = workbench.run("top")
    assert result.returncode == 1
    assert "example: not here" in result.stderr.replace("\n", " ")


def test_an_unknown_order_is_one_line(workbench: Workbench) -> None:
    workbench.example(DEVICES)
    result = workbench.run("top", "--sort", "utilisation_percent")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "did you mean utilization_percent?" in line
