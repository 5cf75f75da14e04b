"""What a backend's module does at import is seen, and told in words."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from accelscale.testing import FakeBackend
from accelscale.testing.fresh_import import import_faults

QUIET = """
from __future__ import annotations
import json, pathlib, threading
from accelscale.backend import Backend
from accelscale.testing import FakeBackend

class Mine(FakeBackend):
    name = "mine"
"""


@pytest.fixture
def faults_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function: the faults of a backend whose module ends with the given lines."""

    def faults(lines: str, vendor_modules: tuple[str, ...] = (), name: str = "fresh_mine"):
        path = tmp_path / f"{name}.py"
        path.write_text(QUIET)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        path.write_text(QUIET + lines)  # what the fresh interpreter sees
        return import_faults(module.Mine, vendor_modules)

    return faults


def test_a_quiet_module_has_no_faults(faults_of) -> None:
    assert faults_of("") == []
    assert faults_of("", ("vendor_binding", "jso")) == []
    assert import_faults(FakeBackend, ("pytest", "psutil", "pynvml")) == []


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("print('hello')", "it prints 'hello'"),
        ("import sys; sys.stderr.write('warned')", "it prints 'warned'"),
        ("open('/proc/self/status').close()", "/status"),
        ("import os; os.close(os.open('/etc/hosts', os.O_RDONLY))", "it opens /etc/hosts"),
        ("import subprocess; subprocess.run(['true'])", "it starts a process"),
        ("import socket; socket.socket().bind(('127.0.0.1', 0))", "it uses the network"),
        ("import ctypes; ctypes.CDLL('libc.so.6')", "it loads the library libc.so.6"),
        ("raise KeyError('libamd_smi.so')", "it raises KeyError"),
        ("import os; os._exit(3)", "it ends the interpreter (status 3)"),
    ],
)
def test_each_touch_is_told(faults_of, lines: str, fault: str) -> None:
    faults = faults_of(lines)
    assert any(fault in text for text in faults), faults


def test_a_vendor_module_is_told_with_its_submodules(faults_of) -> None:
    faults = faults_of("import xml.dom", ("xml",))
    assert "it imports xml" in faults
    assert "it imports xml.dom" in faults


def test_a_module_that_is_no_file_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loose(FakeBackend):
        pass

    module = type(sys)("loose")
    monkeypatch.setitem(sys.modules, "loose", module)
    Loose.__module__ = "loose"
    assert "is not a file" in import_faults(Loose)[0]
