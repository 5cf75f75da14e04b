"""Processor share and memory of a server that reads eight cards once a second."""

from __future__ import annotations

import time

import psutil

from benchmarks import processes
from benchmarks.report import line

SECONDS = 20.0


def run() -> None:
    """Measure and print. The fake driver takes part of the time, as a real one would."""
    with processes.fake_driver(), processes.server() as (process, _):
        watched = psutil.Process(process.pid)
        time.sleep(3)
        begun, before = time.perf_counter(), watched.cpu_times()
        time.sleep(SECONDS)
        after, elapsed = watched.cpu_times(), time.perf_counter() - begun
        spent = (after.user - before.user) + (after.system - before.system)
        line(
            "footprint",
            budget={"core_percent": 0.5, "resident_mib": 60.0},
            devices=8,
            interval_seconds=1.0,
            core_percent=100 * spent / elapsed,
            resident_mib=watched.memory_info().rss / 2**20,
            threads=watched.num_threads(),
        )
