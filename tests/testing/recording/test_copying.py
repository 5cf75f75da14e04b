# ruff: noqa: PTH115, PTH116, PTH208, PLW0108 - files are looked at in every way there is
"""What is copied of a file system while somebody reads it, and what never is."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from accelscale.testing.recording import places
from accelscale.testing.recording.copying import Copy
from accelscale.testing.recording.tree import Entry, dump, load, materialise, refusing
from accelscale.testing.recording.watch import Access, watching
from testing.recording.trees import link, write


def copied(root: Path, *uses: Callable[[], object]) -> dict[str, Entry]:
    """The tree that is copied while these are called."""
    copy = Copy(root)
    with watching(copy.look):
        for use in uses:
            use()
    return copy.finished()


def again(tree: dict[str, Entry], place: Path) -> Path:
    """The files of the tree made anew, by way of JSON."""
    place.mkdir()
    read = load(dump(tree))
    assert read == tree
    materialise(read, place)
    return place


def test_only_what_was_opened_has_contents(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "sys/class/widget/card0/busy", "40")
    write(root, "sys/class/widget/card0/blocks_for_a_second", "1")
    folder = root / "sys/class/widget/card0"
    tree = copied(root, (folder / "busy").read_text, lambda: list(folder.iterdir()))
    assert tree["sys/class/widget/card0/busy"].data == b"40\n"
    assert tree["sys/class/widget/card0/blocks_for_a_second"] == Entry("file")
    made = again(tree, tmp_path / "made")
    assert (made / "sys/class/widget/card0/busy").read_text() == "40\n"
    assert (made / "sys/class/widget/card0/blocks_for_a_second").read_text() == ""


def test_binary_contents_come_back(tmp_path: Path) -> None:
    root, data = tmp_path / "root", bytes(range(256)) * 20
    file = write(root, "sys/class/widget/card0/table", data)
    made = again(copied(root, file.read_bytes), tmp_path / "made")
    assert (made / "sys/class/widget/card0/table").read_bytes() == data


def test_links_lead_where_they_led(tmp_path: Path) -> None:
    root = tmp_path / "root"
    device = "sys/devices/pci0000:00/0000:03:00.0"
    write(root, f"{device}/vendor", "0x1002")
    link(root, f"{device}/driver", "sys/bus/pci/drivers/widget")
    link(root, "sys/class/widget/card0", f"{device}/widget/card0")
    link(root, f"{device}/widget/card0/device", device)
    card = root / "sys/class/widget/card0"
    resolved: list[Path] = []
    tree = copied(
        root,
        lambda: resolved.append((card / "device").resolve()),
        lambda: (resolved[0] / "vendor").read_text(),
        lambda: (card / "device/driver").exists(),
    )
    made = again(tree, tmp_path / "made")
    card = made / "sys/class/widget/card0"
    assert (card / "device").resolve() == made.resolve() / device
    assert (card / "device/vendor").read_text() == "0x1002\n"
    assert (card / "device/driver").resolve().name == "widget"
    assert (card / "device/driver").resolve().is_dir()
    assert os.readlink(card) == os.readlink(root / "sys/class/widget/card0")


def test_absolute_links_lead_into_the_copy(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "sys/devices/a/busy", "1")
    (root / "sys/class").mkdir()
    (root / "sys/class/a").symlink_to(root / "sys/devices/a")
    tree = copied(root, (root / "sys/class/a/busy").read_text)
    assert tree["sys/devices/a/busy"].data == b"1\n"


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sys").mkdir(parents=True)
    (root / "sys/a").symlink_to("b")
    (root / "sys/b").symlink_to("a")

    def follow() -> None:
        with pytest.raises(OSError, match="Too many levels"):
            (root / "sys/a").read_text()

    made = again(copied(root, follow), tmp_path / "made")
    with pytest.raises(OSError, match="Too many levels"):
        (made / "sys/a").read_text()


def test_what_is_missing_stays_missing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sys/class").mkdir(parents=True)
    tree = copied(root, (root / "sys/class/widget/card0").exists, (root / "sys/x").is_file)
    assert set(tree) == {"sys", "sys/class"}


@pytest.fixture
def kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Makes reading a file fail at the read and not at the open, as drivers do."""
    refused: dict[str, int] = {}
    opened = Path.open

    def open_(path: Path, *arguments: object, **options: object) -> object:
        stream = opened(path, *arguments, **options)  # type: ignore[call-overload]
        if str(path) in refused:
            stream.close()
            number = refused[str(path)]
            raise OSError(number, os.strerror(number), str(path))
        return stream

    monkeypatch.setattr(Path, "open", open_)
    return lambda path, number: refused.update({str(path): number})


