# ruff: noqa: PTH112, PTH115, PTH116, PTH208 - files are looked at in every way there is
"""Every way in which Python code looks at files is seen, and can be refused."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from accelscale.testing.recording.watch import Access, watching


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("7")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    return tmp_path


WAYS: dict[str, tuple[Access, str, Callable[[Path], object]]] = {
    "open": (Access.OPEN, "file", lambda at: open(at / "file").close()),  # noqa: PTH123
    "os.open": (Access.OPEN, "file", lambda at: os.close(os.open(at / "file", os.O_RDONLY))),
    "Path.read_text": (Access.OPEN, "file", lambda at: (at / "file").read_text()),
    "Path.read_bytes": (Access.OPEN, "file", lambda at: (at / "file").read_bytes()),
    "Path.write_text": (Access.WRITE, "new", lambda at: (at / "new").write_text("1")),
    "os.listdir": (Access.LIST, "folder", lambda at: os.listdir(at / "folder")),
    "os.scandir": (Access.LIST, "folder", lambda at: os.scandir(at / "folder").close()),
    "Path.iterdir": (Access.LIST, "folder", lambda at: list((at / "folder").iterdir())),
    "Path.glob": (Access.LIST, "folder", lambda at: list((at / "folder").glob("temp*"))),
    "os.readlink": (Access.FOLLOW, "link", lambda at: os.readlink(at / "link")),
    "Path.readlink": (Access.FOLLOW, "link", lambda at: (at / "link").readlink()),
    "Path.resolve": (Access.FOLLOW, "link", lambda at: (at / "link").resolve()),
    "os.stat": (Access.LOOK, "file", lambda at: os.stat(at / "file")),
    "os.access": (Access.LOOK, "file", lambda at: os.access(at / "file", os.R_OK)),
    "os.path.isdir": (Access.LOOK, "folder", lambda at: os.path.isdir(at / "folder")),
    "Path.exists": (Access.LOOK, "missing", lambda at: (at / "missing").exists()),
    "Path.is_symlink": (Access.LOOK, "link", lambda at: (at / "link").is_symlink()),
    "bytes": (Access.LOOK, "file", lambda at: os.stat(os.fsencode(at / "file"))),
}


@pytest.mark.parametrize("way", WAYS)
def test_it_is_seen(place: Path, way: str) -> None:
    access, name, use = WAYS[way]
    seen: list[tuple[Access, str]] = []
    with watching(lambda *event: seen.append(event)):
        use(place)
    assert (access, str(place / name)) in seen
    before = len(seen)
    use(place)
    assert len(seen) == before, "it is still watched"


def test_a_relative_path_is_made_absolute(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    seen: list[str] = []
    with watching(lambda _, path: seen.append(path)):
        Path("file").read_text()
    assert f"{place}/file" in seen


def test_other_threads_are_seen_and_a_watcher_is_not(place: Path) -> None:
    seen: list[str] = []

    def watcher(_: Access, path: str) -> None:
        os.stat(place / "folder")  # would come back here without end
        seen.append(path)

    with watching(watcher):
        thread = threading.Thread(target=(place / "file").read_text)
        thread.start()
        thread.join()
    assert f"{place}/file" in seen
    assert f"{place}/folder" not in seen


@pytest.mark.parametrize("way", ["open", "Path.iterdir", "os.readlink", "os.stat"])
def test_what_a_watcher_raises_is_the_answer(place: Path, way: str) -> None:
    _, name, use = WAYS[way]

    def refuse(_: Access, path: str) -> None:
        if path == str(place / name):
            raise OSError(errno.ENODATA, "no data", path)

    with watching(refuse), pytest.raises(OSError, match="no data"):
        use(place)
    use(place)


def test_two_watchers_do_not_disturb_each_other(place: Path) -> None:
    first: list[str] = []
    second: list[str] = []
    original = os.stat
    with watching(lambda _, path: first.append(path)):
        with watching(lambda _, path: second.append(path)):
            os.stat(place)
        os.stat(place / "file")
    assert (first, second) == ([str(place), str(place / "file")], [str(place)])
    assert os.stat is original


def test_descriptors_are_no_paths(place: Path) -> None:
    seen: list[str] = []
    descriptor = os.open(place, os.O_RDONLY)
    with watching(lambda _, path: seen.append(path)):
        os.listdir(descriptor)
        os.stat("file", dir_fd=descriptor)
        os.fstat(descriptor)
    os.close(descriptor)
    assert seen == []
