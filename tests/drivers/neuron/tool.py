"""A stand-in for ``neuron-monitor``: it writes a line that a test makes, again and again.

As many tools do, it is a shell script that starts the program proper. It notes every start.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PERIOD_SECONDS = 0.05
"""Shorter than what it is told, so that tests need not wait."""

_PROGRAM = """
import json, os, sys, time
from pathlib import Path

home = Path(sys.argv[1])
configuration = json.loads(Path(sys.argv[sys.argv.index("-c") + 1]).read_text())
with (home / "starts").open("a") as log:
    log.write(f"{os.getpid()} {json.dumps(configuration)}\\n")
while True:
    act = json.loads((home / "act.json").read_text())
    if "silent" in act:
        time.sleep(0.01)
        continue
    if "exit" in act:
        sys.exit(act["exit"])
    if "endless" in act:
        while True:
            sys.stdout.write("x" * 65536)
    text = act.get("text", (home / "line.json").read_text())
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os._exit(0)
    time.sleep(PERIOD)
"""


class FakeNeuronMonitor:
    """The program at ``path``, and what it says."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.path = folder / "neuron-monitor"
        self.act()
        self.say(report())
        program = folder / "program.py"
        program.write_text(_PROGRAM.replace("PERIOD", str(PERIOD_SECONDS)))
        self.path.write_text(f'#!/bin/sh\n"{sys.executable}" -IS "{program}" "{folder}" "$@"\n')
        self.path.chmod(0o755)

    def say(self, line: object) -> None:
        """From now on it writes this, as JSON."""
        self._write("line.json", line)

    def act(self, **act: object) -> None:
        """Be ``silent``, ``exit`` with a status, write an ``endless`` line or a ``text``."""
        self._write("act.json", act)

    def starts(self) -> list[tuple[int, Any]]:
        """Process and configuration of each start so far."""
        path = self._folder / "starts"
        found = []
        for line in path.read_text().splitlines() if path.exists() else ():
            pid, _, configuration = line.partition(" ")
            found.append((int(pid), json.loads(configuration)))
        return found

    def _write(self, name: str, content: object) -> None:
        unfinished = self._folder / f"{name}.new"
        unfinished.write_text(json.dumps(content))
        unfinished.replace(self._folder / name)


def process(
    busy: dict[str, Any], used: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """An entry of ``neuron_runtime_data``: percent and bytes by core."""
    used = used or {}
    kinds = {core: {"constants": 0, "tensors": value} for core, value in used.items()}
    numbers = [value for value in used.values() if isinstance(value, int)]
    return {
        "pid": 100,
        "neuron_runtime_tag": "100",
        "error": "",
        "report": {
            "neuroncore_counters": {
                "period": 1.0,
                "neuroncores_in_use": {
                    core: {"neuroncore_utilization": value, "effective_flops": 1}
                    for core, value in busy.items()
                },
                "error": "",
            },
            "memory_used": {
                "period": 1.0,
                "neuron_runtime_used_bytes": {
                    "host": 1,
                    "neuron_device": sum(numbers),
                    "usage_breakdown": {"host": {}, "neuroncore_memory_usage": kinds},
                },
                "loaded_models": [],
                "error": "",
            },
            # As where the tool sees no process of another container.
            "neuron_runtime_vcpu_usage": {"error": "open /proc/100/stat: no such file"},
        },
        **more,
    }


def report(*processes: dict[str, Any], **hardware: Any) -> dict[str, Any]:
    """A line: two chips with two cores each, unless told otherwise."""
    info = {
        "neuron_device_type": "inferentia2",
        "neuron_device_count": 2,
        "neuroncore_per_device_count": 2,
        "neuron_device_memory_size": 34_359_738_368,
        "logical_neuroncore_config": 1,
        "error": "",
    }
    return {
        "neuron_runtime_data": list(processes),
        "system_data": {"neuron_hw_counters": {"period": 1.0, "neuron_devices": [], "error": ""}},
        "instance_info": {"instance_type": "inf2.24xlarge", "error": ""},
        "neuron_hardware_info": {**info, **hardware},
        "a key of a later version": [1, 2, 3],
    }
