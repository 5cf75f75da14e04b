"""How long it takes until the command line helps, and until the server answers."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks import processes
from benchmarks.report import line, percentile

RUNS = 9


def run() -> None:
    """Measure and print; the first run, with cold files, is left out."""
    helps, answers = [], []
    with processes.fake_driver():
        for _ in range(RUNS + 1):
            begun = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "accelscale", "--help"],
                stdout=subprocess.DEVNULL,
                check=True,
            )
            helps.append(time.perf_counter() - begun)
        for _ in range(4):
            begun = time.perf_counter()
            with processes.server():
                answers.append(time.perf_counter() - begun)
    line(
        "startup",
        budget={"help_seconds": 0.25, "answering_seconds": 1.0},
        help_seconds=percentile(helps[1:], 50),
        answering_seconds=percentile(answers[1:], 50),
    )
