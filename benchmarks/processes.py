"""The processes that are measured: an accelscale server over the fake driver, and a bare echo."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from drivers.nvml import state as nvml  # noqa: E402 - needs the path above


@contextmanager
def fake_driver(devices: int = 8, latency_us: float = 0.0) -> Iterator[nvml.FakeNvml]:
    """Eight healthy cards; processes that are started meanwhile load them."""
    with tempfile.TemporaryDirectory() as folder:
        library = nvml.build(Path(folder) / "driver")
        driver = nvml.FakeNvml(Path(folder) / "nvml.state")
        for index in range(devices):
            driver.device(
                f"GPU-{index:08x}-0000-0000-0000-000000000000", utilization_gpu=10 * index
            )
        if latency_us:
            driver.delay(latency_us)
        driver.write()
        os.environ["ACCELSCALE_NVML_LIBRARY"] = str(library)
        os.environ[nvml.STATE_VARIABLE] = str(driver.path)
        yield driver


def card_id(index: int) -> str:
    """The UUID of a card of the fake driver."""
    return f"GPU-{index:08x}-0000-0000-0000-000000000000"


@contextmanager
def server(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """``accelscale serve`` over the fake driver of now; gives the process and its address."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "accelscale", "serve", "--listen", address]
    command += ["--backend", "nvidia", "--log-level", "warning", *arguments]
    with _process(command) as process:
        wait_until_answering(address)
        yield process, address


@contextmanager
def echo() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A bare grpc.aio server that decodes the same request and answers a constant."""
    address = f"127.0.0.1:{free_port()}"
    with _process([sys.executable, "-m", "benchmarks.echo", address]) as process:
        wait_until_answering(address)
        yield process, address


@contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_answering(address: str, seconds: float = 20.0) -> None:
    """Wait until HTTP/2 is spoken there; try often, for gRPC itself would wait a second."""
    host, port = address.rsplit(":", 1)
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        with socket.socket() as tried:
            if tried.connect_ex((host, int(port))) == 0:
                break
        time.sleep(0.005)
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        grpc.channel_ready_future(channel).result(timeout=seconds)


def free_port() -> int:
    """A port of the loopback interface that was free a moment ago."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
