"""The records that everything else passes round: frozen, comparable, free of behaviour.

Times are seconds on the monotonic clock of the process that took the reading (`time.monotonic`),
so a stepped wall clock changes no age. A missing value is never a number here: it is a `Failure`
in place of a `Sample`, or in place of a `SeriesValue`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from attrs import field, frozen


class Reason(StrEnum):
    """Why a reading is missing."""

    NOT_SUPPORTED = "not_supported"
    PERMISSION = "permission"
    LOST = "lost"
    RESET_REQUIRED = "reset_required"
    TIMEOUT = "timeout"
    OUT_OF_RANGE = "out_of_range"
    COUNTER_RESET = "counter_reset"
    NO_PROGRESS = "no_progress"
    STALE = "stale"
    ERROR = "error"

    @property
    def passing(self) -> bool:
        """Whether the sample before it still counts until its age limit.

        A slow call or a restarted counter says nothing against the reading taken a second ago; a
        lost device, a refused permission or an absurd value does.
        """
        return self in _PASSING


_PASSING = frozenset({Reason.TIMEOUT, Reason.COUNTER_RESET, Reason.NO_PROGRESS, Reason.STALE})


def normal_pci_address(address: str) -> str:
    """One spelling for a PCI address: lower case, four hexadecimal digits of domain.

    NVML writes ``0000000F:01:00.0`` where sysfs writes ``000f:01:00.0``; a domain that needs more
    than four digits keeps them. Text that is no PCI address comes back in lower case, unchanged.

    >>> normal_pci_address("0000000F:01:00.0")
    '000f:01:00.0'
    """
    text = address.strip().lower()
    domain, separator, rest = text.partition(":")
    if rest.count(":") == 0:  # "1b:00.0": no domain was written
        return f"0000:{text}" if separator and "." in rest else text
    try:
        return f"{int(domain, 16):04x}:{rest}"
    except ValueError:
        return text


@frozen
class Device:
    """One addressable unit of a backend: a card, or a partition of one.

    ``id`` is the vendor's UUID or the PCI address, never an index: an index changes with a reboot
    or a lost card. ``parent`` is the id of the card that a partition belongs to. ``problem`` is
    set while the device as a whole is ill (`Reason.LOST`, `Reason.RESET_REQUIRED`), and
    ``problem_detail`` says it in words. ``attributes`` holds what only some vendors have.
    """

    id: str
    name: str
    vendor: str
    backend: str
    parent: str | None = None
    pci_address: str | None = None
    node: str | None = None
    problem: Reason | None = None
    problem_detail: str = ""
    attributes: Mapping[str, str] = field(factory=dict, hash=False)


@frozen
class Sample:
    """One value of one metric on one device at one time, in the metric's unit.

    ``shared`` marks a figure of a whole device that several pods share.
    """

    device_id: str
    metric: str
    value: float
    time: float
    shared: bool = False


@frozen
class Failure:
    """A reading that could not be taken: what stands where the sample would.

    ``detail`` is a sentence for people, ``code`` the vendor's own number. ``permanent`` tells a
    metric that this hardware never has from one that is missing at present.
    """

    device_id: str
    metric: str
    reason: Reason
    detail: str = ""
    time: float = 0.0
    code: int | None = None
    permanent: bool = False


@frozen
class ProcessUse:
    """What one process uses of a device: for sharing a device's figures between its pods.

    ``pid`` is that of the host, wherever this runs. A figure that the driver does not give for
    this process is None. ``utilization_percent`` is the process's part of the device's time.
    """

    pid: int
    memory_used_bytes: float | None = None
    utilization_percent: float | None = None


@frozen
class Reading:
    """What one device gave in one pass of its backend.

    ``processes`` is None where the processes were not read, or the driver does not tell them.
    """

    device_id: str
    samples: tuple[Sample, ...] = ()
    failures: tuple[Failure, ...] = ()
    processes: tuple[ProcessUse, ...] | None = None


@frozen
class Series:
    """A metric seen through a window: which statistic of the samples of the last seconds.

    ``statistic`` is ``mean``, ``max``, ``min``, ``last`` or ``pNN``.
    """

    metric: str
    window_seconds: float
    statistic: str

    def __str__(self) -> str:
        if self.statistic == "last":
            return f"{self.metric} (last)"
        return f"{self.metric} ({self.statistic} over {self.window_seconds:g} s)"


@frozen
class SeriesValue:
    """A series of one device at one moment.

    ``time`` is that of its newest sample. ``covered`` says whether samples without a gap reach
    back over the whole window; an idle verdict needs that.
    """

    value: float
    time: float
    covered: bool = True
    shared: bool = False


@frozen
class Snapshot:
    """All samples and failures of one pass, and the series that were asked for.

    ``sequence`` grows with every pass. ``interval`` is the seconds between passes, and
    ``intervals`` holds it for the metrics that are read more rarely. ``problems`` names the
    backends that cannot read at present, with the reason in words. ``processes`` holds, for the
    devices that tell it, what each process uses, with the time of that reading.
    ``unseen_vendors`` are those whose backend was asked for and has not shown its devices yet, so
    that nobody knows how many there are.
    """

    time: float
    sequence: int
    interval: float
    devices: tuple[Device, ...] = ()
    samples: Mapping[tuple[str, str], Sample] = field(factory=dict, hash=False)
    failures: Mapping[tuple[str, str], Failure] = field(factory=dict, hash=False)
    series: Mapping[tuple[str, Series], SeriesValue | Failure] = field(factory=dict, hash=False)
    intervals: Mapping[str, float] = field(factory=dict, hash=False)
    problems: Mapping[str, str] = field(factory=dict, hash=False)
    processes: Mapping[str, tuple[float, tuple[ProcessUse, ...]]] = field(factory=dict, hash=False)
    unseen_vendors: frozenset[str] = frozenset()

    def device(self, device_id: str) -> Device | None:
        """The device with that id, or None."""
        return next((device for device in self.devices if device.id == device_id), None)

    def value(self, device_id: str, metric: str) -> float | None:
        """The newest value in the metric's unit, or None; `failure` then says why."""
        sample = self.samples.get((device_id, metric))
        return None if sample is None else sample.value

    def failure(self, device_id: str, metric: str) -> Failure | None:
        """Why there is no value, or None where there is one."""
        return self.failures.get((device_id, metric))

    def samples_of(self, device_id: str) -> Iterator[Sample]:
        """The samples of one device, in the order in which they were first read."""
        return (sample for (device, _), sample in self.samples.items() if device == device_id)

    def failures_of(self, device_id: str) -> Iterator[Failure]:
        """The failures of one device."""
        return (failure for (device, _), failure in self.failures.items() if device == device_id)

    def interval_of(self, metric: str) -> float:
        """Seconds between two readings of this metric."""
        return self.intervals.get(metric, self.interval)