@pytest.mark.parametrize("number", [errno.EACCES, errno.EOPNOTSUPP, errno.ETIME, errno.ENODEV])
def test_errors_are_copied_and_given_again(
    tmp_path: Path, kernel_refuses: Callable[[Path, int], None], number: int
) -> None:
    root = tmp_path / "root"
    file = write(root, "sys/class/widget/card0/power", "55")
    kernel_refuses(file, number)

    def use() -> None:
        with pytest.raises(OSError, match=os.strerror(number)):
            file.open("rb")

    tree = copied(root, use)
    assert tree["sys/class/widget/card0/power"] == Entry("file", error=number)
    made = again(tree, tmp_path / "made")
    copy = made / "sys/class/widget/card0/power"
    with refusing(tree, made):
        assert copy.exists()
        for read in (copy.read_text, copy.read_bytes, lambda: os.open(copy, os.O_RDONLY)):
            with pytest.raises(OSError, match=os.strerror(number)) as caught:
                read()
            assert caught.value.errno == number
    assert copy.read_bytes() == b""


def test_refusals_of_folders_links_and_all_of_a_place(tmp_path: Path) -> None:
    tree = {
        "sys": Entry("folder"),
        "sys/closed": Entry("folder", error=errno.EACCES),
        "sys/closed/inside": Entry("hidden", error=errno.EACCES),
        "sys/link": Entry("link", target="unreadable", error=errno.EACCES),
        "sys/way": Entry("link", target="closed"),
    }
    made = again(tree, tmp_path / "made")
    with refusing(tree, made):
        for refused in (
            lambda: os.listdir(made / "sys/closed"),
            lambda: list((made / "sys/way").iterdir()),
            lambda: (made / "sys/link").readlink(),
            lambda: os.stat(made / "sys/closed/inside"),
            lambda: (made / "sys/way/inside").read_text(),
        ):
            with pytest.raises(PermissionError):
                refused()
        assert (made / "sys/closed").is_dir()
        assert (made / "sys/link").is_symlink()


def test_what_is_closed_to_this_user_is_copied_as_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    file = write(root, "sys/closed/inside/power", "55")
    lstat = os.lstat

    def closed(path: object, **options: object) -> os.stat_result:
        if str(path).endswith("/inside/power"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return lstat(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "lstat", closed)  # nothing is closed to root
    tree = copied(root, lambda: os.access(file, os.R_OK))
    assert tree["sys/closed/inside/power"] == Entry("hidden", error=errno.EACCES)


def test_a_read_that_does_not_end_timed_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "sys/class/widget/card0/power", "55")
    copy, reached, go_on = Copy(root), threading.Event(), threading.Event()
    path = "sys/class/widget/card0/power"

    class Slow(Copy):
        def _read(self, path: str) -> Entry:
            reached.set()
            go_on.wait(10)
            return super()._read(path)

    copy = Slow(root)
    thread = threading.Thread(target=copy.look, args=(Access.OPEN, str(root / path)))
    thread.start()
    try:
        assert reached.wait(10)
        assert copy.finished()[path] == Entry("file", error=errno.ETIMEDOUT)
    finally:
        go_on.set()
        thread.join()
    assert copy.finished()[path].data == b"55\n"


