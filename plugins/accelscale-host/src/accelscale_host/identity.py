"""What the machine is called: an id that survives reboots, and the model of its CPU."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from accelscale_host.files import UnreadableError, read_text

_NODE_VARIABLE = "ACCELSCALE_NODE_NAME"


def device_id(root: Path) -> str:
    """``cpu-`` and a hash of the machine id, or of the host name where there is none.

    The machine id itself is not given away: machine-id(5) asks for a hash of it that belongs to
    one application. A container may carry the machine id of its image, the same on every node, so
    the name of the node is hashed with it where it is known (``ACCELSCALE_NODE_NAME``).
    """
    import hashlib  # here, because it brings OpenSSL, which a start without us need not load

    parts = ["accelscale-host", _machine_id(root) or platform.node()]
    node = os.environ.get(_NODE_VARIABLE, "").strip()
    if node:
        parts.append(node)
    return "cpu-" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _machine_id(root: Path) -> str:
    try:
        text = read_text(root / "etc/machine-id")
    except UnreadableError:
        return ""
    return "" if text == "uninitialized" else text  # as an image holds it before its first boot


def cpu_model(root: Path) -> str:
    """The model of the CPU, as the kernel names it."""
    models = _values(root, "model name") or _values(root, "Model")
    return models[0] if models else platform.processor() or f"CPU ({platform.machine()})"


def cpu_attributes(root: Path) -> dict[str, str]:
    """How many logical CPUs and packages there are, as far as the kernel shows it."""
    counts = {
        "logical_cpus": len(_values(root, "processor")),
        "packages": len(set(_values(root, "physical id"))),
    }
    return {name: str(count) for name, count in counts.items() if count}


def _values(root: Path, key: str) -> list[str]:
    """Every value of a key of ``/proc/cpuinfo``; none where there is no such file."""
    try:
        text = read_text(root / "proc/cpuinfo")
    except UnreadableError:
        return []
    pairs = (line.partition(":") for line in text.splitlines())
    return [value.strip() for name, _, value in pairs if name.strip() == key and value.strip()]
