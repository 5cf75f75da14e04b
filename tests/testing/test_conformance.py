"""The conformance tests must pass what is right, and fail what is wrong, and for that reason."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

import pytest

from accelscale.testing import BackendConformance, FakeBackend

WRONG = Path(__file__).with_name("wrong_backends.py")


def load_breaks() -> dict[str, frozenset[str]]:
    spec = importlib.util.spec_from_file_location("wrong_backends", WRONG)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    breaks: dict[str, frozenset[str]] = module.BREAKS
    return breaks


BREAKS = load_breaks()


class TestFakeBackend(BackendConformance):
    def make_backend(self) -> FakeBackend:
        return FakeBackend(
            {
                "fake-a": {"utilization_percent": 30.0, "energy_joules_total": lambda now: now},
                "fake-b": {"utilization_percent": 80.0, "memory_used_bytes": 2.0**30},
            }
        )

    def break_device(self, backend: FakeBackend, device_id: str) -> None:  # type: ignore[override]
        backend.lose(device_id)


Outcomes = dict[str, dict[str, set[str]]]


def run_pytest(path: Path, folder: Path) -> Outcomes:
    """Outcome to class to names of tests, of a run in a process of its own."""
    report = folder / "report.xml"
    settings = folder / "pytest.ini"
    settings.write_text("[pytest]\npython_files = *.py\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-c", str(settings), "--rootdir", str(folder)),
            *("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:xdist", "--noconftest"),
            *("--import-mode=importlib", "--tb=short", f"--junitxml={report}", str(path)),
        ],
        env={name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    outcomes: Outcomes = defaultdict(lambda: defaultdict(set))
    for case in ET.parse(report).iter("testcase"):
        title = case.get("classname", "").rpartition(".")[2]
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        outcomes[kinds.pop() if kinds else "passed"][title].add(case.get("name", ""))
    return outcomes


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return run_pytest(WRONG, tmp_path_factory.mktemp("wrong"))


def test_the_backend_that_the_wrong_ones_are_made_of_is_right(outcomes: Outcomes) -> None:
    assert not outcomes["failure"]["TestRight"]
    assert not outcomes["skipped"]["TestRight"]
    assert len(outcomes["passed"]["TestRight"]) >= 19


@pytest.mark.parametrize("title", BREAKS)
def test_each_broken_promise_fails_its_own_tests(outcomes: Outcomes, title: str) -> None:
    expected = BREAKS[title]
    failed = outcomes["failure"][title]
    named = {name if name in expected else name.partition("[")[0] for name in failed}
    assert named == expected
    assert not outcomes["error"][title]


def run_source(source: str, folder: Path) -> Outcomes:
    path = folder / "conformance_of_one.py"
    path.write_text(textwrap.dedent(source))
    return run_pytest(path, folder)


ABSENT = """
    from accelscale.backend import Probe
    from accelscale.errors import BackendError
    from accelscale.model import Reason
    from accelscale.testing import BackendConformance, FakeBackend

    class TestStrict(BackendConformance):
        def make_backend(self):
            fake = FakeBackend()
            fake.break_probe("there is no driver")
            return fake

    class TestOptional(TestStrict):
        hardware_optional = True

    class TestDeviceless(BackendConformance):
        def make_backend(self):
            return FakeBackend()
"""


def test_absent_hardware_is_no_success_unless_it_is_optional(tmp_path: Path) -> None:
    outcomes = run_source(ABSENT, tmp_path)
    assert "test_every_metric_ends_as_one_sample_or_failure" in outcomes["failure"]["TestStrict"]
    assert (
        "test_every_metric_ends_as_one_sample_or_failure" in outcomes["failure"]["TestDeviceless"]
    )
    assert not outcomes["failure"]["TestOptional"]
    assert "test_every_metric_ends_as_one_sample_or_failure" in outcomes["skipped"]["TestOptional"]
    assert "test_open_agrees_with_probe" in outcomes["passed"]["TestStrict"]


NO_BREAK = """
    from accelscale.testing import BackendConformance, FakeBackend

    class TestPlain(BackendConformance):
        def make_backend(self):
            return FakeBackend({"fake-a": {"utilization_percent": 1.0}}, isolates_devices=False)
"""


def test_what_cannot_be_tried_is_skipped_with_a_reason(tmp_path: Path) -> None:
    outcomes = run_source(NO_BREAK, tmp_path)
    assert not outcomes["failure"]
    assert outcomes["skipped"]["TestPlain"] == {
        "test_a_metric_it_does_not_list_is_a_failure",
        "test_a_failing_device_spoils_no_other",
        "test_devices_are_read_side_by_side_where_that_is_promised",
    }


def test_the_testing_kit_needs_pytest_only_for_conformance() -> None:
    code = "import sys, accelscale.testing; print('pytest' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