@pytest.mark.parametrize(
    "path",
    [
        "etc/passwd",
        "root/.ssh/id_ed25519",
        "home/somebody/notes",
        "proc/cmdline",
        "proc/version",
        "proc/12/environ",
        "proc/12/cmdline",
        "proc/12/status",
        "proc/sys/kernel/hostname",
        "proc/kcore",
        "sys/firmware/acpi/tables/MSDM",
        "sys/class/net/eth0/address",
        "sys/class/dmi/id/product_serial",
        "sys/devices/virtual/dmi/id/board_serial",
        "sys/devices/pci0000:00/0000:01:00.0/net/eth0/address",
        "sys/devices/pci0000:00/0000:01:00.0/config",
        "sys/devices/pci0000:00/0000:01:00.0/vpd",
        "sys/devices/pci0000:00/0000:01:00.0/drm/card0/card0-DP-1/edid",
        "sys/kernel/debug/dri/0/name",
        "dev/mapper/vault",
        "dev/disk/by-id/serial",
        "var/lib/secret",
    ],
)
def test_never_copied(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    file = write(root, path, "secret")
    tree = copied(root, file.read_text, lambda: list(file.parent.iterdir()))
    assert path not in tree
    assert "secret" not in dump(tree)


@pytest.mark.parametrize(
    "path",
    [
        "sys/class/drm/card0/device/gpu_busy_percent",
        "sys/devices/virtual/kfd/kfd/topology/nodes/1/properties",
        "sys/module/amdgpu/version",
        "proc/meminfo",
        "proc/driver/nvidia/version",
        "proc/77/fdinfo/5",
        "proc/PID/status",
        "etc/machine-id",
        "usr/share/libdrm/amdgpu.ids",
    ],
)
def test_copied(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    path = path.replace("PID", str(os.getpid()))
    assert copied(root, write(root, path, "7").read_text)[path].data == b"7\n"


def test_what_was_left_out_is_named_but_not_what_python_reads(tmp_path: Path) -> None:
    copy = Copy(Path("/"))
    with watching(copy.look):
        Path("/etc/hosts").read_bytes()
        Path("/proc/version").read_bytes()
        Path(os.__file__).read_bytes()
        (tmp_path / "x").write_text("1")
        Path(os.devnull).read_bytes()
    assert set(copy.left_out) == {"/etc/hosts", "/proc/version"}


def test_what_other_processes_have_open_stays_their_own(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for process, targets in {
        7: ["/home/somebody/thesis", "/dev/null"],
        8: ["/dev/dri/card0"],
    }.items():
        (root / f"proc/{process}/fd").mkdir(parents=True)
        for number, target in enumerate(targets):
            (root / f"proc/{process}/fd/{number}").symlink_to(target)

    def look_around() -> None:
        for process in os.listdir(root / "proc"):
            for number in os.listdir(root / "proc" / process / "fd"):
                os.readlink(root / "proc" / process / "fd" / number)

    tree = copied(root, look_around)
    assert "proc/7" not in tree
    assert tree["proc/8/fd/0"] == Entry("link", target="/dev/dri/card0")
    assert "thesis" not in dump(tree)


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LARGEST_FILE", 100)
    monkeypatch.setattr(places, "LARGEST_TREE", 150)
    monkeypatch.setattr(places, "MOST_ENTRIES", 6)
    root = tmp_path / "root"
    files = [
        write(root, f"sys/x/{name}", bytes(size))
        for name, size in {"a": 101, "b": 90, "c": 61}.items()
    ]
    files.append(write(root, "sys/x/d", b"1"))
    files.append(write(root, "sys/x/e", b"1"))
    copy = Copy(root)
    with watching(copy.look):
        for file in files:
            file.read_bytes()
    tree = copy.finished()
    assert {path: entry.data and len(entry.data) for path, entry in tree.items()} == {
        "sys": None,
        "sys/x": None,
        "sys/x/a": None,
        "sys/x/b": 90,
        "sys/x/c": None,
        "sys/x/d": 1,
    }
    assert copy.left_out == {
        "/sys/x/a": "too large",
        "/sys/x/c": "the recording is full",
        "/sys/x/e": "the recording is full",
    }


def test_devices_and_pipes_are_not_opened(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sys/x").mkdir(parents=True)
    os.mkfifo(root / "sys/x/pipe")

    def open_pipe() -> None:
        os.close(os.open(root / "sys/x/pipe", os.O_RDONLY | os.O_NONBLOCK))

    assert copied(root, open_pipe)["sys/x/pipe"] == Entry("file")
    assert "dev/null" in copied(Path("/"), lambda: os.stat("/dev/null"))


def test_a_recording_cannot_write_outside_its_root(tmp_path: Path) -> None:
    for path in ("../x", "/x", "sys/../../x"):
        with pytest.raises(ValueError, match="leads out of its root"):
            materialise({path: Entry("file", b"")}, tmp_path / "root")
    tree = {"sys": Entry("link", target=str(tmp_path)), "sys/x": Entry("file", b"")}
    with pytest.raises(ValueError, match="leads out of its root"):
        materialise(tree, tmp_path / "root")
    assert not list(tmp_path.iterdir())
