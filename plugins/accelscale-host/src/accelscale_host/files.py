"""Numbers and words from the small files of ``/proc`` and ``/sys``; why there is none, if so."""

from __future__ import annotations

from pathlib import Path

from accelscale.model import Reason


class UnreadableError(Exception):
    """There is no reading: what a `Failure` needs to say so."""

    def __init__(self, reason: Reason, detail: str, *, permanent: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.permanent = permanent


def read_text(path: Path) -> str:
    """The text of a file, without the space around it.

    Raises:
        UnreadableError: the file is absent, not permitted, or its driver refuses.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError as error:
        raise UnreadableError(Reason.NOT_SUPPORTED, f"there is no {path}") from error
    except PermissionError as error:
        raise UnreadableError(Reason.PERMISSION, f"{path} may not be read") from error
    except OSError as error:  # a sensor that is asleep or has no valid value answers so
        raise UnreadableError(Reason.ERROR, f"{path}: {error.strerror or error}") from error


def read_integer(path: Path) -> int:
    """The number that is all of a file.

    Raises:
        UnreadableError: as `read_text`, or what it holds is no number.
    """
    text = read_text(path)
    try:
        return int(text)
    except ValueError as error:
        detail = f"{path} holds {text[:40]!r}, which is no whole number"
        raise UnreadableError(Reason.ERROR, detail) from error
