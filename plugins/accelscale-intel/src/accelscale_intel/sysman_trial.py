"""A program, not a module: tries out Level Zero where a crash, a hang or a print harms nobody.

Run by `accelscale_intel.trial`, in an interpreter of its own. It imports nothing of accelscale, and
writes one line of JSON to what was its standard output when it began.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os


def trial() -> dict[str, object]:
    """What came of it: ``ok``, and ``text`` in words."""
    step = "import pyzes"
    try:
        pyzes = importlib.import_module("pyzes")
        step = "zesInit"
        result = pyzes.zesInit(0)
        if result != 0:
            return {"ok": False, "text": f"zesInit answered {result:#x}"}
        step = "zesDriverGet"
        drivers = ctypes.c_uint32(0)
        result = pyzes.zesDriverGet(ctypes.byref(drivers), None)
        if result != 0 or drivers.value == 0:
            text = f"zesDriverGet answered {result:#x} and {drivers.value} drivers"
            return {"ok": False, "text": text}
    except BaseException as error:  # noqa: BLE001 - whatever a binding raises while it is imported
        return {"ok": False, "text": f"{step} raised {type(error).__name__}: {error}"}
    return {"ok": True, "text": f"{drivers.value} drivers"}


def main() -> None:
    """Keep the way back for the answer, and close it to everybody else."""
    with os.fdopen(os.dup(1), "w") as answer:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        json.dump(trial(), answer)
    os._exit(0)  # a driver that crashes on its way out has answered all the same


if __name__ == "__main__":
    main()
