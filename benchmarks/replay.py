"""What a replay costs: a day of eight devices at 1 Hz, a sweep over it, and a tenth of it.

Each runs as the command that a user types, so reading the file and starting Python are part of it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from accelscale.lab.parquet import write_parquet
from accelscale.lab.recording import Column, Recording
from accelscale.model import Device
from benchmarks.report import line

DEVICES = 8
DAY = 86_400
MANIFEST = """
kind: ScaledObject
metadata: {name: web}
spec:
  scaleTargetRef: {name: web}
  minReplicaCount: 1
  maxReplicaCount: 16
  triggers:
    - type: external
      metadata:
        scalerAddress: scaler:6000
        metric: utilization_percent
        threshold: "70"
        activationThreshold: "5"
        window: 30s
        idleAfter: 10m
"""
METRICS = ("utilization_percent", "power_watts", "memory_used_bytes", "temperature_celsius")


def run() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        day, tenth, manifest = (Path(folder) / name for name in ("day", "tenth", "web.yaml"))
        manifest.write_text(MANIFEST)
        for path, seconds in ((day, DAY), (tenth, DAY // 10)):
            write_parquet(recording(seconds), path.with_suffix(".parquet"))
        arguments = ["-f", str(manifest), "--no-plot"]
        whole = [str(day.with_suffix(".parquet")), *arguments]
        seconds, mebibytes = measured(whole)
        short, _ = measured([str(tenth.with_suffix(".parquet")), *arguments])
        picture = str(Path(folder) / "page.html")
        drawn, _ = measured([*whole, "--html", picture])
        closed, _ = measured([*whole, "--closed-loop"])
        sweep, most = measured([*whole, "--sweep", "threshold=50..88:2"])
    line(
        "replay",
        budget={"day_seconds": 10.0, "day_mebibytes": 1024.0, "sweep_seconds": 60.0},
        samples_per_metric=DEVICES * DAY,
        metrics=len(METRICS),
        day_seconds=seconds,
        day_mebibytes=mebibytes,
        tenth_of_a_day_seconds=short,
        seconds_per_further_day=(seconds - short) / 0.9,
        day_with_page_seconds=drawn,
        day_closed_loop_seconds=closed,
        sweep_points=20,
        sweep_seconds=sweep,
        sweep_mebibytes=most,
    )


def recording(seconds: int) -> Recording:
    """A load that swings through the day, with noise, on every device."""
    chance = np.random.default_rng(7)
    devices = tuple(Device(f"GPU-{n}", "Example", "nvidia", "nvidia") for n in range(DEVICES))
    columns = {}
    for number, device in enumerate(devices):
        times = np.arange(float(seconds)) + 0.01 * number
        swing = 50 - 40 * np.cos(2 * np.pi * times / DAY * 3)
        use = np.clip(np.round(swing + chance.normal(0, 10, seconds)), 0, 100)
        values = (use, 90 + 5.2 * use, use * 1e9, 30 + use / 3)
        for metric, found in zip(METRICS, values, strict=True):
            columns[device.id, metric] = Column(times, found)
    return Recording(0.0, float(seconds), 1.0, devices, columns, origin="benchmark")


def measured(arguments: list[str]) -> tuple[float, float]:
    """Seconds and greatest resident MiB of one ``accelscale replay``."""
    begun, most = time.perf_counter(), 0
    command = [sys.executable, "-m", "accelscale", "replay", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                most = max(most, watched.memory_info().rss)
            except psutil.NoSuchProcess:
                break
            time.sleep(0.02)
        _, complaint = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(complaint.decode())
    return time.perf_counter() - begun, most / 2**20
