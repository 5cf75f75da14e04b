"""The values of series as agents send them: packed once per pass, for all streams together."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from accelscale.metrics import Kind, Metric
from accelscale.model import Failure, Reason, Series
from accelscale.values import LONGEST_WINDOW, one_of
from accelscale_server._proto.accelscale.v1 import agent_pb2 as pb
from accelscale_server.inventory import Inventories, Inventory

if TYPE_CHECKING:
    from accelscale.model import SeriesValue, Snapshot
    from accelscale.monitor import Monitor
    from accelscale_server.kubelet import Kubelet

MOST_SERIES = 1000
"""Series of one stream that are answered; a window costs time after every pass."""

COVERED, SHARED = 1, 2
"""Bits of ``SeriesValues.flags``."""

_LONGEST_NAME = 100
_read_statistic = one_of(("mean", "max", "min", "last"), percentiles=True)


@frozen
class Wanted:
    """A series that a stream asked for: its id there, and why it cannot be answered, if so."""

    id: int
    series: Series
    problem: str


def wanted_by(request: pb.WatchRequest, metrics: Mapping[str, Metric]) -> tuple[Wanted, ...]:
    """The series of a request, each with what is wrong about it.

    A fault ends no stream: it may be that the scaler is newer than this agent.
    """
    found = []
    for number, asked in enumerate(request.series):
        series = Series(asked.metric[:_LONGEST_NAME], asked.window_seconds, asked.statistic)
        problem = _why_not(series, metrics)
        if number >= MOST_SERIES:
            problem = f"more than {MOST_SERIES} series were asked for"
        found.append(Wanted(asked.id, series, problem))
    return tuple(found)


def _why_not(series: Series, metrics: Mapping[str, Metric]) -> str:
    metric = metrics.get(series.metric)
    if metric is None:
        return f"this agent knows no metric {series.metric!r}"
    if metric.kind is Kind.COUNTER:
        return f"{series.metric} is a running total and has no windows"
    if not 0 <= series.window_seconds <= LONGEST_WINDOW:
        return f"a window must be 0 to {LONGEST_WINDOW:g} s"
    try:
        _read_statistic(series.statistic)
    except ValueError as error:
        return f"the statistic {error}"
    return ""


class Packing:
    """The inventory and the packed values of now, and who is interested in what. For one loop."""

    def __init__(self, monitor: Monitor, kubelet: Kubelet, node: str) -> None:
        self._monitor = monitor
        self._kubelet = kubelet
        self._inventories = Inventories(monitor.backends, kubelet, node)
        self._interest: Counter[Series] = Counter()
        self._packed: dict[Series, pb.SeriesValues] = {}
        self._inventory: Inventory | None = None
        self._passes: object = None
        self.pass_count = 0

    def change_interest(self, before: Iterable[Wanted], after: Iterable[Wanted]) -> None:
        """Note what a stream is interested in from now on."""
        self._interest.update(one.series for one in after if not one.problem)
        self._interest.subtract(one.series for one in before if not one.problem)
        self._interest = +self._interest

    def refresh(self, *, force: bool = False) -> Inventory:
        """Look whether a pass has ended or allocations have changed, and pack anew if so.

        ``pass_count`` then grows. A backend that once more could not be opened ends no pass.
        """
        states = self._monitor.states()
        passes = (
            self._kubelet.revision,
            [(s.name, s.phase, s.reason, s.collections, s.timeouts) for s in states],
        )
        if self._inventory is None or passes != self._passes or force:
            self._passes = passes
            self.pass_count += 1
            snapshot = self._monitor.snapshot(self._interest)
            self._inventory = self._inventories.of(snapshot)
            self._packed = {
                series: _packed(series, snapshot, self._inventory) for series in self._interest
            }
        return self._inventory

    def values(self, wanted: Iterable[Wanted]) -> pb.Values:
        """The values of these series after the last `refresh`."""
        inventory = self._inventory or self.refresh()
        answered = [one for one in wanted if not one.problem]
        new = {one.series for one in answered} - self._packed.keys()
        if new:
            snapshot = self._monitor.snapshot(new)
            self._packed.update((series, _packed(series, snapshot, inventory)) for series in new)
        message = pb.Values(inventory=inventory.revision)
        for one in wanted:
            values = message.series.add()
            if one.problem:
                values.absent.extend(_all_absent(inventory, one.problem))
            else:
                values.CopyFrom(self._packed[one.series])
            values.id = one.id
        message.sent_at = time.monotonic()
        return message


def _packed(series: Series, snapshot: Snapshot, inventory: Inventory) -> pb.SeriesValues:
    """One series over the devices of the inventory; the id is still missing.

    A value that still counts although the newest reading failed comes with the reason of that.
    """
    indexes, found, absent = [], [], []
    for index, device in enumerate(inventory.devices):
        answer = snapshot.series.get((device.id, series))
        failure = snapshot.failure(device.id, series.metric)
        if answer is None:
            absent.append(pb.Absence(device=index, reason=Reason.STALE, detail="no reading yet"))
        elif isinstance(answer, Failure):
            absent.append(_absence(index, answer))
        else:
            indexes.append(index)
            found.append((answer, device.id in inventory.shared))
            if failure is not None:
                absent.append(_absence(index, failure))
    return pb.SeriesValues(
        device=indexes,
        value=[value.value for value, _ in found],
        sampled_at=[value.time for value, _ in found],
        flags=[_flags(value, shared) for value, shared in found],
        absent=absent,
    )


def _flags(value: SeriesValue, shared: bool) -> int:
    return COVERED * value.covered | SHARED * (value.shared or shared)


def _absence(index: int, failure: Failure) -> pb.Absence:
    return pb.Absence(
        device=index,
        reason=failure.reason,
        detail=failure.detail,
        permanent=failure.permanent,
        sampled_at=failure.time if math.isfinite(failure.time) else 0.0,
    )


def _all_absent(inventory: Inventory, problem: str) -> list[pb.Absence]:
    """Not permanent: it is this agent that lacks it, and another version may know it."""
    return [
        pb.Absence(device=index, reason=Reason.NOT_SUPPORTED, detail=problem)
        for index in range(len(inventory.devices))
    ]
