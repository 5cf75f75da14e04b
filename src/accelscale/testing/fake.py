"""A backend without hardware, whose state a test changes while it runs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from attrs import evolve

from accelscale.backend import Backend, Probe
from accelscale.errors import BackendError
from accelscale.metrics import METRICS, Metric, Tier
from accelscale.model import Device, Failure, Reading, Reason, Sample

Value: TypeAlias = float | Callable[[float], float]
"""A number, or a function from the time of the reading to one."""

_DRIVER = ""  # stands where a device id would: the driver as a whole hangs


class FakeBackend(Backend):
    """Devices in memory: values, failures, lost cards, hangs and broken calls at will.

    >>> fake = FakeBackend({"fake-0": {"utilization_percent": 30.0}})
    >>> fake.set("fake-0", "utilization_percent", 80.0)

    ``devices`` maps each id to its readings. A value is a number, or a function of the time of the
    reading (a counter that runs by itself: ``lambda now: 300 * now``). A metric without a value is
    not supported by that device. As a real driver does, it refuses to be read before it is opened.

    Two fakes live in one process by different names. Every method may be called from any thread.
    Where a class is asked for, as by the registry, `as_class` gives one that stands for this
    instance.
    """

    name = "fake"
    vendor = "fake"
    metrics = {row.name: Tier.FAST for row in METRICS.values() if row.derivation is None}  # noqa: RUF012 - replaced, never changed
    isolates_devices = True

    def __init__(
        self,
        devices: Mapping[str, Mapping[str, Value]] | None = None,
        *,
        name: str | None = None,
        vendor: str | None = None,
        tiers: Mapping[str, Tier] | None = None,
        extra_metrics: Iterable[Metric] = (),
        isolates_devices: bool = True,
        on_request_only: bool = False,
        latency_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``tiers`` changes the tier of some metrics; ``latency_seconds`` delays each device."""
        kind = type(self)
        extra = (*kind.extra_metrics, *extra_metrics)
        # The contract has these on the class; an instance that differs shadows them.
        vars(self).update(
            name=name or kind.name,
            vendor=vendor or name or kind.vendor,
            metrics={**kind.metrics, **{row.name: Tier.FAST for row in extra}, **(tiers or {})},
            extra_metrics=extra,
            isolates_devices=isolates_devices,
            on_request_only=on_request_only,
        )
        self.latency_seconds = latency_seconds
        self._clock = clock
        self._changing = threading.RLock()
        self._devices: dict[str, Device] = {}
        self._values: dict[tuple[str, str], Value | Failure] = {}
        self._hung: dict[str, threading.Event] = {}
        self._waiting: Counter[str] = Counter()
        self._errors: dict[str, BackendError] = {}
        self._why_not = ""
        self._calls: Counter[str] = Counter()
        self._reads: Counter[tuple[str, str]] = Counter()
        self._open = False
        for device_id, values in (devices or {}).items():
            self.add(device_id, values)

    # What a test does to the devices.

    def add(
        self,
        device_id: str,
        values: Mapping[str, Value] | None = None,
        *,
        name: str = "",
        parent: str | None = None,
        pci_address: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Add a device, or replace the one of that id, with these values."""
        with self._changing:
            self.remove(device_id)
            self._devices[device_id] = Device(
                id=device_id,
                name=name or f"Fake {device_id}",
                vendor=self.vendor,
                backend=self.name,
                parent=parent,
                pci_address=pci_address,
                attributes=attributes or {},
            )
            for metric, value in (values or {}).items():
                self.set(device_id, metric, value)

    def remove(self, device_id: str) -> None:
        """Take a device away, as a re-partitioned card is: it is listed no more."""
        with self._changing:
            self._devices.pop(device_id, None)
            for key in [key for key in self._values if key[0] == device_id]:
                del self._values[key]

    def set(self, device_id: str, metric: str, value: Value) -> None:
        """Give a metric a value, in the unit of the metrics table; ends a failure."""
        with self._changing:
            self._values[self._known(device_id, metric)] = value

    def unset(self, device_id: str, metric: str) -> None:
        """Make a metric one that this device does not support."""
        with self._changing:
            self._values.pop(self._known(device_id, metric), None)

    def advance(self, device_id: str, metric: str, by: float) -> None:
        """Add to the value of a counter."""
        with self._changing:
            value = self._values.get(self._known(device_id, metric))
            if not isinstance(value, int | float):
                raise TypeError(f"{metric} of {device_id} is no number that could advance")
            self._values[device_id, metric] = value + by

    def fail(
        self,
        device_id: str,
        metric: str,
        reason: Reason,
        *,
        detail: str = "",
        code: int | None = None,
        permanent: bool = False,
    ) -> None:
        """Make a metric fail until it is set again."""
        text = detail or f"{metric} was made to fail: {reason}"
        failure = Failure(device_id, metric, reason, text, code=code, permanent=permanent)
        with self._changing:
            self._values[self._known(device_id, metric)] = failure

    def lose(self, device_id: str, reason: Reason = Reason.LOST, *, detail: str = "") -> None:
        """Make a device ill as a whole: it stays listed, and none of its metrics can be read."""
        with self._changing:
            self._devices[device_id] = evolve(
                self._devices[device_id],
                problem=reason,
                problem_detail=detail or f"{device_id} was made to fail: {reason}",
            )

    def restore(self, device_id: str) -> None:
        """Bring a lost device back, with the values it had."""
        with self._changing:
            self._devices[device_id] = evolve(
                self._devices[device_id], problem=None, problem_detail=""
            )

    def hang(self, device_id: str = _DRIVER) -> None:
        """Make reads of a device block until `unhang`; without an id, every call to the driver."""
        with self._changing:
            self._hung.setdefault(device_id, threading.Event())

    def unhang(self, device_id: str | None = None) -> None:
        """Let the calls go on that hang at this device; without an id, all that hang."""
        with self._changing:
            for key in [device_id] if device_id is not None else list(self._hung):
                gate = self._hung.pop(key, None)
                if gate is not None:
                    gate.set()

    # What a test does to the driver.

    def break_probe(self, reason: str) -> None:
        """Make `probe` say that this backend cannot be opened, and why; `open` then agrees."""
        self._why_not = reason
        self.break_open(BackendError(reason, reason=Reason.NOT_SUPPORTED))

    def break_open(self, error: BackendError) -> None:
        """Make `open` raise this until `mend`."""
        self._errors["open"] = error

    def break_devices(self, error: BackendError) -> None:
        """Make `devices` raise this until `mend`."""
        self._errors["devices"] = error

    def break_read(self, error: BackendError) -> None:
        """Make `read` raise this until `mend`."""
        self._errors["read"] = error

    def mend(self) -> None:
        """End what the ``break_`` methods began."""
        self._why_not = ""
        self._errors.clear()

    # What a test looks at.

    @property
    def is_open(self) -> bool:
        """Whether it was opened and not closed since."""
        return self._open

    @property
    def hanging(self) -> frozenset[str]:
        """The devices at which a call hangs now; the empty text stands for the driver."""
        with self._changing:
            return frozenset(self._waiting)

    @property
    def calls(self) -> Mapping[str, int]:
        """How often ``probe``, ``open``, ``devices``, ``read`` and ``close`` were called."""
        with self._changing:
            return Counter(self._calls)

    @property
    def reads(self) -> Mapping[tuple[str, str], int]:
        """How often each (device, metric) was read."""
        with self._changing:
            return Counter(self._reads)

    def as_class(self) -> type[Backend]:
        """A backend class whose every instance is this very object, for what takes classes."""
        fake = self

        class StandIn(type(self)):  # type: ignore[misc]
            name = fake.name
            vendor = fake.vendor
            metrics = fake.metrics
            extra_metrics = fake.extra_metrics
            on_request_only = fake.on_request_only
            isolates_devices = fake.isolates_devices

            def __new__(cls) -> FakeBackend:  # type: ignore[misc]
                return fake

        return StandIn

    # The contract.

    def probe(self) -> Probe:
        self._count("probe")
        if self._why_not:
            return Probe(viable=False, reason=self._why_not)
        return Probe(viable=True, reason=f"{len(self._devices)} fake devices", version="1.0")

    def open(self) -> None:
        self._enter("open")
        self._open = True

    def devices(self) -> Sequence[Device]:
        self._enter("devices")
        with self._changing:
            return tuple(self._devices.values())

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        self._enter("read")
        for device in devices:
            self._wait_while_hung(device.id)
            if self.latency_seconds:
                time.sleep(self.latency_seconds)
            yield self._reading(device.id, metrics)

    def close(self) -> None:
        self._count("close")
        self._open = False

    def owns_resource(self, resource: str) -> bool:
        """Whether it begins with ``VENDOR.example/``."""
        return resource.startswith(f"{self.vendor}.example/")

    def _count(self, call: str) -> None:
        with self._changing:
            self._calls[call] += 1

    def _enter(self, call: str) -> None:
        self._count(call)
        self._wait_while_hung(_DRIVER)
        error = self._errors.get(call)
        if error is not None:
            raise error
        if call != "open" and not self._open:
            raise BackendError(f"{self.name} is not open", reason=Reason.ERROR)

    def _wait_while_hung(self, device_id: str) -> None:
        with self._changing:
            gate = self._hung.get(device_id)
            if gate is None:
                return
            self._waiting[device_id] += 1
        gate.wait()
        with self._changing:
            self._waiting[device_id] -= 1
            self._waiting = +self._waiting  # drops what no call waits for

    def _reading(self, device_id: str, metrics: Collection[str]) -> Reading:
        now = self._clock()
        with self._changing:
            answers = [self._answer(device_id, metric, now) for metric in metrics]
        return Reading(
            device_id,
            samples=tuple(answer for answer in answers if isinstance(answer, Sample)),
            failures=tuple(answer for answer in answers if isinstance(answer, Failure)),
        )

    def _answer(self, device_id: str, metric: str, now: float) -> Sample | Failure:
        self._reads[device_id, metric] += 1
        device = self._devices.get(device_id)
        if device is None:
            return Failure(device_id, metric, Reason.LOST, f"{device_id} is not there", now)
        if device.problem is not None:
            return Failure(device_id, metric, device.problem, device.problem_detail, now)
        value = self._values.get((device_id, metric))
        if value is None:
            text = f"{device_id} has no {metric}"
            return Failure(device_id, metric, Reason.NOT_SUPPORTED, text, now, permanent=True)
        if isinstance(value, Failure):
            return evolve(value, time=now)
        return Sample(device_id, metric, float(value(now) if callable(value) else value), now)

    def _known(self, device_id: str, metric: str) -> tuple[str, str]:
        if device_id not in self._devices:
            raise KeyError(f"no fake device {device_id!r}")
        if metric not in self.metrics:
            raise KeyError(f"{metric!r} is no metric of the fake backend {self.name!r}")
        return device_id, metric
