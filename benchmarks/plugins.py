"""What all installed plugins together add to a start on a machine with none of the hardware."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib import metadata

from benchmarks import processes
from benchmarks.report import line, percentile

RUNS = 15
NOT_COUNTED = ("accelscale", "accelscale-example")  # the built-in backend; what nobody installs


def run() -> None:
    """Compare processes with and without the plugins, in turn, and print the medians."""
    with_all, without = [], []
    installed = {
        point.dist.name
        for point in metadata.entry_points(group="accelscale")
        if point.dist is not None and point.dist.name not in NOT_COUNTED
    }
    for _ in range(RUNS + 1):  # the first, with cold files, is left out
        without.append(_measured("*"))
        with_all.append(_measured("accelscale-example"))
    added = percentile(with_all[1:], 50) - percentile(without[1:], 50)
    line(
        "plugins",
        budget={"added_ms": 50.0},
        plugins=len(installed),
        with_all_ms=1000 * percentile(with_all[1:], 50),
        without_ms=1000 * percentile(without[1:], 50),
        added_ms=1000 * added,
        least_added_ms=1000 * (min(with_all) - min(without)),
    )


def _measured(disabled: str) -> float:
    environment = {**os.environ, "ACCELSCALE_DISABLE_PLUGINS": disabled}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.plugins"],
        cwd=processes.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout))


def measure() -> float:
    """Seconds to load the plugins, and to try to open every backend as the collector does."""
    from accelscale.errors import BackendError
    from accelscale.plugins import load_plugins

    begun = time.perf_counter()
    registry = load_plugins()
    for name, registered in registry.backends.items():
        if registered.backend.on_request_only:
            continue
        backend = registry.create(name)
        try:
            backend.open()
        except BackendError:
            pass
        else:
            backend.close()
    return time.perf_counter() - begun


if __name__ == "__main__":
    print(json.dumps(measure()))
