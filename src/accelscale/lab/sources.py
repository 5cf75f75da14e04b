"""Where snapshots to be recorded come from: this machine, or what another package registers.

A source yields an `Observed` after every pass, until it is told to stop. Its times are on the
monotonic clock of this process; one that hears from another machine translates them. This module
stays cheap to import, for the server adds its sources whenever the command line starts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from attrs import field, frozen

from accelscale.errors import NotFoundError
from accelscale.metrics import METRICS

if TYPE_CHECKING:
    from accelscale.model import Snapshot
    from accelscale.monitor import Monitor


@frozen
class Observed:
    """One pass: what was read, and who held which device, where the source knows.

    ``holders`` are (device id, namespace, pod, container); None where nobody knows. ``units`` are
    those of metrics that the table of accelscale itself does not have.
    """

    snapshot: Snapshot
    holders: frozenset[tuple[str, str, str, str]] | None = None
    units: Mapping[str, str] = field(factory=dict, hash=False)


Source = Iterator[Observed]

OpenSource = Callable[[str, "Wanted", threading.Event], AbstractContextManager[Source]]
"""Opens the source at an address; the event ends it."""


@frozen
class Wanted:
    """What to record: seconds between two passes, and the metrics (all where there is none)."""

    interval: float
    metrics: tuple[str, ...] = ()


SOURCES: dict[str, OpenSource] = {}
"""Sources by the scheme of their address, as in ``agent:HOST:PORT``; other packages add theirs."""


def open_source(
    address: str, wanted: Wanted, stop: threading.Event
) -> AbstractContextManager[Source]:
    """The source at such an address.

    Raises:
        NotFoundError: nothing knows this scheme.
    """
    scheme, _, rest = address.partition(":")
    opened = SOURCES.get(scheme)
    if opened is None or not rest:
        known = ", ".join(f"{name}:HOST:PORT" for name in SOURCES) or "none is installed"
        raise NotFoundError(f"no source {address}; known: {known}")
    return opened(rest, wanted, stop)


def passes_of(monitor: Monitor, stop: threading.Event, *, patience: float = 60.0) -> Source:
    """Every pass of a monitor of this machine.

    ``patience`` is the most seconds to wait for a pass before its absence is looked at as well.
    """
    ready = threading.Event()
    undo = monitor.subscribe(ready.set)
    units = {name: row.unit for name, row in monitor.metrics.items() if name not in METRICS}
    seen = -1
    try:
        while not stop.is_set():
            if monitor.sequence == seen:
                _first_of(ready, stop, patience)
            ready.clear()
            if stop.is_set():
                return
            snapshot = monitor.snapshot()
            seen = snapshot.sequence
            yield Observed(snapshot, units=units)
    finally:
        undo()


def _first_of(ready: threading.Event, stop: threading.Event, seconds: float) -> None:
    """Wait for a pass or for the end; whoever sets ``stop`` is noticed within half a second."""
    waited = 0.0
    while waited < seconds and not stop.is_set() and not ready.wait(0.5):
        waited += 0.5
