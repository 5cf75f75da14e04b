"""Sees every file that this process looks at, and can refuse it in the kernel's place.

Opening a file and listing a folder announce themselves to `sys.addaudithook`; asking for a file's
status or for what a link points to does not, so these functions of `os` are wrapped meanwhile. A
plugin needs no change for either. What a library in C or another process does stays unseen.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeAlias


class Access(StrEnum):
    """What is done to a path."""

    OPEN = "open"  # to read it
    WRITE = "write"
    LIST = "list"
    FOLLOW = "follow"  # what does this link point to
    LOOK = "look"  # is it there, of which kind


Watcher: TypeAlias = Callable[[Access, str], None]
"""Called before each access with an absolute path; an `OSError` that it raises is the answer."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LISTING = frozenset({"os.listdir", "os.scandir"})
_WRAPPED = {
    "stat": Access.LOOK,
    "lstat": Access.LOOK,
    "access": Access.LOOK,
    "readlink": Access.FOLLOW,
}

_changing = threading.Lock()
_watchers: tuple[Watcher, ...] = ()
_originals: dict[str, Any] = {}
_inside = threading.local()  # what a watcher itself does is not told to watchers
_is_hooked = False  # an audit hook stays for the life of the process


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Tell ``watcher`` of every access that any thread of this process makes meanwhile."""
    _start(watcher)
    try:
        yield
    finally:
        _stop(watcher)


def _start(watcher: Watcher) -> None:
    global _is_hooked, _watchers  # noqa: PLW0603 - the interpreter has one list of audit hooks
    with _changing:
        if not _is_hooked:
            sys.addaudithook(_hear)
            _is_hooked = True
        if not _watchers:
            for name, access in _WRAPPED.items():
                _originals[name] = getattr(os, name)
                setattr(os, name, _telling(_originals[name], access))
        _watchers = (*_watchers, watcher)


def _stop(watcher: Watcher) -> None:
    global _watchers  # noqa: PLW0603 - as above
    with _changing:
        _watchers = tuple(other for other in _watchers if other is not watcher)
        if not _watchers:
            for name, original in _originals.items():
                setattr(os, name, original)
            _originals.clear()


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watchers:
        return
    if event == "open":
        path, _, flags = arguments
        _tell(Access.WRITE if (flags or 0) & _WRITING else Access.OPEN, path)
    elif event in _LISTING:
        _tell(Access.LIST, arguments[0] if arguments[0] is not None else ".")


def _telling(original: Callable[..., Any], access: Access) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(path: Any, *arguments: Any, **options: Any) -> Any:
        if options.get("dir_fd") is None:
            _tell(access, path)
        return original(path, *arguments, **options)

    return call


def _tell(access: Access, path: Any) -> None:
    if not isinstance(path, str | bytes | os.PathLike) or getattr(_inside, "watcher", False):
        return
    text = os.fsdecode(path)
    if not text.startswith("/"):
        text = f"{os.getcwd()}/{text}"  # noqa: PTH109 - `Path.cwd` would come back here
    _inside.watcher = True
    try:
        for watcher in _watchers:
            watcher(access, text)
    finally:
        _inside.watcher = False
