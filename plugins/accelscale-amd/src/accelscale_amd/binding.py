"""Loads the binding amdsmi, and is the program that first tries it in a process of its own.

Its import may print, raise anything, hang, or end the process, and so may its first calls. Run as a
program, this file tries all that and writes what came of it, as one line of JSON, to the file
descriptor that is its first argument. It needs nothing but the standard library.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def load(package: str | None) -> ModuleType:
    """The module amdsmi: the one in this folder, or the one that Python finds.

    Raises whatever its import raises; nothing of it is left loaded then.
    """
    if "amdsmi" in sys.modules:
        return sys.modules["amdsmi"]
    try:
        if package is None:
            return importlib.import_module("amdsmi")
        return _load_from(Path(package))
    except BaseException:
        for name in [name for name in sys.modules if name.split(".")[0] == "amdsmi"]:
            del sys.modules[name]
        raise


def _load_from(package: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "amdsmi", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{package} is no package")
    module = importlib.util.module_from_spec(spec)
    sys.modules["amdsmi"] = module
    spec.loader.exec_module(module)
    return module


def version(amdsmi: Any) -> str:
    """The version of the library, or nothing where it does not say."""
    try:
        found = amdsmi.amdsmi_get_lib_version()
        return ".".join(str(found[part]) for part in ("major", "minor", "release"))
    except Exception:  # noqa: BLE001 - older libraries have other parts, or none
        return ""


def addresses(amdsmi: Any) -> list[str]:
    """The PCI addresses of the GPUs that the library lists."""
    handles = amdsmi.amdsmi_get_processor_handles()
    return [str(amdsmi.amdsmi_get_gpu_device_bdf(handle)) for handle in handles]


def initialise(amdsmi: Any) -> None:
    """Initialise the library for GPUs alone. Raises what it raises."""
    amdsmi.amdsmi_init(amdsmi.AmdSmiInitFlags.INIT_AMD_GPUS)


def in_words(error: BaseException) -> str:
    """An error on one line, with its type."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _try(package: str | None) -> dict[str, object]:
    step = "importing it"
    try:
        amdsmi = load(package)
        step = "initialising it"
        initialise(amdsmi)
        step = "listing GPUs"
        found = addresses(amdsmi)
        report: dict[str, object] = {"version": version(amdsmi), "addresses": found}
        amdsmi.amdsmi_shut_down()
        return report
    except BaseException as error:  # noqa: BLE001 - whatever it raises is what is to be found out
        return {"error": f"{step} raised {in_words(error)}"}


if __name__ == "__main__":
    outcome = _try(sys.argv[2] if len(sys.argv) > 2 else None)
    os.write(int(sys.argv[1]), json.dumps(outcome).encode())
    os._exit(0)  # what the library does at the end of a process is of no interest
