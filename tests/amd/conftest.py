"""Trees, the fake AMD SMI library, and an opened backend over them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import pytest

from accelscale.model import Failure
from accelscale_amd import AmdBackend
from amd.trees import Tree
from drivers.amdsmi import state as amdsmi

Results = Mapping[tuple[str, str], float | Failure]

FIRST, SECOND = "0000:03:00.0", "0000:83:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "root")


@pytest.fixture(autouse=True)
def no_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has installed, a test sees only what it brings itself."""
    for name in ("ROCM_HOME", "ROCM_PATH", "LD_LIBRARY_PATH", "ACCELSCALE_AMD_SOURCE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def build_amdsmi(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles a fake AMD SMI library, as ROCm would install it; gives the folder of "ROCm"."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # all workers of one run share the parent folder
        folder = folder.parent

    def build(*, without: tuple[str, ...] = ()) -> Path:
        variant = hashlib.sha256(" ".join(sorted(without)).encode()).hexdigest()[:12]
        rocm = folder / "amdsmi-driver" / variant
        amdsmi.build(rocm / "lib", without=without)
        return rocm

    return build


@pytest.fixture
def fake_amdsmi(
    tmp_path: Path, build_amdsmi: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[amdsmi.FakeAmdSmi]:
    """The fake library, found by way of ``ROCM_PATH``; not written yet, so that init fails.

    At the end everyone must have let go of it.
    """
    fake = amdsmi.FakeAmdSmi(tmp_path / "amdsmi.state")
    monkeypatch.setenv("ROCM_PATH", str(build_amdsmi()))
    monkeypatch.setenv(amdsmi.STATE_VARIABLE, str(fake.path))
    yield fake
    assert fake.users == 0, "the library was initialised more often than shut down"


@pytest.fixture
def backend(tree: Tree) -> Iterator[AmdBackend]:
    """A backend over the tree, not opened."""
    backend = AmdBackend(tree.root)
    yield backend
    backend.close()


@pytest.fixture
def results(backend: AmdBackend) -> Callable[..., Results]:
    """Opens, lists and reads; gives what came of each metric of each device."""

    def read(*metrics: str) -> Results:
        backend.open()
        return _read(backend, metrics or tuple(backend.metrics))

    return read


def _read(backend: AmdBackend, metrics: Collection[str]) -> Results:
    found: dict[tuple[str, str], float | Failure] = {}
    for reading in backend.read(backend.devices(), metrics):
        for sample in reading.samples:
            found[sample.device_id, sample.metric] = sample.value
        for failure in reading.failures:
            found[failure.device_id, failure.metric] = failure
    return found


@pytest.fixture
def kernel_error(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Makes a file answer an error number when it is read, as no file of a tree can."""
    refused: dict[str, int] = {}
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        number = refused.get(str(path))
        if number is not None:
            raise OSError(number, os.strerror(number))
        return real(path)

    def refuse(path: Path, number: int) -> None:
        refused[str(path)] = number

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    return refuse


def failure_of(result: float | Failure) -> Failure:
    """The failure that a reading must be."""
    assert isinstance(result, Failure), f"a number, {result}, where there is no reading"
    return result
