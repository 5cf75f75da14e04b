"""Words and numbers from the small files of ``/sys``; why there is none, if so."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from accelscale.model import Reason


@frozen
class Absent:
    """Why there is no value, as a `Failure` says it. Kept where an exception must not be."""

    reason: Reason
    detail: str
    permanent: bool = False


class UnreadableError(Exception):
    """There is no reading; ``absent`` says why."""

    def __init__(self, reason: Reason, detail: str, *, permanent: bool = False) -> None:
        super().__init__(detail)
        self.absent = Absent(reason, detail, permanent)


def read_text(path: Path) -> str:
    """The text of a file, without the space around it.

    Raises:
        UnreadableError: the file is absent, not permitted, or its driver refuses.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError as error:
        raise UnreadableError(Reason.LOST, f"{path} is gone") from error
    except PermissionError as error:
        detail = f"{path} may not be read: run as root, or open the file to a group"
        raise UnreadableError(Reason.PERMISSION, detail) from error
    except OSError as error:  # a sensor that has no valid value answers so
        raise UnreadableError(Reason.ERROR, f"{path}: {error.strerror}") from error


def text_or_empty(path: Path) -> str:
    """The text of a file that may be missing, for names and labels."""
    try:
        return read_text(path)
    except UnreadableError:
        return ""


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


def entries(folder: Path) -> list[Path]:
    """What a folder holds, in order; nothing where there is no such folder."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def link_target_name(link: Path) -> str:
    """The last part of what a link points to, such as the driver of a device; or nothing."""
    try:
        return link.readlink().name
    except OSError:
        return ""
