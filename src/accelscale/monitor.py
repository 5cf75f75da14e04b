"""The front door of the library: open a monitor, look at snapshots, evaluate triggers."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType

from accelscale.attribution import node_workload
from accelscale.backend import Backend
from accelscale.backend_loop import BackendState
from accelscale.collector import Collector
from accelscale.engine import Evaluation, evaluate, failed_evaluation
from accelscale.errors import AccelscaleError, BackendError, ConfigurationError, Fault
from accelscale.metrics import Metric
from accelscale.model import Series, Snapshot, Workload
from accelscale.plugins import Registry, load_plugins
from accelscale.readings import Readings
from accelscale.trigger import Trigger

logger = logging.getLogger("accelscale.monitor")

SHORTEST_INTERVAL = 0.05
LONGEST_INTERVAL = 300.0


def open_monitor(
    backends: Iterable[str | Backend] | None = None,
    *,
    interval: float = 1.0,
    deadline: float = 2.0,
    registry: Registry | None = None,
    node: str | None = None,
) -> Monitor:
    """Start to read accelerators in the background.

    ``backends`` are names, or objects of your own; by default every backend that is installed,
    except those that are read on request only (the machine's own CPU). ``interval`` is the seconds
    between two readings, ``deadline`` the seconds that a driver call may take. Returns at once;
    `Monitor.wait` waits for the first readings. A driver that is missing now is tried again.

    Raises:
        NotFoundError: there is no backend of that name.
        ConfigurationError: interval or deadline is out of range.
    """
    _check(interval, deadline)
    registry = load_plugins() if registry is None else registry
    chosen = _chosen(backends, registry)
    monitor = Monitor(chosen, registry, interval, deadline, node, optional=backends is None)
    monitor.start()
    return monitor


class Monitor:
    """Reads backends in the background and answers from memory. Made by `open_monitor`.

    All methods may be called from any thread. As a context manager it closes itself.
    """

    def __init__(
        self,
        backends: tuple[Backend, ...],
        registry: Registry,
        interval: float,
        deadline: float,
        node: str | None,
        *,
        optional: bool,
    ) -> None:
        self.registry = registry
        self.interval = interval
        self.backends = backends
        rows = {row.name: row for backend in backends for row in backend.extra_metrics}
        self.metrics: Mapping[str, Metric] = {**registry.extra_metrics(), **rows}
        self._readings = Readings(self.metrics, interval, node or platform.node() or None)
        self._collector = Collector(backends, self._readings, deadline=deadline, optional=optional)

    def start(self) -> None:
        """Start the threads; `open_monitor` has done so."""
        self._collector.start()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def sequence(self) -> int:
        """Grows with every pass of a backend, and with every change of what can be read."""
        return self._readings.sequence

    def wait(self, seconds: float, passes: int = 1) -> bool:
        """Wait until every backend has completed ``passes`` collections or has failed.

        Returns whether at least one device is there to be looked at. Rates need two passes.
        """

        def settled() -> bool:
            states = self.states()
            return all(s.collections >= passes or s.phase == "failed" for s in states)

        self._readings.wait_for(settled, seconds)
        return any(state.devices for state in self.states())

    def snapshot(self, series: Iterable[Series] = ()) -> Snapshot:
        """What is known now, from memory, with these series of every device."""
        return self._readings.snapshot(series)

    def evaluate(self, trigger: Trigger, *, now: float | None = None) -> Evaluation:
        """Evaluate a trigger over the devices of this machine; each is one replica."""
        snapshot = self.snapshot(trigger.wanted_series)
        now = time.monotonic() if now is None else now
        try:
            workload = node_workload(trigger, snapshot)
        except AccelscaleError as error:
            return failed_evaluation(trigger, Workload("this node", ()), error, now)
        return evaluate(trigger, snapshot, workload, now=now)

    def states(self) -> tuple[BackendState, ...]:
        """How each backend is doing."""
        return self._collector.states()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have ``callback`` called after every pass, from a reading thread; returns undo.

        It must return quickly and raise nothing.
        """
        return self._readings.subscribe(callback)

    def release(self) -> bool:
        """Let go of all drivers, so that one can be unloaded or a card reset.

        False if a hanging call still holds one. `resume` takes them again.
        """
        return self._collector.release()

    def resume(self) -> None:
        """Take the drivers again after `release`."""
        self._collector.resume()

    def close(self) -> None:
        """Stop reading and let go of all drivers."""
        self._collector.close()


def _chosen(backends: Iterable[str | Backend] | None, registry: Registry) -> tuple[Backend, ...]:
    if backends is None:
        names = [
            name
            for name, registered in registry.backends.items()
            if not registered.backend.on_request_only
        ]
        return tuple(_created(names, registry))
    chosen = [
        registry.create(backend) if isinstance(backend, str) else backend for backend in backends
    ]
    by_name = {backend.name: backend for backend in chosen}
    if not by_name:
        raise ConfigurationError(
            [Fault("backends", None, "at least one is needed")], subject="monitor"
        )
    return tuple(by_name.values())


def _created(names: Iterable[str], registry: Registry) -> Iterator[Backend]:
    """The backends that nobody named: one that cannot even be made leaves the others alone."""
    for name in names:
        try:
            yield registry.create(name)
        except BackendError as error:
            logger.warning("%s is left out: %s", name, error)


def _check(interval: float, deadline: float) -> None:
    faults = []
    if not SHORTEST_INTERVAL <= interval <= LONGEST_INTERVAL:
        allowed = f"must be {SHORTEST_INTERVAL:g} to {LONGEST_INTERVAL:g} seconds"
        faults.append(Fault("interval", f"{interval:g}", allowed))
    if not deadline > 0:
        faults.append(Fault("deadline", f"{deadline:g}", "must be greater than 0 seconds"))
    if faults:
        raise ConfigurationError(faults, subject="monitor")
