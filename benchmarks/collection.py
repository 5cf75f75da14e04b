"""What one pass over the devices costs: with a driver that takes no time, and one that does."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks import processes
from benchmarks.report import line, percentile

DEVICES = 8
PASSES = 200


def run() -> None:
    """Measure in a process that has the fake driver loaded, and print."""
    for latency_us in (0, 100):
        with processes.fake_driver(DEVICES, latency_us) as driver:
            before = driver.calls()
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.collection"],
                cwd=processes.ROOT,
                capture_output=True,
                text=True,
                check=True,
            )
            calls = sum(n for name, n in driver.calls().items() if " " not in name)
            calls -= sum(n for name, n in before.items() if " " not in name)
        figures = json.loads(done.stdout)
        line(
            "collection",
            driver_call_ms=latency_us / 1000,
            devices=DEVICES,
            driver_calls_per_pass=calls / PASSES,
            **figures,
        )


def measure() -> dict[str, float]:
    """Milliseconds of wall and processor time for a pass, and for what comes after the driver."""
    from accelscale.metrics import METRICS, Tier
    from accelscale.nvidia.backend import NvidiaBackend
    from accelscale.readings import Readings

    backend, readings = NvidiaBackend(), Readings(METRICS, 1.0)
    backend.open()
    readings.declare(backend)
    devices = readings.set_devices(backend, backend.devices())
    fast = [name for name, tier in backend.metrics.items() if tier is Tier.FAST]
    wall, processor, after = [], [], []
    for _ in range(PASSES):
        begun, spent = time.perf_counter(), time.thread_time()
        found = list(backend.read(devices, fast))
        read = time.perf_counter()
        for reading in found:
            readings.take(reading, fast)
        readings.publish()
        wall.append(time.perf_counter() - begun)
        after.append(time.perf_counter() - read)
        processor.append(time.thread_time() - spent)
    backend.close()
    return {
        "pass_ms": 1000 * percentile(wall, 50),
        "pass_per_device_ms": 1000 * percentile(wall, 50) / DEVICES,
        "processor_ms": 1000 * percentile(processor, 50),
        "after_the_driver_ms": 1000 * percentile(after, 50),
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
