"""A piece of a file system as data: one JSON object, from which the files can be made again.

One file of text, because a version control system keeps neither empty folders nor refused reads,
and because its owner should be able to look through it before giving it away.
"""

from __future__ import annotations

import base64
import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias

from attrs import frozen

from accelscale.testing.recording.watch import Access, watching

Kind: TypeAlias = Literal["folder", "link", "file", "hidden"]


@frozen
class Entry:
    """What is at one path.

    ``data`` is what a file held, or None where nobody read it: then it is empty when made again.
    ``target`` is the text of a link. ``error`` is the error number that opening a file, listing a
    folder or following a link gives; of something hidden, every access gives it.
    """

    kind: Kind
    data: bytes | None = None
    target: str = ""
    error: int | None = None

    def record(self) -> dict[str, Any]:
        """Its form in JSON."""
        found: dict[str, Any] = {"is": self.kind}
        if self.kind == "link":
            found["to"] = self.target
        if self.data is not None:
            text = as_text(self.data)
            if text is None:
                found["base64"] = base64.b64encode(self.data).decode("ascii")
            else:
                found["text"] = text
        if self.error is not None:
            found["error"] = errno.errorcode.get(self.error, self.error)
        return found

    @classmethod
    def parsed(cls, record: Mapping[str, Any]) -> Entry:
        """The entry of which this is the form in JSON."""
        data = record["text"].encode() if "text" in record else None
        if "base64" in record:
            data = base64.b64decode(record["base64"])
        error = record.get("error")
        if isinstance(error, str):
            error = getattr(errno, error)
        return cls(record["is"], data, record.get("to", ""), error)


def as_text(data: bytes) -> str | None:
    """The data as text, or None where it is binary."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if set(text) & _BINARY else text


_BINARY = {chr(code) for code in range(32)} - set("\t\n\r\f\v")

Tree: TypeAlias = Mapping[str, Entry]
"""Entries by their path below the root, without a slash at its beginning."""


def dump(tree: Tree) -> str:
    """The tree as JSON, an entry to a line."""
    lines = (f"{json.dumps(path)}: {json.dumps(tree[path].record())}" for path in sorted(tree))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load(text: str) -> dict[str, Entry]:
    """The tree of which this is the JSON."""
    return {path: Entry.parsed(record) for path, record in json.loads(text).items()}


def materialise(tree: Tree, root: Path) -> None:
    """Make the files below ``root``, which is empty.

    Raises:
        ValueError: a path leads out of the root, as no recording does.
    """
    for path in tree:
        above = [str(folder) for folder in PurePosixPath(path).parents]
        through_a_link = any(tree[folder].kind != "folder" for folder in above if folder in tree)
        if ".." in PurePosixPath(path).parts or path.startswith("/") or through_a_link:
            raise ValueError(f"the recorded path {path!r} leads out of its root")
    for path in sorted(tree, key=lambda path: path.count("/")):
        entry, place = tree[path], root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "folder":
            place.mkdir(exist_ok=True)
        elif entry.kind == "link":
            place.symlink_to(_link_text(tree, path, entry.target))
        else:
            place.write_bytes(entry.data or b"")


def _link_text(tree: Tree, path: str, target: str) -> str:
    """A link to a recorded path becomes relative, so that it leads to the copy."""
    if target.startswith("/") and target.lstrip("/") in tree:
        return os.path.relpath(target, f"/{PurePosixPath(path).parent}")
    return target


@contextmanager
def refusing(tree: Tree, root: Path) -> Iterator[None]:
    """Give the recorded errors, in the kernel's place, to whoever reads the files below ``root``.

    A file of the copy has no way to answer that a sensor is absent, and a process of root is
    refused nothing.
    """
    home = root.resolve()
    refused = {f"{home}/{path}": entry for path, entry in tree.items() if entry.error is not None}

    def answer(access: Access, path: str) -> None:
        if not refused or not path.startswith((f"{home}/", f"{root}/")):
            return
        # The links on the way are the copy's own, so they are followed as the kernel would.
        folder, _, name = path.rpartition("/")
        entry = refused.get(f"{os.path.realpath(folder)}/{name}")
        if entry is None and access is not Access.FOLLOW:
            entry = refused.get(os.path.realpath(path))
        if entry is None or entry.error is None:
            return
        if entry.kind == "hidden" or access is not Access.LOOK:
            raise OSError(entry.error, os.strerror(entry.error), path)

    with watching(answer):
        yield
