"""Copies what a backend looks at, while it looks: files, folders, links, and refusals."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from accelscale.testing.recording import places
from accelscale.testing.recording.tree import Entry
from accelscale.testing.recording.watch import Access

_MOST_LINKS = 40  # on one path, as the kernel has it
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESRCH})
_DEVICE_FILE = re.compile(
    r"/dev/(?!null$|zero$|urandom$|random$|pts/|tty|ptmx$|shm/).+|pid:\[\d+\]"
)
_PROCESS = re.compile(r"proc/\d+")
_MOST_LEFT_OUT = 200


class Copy:
    """The part of the file system below ``root`` that was looked at, as far as it may be recorded.

    Give `look` to `accelscale.testing.recording.watch.watching`. Nothing is opened that the backend
    does not open, except that each file is read once more, just before it is; so a sleeping card is
    not woken, and a file that blocks is not read, unless the backend does so.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root).rstrip("/")
        self._copying = threading.RLock()
        self._entries: dict[str, Entry] = {}
        self._size = 0
        self._reading: dict[int, str] = {}
        self.left_out: dict[str, str] = {}

    def look(self, access: Access, path: str) -> None:
        """Note one access; never raises."""
        if access is Access.WRITE:
            return
        if not f"{path}/".startswith(f"{self._root}/"):
            self._left_out_elsewhere(access, path)
            return
        parts = [part for part in path[len(self._root) :].split("/") if part not in {"", "."}]
        known = bool(parts) and parts[0] in {"sys", "proc", "dev"}  # there, links lead elsewhere
        if not known and not places.is_held("/".join(parts)):
            self._left_out_elsewhere(access, path)
            return
        with self._copying:
            found = self._resolve(parts, follow=access is not Access.FOLLOW)
        if found is None or access in {Access.LOOK, Access.FOLLOW}:
            return
        entry = self._entries[found]
        if entry.kind == "file" and access is Access.OPEN:
            self._copy_file(found)
        elif entry.kind == "folder" and access is Access.LIST:
            self._copy_names(found)

    def finished(self) -> dict[str, Entry]:
        """All entries; a file that is being read still counts as one that did not answer."""
        with self._copying:
            entries = dict(self._entries)
            for path in self._reading.values():
                entries[path] = Entry("file", error=errno.ETIMEDOUT)
        return dict(_without_idle_processes(entries))

    def _resolve(self, parts: list[str], *, follow: bool) -> str | None:
        """Record all that is on this path; gives where it leads, or None where it leads nowhere."""
        done: list[str] = []
        ahead = parts[::-1]
        links = 0
        while ahead:
            part = ahead.pop()
            if part == "..":
                done = done[:-1]
                continue
            path = "/".join([*done, part])
            entry = self._entries.get(path) or self._copy_name(path)
            if entry is None or entry.kind == "hidden":
                return None
            if entry.kind != "link" or not (ahead or follow):
                done.append(part)
                continue
            links += 1
            if links > _MOST_LINKS or entry.error is not None:
                return None
            if entry.target.startswith("/"):
                if not f"{entry.target}/".startswith(f"{self._root}/"):
                    return None
                done = []
            target = entry.target.removeprefix(self._root)
            ahead += [part for part in target.split("/")[::-1] if part not in {"", "."}]
        path = "/".join(done)
        return path if path in self._entries else None

    def _copy_name(self, path: str) -> Entry | None:
        """Record that there is something at this path, of which kind, and where a link leads."""
        if not places.is_held(path):
            self._leave_out(
                f"/{path}", places.why_refused(path) or "not one of the places recorded"
            )
            return None
        if len(self._entries) >= places.MOST_ENTRIES:
            self._leave_out(f"/{path}", "the recording is full")
            return None
        entry = self._entry(path)
        if entry is not None:
            self._entries[path] = entry
        return entry

    def _entry(self, path: str) -> Entry | None:
        place = f"{self._root}/{path}"
        try:
            mode = os.lstat(place).st_mode
        except OSError as error:
            return None if error.errno in _GONE else Entry("hidden", error=error.errno)
        if stat.S_ISDIR(mode):
            return Entry("folder")
        if not stat.S_ISLNK(mode):
            return Entry("file")
        try:
            target = os.readlink(place)  # noqa: PTH115 - what /proc shows here is no path
        except OSError as error:
            return Entry("link", target="unreadable", error=error.errno)
        if _PROCESS.match(path) and not _DEVICE_FILE.fullmatch(target):
            return None  # what a process has open besides is nobody's business
        return Entry("link", target=target)

    def _copy_file(self, path: str) -> None:
        if _refuses_to_copy(f"{self._root}/{path}"):
            return
        with self._copying:
            self._reading[threading.get_ident()] = path
        entry = self._read(path)
        with self._copying:
            del self._reading[threading.get_ident()]
            before = self._entries[path].data or b""
            size = self._size + len(entry.data or b"") - len(before)
            if size > places.LARGEST_TREE:
                self._leave_out(f"/{path}", "the recording is full")
                return
            self._size = size
            self._entries[path] = entry

    def _read(self, path: str) -> Entry:
        try:
            with Path(f"{self._root}/{path}").open("rb", buffering=0) as stream:
                data = bytearray()
                while chunk := stream.read(places.LARGEST_FILE + 1 - len(data)):
                    data += chunk
        except OSError as error:
            return Entry("file", error=error.errno)
        if len(data) > places.LARGEST_FILE:
            self._leave_out(f"/{path}", "too large")
            return Entry("file")
        return Entry("file", bytes(data))

    def _copy_names(self, path: str) -> None:
        try:
            names = os.listdir(f"{self._root}/{path}")  # noqa: PTH208 - names alone
        except OSError as error:
            self._entries[path] = Entry("folder", error=error.errno)
            return
        with self._copying:
            for name in names:
                child = f"{path}/{name}"
                if child in self._entries or (path == "proc" and name.isdecimal()):
                    continue  # a process counts when it is looked into
                if path == "dev" and not _is_device(f"{self._root}/{child}"):
                    continue
                if places.is_held(child):
                    self._copy_name(child)

    def _left_out_elsewhere(self, access: Access, path: str) -> None:
        """Name what was read in places that are not recorded, but not what Python itself reads."""
        own = (*sys.path, sys.prefix, sys.base_prefix, tempfile.gettempdir(), "/dev", self._root)
        ours = any(f"{path}/".startswith(f"{folder.rstrip('/')}/") for folder in own if folder)
        if access in {Access.OPEN, Access.LIST} and not ours:
            self._leave_out(path, "not one of the places recorded")

    def _leave_out(self, path: str, why: str) -> None:
        if len(self.left_out) < _MOST_LEFT_OUT:
            self.left_out.setdefault(path, why)


def _is_device(place: str) -> bool:
    try:
        mode = os.lstat(place).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISDIR(mode)


def _refuses_to_copy(place: str) -> bool:
    """Whether this is no plain file: to open a device may wake it, and a pipe would block."""
    try:
        return not stat.S_ISREG(os.lstat(place).st_mode)
    except OSError:
        return False


def _without_idle_processes(entries: dict[str, Entry]) -> Iterator[tuple[str, Entry]]:
    """All entries but those of processes of which nothing was read."""
    telling = {
        match[0]
        for path, entry in entries.items()
        if (match := _PROCESS.match(path))
        and (entry.data is not None or entry.error is not None or entry.kind == "link")
    }
    for path, entry in entries.items():
        match = _PROCESS.match(path)
        if match is None or match[0] in telling:
            yield path, entry
