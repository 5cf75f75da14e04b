"""The search for a library that works, among directories, empty files and stubs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from accelscale.nvidia.library import SONAME
from drivers.nvml.state import STATE_VARIABLE, FakeNvml

Found = dict[str, Any]
"""``path`` of the library or None, its ``code``, and the ``rejected`` as pairs (path, why)."""


@pytest.fixture
def search(fake_nvml: FakeNvml, run_script: Callable[..., Any]) -> Callable[..., Found]:
    """Searches folders as the loader would, then the ``usual`` ones, in a process of its own.

    The process has no other NVML, so nothing answers to the bare name of the library.
    """
    fake_nvml.device("GPU-aaaa").write()

    def search(*folders: Path, usual: Sequence[Path] = (), override: Path | None = None) -> Found:
        script = f"""
            import json
            from accelscale.nvidia import library

            library._USUAL_FOLDERS = {[str(folder) for folder in usual]!r}
            found = library.search(str)
            if found.library is not None:
                found.library.nvmlShutdown()
            rejected = [(one.path, one.why) for one in found.rejected]
            print(json.dumps({{"path": found.path, "code": found.code, "rejected": rejected}}))
        """
        environment = {
            "LD_LIBRARY_PATH": ":".join(map(str, folders)),
            STATE_VARIABLE: str(fake_nvml.path),
        }
        if override is not None:
            environment["ACCELSCALE_NVML_LIBRARY"] = str(override)
        found: Found = run_script(script, environment)
        return found

    return search


@pytest.fixture
def broken(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Folders with a directory, an empty file and a dangling link of the library's name."""
    folders = tuple(tmp_path / name for name in ("directory", "empty", "dangling"))
    for folder in folders:
        folder.mkdir()
    (folders[0] / SONAME).mkdir()
    (folders[1] / SONAME).touch()
    (folders[2] / SONAME).symlink_to(tmp_path / "nowhere")
    return folders


@pytest.fixture
def good(tmp_path: Path, nvml_library: Path) -> Path:
    folder = tmp_path / "good"
    folder.mkdir()
    shutil.copy(nvml_library, folder)
    return folder


def test_the_first_that_works_is_taken(
    search: Callable[..., Found], broken: tuple[Path, Path, Path], good: Path
) -> None:
    """NVIDIA/dcgm-exporter#27, kubernetes-sigs/dra-driver-nvidia-gpu#1272."""
    found = search(*broken, good)
    assert found["path"] == str(good / SONAME)
    why = {Path(path).parent.name: text for path, text in found["rejected"]}
    assert why["directory"] == "is a directory"
    assert "file too short" in why["empty"]
    assert "No such file" in why["dangling"]


def test_if_none_works_each_is_named_with_its_fault(
    search: Callable[..., Found], broken: tuple[Path, Path, Path]
) -> None:
    found = search(*broken)
    assert (found["path"], found["code"]) == (None, None)
    tried = [path for path, _ in found["rejected"]]
    assert tried == [*(str(folder / SONAME) for folder in broken), SONAME]


def test_a_library_whose_init_fails_is_passed_over(
    search: Callable[..., Found], fake_nvml: FakeNvml, good: Path
) -> None:
    """Of several that fail the first one's error is told: it is the loader's own choice."""
    fake_nvml.library(init="DRIVER_NOT_LOADED").write()
    found = search(good)
    assert (found["path"], found["code"]) == (None, 9)
    assert found["rejected"][0] == [str(good / SONAME), "nvmlInitWithFlags answered 9"]


def test_stubs_are_known_by_their_folder(
    search: Callable[..., Found], tmp_path: Path, nvml_library: Path
) -> None:
    """Syllo/nvtop#225: a library for linking has every function, and none of them works."""
    stubs = tmp_path / "lib64" / "stubs"
    stubs.mkdir(parents=True)
    shutil.copy(nvml_library, stubs)
    found = search(usual=[stubs])
    assert found["path"] is None
    assert "stub" in found["rejected"][-1][1]


def test_a_library_without_nvml_is_told_apart(
    search: Callable[..., Found], build_nvml: Callable[..., Path], good: Path
) -> None:
    other = build_nvml(without=("nvmlInitWithFlags",))
    found = search(other.parent, good)
    assert found["path"] == str(good / SONAME)
    assert "nvmlInitWithFlags" in found["rejected"][0][1]


def test_the_usual_folders_come_last(
    search: Callable[..., Found], broken: tuple[Path, Path, Path], good: Path
) -> None:
    found = search(usual=[broken[1], good])
    assert found["path"] == str(good / SONAME)
    assert [path for path, _ in found["rejected"]] == [SONAME, str(broken[1] / SONAME)]


def test_the_variable_names_the_only_candidate(
    search: Callable[..., Found], broken: tuple[Path, Path, Path], good: Path
) -> None:
    assert search(broken[0], override=good / SONAME)["path"] == str(good / SONAME)
    found = search(good, override=broken[0] / SONAME)
    assert found["rejected"] == [[str(broken[0] / SONAME), "is a directory"]]


def test_the_binding_uses_what_was_found(
    broken: tuple[Path, Path, Path],
    good: Path,
    fake_nvml: FakeNvml,
    run_script: Callable[..., Any],
) -> None:
    fake_nvml.device("GPU-aaaa", utilization_gpu=37).write()
    script = """
        import json
        from accelscale.nvidia.backend import NvidiaBackend

        backend = NvidiaBackend()
        probe = backend.probe()
        backend.open()
        (reading,) = backend.read(backend.devices(), ["utilization_percent"])
        backend.close()
        print(json.dumps([probe.viable, probe.reason, reading.samples[0].value]))
    """
    viable, reason, value = run_script(
        script,
        {
            "LD_LIBRARY_PATH": ":".join(map(str, (*broken, good))),
            STATE_VARIABLE: str(fake_nvml.path),
        },
    )
    assert (viable, value) == (True, 37.0)
    assert f"passed over {broken[0] / SONAME}: is a directory" in reason
    assert fake_nvml.users == 0


def test_a_machine_without_any_driver_says_what_was_tried(
    tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    """NVIDIA/dcgm-exporter#612."""
    script = """
        import json
        from accelscale.nvidia import library
        from accelscale.nvidia.backend import NvidiaBackend

        library._USUAL_FOLDERS = ()
        probe = NvidiaBackend().probe()
        print(json.dumps([probe.viable, probe.reason]))
    """
    missing = tmp_path / "missing.so"
    viable, reason = run_script(script, {"ACCELSCALE_NVML_LIBRARY": str(missing)})
    assert not viable
    assert "LIBRARY_NOT_FOUND (12)" in reason
    assert f"Tried {missing}: " in reason
    assert "install the NVIDIA driver" in reason


def test_a_binding_that_knows_a_place_of_its_own_may_use_it(
    tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    (tmp_path / "pynvml.py").write_text(
        """
class NVMLError(Exception):
    value = 999

def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlSystemGetDriverVersion(): return "1.2.3"
def nvmlDeviceGetCount(): return 1
"""
    )
    script = """
        import json
        from accelscale.nvidia import library
        from accelscale.nvidia.backend import NvidiaBackend

        library._USUAL_FOLDERS = ()
        probe = NvidiaBackend().probe()
        print(json.dumps([probe.viable, probe.version]))
    """
    assert run_script(script, {"PYTHONPATH": str(tmp_path)}) == [True, "1.2.3"]
