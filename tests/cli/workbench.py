"""A place where commands run as real processes, with the plugins that a test installs there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from cli.distributions import write_distribution

INSTALLED = sorted({point.name for point in metadata.entry_points(group="accelscale")})
"""The plugins that are installed where the tests run, and that commands are not to see."""


def without(*names: str) -> str:
    """A value of ACCELSCALE_DISABLE_PLUGINS that leaves these installed plugins in."""
    return ",".join(name for name in INSTALLED if name not in names)


EXAMPLE = '''
import json, os
from pathlib import Path

from accelscale.hookspecs import hookimpl
from accelscale.model import Reason
from accelscale.testing import FakeBackend

STATE = Path(os.environ["EXAMPLE_STATE"])


class Example(FakeBackend):
    """Devices as the state file says, also when it changes."""

    name = "example"
    vendor = "example"
    on_request_only = json.loads(STATE.read_text()).get("on_request", False)

    def __init__(self):
        super().__init__(on_request_only=type(self).on_request_only)
        self._text = ""

    def _follow(self):
        text = STATE.read_text()
        if text == self._text:
            return
        self._text, state = text, json.loads(text)
        for device in list(super().devices() if self.is_open else ()):
            self.remove(device.id)
        for device_id, device in state["devices"].items():
            self.add(device_id, device.get("values"), name=device.get("name", ""),
                     parent=device.get("parent"), pci_address=device.get("pci_address"))
            for metric, reason in device.get("failures", {}).items():
                self.fail(device_id, metric, Reason(reason), detail=f"no {metric} today")
            if "lost" in device:
                self.lose(device_id, detail=device["lost"])
            self.hang(device_id) if device.get("hang") else self.unhang(device_id)
        if "probe" in state:
            self.break_probe(state["probe"])

    def probe(self):
        self._follow()
        return super().probe()

    def open(self):
        self._follow()
        super().open()

    def devices(self):
        self._follow()
        return super().devices()

    def read(self, devices, metrics):
        self._follow()
        return super().read(devices, metrics)


@hookimpl
def accelscale_register_backends(register):
    register(Example)
'''


class Workbench:
    """A folder of plugins and the environment in which processes find them, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.plugins = folder / "plugins"
        self.state = folder / "state.json"
        self.plugins.mkdir()
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, (str(self.plugins), os.environ.get("PYTHONPATH", "")))
            ),
            "ACCELSCALE_DISABLE_PLUGINS": ",".join(INSTALLED),
            "EXAMPLE_STATE": str(self.state),
        }
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PYTHONUNBUFFERED"):
            self.environment.pop(name, None)

    def example(self, devices: dict[str, object], **state: object) -> None:
        """Install the example plugin, or change what its devices say while it is read."""
        if not self.state.exists():
            write_distribution(
                self.plugins,
                "example-accelerator",
                {"accelscale": {"example": "example_accelerator"}},
                {"example_accelerator": EXAMPLE},
            )
        unfinished = self.state.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"devices": devices, **state}))
        unfinished.replace(self.state)

    def command(self, *arguments: str) -> list[str]:
        """The command line of one command."""
        return [sys.executable, "-m", "accelscale", *arguments]

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            self.command(*arguments),
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
