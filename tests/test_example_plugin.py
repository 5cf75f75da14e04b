"""The example plugin works as what a stranger gets: a wheel, installed, with its own tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1] / "plugins/accelscale-example"


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the folder by what the development environment has."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(HOME, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    pip = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    run(*pip, "--wheel-dir", folder, folder / "source", cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the installed wheel; on the path it hides the source tree."""
    site = tmp_path_factory.mktemp("site")
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site)
    run(*pip, wheel, cwd=site)
    return site


def plugins(site: Path, cwd: Path, **environment: str) -> dict[str, object]:
    done = run(
        "-m",
        "accelscale",
        "plugins",
        "--json",
        cwd=cwd,
        PYTHONPATH=str(site),
        **environment,
    )
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["failures"] == []
    return {backend["name"]: backend for backend in document["backends"]}


def test_the_wheel_has_the_package_alone(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert names == {"accelscale_example", "accelscale_example-0.1.0.dist-info"}


def test_installed_it_is_listed_and_never_used_by_itself(site: Path, tmp_path: Path) -> None:
    assert plugins(site, tmp_path, ACCELSCALE_EXAMPLE_ROOT="")["example"] == {
        "name": "example",
        "vendor": "example",
        "distribution": "accelscale-example",
        "version": "0.1.0",
        "viable": False,
        "reason": "ACCELSCALE_EXAMPLE_ROOT does not name a folder of example cards",
        "on_request_only": True,
    }


def test_its_own_tests_pass_over_the_installed_package(site: Path, tmp_path: Path) -> None:
    shutil.copytree(HOME / "tests", tmp_path / "tests")
    shutil.copy(HOME / "pyproject.toml", tmp_path)
    # Not the plugins of pytest that this environment has besides, and that nobody else has.
    done = run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"),
        cwd=tmp_path,
        PYTHONPATH=str(site),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
        PYTEST_ADDOPTS="",
    )
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
    where = run(
        "-c",
        "import accelscale_example; print(accelscale_example.__file__)",
        cwd=tmp_path,
        PYTHONPATH=str(site),
    )
    assert where.stdout.startswith(str(site))
