"""A binding that prints, raises, hangs or ends the process: tried apart, and done without."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accelscale_amd import AmdBackend, trial
from accelscale_amd.session import Session
from accelscale_amd.trial import Trial, Verdict
from amd.conftest import FIRST, Results
from amd.trees import Tree
from drivers.amdsmi.state import STATE_VARIABLE, FakeAmdSmi

Read = Callable[..., Results]

DECIDED_SECONDS = 60.0


@pytest.fixture
def tried(tree: Tree) -> Iterator[Callable[..., Verdict]]:
    """The verdict of a trial over the tree."""
    trials: list[Trial] = []

    def decide(limit_seconds: float = DECIDED_SECONDS) -> Verdict:
        made = Trial(tree.root, limit_seconds)
        trials.append(made)
        verdict = made.wait(DECIDED_SECONDS)
        assert verdict is not None, "the trial is not decided"
        return verdict

    yield decide
    for made in trials:
        made.close()


@pytest.fixture
def stub(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a module amdsmi of that text on the path, and a file with the name of the library."""
    folder = tmp_path / "stub"
    library = tree.root / "opt/rocm/lib/libamd_smi.so"

    def put(text: str) -> Path:
        (folder / "amdsmi").mkdir(parents=True, exist_ok=True)
        (folder / "amdsmi/__init__.py").write_text(text)
        library.parent.mkdir(parents=True, exist_ok=True)
        library.touch()
        monkeypatch.syspath_prepend(str(folder))
        return folder

    return put


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise KeyError('libamd_smi.so')", "KeyError: 'libamd_smi.so'"),
        ("raise OSError('cannot open shared object file')", "OSError: cannot open shared object"),
        ("raise AttributeError('undefined symbol: amdsmi_x')", "AttributeError: undefined symbol"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise BaseException('two\\nlines')", "BaseException: two lines"),
        ("import os; os._exit(1)", "ended its process (status 1)"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "ended its process (status -11)",
        ),
        ("print('noise'); x = 1", "initialising it raised AttributeError"),
        ("def broken(: pass", "SyntaxError"),
    ],
)
def test_an_import_that_explodes(
    stub: Callable[[str], Path],
    tried: Callable[..., Verdict],
    capfd: pytest.CaptureFixture[str],
    text: str,
    reason: str,
) -> None:
    stub(f"print('Unable to find libamd_smi.so')\nimport sys; sys.stderr.write('noise')\n{text}")
    verdict = tried()
    assert not verdict.works
    assert reason in verdict.reason
    assert capfd.readouterr() == ("", "")
    assert "amdsmi" not in sys.modules or not str(sys.modules["amdsmi"].__file__).count("stub")


