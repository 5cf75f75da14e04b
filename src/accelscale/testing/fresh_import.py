"""What importing a backend's module does, watched in an interpreter that has loaded nothing else.

A module that defines a backend must import no vendor library and do no input or output: it is
imported at every start of every command, on machines that have none of the hardware.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from accelscale.backend import Backend

_LIMIT_SECONDS = 60.0

_WATCH = """
import importlib.util, json, os, sys

name, file, report = sys.argv[1:4]
# Python's own importer reads below these, and a package may read its own data.
homes = {*sys.path, sys.prefix, sys.base_prefix, os.path.dirname(file)}
homes = [os.path.realpath(path) for path in homes if path]
events = []
watching = True

def watch(event, args):
    if not watching:
        return
    if event == "open" and isinstance(args[0], (str, bytes)):
        path = os.path.realpath(os.fsdecode(args[0]))
        if path != os.devnull and not any(path.startswith(home + os.sep) for home in homes):
            events.append(f"it opens {path}")
    elif event in {"subprocess.Popen", "os.posix_spawn", "os.exec", "os.fork", "os.system"}:
        events.append(f"it starts a process ({event})")
    elif event in {"socket.connect", "socket.bind", "socket.getaddrinfo"}:
        events.append(f"it uses the network ({event})")
    elif event == "ctypes.dlopen" and args[0]:
        events.append(f"it loads the library {args[0]}")

def found_by_name():
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        return False
    return spec is not None and spec.origin == file

sys.addaudithook(watch)
try:
    if found_by_name():
        importlib.import_module(name)
    else:
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
except BaseException as error:
    events.append(f"it raises {type(error).__name__}: {error}")
watching = False
with open(report, "w") as stream:
    json.dump({"events": events, "modules": sorted(sys.modules)}, stream)
"""


def import_faults(backend: type[Backend], vendor_modules: tuple[str, ...] = ()) -> list[str]:
    """What the import of the module that defines this class does and must not do, in words."""
    module = sys.modules[backend.__module__]
    file = getattr(module, "__file__", None)
    if file is None:
        return [f"{backend.__module__} is not a file, so it cannot be imported afresh"]
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONVERBOSE", "PYTHONPYCACHEPREFIX"}
    }
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        done = subprocess.run(  # noqa: S603 - this interpreter, with a program of our own
            [sys.executable, "-c", _WATCH, backend.__module__, file, str(report)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
        if not report.exists():
            return [f"it ends the interpreter (status {done.returncode}): {done.stderr.strip()}"]
        seen = json.loads(report.read_text())
    loaded = [
        f"it imports {name}"
        for name in seen["modules"]
        if any(name == vendor or name.startswith(f"{vendor}.") for vendor in vendor_modules)
    ]
    printed = [
        f"it prints {text.strip()[:200]!r}" for text in (done.stdout, done.stderr) if text.strip()
    ]
    return [*seen["events"], *loaded, *printed]
