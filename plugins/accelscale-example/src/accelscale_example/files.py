"""Numbers and words from the driver's files; why there is none, if so."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from accelscale.model import Reason

_REASONS: Mapping[int, tuple[Reason, str]] = {
    errno.ENOENT: (Reason.NOT_SUPPORTED, "this card has no such file"),
    # What is missing is said, and what to do about it.
    errno.EACCES: (Reason.PERMISSION, "may not be read: run as root, or grant CAP_DAC_READ_SEARCH"),
    errno.ENODEV: (Reason.LOST, "the card is gone"),
    errno.ETIMEDOUT: (Reason.TIMEOUT, "the card did not answer in time"),
}


class UnreadableError(Exception):
    """There is no reading: what a `Failure` needs to say so. Never leaves this package."""

    def __init__(
        self, reason: Reason, detail: str, *, code: int | None = None, permanent: bool = False
    ) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.code = code
        self.permanent = permanent


def read_text(path: Path) -> str:
    """The text of a file, without the space around it.

    Raises:
        UnreadableError: it is absent, not permitted, or its driver refuses.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        number = error.errno or 0
        reason, words = _REASONS.get(number, (Reason.ERROR, error.strerror or str(error)))
        raise UnreadableError(reason, f"{path}: {words}", code=number) from error


def read_number(path: Path, scale: float = 1.0) -> float:
    """The number that is all of a file, times ``scale``.

    Raises:
        UnreadableError: as `read_text`, or what it holds is no number. ``N/A`` is what the driver
            writes while a sensor has no value; it is neither 0 nor the value of before.
    """
    text = read_text(path)
    if text == "N/A":
        raise UnreadableError(Reason.ERROR, f"{path}: the sensor has no value at present")
    try:
        return int(text) * scale
    except ValueError as error:
        detail = f"{path} holds {text[:40]!r}, which is no whole number"
        raise UnreadableError(Reason.ERROR, detail) from error


def text_or_none(path: Path) -> str | None:
    """The text of a file that may be missing, for names and notes."""
    try:
        return read_text(path) or None
    except UnreadableError:
        return None