@frozen
class Claim:
    """A device of a dynamic resource claim, in the words of its driver.

    Which device that is stands in the driver's ResourceSlice of this pool, unless its name tells.
    """

    driver: str
    pool: str
    device: str


@frozen
class Allocation:
    """The fact that a container of a pod holds a device.

    ``device_id`` is None where it is not known which device; ``allocated_id`` is how the kubelet
    named it. ``resource`` is the extended resource that the container asked for, empty for a
    dynamic resource claim. ``claim`` is set for such a one where the kubelet tells its device.
    """

    device_id: str | None
    node: str
    namespace: str
    pod: str
    container: str
    resource: str = ""
    allocated_id: str = ""
    claim: Claim | None = None


@frozen
class Replica:
    """One unit that the scale target counts: a pod, a group of pods, or a device of a node.

    ``was_ready`` tells a replica that is silent now from one that is still starting. ``problem``
    says why it is not known which devices the replica holds, or which others beside these.
    ``shares`` holds, for the devices that replicas of one workload share, the part of the device's
    figure that is this replica's (0 to 1), so that the device counts once in a sum.
    """

    name: str
    devices: tuple[str, ...]
    ready: bool = True
    was_ready: bool = True
    problem: str = ""
    shares: Mapping[str, float] = field(factory=dict, hash=False)


@frozen
class Workload:
    """A scale target with its replicas; ``scope`` is workload, node or cluster."""

    name: str
    replicas: tuple[Replica, ...]
    namespace: str = ""
    scope: str = "node"
