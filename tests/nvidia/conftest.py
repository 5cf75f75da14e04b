"""An opened backend over the fake driver, and what it reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from accelscale.model import Failure, Reading
from accelscale.nvidia.backend import NvidiaBackend
from accelscale.nvidia.gpm import LEAST_SECONDS
from drivers.nvml.state import FakeNvml

Results = Mapping[tuple[str, str], float | Failure]


class Clock:
    """Monotonic seconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """Where the kernel would list PCI devices; empty unless a test fills it."""
    folder = tmp_path / "pci"
    folder.mkdir()
    return folder


@pytest.fixture
def backend(fake_nvml: FakeNvml, clock: Clock, kernel: Path) -> Iterator[NvidiaBackend]:
    """A backend that the test opens, after it wrote the state; closed at the end."""
    backend = NvidiaBackend(clock=clock, pci_devices=kernel)
    yield backend
    backend.close()
    misuse = [what for what in fake_nvml.calls() if what.startswith(("leaked", "gpm "))]
    assert misuse == []


@pytest.fixture
def read(backend: NvidiaBackend) -> Callable[..., Results]:
    """Opens the backend, lists all devices and reads them: a value or a failure for each."""

    def read(metrics: Collection[str] = tuple(NvidiaBackend.metrics)) -> Results:
        backend.open()
        results: dict[tuple[str, str], float | Failure] = {}
        for reading in backend.read(backend.devices(), metrics):
            for sample in reading.samples:
                results[sample.device_id, sample.metric] = sample.value
            for failure in reading.failures:
                results[failure.device_id, failure.metric] = failure
        return results

    return read


@pytest.fixture
def readings(backend: NvidiaBackend) -> Callable[..., Mapping[str, Reading]]:
    """Opens the backend, lists all devices and reads them: the reading of each, by id.

    With ``twice`` they are read again after the time that GPM needs between two samples.
    """

    def readings(
        metrics: Collection[str] = tuple(NvidiaBackend.metrics), *, twice: bool = False
    ) -> Mapping[str, Reading]:
        backend.open()
        devices = backend.devices()
        if twice:
            list(backend.read(devices, metrics))
            time.sleep(LEAST_SECONDS)
        return {reading.device_id: reading for reading in backend.read(devices, metrics)}

    return readings


@pytest.fixture
def run_script() -> Callable[..., Any]:
    """Runs a script in a process of its own, since a binding keeps its library for life.

    The script prints one line of JSON, which comes back parsed.
    """

    def run(script: str, environment: Mapping[str, str]) -> Any:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("ACCELSCALE_") and name != "LD_LIBRARY_PATH"
        }
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
