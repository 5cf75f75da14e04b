"""A page in headless Chromium: what stands in it once its scripts have run, and how it looks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here: apt-get install chromium"
)


def _run(profile: Path, page: Path, *options: str) -> str:
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            "--virtual-time-budget=15000",
            # The page must need no network: every host is unknown.
            "--host-resolver-rules=MAP * ~NOTFOUND",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def document(profile: Path, page: Path, *options: str) -> str:
    """The page's elements after its scripts have run."""
    return _run(profile, page, "--dump-dom", *options)


def screenshot(profile: Path, page: Path, target: Path, *options: str) -> None:
    """What the page looks like, as PNG."""
    _run(profile, page, f"--screenshot={target}", *options)
