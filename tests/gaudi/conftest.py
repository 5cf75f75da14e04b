"""A machine with Gaudi cards: a tree below which the kernel shows them, and a fake HLML."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from drivers.hlml.state import SONAME, STATE_VARIABLE, FakeHlml, build


@pytest.fixture(scope="session")
def hlml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # all workers of one run share the parent folder
        folder = folder.parent
    return build(folder / "hlml-driver")


class Machine:
    """Cards in ``root``, each known to the kernel, and to the fake unless told otherwise."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.hlml = FakeHlml(folder / "hlml.state")
        (self.root / SONAME.strip("/")).parent.mkdir(parents=True)
        (self.root / SONAME.strip("/")).touch()

    def card(self, address: str, serial: str | None = None) -> None:
        folder = self.root / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text("0x1da3\n")
        if serial is not None:
            self.hlml.add(address, serial)


@pytest.fixture
def machine(tmp_path: Path, hlml_library: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setenv(STATE_VARIABLE, str(machine.hlml.path))
    monkeypatch.setenv("LD_PRELOAD", str(hlml_library))  # for the processes that are started
    ctypes.CDLL(str(hlml_library))  # for this one
    return machine
