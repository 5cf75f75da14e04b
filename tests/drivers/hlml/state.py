"""Compiles the fake ``libhlml.so`` and writes what it says.

The binding `pyhlml` opens ``/usr/lib/habanalabs/libhlml.so`` and nothing else. glibc takes a
library that is loaded already for that file if its SONAME is the same text; so the fake has that
path as its SONAME, and a process loads it first, or has it in ``LD_PRELOAD``.
"""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

from drivers.build import FLAGS, compiler

SONAME = "/usr/lib/habanalabs/libhlml.so"
STATE_VARIABLE = "ACCELSCALE_FAKE_HLML_STATE"

HEALTHY = {
    "name": "HL-225",
    "utilization": 37,
    "memory_total": 103_079_215_104,
    "memory_used": 1_073_741_824,
    "temperature.0": 41,
    "temperature.3": 45,
    "threshold.1": 98,
    "power_mw": 350_500,
    "energy_mj": 123_456_789,
    "ecc.1.0": 0,
}
"""A card; keys are those of ``hlml.c``. A reading without a key is NOT_SUPPORTED."""


def build(folder: Path) -> Path:
    """The compiled library; several processes may ask for it at once."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libhlml.so"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            unfinished = folder / "unfinished.so"
            source = str(Path(__file__).with_name("hlml.c"))
            options = [*FLAGS, f"-Wl,-soname,{SONAME}", source, "-o", str(unfinished)]
            done = subprocess.run(
                [*compiler(), *options], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise RuntimeError(f"{done.args}\n{done.stdout}{done.stderr}")
            unfinished.replace(library)
    return library


class FakeHlml:
    """The state of the library: its own keys, and those of each card."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._values: dict[str, object] = {"driver_version": "1.24.0-abc"}
        self._write()

    def set(self, address: str = "", **values: object) -> None:
        """Set keys (``__`` stands for a dot), of the library or of a card; None removes one."""
        prefix = f"{address}/" if address else ""
        for key, value in values.items():
            name = prefix + key.replace("__", ".")
            if value is None:
                self._values.pop(name, None)
            else:
                self._values[name] = value
        self._write()

    def add(self, address: str, serial: str) -> None:
        """A healthy card."""
        for key, value in {**HEALTHY, "serial": serial, "uuid": f"uuid-{serial}"}.items():
            self._values[f"{address}/{key}"] = value
        self._write()

    def _write(self) -> None:
        unfinished = self.path.with_suffix(".new")
        unfinished.write_text("".join(f"{key} {value}\n" for key, value in self._values.items()))
        unfinished.replace(self.path)
