"""Numbers, words and bytes from the files of amdgpu; why there is none, if so.

amdgpu answers EPERM, which elsewhere means a missing privilege, while a card is being reset or
sleeps; its files are readable by everybody, so a missing privilege shows as EACCES.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from accelscale.model import Reason

_REASONS: Mapping[int, tuple[Reason, str]] = {
    errno.EACCES: (
        Reason.PERMISSION,
        (
            "this process may not read it, though amdgpu lets everybody: look for a security"
            " profile of the container, or grant the capability DAC_READ_SEARCH"
        ),
    ),
    errno.EPERM: (
        Reason.ERROR,
        "amdgpu does not let it be read now, as while the card is being reset or falls asleep",
    ),
    errno.ENODEV: (Reason.LOST, "the card is gone"),
    errno.ENXIO: (Reason.LOST, "the card is gone"),
    errno.EOPNOTSUPP: (Reason.NOT_SUPPORTED, "amdgpu has the file, but this card lacks the sensor"),
    errno.EINVAL: (Reason.NOT_SUPPORTED, "amdgpu has the file, but this card lacks the sensor"),
    errno.ETIME: (Reason.TIMEOUT, "the card did not answer in time"),
    errno.ETIMEDOUT: (Reason.TIMEOUT, "the card did not answer in time"),
    errno.EBUSY: (Reason.TIMEOUT, "the card is busy"),
}


class UnreadableError(Exception):
    """There is no reading: what a `Failure` needs to say so.

    Never leaves this package. ``code`` is the error number of the kernel or of amdsmi.
    """

    def __init__(
        self, reason: Reason, detail: str, *, code: int | None = None, permanent: bool = False
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.code = code
        self.permanent = permanent


def read_bytes(path: Path) -> bytes:
    """All of a file.

    Raises:
        UnreadableError: it is absent, not permitted, or its driver refuses.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def read_text(path: Path) -> str:
    """The text of a file, without the space around it. Raises as `read_bytes`."""
    return read_bytes(path).decode("utf-8", "replace").strip()


def read_integer(path: Path) -> int:
    """The number that is all of a file.

    Raises:
        UnreadableError: as `read_bytes`, or what it holds is no number.
    """
    text = read_text(path)
    try:
        return int(text)
    except ValueError as error:
        detail = f"{path} holds {text[:40]!r}, which is no whole number"
        raise UnreadableError(Reason.ERROR, detail) from error


def text_or_none(path: Path) -> str | None:
    """The text of a file, or None where there is none or it is empty."""
    try:
        return read_text(path) or None
    except UnreadableError:
        return None


def _unreadable(path: Path, error: OSError) -> UnreadableError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return UnreadableError(
            Reason.NOT_SUPPORTED, f"there is no {path}", permanent=_belongs_to_a_card(path)
        )
    reason, words = _REASONS.get(error.errno or 0, (Reason.ERROR, error.strerror or str(error)))
    return UnreadableError(reason, f"{path}: {words}", code=error.errno)


def _belongs_to_a_card(path: Path) -> bool:
    """Whether amdgpu drives the card, so that it never has what it does not show now.

    While the driver is being unloaded its files go first, and that says nothing of the card.
    """
    return any((folder / "drm").is_dir() for folder in path.parents[:3])
