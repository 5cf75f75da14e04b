"""Trees of ``/proc`` and ``/sys`` as a kernel with Intel GPUs would show them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

HOST_NAMESPACE = "pid:[4026531836]"
ALL_CAPABILITIES = (1 << 41) - 1
LOADER = "usr/lib/x86_64-linux-gnu/libze_loader.so.1"


@frozen
class Tree:
    """A root folder whose files a test writes."""

    root: Path

    def write(self, path: str, text: object) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n")
        return target

    def link(self, path: str, target: str) -> None:
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)

    def rights(self, user: int, capabilities: int = ALL_CAPABILITIES) -> None:
        text = f"Name:\tpython\nUid:\t{user}\t{user}\t{user}\t{user}\nCapEff:\t{capabilities:016x}"
        self.write("proc/self/status", text)

    def card(self, number: int, address: str, driver: str = "xe", pci_id: str = "8086:E20B") -> str:
        """A DRM card that is awake; the folder of its PCI device, below the root."""
        folder = f"sys/class/drm/card{number}/device"
        facts = f"DRIVER={driver}\nPCI_CLASS=30000\nPCI_ID={pci_id}\nPCI_SLOT_NAME={address}"
        self.write(f"{folder}/uevent", facts)
        self.write(f"{folder}/power/runtime_status", "active")
        self.write(f"{folder}/power/runtime_active_time", 1000)
        self.write(f"{folder}/drm/card{number}/dev", f"226:{number}")
        self.write(f"{folder}/drm/renderD{128 + number}/dev", f"226:{128 + number}")
        return folder

    def remove_card(self, number: int) -> None:
        shutil.rmtree(self.root / f"sys/class/drm/card{number}")

    def monitor(self, number: int, driver: str = "xe", **files: object) -> None:
        """The hardware monitor of a card."""
        folder = f"sys/class/drm/card{number}/device/hwmon/hwmon{number + 3}"
        self.write(f"{folder}/name", driver)
        for name, value in files.items():
            self.write(f"{folder}/{name}", value)

    def host_processes(self) -> None:
        """A ``/proc`` in which nothing is hidden, with a process that has no card open."""
        (self.root / "proc/1/fd").mkdir(parents=True, exist_ok=True)
        self.link("proc/1/ns/pid", HOST_NAMESPACE)
        self.link("proc/1/fd/0", "/dev/null")
        self.link("proc/1/fd/3", "socket:[1234]")

    def client(
        self, process: int | str, number: int, target: str, facts: Mapping[str, object]
    ) -> None:
        """A process that has a device file open under a number."""
        self.link(f"proc/{process}/fd/{number}", target)
        lines = "".join(f"{key}:\t{value}\n" for key, value in facts.items())
        self.write(f"proc/{process}/fdinfo/{number}", f"pos:\t0\nflags:\t02100002\n{lines}")

    def end(self, process: int) -> None:
        shutil.rmtree(self.root / f"proc/{process}")

    def install_loader(self) -> None:
        """What is looked for before Level Zero is tried; the fake stands for its content."""
        self.write(LOADER, "")


def xe_client(
    client_id: int = 7, address: str = "0000:03:00.0", *, clock: int = 0, **facts: object
) -> dict[str, object]:
    """What xe writes of a client; engine cycles by class as ``ccs=…``, the rest as its key."""
    lines: dict[str, object] = {
        "drm-driver": "xe",
        "drm-client-id": client_id,
        "drm-pdev": address,
        "drm-resident-system": "64 MiB",
        "drm-shared-vram0": 0,
        "drm-resident-vram0": "2 MiB",
    }
    for key, value in facts.items():
        name = key.replace("_", "-")
        if name.startswith("drm-"):
            lines[name] = value
        else:
            lines[f"drm-cycles-{name}"] = value
            lines[f"drm-total-cycles-{name}"] = clock
    return lines


def i915_client(
    client_id: int = 7, address: str = "0000:03:00.0", **facts: object
) -> dict[str, object]:
    """What i915 writes of a client; engine nanoseconds by class as ``render=…``."""
    lines: dict[str, object] = {
        "drm-driver": "i915",
        "drm-client-id": client_id,
        "drm-pdev": address,
    }
    for key, value in facts.items():
        name = key.replace("_", "-")
        if name.startswith("drm-"):
            lines[name] = value
        else:
            lines[f"drm-engine-{name}"] = f"{value} ns"
    return lines


def full_xe_card(tree: Tree, number: int = 0, address: str = "0000:03:00.0") -> None:
    """A discrete card with all that xe shows."""
    folder = tree.card(number, address)
    tree.monitor(
        number,
        energy1_input=5_000_000_000,
        energy2_input=3_000_000_000,
        power1_max=190_000_000,
        power2_max=150_000_000,
        temp2_input=47_000,
        temp3_input=52_000,
    )
    freq = f"{folder}/tile0/gt0/freq0"
    tree.write(f"{freq}/act_freq", 2400)
    for reason in ("pl1", "pl2", "pl4", "thermal", "prochot", "vr_tdc"):
        tree.write(f"{freq}/throttle/reason_{reason}", 0)
    tree.write(f"{freq}/throttle/status", 0)
    tree.write(f"{folder}/tile0/gt1/freq0/act_freq", 3000)  # the media part
