"""Small files of ``/proc`` and ``/sys``, and why one of them gives no reading."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from accelscale.model import Reason

_REASONS: Mapping[int, Reason] = MappingProxyType(
    {
        errno.ENOENT: Reason.NOT_SUPPORTED,
        errno.ENOTDIR: Reason.NOT_SUPPORTED,
        errno.EOPNOTSUPP: Reason.NOT_SUPPORTED,
        errno.EACCES: Reason.PERMISSION,
        errno.EPERM: Reason.PERMISSION,
        errno.ETIMEDOUT: Reason.TIMEOUT,
    }
)


class UnreadableError(Exception):
    """There is no reading; what a `Failure` needs to say so.

    Never leaves this package: the backend makes a `Failure` or a `BackendError` of it.
    """

    def __init__(
        self, reason: Reason, detail: str, *, code: int | None = None, permanent: bool = False
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.code = code
        self.permanent = permanent


def text_of(path: Path) -> str:
    """The text of a file, without the space around it.

    Raises:
        UnreadableError: the file is absent, not permitted, or its driver refuses.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise unreadable(error, path) from error


def unreadable(error: OSError, path: Path | None = None) -> UnreadableError:
    """What an error of the operating system means to us."""
    reason = _REASONS.get(error.errno or 0, Reason.ERROR)
    where = path or error.filename or "the operating system"
    return UnreadableError(reason, f"{where}: {error.strerror or error}", code=error.errno)


def whole_number_of(path: Path) -> int:
    """The number that is all of a file.

    Raises:
        UnreadableError: as `text_of`, or what it holds is no number.
    """
    text = text_of(path)
    if not text.removeprefix("-").isdecimal() or not text.isascii():
        detail = f"{path} holds {text[:40]!r}, which is no whole number"
        raise UnreadableError(Reason.ERROR, detail)
    return int(text)
