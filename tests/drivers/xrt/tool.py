"""A stand-in for XRT's ``xrt-smi``: a program that writes the reports that a test puts together.

As the real one, it is a shell script that starts the program proper, so whoever ends it must end
both. It notes every start and end, so that a test sees how often it ran and whether two ran at
once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from attrs import frozen

_PROGRAM = """
import json, os, sys, time
from pathlib import Path

home = Path(sys.argv[1])
arguments = sys.argv[2:]
with (home / "runs").open("a") as log:
    log.write(f"start {os.getpid()} {time.monotonic()} {' '.join(arguments)}\\n")
state = json.loads((home / "state.json").read_text())
output = Path(arguments[arguments.index("-o") + 1])
device = arguments[arguments.index("-d") + 1] if "-d" in arguments else "host"
act = state["acts"].get(device) or state["acts"].get("every") or {}
if act.get("hang"):
    time.sleep(60)
if act.get("flood"):
    block = "x" * 65536
    with (output if act["flood"] == "report" else Path("/dev/stdout")).open("a") as stream:
        while True:
            stream.write(block)
if act.get("child"):
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    (home / "child").write_text(str(child))
if "say" in act:
    print(act["say"], flush=True)
if "text" in act:
    output.write_text(act["text"])
elif "status" not in act:
    output.write_text(json.dumps(state["reports"][device]))
with (home / "runs").open("a") as log:
    log.write(f"end {os.getpid()} {time.monotonic()}\\n")
sys.exit(act.get("status", 0))
"""


@frozen
class Run:
    """One start of the program; ``ended`` is None while it runs, or when it was killed."""

    pid: int
    arguments: tuple[str, ...]
    started: float
    ended: float | None


class FakeXrt:
    """The program at ``path``, and what it says. The cards are added not ready for anything."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.path = folder / "xrt-smi"
        self._reports: dict[str, Any] = {"host": {"system": {"host": {"devices": ""}}}}
        self._acts: dict[str, Any] = {}
        program = folder / "program.py"
        program.write_text(_PROGRAM)
        self._write()
        self.path.write_text(f'#!/bin/sh\n"{sys.executable}" -IS "{program}" "{folder}" "$@"\n')
        self.path.chmod(0o755)

    def host(self, *devices: dict[str, Any]) -> None:
        """What the report ``host`` lists."""
        self._reports["host"] = {"system": {"host": {"devices": list(devices) or ""}}}
        self._write()

    def card(self, address: str, **parts: Any) -> None:
        """The report about one card, made of its parts."""
        device = {"interface_type": "pcie", "device_id": address, **parts}
        self._reports[address] = {"schema_version": {"schema": "JSON"}, "devices": [device]}
        self._write()

    def act(self, device: str = "every", **act: Any) -> None:
        """Misbehave when asked about this device: ``hang``, ``flood``, ``text``, ``status``…"""
        self._acts[device] = act
        self._write()

    def behave(self) -> None:
        """Answer as it should again."""
        self._acts.clear()
        self._write()

    def runs(self) -> list[Run]:
        """Every run so far, in the order of their starts."""
        path = self._folder / "runs"
        found: dict[int, Run] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            word, number, time, *arguments = line.split(" ")
            pid = int(number)
            before = found.get(pid)
            if word == "start":
                found[pid] = Run(pid, tuple(arguments), float(time), None)
            elif before is not None:
                found[pid] = Run(pid, before.arguments, before.started, float(time))
        return list(found.values())

    def left_behind(self) -> int:
        """The process that the act ``child`` left running."""
        return int((self._folder / "child").read_text())

    def _write(self) -> None:
        unfinished = self._folder / "state.new"
        unfinished.write_text(json.dumps({"reports": self._reports, "acts": self._acts}))
        unfinished.replace(self._folder / "state.json")


def host_entry(
    address: str, *, ready: object = "true", shell: str = "xilinx_u55c"
) -> dict[str, Any]:
    """A line of the list of cards; everything is text there."""
    return {
        "bdf": address,
        "vbnv": shell,
        "id": "0x0",
        "instance": "user(inst=128)",
        "is_ready": ready,
    }


def thermals(**celsius: tuple[object, object]) -> list[dict[str, Any]]:
    """Temperatures by description (underscores are spaces): value and presence, as XRT writes."""
    return [
        {
            "location_id": name.lower(),
            "description": name.replace("_", " "),
            "temp_C": value,
            "is_present": present,
        }
        for name, (value, present) in celsius.items()
    ]


def bank(tag: str, address: str, size: str, used: object, **more: Any) -> dict[str, Any]:
    """A memory bank or a group of banks."""
    return {
        "type": "MEM_HBM",
        "tag": tag,
        "enabled": "true",
        "base_address": address,
        "range_bytes": size,
        "extended_info": {"usage": {"allocated_bytes": used, "buffer_objects_count": "1"}},
        **more,
    }


def memory(memories: list[dict[str, Any]], groups: list[dict[str, Any]] | None = None) -> Any:
    """The part ``mem_topology``."""
    content: dict[str, Any] = {"memories": memories}
    if groups is not None:
        content["memory_groups"] = groups
    return {"board": {"memory": content}}


def compute_unit(name: str, starts: object, status: str = "IDLE") -> dict[str, Any]:
    """One compute unit; the status is one bit, or several with commas between, or none."""
    bits: dict[str, Any] = {"bit_mask": "0x4"}
    if status:
        bits["bits_set"] = status.split(",")
    return {"name": name, "base_address": "0x1", "usage": starts, "type": "PL", "status": bits}


def regions(*units: dict[str, Any], design: str = "5475-A") -> list[dict[str, Any]]:
    """The part ``dynamic_regions``."""
    return [{"xclbin_uuid": design, "compute_units": list(units) or ""}]