def test_an_import_that_hangs(
    stub: Callable[[str], Path], tried: Callable[..., Verdict], tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    stub(f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    made = tried(limit_seconds=5.0)
    assert not made.works
    assert "did not end within 5 s" in made.reason
    assert not Path(f"/proc/{pid.read_text()}").exists(), "the trial is still there"


def test_the_backend_does_without(
    tree: Tree, stub: Callable[[str], Path], backend: AmdBackend, results: Read
) -> None:
    tree.card(FIRST)
    stub("raise KeyError('libamd_smi.so')")
    probe = backend.probe()
    assert probe.viable
    assert "KeyError: 'libamd_smi.so'" in probe.reason
    assert [attempt.ok for attempt in probe.attempts] == [True, False]
    assert results("utilization_percent")[FIRST, "utilization_percent"] == 50


def test_cards_are_read_while_a_trial_hangs(
    tree: Tree,
    stub: Callable[[str], Path],
    backend: AmdBackend,
    results: Read,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("accelscale_amd.session.OPEN_WAIT_SECONDS", 0.05)
    tree.card(FIRST)
    stub("import time; time.sleep(600)")
    assert results("utilization_percent")[FIRST, "utilization_percent"] == 50
    backend.close()


def test_the_backend_goes_over_when_a_trial_succeeds_late(
    tree: Tree,
    fake_amdsmi: FakeAmdSmi,
    backend: AmdBackend,
    results: Read,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("accelscale_amd.session.OPEN_WAIT_SECONDS", 0.0)
    tree.card(FIRST, gpu_busy_percent=1)
    fake_amdsmi.device("first", FIRST, gfx_activity=37).write()
    key = (FIRST, "utilization_percent")
    assert results("utilization_percent")[key] == 1
    before = [device.id for device in backend.devices()]
    end = time.monotonic() + DECIDED_SECONDS
    while results("utilization_percent")[key] != 37:
        assert time.monotonic() < end, "it did not go over"
        time.sleep(0.02)
    assert [device.id for device in backend.devices()] == before


def test_a_driver_that_is_loaded_later(
    tree: Tree,
    fake_amdsmi: FakeAmdSmi,
    backend: AmdBackend,
    results: Read,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A verdict is never the last word."""
    monkeypatch.setattr("accelscale_amd.session.OPEN_WAIT_SECONDS", DECIDED_SECONDS)
    monkeypatch.setattr(trial, "RETRY_SECONDS", (0.0,))
    tree.card(FIRST, gpu_busy_percent=1)
    key = (FIRST, "utilization_percent")
    assert results("utilization_percent")[key] == 1
    fake_amdsmi.device("first", FIRST, gfx_activity=37).write()
    end = time.monotonic() + DECIDED_SECONDS
    while results("utilization_percent")[key] != 37:
        assert time.monotonic() < end, "it was not tried again"
        time.sleep(0.02)


def test_a_failed_trial_is_repeated_at_once_only_for_another_library(
    tree: Tree, stub: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stub("raise KeyError('first')")
    made = Trial(tree.root, DECIDED_SECONDS)
    verdict = made.wait(DECIDED_SECONDS)
    assert verdict is not None
    stub("raise KeyError('second')")
    os.utime(folder / "amdsmi/__init__.py", ns=(1, 1))
    again = made.wait(DECIDED_SECONDS)
    assert again is not None
    assert ("first" in verdict.reason, "second" in again.reason) == (True, True)
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(a))
    assert made.verdict() is again
    assert not started
    made.close()


def test_the_real_binding_without_its_library(
    tree: Tree, tried: Callable[..., Verdict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of that name which is no library: the binding prints two lines and raises KeyError."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libamd_smi.so").touch()
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    verdict = tried()
    assert not verdict.works
    assert "KeyError" in verdict.reason


def test_the_real_binding_over_an_older_library(
    build_amdsmi: Callable[..., Path],
    fake_amdsmi: FakeAmdSmi,
    tried: Callable[..., Verdict],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = build_amdsmi(without=("amdsmi_get_gpu_xgmi_link_status",))
    monkeypatch.setenv("ROCM_PATH", str(old))
    fake_amdsmi.device("first", FIRST).write()
    verdict = tried()
    assert not verdict.works
    assert "AttributeError" in verdict.reason
    assert "amdsmi_get_gpu_xgmi_link_status" in verdict.reason


def test_the_real_binding_and_its_library(
    fake_amdsmi: FakeAmdSmi, tried: Callable[..., Verdict]
) -> None:
    fake_amdsmi.device("first", "0000:03:00.0").device("second", "000f:83:00.0").write()
    verdict = tried()
    assert verdict.works
    assert verdict.version == "26.0.2"
    assert verdict.addresses == {"0000:03:00.0", "000f:83:00.0"}
    assert fake_amdsmi.users == 0


def test_a_library_that_lists_nothing(
    fake_amdsmi: FakeAmdSmi, tried: Callable[..., Verdict]
) -> None:
    fake_amdsmi.write()
    verdict = tried()
    assert not verdict.works
    assert "no GPU" in verdict.reason


def test_the_copy_of_rocm_comes_first(
    build_amdsmi: Callable[..., Path],
    fake_amdsmi: FakeAmdSmi,
    tried: Callable[..., Verdict],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The binding that is installed with the library fits it; another may not."""
    rocm = tmp_path / "rocm"
    package = rocm / "share/amd_smi/amdsmi"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise KeyError('the copy of ROCm')")
    (rocm / "lib").symlink_to(build_amdsmi() / "lib")
    monkeypatch.setenv("ROCM_PATH", str(rocm))
    fake_amdsmi.device("first", FIRST).write()
    assert "the copy of ROCm" in tried().reason


def test_a_copy_of_rocm_that_works(
    build_amdsmi: Callable[..., Path],
    fake_amdsmi: FakeAmdSmi,
    tried: Callable[..., Verdict],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = importlib.util.find_spec("amdsmi")
    assert installed is not None
    assert installed.origin is not None
    rocm = tmp_path / "rocm"
    (rocm / "share/amd_smi").mkdir(parents=True)
    (rocm / "share/amd_smi/amdsmi").symlink_to(Path(installed.origin).parent)
    (rocm / "lib").symlink_to(build_amdsmi() / "lib")
    monkeypatch.setenv("ROCM_PATH", str(rocm))
    fake_amdsmi.device("first", FIRST).write()
    verdict = tried()
    assert verdict.works
    assert verdict.package == str(rocm / "share/amd_smi/amdsmi")


def test_a_trial_that_works_where_this_process_does_not(
    tree: Tree,
    fake_amdsmi: FakeAmdSmi,
    backend: AmdBackend,
    results: Read,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where something else in the process keeps the library from seeing its cards."""
    monkeypatch.setattr("accelscale_amd.session.OPEN_WAIT_SECONDS", DECIDED_SECONDS)
    tree.card(FIRST)
    fake_amdsmi.device("first", FIRST, gfx_activity=37).write()
    empty = FakeAmdSmi(fake_amdsmi.path.with_name("empty.state")).write()
    decided = Trial(tree.root, DECIDED_SECONDS)
    verdict = decided.wait(DECIDED_SECONDS)
    assert verdict is not None
    assert verdict.works
    backend._session = Session(tree.root)
    backend._session._trial = decided
    monkeypatch.setenv(STATE_VARIABLE, str(empty.path))
    assert results("utilization_percent")[FIRST, "utilization_percent"] == 50
    refused = decided.verdict()
    assert refused is not None
    assert "no GPU in this process" in refused.reason
    assert empty.users == 0


class TestNothingIsTried:
    """No process is started where it cannot help."""

    @pytest.fixture(autouse=True)
    def no_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*arguments: object, **options: object) -> None:
            raise AssertionError(f"a process was started: {arguments}")

        monkeypatch.setattr(subprocess, "Popen", refuse)

    def test_without_a_card(self, backend: AmdBackend, stub: Callable[[str], Path]) -> None:
        stub("")
        assert not backend.probe().viable

    def test_without_a_library(self, tree: Tree, backend: AmdBackend) -> None:
        tree.card(FIRST)
        assert "there is no libamd_smi.so" in backend.probe().reason

    def test_where_it_is_switched_off(
        self,
        tree: Tree,
        backend: AmdBackend,
        stub: Callable[[str], Path],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        tree.card(FIRST)
        stub("")
        monkeypatch.setenv("ACCELSCALE_AMD_SOURCE", "sysfs")
        assert "ACCELSCALE_AMD_SOURCE" in backend.probe().reason
