"""Tries the built wheels in environments of their own: ``python tests/wheels.py dist``.

One environment has the oldest libraries that the metadata admits, one the newest. In each, every
distribution must import, every plugin must appear, and a server must answer a call.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main(folder: Path) -> None:
    """Build both environments and try them; the first failure ends it."""
    wheels = sorted(folder.glob("*.whl"))
    core = next(wheel for wheel in wheels if wheel.name.startswith("accelscale-0"))
    plugins = [wheel for wheel in wheels if wheel != core]
    for name, pins in (("oldest", list(floors())), ("newest", [])):
        with tempfile.TemporaryDirectory() as place:
            python = environment(Path(place))
            run(python, "-m", "pip", "install", "--quiet", f"{core}[server]", *pins)
            run(python, "-W", "error", str(ROOT / "tests" / "server" / "roundtrip.py"))
            run(python, "-m", "accelscale", "--version")
            run(python, "-m", "pip", "install", "--quiet", *map(str, plugins))
            listed = run(python, "-m", "accelscale", "plugins", "--json")
            report = json.loads(listed)
            failures = report["failures"]
            assert not failures, f"plugins that do not load: {failures}"
            wanted = {wheel.name.split("-")[0].removeprefix("accelscale_") for wheel in plugins}
            found = {backend["name"] for backend in report["backends"]}
            assert wanted | {"nvidia"} <= found, f"missing {wanted - found}"
            sys.stdout.write(f"{name} libraries: {', '.join(sorted(found))}\n")


def floors() -> Iterator[str]:
    """The oldest version of each library that the base and the server ask for."""
    for requirement in metadata.requires("accelscale") or ():
        text, _, marker = requirement.partition(";")
        match = re.match(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)", text.strip())
        if match and (
            "extra" not in marker or re.search(r"'(server|cli)'|\"(server|cli)\"", marker)
        ):
            yield f"{match[1]}=={match[2]}"


def environment(place: Path) -> Path:
    """A fresh virtual environment; gives its interpreter."""
    venv.create(place, with_pip=True)
    return place / "bin" / "python"


def run(*command: str | Path) -> str:
    """Run a command; its output, or the end of it all."""
    done = subprocess.run(list(map(str, command)), check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} gave {done.returncode}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
