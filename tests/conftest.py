"""Fixtures that several test folders share: the fake drivers, compiled once for all workers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drivers.nvml import state as nvml


@pytest.fixture(scope="session")
def build_nvml(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles a fake NVML library, or a variant without some functions; gives its path."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # all workers of one run share the parent folder
        folder = folder.parent

    def build(*, without: tuple[str, ...] = ()) -> Path:
        variant = hashlib.sha256(" ".join(sorted(without)).encode()).hexdigest()[:12]
        return nvml.build(folder / "nvml-driver" / variant, without=without)

    return build


@pytest.fixture(scope="session")
def nvml_library(build_nvml: Callable[..., Path]) -> Path:
    """The path of the fake ``libnvidia-ml.so.1``; see `FakeNvml.environment`."""
    return build_nvml()


@pytest.fixture
def fake_nvml(
    tmp_path: Path, nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[nvml.FakeNvml]:
    """The fake driver in this very process, not yet written: no device, and not loaded.

    At the end everyone must have let go of it.
    """
    fake = nvml.FakeNvml(tmp_path / "nvml.state")
    monkeypatch.setenv("ACCELSCALE_NVML_LIBRARY", str(nvml_library))
    monkeypatch.setenv(nvml.STATE_VARIABLE, str(fake.path))
    yield fake
    assert fake.users == 0, "NVML was initialised more often than shut down"
