"""One external program at a time, bounded in time and output, and nothing left of it."""

from __future__ import annotations

import os
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from accelscale.model import Reason
from accelscale_fpga.files import UnreadableError
from accelscale_fpga.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivers.xrt.tool import FakeXrt

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")


def family() -> set[int]:
    """The processes below this one, zombies included."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
    found: set[int] = set()
    while (
        more := {pid for pid, parent in parents.items() if parent in {os.getpid(), *found}} - found
    ):
        found |= more
    return found


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = family()
    yield
    assert family() <= before


def refused(tool: Tool) -> UnreadableError:
    with pytest.raises(UnreadableError) as caught:
        tool.report(["examine", "-r", "host"])
    return caught.value


def wait_for_start(xrt: FakeXrt) -> int:
    deadline = time.monotonic() + 5
    while not xrt.runs():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return xrt.runs()[0].pid


def wait_for_end(pid: int) -> None:
    """Wait for a process that has been killed; one that was not goes on for a minute."""
    deadline = time.monotonic() + 5
    while True:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return  # whoever inherited it has not looked yet
        except OSError:
            return
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_report_is_what_the_program_wrote(xrt: FakeXrt) -> None:
    assert '"system"' in Tool(xrt.path).report(["examine", "-r", "host"])
    (run,) = xrt.runs()
    assert run.arguments[:5] == ("examine", "-r", "host", "-f", "JSON")


def test_a_hanging_program_is_killed_with_its_children(xrt: FakeXrt) -> None:
    xrt.act(hang=True)
    error = refused(Tool(xrt.path, timeout=1.0))
    assert (error.absent.reason, "within 1 s" in error.absent.detail) == (Reason.TIMEOUT, True)
    wait_for_end(xrt.runs()[0].pid)  # the child of the shell that was started


def test_what_a_finished_program_leaves_running_is_killed_too(xrt: FakeXrt) -> None:
    xrt.act(child=True)
    assert Tool(xrt.path).report(["examine", "-r", "host"])
    wait_for_end(xrt.left_behind())


@pytest.mark.parametrize("where", ["report", "console"])
def test_output_is_bounded(xrt: FakeXrt, where: str) -> None:
    xrt.act(flood=where)
    error = refused(Tool(xrt.path, limit_bytes=100_000))
    assert "more than 100000 bytes" in error.absent.detail


def test_a_program_that_fails_says_why(xrt: FakeXrt) -> None:
    xrt.act(status=1, say="ERROR: No devices found")
    error = refused(Tool(xrt.path))
    assert error.absent.reason is Reason.ERROR
    assert "status 1" in error.absent.detail
    assert "No devices found" in error.absent.detail


def test_a_report_counts_although_a_part_of_it_failed(xrt: FakeXrt) -> None:
    """The tool then writes what it has and ends with status 1."""
    xrt.act(status=1, text='{"devices": []}')
    assert Tool(xrt.path).report(["examine", "-r", "host"]) == '{"devices": []}'


def test_a_program_that_is_missing_or_may_not_be_run(tmp_path: Path) -> None:
    assert refused(Tool(tmp_path / "missing")).absent.reason is Reason.ERROR
    forbidden = tmp_path / "forbidden"
    forbidden.write_text("#!/bin/sh\n")
    assert refused(Tool(forbidden)).absent.reason is Reason.PERMISSION


def test_stopping_ends_a_run(xrt: FakeXrt) -> None:
    xrt.act(hang=True)
    tool = Tool(xrt.path, timeout=60.0)
    errors: list[UnreadableError] = []
    thread = threading.Thread(target=lambda: errors.append(refused(tool)))
    thread.start()
    pid = wait_for_start(xrt)
    tool.stop()
    thread.join(5.0)
    assert not thread.is_alive()
    assert errors[0].absent.reason is Reason.STALE
    wait_for_end(pid)


def test_no_second_run_while_a_killed_one_has_not_ended(
    xrt: FakeXrt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it were inside a driver call, where no signal reaches it."""
    xrt.act(hang=True)
    tool = Tool(xrt.path, timeout=0.5)
    with monkeypatch.context() as patched:
        patched.setattr("accelscale_fpga.tool._kill_group", lambda number: None)
        patched.setattr("accelscale_fpga.tool._GRACE_SECONDS", 0.1)
        refused(tool)
        assert "has not ended" in refused(tool).absent.detail
        assert len(xrt.runs()) == 1
    process = tool._process
    assert process is not None
    os.killpg(process.pid, 9)
    xrt.behave()
    deadline = time.monotonic() + 5
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert tool.report(["examine", "-r", "host"])


def test_many_runs_in_a_process_that_serves_grpc(xrt: FakeXrt) -> None:
    """Neither the runs nor the calls of the clients hang, and nothing is left behind."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    echo = grpc.method_handlers_generic_handler(
        "test.Echo", {"Call": grpc.unary_unary_rpc_method_handler(lambda request, _: request)}
    )
    server.add_generic_rpc_handlers((echo,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    ended = threading.Event()
    answered: list[int] = []

    def call_until_the_end() -> None:
        options = [("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            echo_call = channel.unary_unary("/test.Echo/Call")
            count = 0
            while not ended.is_set():
                assert echo_call(b"x", timeout=10.0) == b"x"
                count += 1
                time.sleep(0.005)
            answered.append(count)

    clients = [threading.Thread(target=call_until_the_end) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        tool = Tool(xrt.path)
        for _ in range(30):
            assert tool.report(["examine", "-r", "host"])
        xrt.act(hang=True)
        refused(Tool(xrt.path, timeout=0.3))
    finally:
        ended.set()
        for client in clients:
            client.join(10.0)
        server.stop(None).wait()
    assert len(answered) == 4
    assert min(answered) > 0
