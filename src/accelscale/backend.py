"""The contract between accelscale and one vendor's hardware.

A backend is a class: the plugin registers it, accelscale makes one instance per process and calls
it from one thread at a time, with one exception that `Backend.isolates_devices` describes.
Everything a backend promises is checked by `accelscale.testing.BackendConformance`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

from attrs import frozen

from accelscale.metrics import Metric, Tier
from accelscale.model import Device, Reading


@frozen
class Attempt:
    """One call that was tried: its result in words, and how long it took."""

    call: str
    result: str
    ok: bool
    seconds: float
    device_id: str | None = None


@frozen
class Probe:
    """Whether a backend can be opened here.

    ``reason`` says why in a sentence that a user can act on, also when ``viable`` is true (then it
    names what was found). ``version`` is that of the vendor's library or driver.
    """

    viable: bool
    reason: str
    version: str | None = None
    attempts: tuple[Attempt, ...] = ()


class Backend(ABC):
    """Reads the devices of one vendor.

    The module that defines a backend imports no vendor library and does no I/O at import; `probe`
    is the first to touch either.
    """

    name: ClassVar[str]
    """Short and unique, lower case: what ``--backend`` takes."""

    vendor: ClassVar[str]
    """Whose hardware it is, lower case: what the trigger key ``vendor`` matches."""

    metrics: ClassVar[Mapping[str, Tier]]
    """The metrics that `read` can give on some hardware, and how costly each is. Metrics that
    `accelscale.derive` computes from these are not listed, but for a rate that some hardware
    measures itself: it stands where no counter gives it."""

    extra_metrics: ClassVar[tuple[Metric, ...]] = ()
    """Rows for metrics that the common table lacks; their names start with the backend's name and
    an underscore, a hyphen in the name written as one too."""

    on_request_only: ClassVar[bool] = False
    """True for a backend that is never chosen by itself, only by its name."""

    isolates_devices: ClassVar[bool] = False
    """True if another thread may read the remaining devices while a call for one device hangs.
    The hung thread then stays inside that call, and no other touches that device until it ends."""

    @abstractmethod
    def probe(self) -> Probe:
        """Look whether this backend can be opened here, for people to read.

        Never raises; leaves nothing open. The collector does not ask it: it opens, and tries again
        later where that fails.
        """

    @abstractmethod
    def open(self) -> None:
        """Start to use the driver. Opening twice is harmless.

        Raises:
            BackendError: with a reason; the caller tries again later.
        """

    @abstractmethod
    def devices(self) -> Sequence[Device]:
        """The devices there are now, lost ones included, in a stable order.

        Looks afresh each time: a card that came back or a card that was re-partitioned shows here.
        Called every few seconds, not every interval.

        Raises:
            BackendError: the driver as a whole does not answer.
        """

    @abstractmethod
    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        """Read these metrics of these devices: one `Reading` per device, in the order given.

        Lazily: each step of the iterator touches one device and no other, so that a call that hangs
        can be told to be that device's. Every metric asked for ends as a `Sample` or a `Failure` of
        its device; one failing device or metric spoils no other. Values are in the unit of the
        metrics table; times are `time.monotonic` at the call. Counters are given raw, as totals.

        Raises:
            BackendError: the driver as a whole does not answer.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. Harmless when never opened or called twice."""

    def release(self) -> None:
        """Let go of the driver so that it can be unloaded or a card reset; `open` takes it."""
        self.close()

    def diagnose(self) -> Iterator[Attempt]:
        """Open, list and read each metric by itself, timed, for ``accelscale doctor``.

        Never raises; a backend that knows its single driver calls overrides this. Must be the
        only user of the instance meanwhile.
        """
        devices: Sequence[Device] = ()
        try:
            started = time.perf_counter()
            self.open()
            yield Attempt("open", "opened", True, time.perf_counter() - started)
            started = time.perf_counter()
            devices = self.devices()
            yield Attempt("devices", f"{len(devices)} found", True, time.perf_counter() - started)
            for device in devices:
                for metric in self.metrics:
                    started = time.perf_counter()
                    (reading,) = self.read([device], [metric])
                    seconds = time.perf_counter() - started
                    for sample in reading.samples:
                        yield Attempt(metric, f"{sample.value:g}", True, seconds, device.id)
                    for failure in reading.failures:
                        text = f"{failure.reason}: {failure.detail}".rstrip(": ")
                        yield Attempt(metric, text, False, seconds, device.id)
        except Exception as error:  # noqa: BLE001 - a broken backend is what doctor is there to describe
            yield Attempt("backend", f"{type(error).__name__}: {error}", False, 0.0)
        finally:
            self.close()

    # What Kubernetes calls these devices. Data alone: no cluster is asked.

    def owns_resource(self, resource: str) -> bool:
        """Whether a Kubernetes extended resource (``nvidia.com/gpu``) is made of these devices."""
        return False

    def device_of(self, allocated_id: str, devices: Sequence[Device]) -> Device | None:
        """The device that the kubelet means by ``allocated_id``, or None: the exact id."""
        return next((device for device in devices if device.id == allocated_id), None)
