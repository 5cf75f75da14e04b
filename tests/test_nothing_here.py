"""On a machine with none of the hardware every plugin says why, and nothing else is heard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

QUIET = {
    "ACCELSCALE_NVML_LIBRARY": "/nonexistent/libnvidia-ml.so.1",
    "ACCELSCALE_EXAMPLE_ROOT": "",
    "ACCELSCALE_DISABLE_PLUGINS": "",
    "PYTHONWARNINGS": "error",
}
UNHEARD = ("ROCM_HOME", "ROCM_PATH", "LD_LIBRARY_PATH", "PYTHONPATH")


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command; what a library in C prints would come back here too."""
    environment = {name: value for name, value in os.environ.items() if name not in UNHEARD}
    return subprocess.run(
        [sys.executable, "-m", "accelscale", *arguments],
        cwd=cwd,
        env={**environment, **QUIET},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def listed(tmp_path: Path) -> list[dict[str, object]]:
    result = command("plugins", "--json", cwd=tmp_path)
    assert result.returncode == 0
    assert result.stderr == ""
    document = json.loads(result.stdout)  # fails if anything else was printed
    assert document["failures"] == []
    assert document["disabled"] == []
    backends: list[dict[str, object]] = document["backends"]
    present = [b["name"] for b in backends if b["viable"] and not b["on_request_only"]]
    if present:
        pytest.skip(f"this machine has {', '.join(map(str, present))}")
    return backends


def test_every_plugin_is_listed_with_its_version(listed: list[dict[str, object]]) -> None:
    installed = {
        (point.dist.name, point.dist.version)
        for point in metadata.entry_points(group="accelscale")
        if point.dist is not None
    }
    assert {(b["distribution"], b["version"]) for b in listed} == installed


def test_every_plugin_says_what_is_missing_here(listed: list[dict[str, object]]) -> None:
    for backend in listed:
        reason = str(backend["reason"])
        assert len(reason.split()) > 2, f"{backend['name']} says {reason!r}"
        assert "Traceback" not in reason
        assert "\n" not in reason


def test_no_device_is_made_up(listed: list[dict[str, object]], tmp_path: Path) -> None:
    result = command("devices", "--json", cwd=tmp_path)
    assert result.returncode == 1
    assert json.loads(result.stdout)["devices"] == []
    assert result.stderr.startswith("accelscale: no devices found\n")
    for backend in listed:
        assert f"  {backend['name']}: " in result.stderr


def test_no_vendor_library_is_loaded_and_no_process_started(
    listed: list[dict[str, object]], tmp_path: Path
) -> None:
    """What looks for hardware must not load what only hardware needs."""
    program = (
        "import logging, sys\n"
        "logging.getLogger('accelscale').addHandler(logging.NullHandler())\n"  # as a program does
        "started = []\n"
        "sys.addaudithook(lambda event, args: started.append(str(args[0]))"
        " if event in ('subprocess.Popen', 'os.posix_spawn', 'os.fork') else None)\n"
        "from accelscale.plugins import load_plugins\n"
        "from accelscale.errors import BackendError\n"
        "registry = load_plugins()\n"
        "for name, registered in registry.backends.items():\n"
        "    if not registered.backend.on_request_only:\n"
        "        backend = registry.create(name)\n"
        "        assert not backend.probe().viable, name\n"
        "        try:\n"
        "            backend.open()\n"
        "        except BackendError:\n"
        "            pass\n"
        "        backend.close()\n"
        "heavy = {'amdsmi', 'pyzes', 'pyhlml', 'grpc', 'google.protobuf', 'numpy'}\n"
        "print(sorted(heavy & set(sys.modules)), started)\n"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.stdout, result.stderr) == ("[] []\n", "")
