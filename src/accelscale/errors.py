"""The exceptions of accelscale, split by what the caller does next.

::

    AccelscaleError
    ├── ConfigurationError   change what you wrote: a trigger's metadata, a flag
    ├── NotFoundError        name something that exists: a metric, a device, a scale target
    ├── UnsupportedError     use another metric or device: this one can never answer
    ├── ForbiddenError       ask for the right to see it
    ├── NoDataError          wait and ask again: there is no fresh reading at this moment
    └── BackendError         look at the machine: a driver, its library or a plugin failed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from accelscale.model import Reason


class AccelscaleError(Exception):
    """The root: ``except AccelscaleError`` catches everything this library raises on purpose."""


@frozen
class Fault:
    """One thing wrong with what the user wrote.

    ``key`` and ``value`` are as the user spelt them; ``problem`` says what is allowed instead.
    """

    key: str
    value: str | None
    problem: str

    def __str__(self) -> str:
        key = self.key if self.key.isprintable() else repr(self.key)
        if self.value is None:
            return f"{key}: {self.problem}"
        return f"{key}={self.value!r}: {self.problem}"


class ConfigurationError(AccelscaleError):
    """What the user wrote cannot be accepted; ``faults`` holds every fault, not just the first."""

    def __init__(self, faults: Iterable[Fault], *, subject: str = "trigger metadata") -> None:
        self.faults = tuple(faults)
        self.subject = subject
        super().__init__(f"{subject}: " + "; ".join(str(fault) for fault in self.faults))


class NotFoundError(AccelscaleError):
    """A name that does not exist; the message lists the names that do."""


class UnsupportedError(AccelscaleError):
    """Waiting will not help: the hardware never has this metric, or the number cannot be expressed.

    ``reason`` is `Reason.NOT_SUPPORTED`, or `Reason.OUT_OF_RANGE` for a value that the HPA could
    not carry.
    """

    def __init__(self, message: str, *, reason: Reason | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class ForbiddenError(AccelscaleError):
    """The caller may not see what it asked about."""


class NoDataError(AccelscaleError):
    """No fresh reading at this moment.

    ``reason`` is the most telling of the reasons of the missing samples. Never answer a number
    in place of this error: an absent reading is not an idle device.
    """

    def __init__(self, message: str, *, reason: Reason | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class BackendError(AccelscaleError):
    """A driver, its library or a plugin failed.

    ``reason`` classifies the failure, ``code`` is the vendor's own number where it gave one, and
    ``needs_restart`` says that only a new process can heal it (a replaced driver stays mapped in
    the old one). The vendor's exception is chained as ``__cause__``.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: Reason | None = None,
        code: int | None = None,
        needs_restart: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code
        self.needs_restart = needs_restart
