"""What one agent told last: its inventory, and the newest values as they came.

Values stay packed. They are looked up when an evaluation asks for a device, which is much rarer
than that a thousand agents send theirs.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping

from accelscale.model import Allocation, Claim, Device, Failure, Reason, Series, SeriesValue
from accelscale_server._proto.accelscale.v1 import agent_pb2 as pb
from accelscale_server.clocks import ClockOffset

COVERED, SHARED = 1, 2
"""Bits of ``SeriesValues.flags``."""


def fleet_id(node: str, device_id: str) -> str:
    """The id of a device among all nodes: a PCI address, for one, is unique on its node only."""
    return f"{node}/{device_id}"


class Inventory:
    """The devices of a node and who holds them, as one agent told it.

    Devices and their parents have their ids among all nodes. ``index`` is the place of a device in
    the packed lists.
    """

    def __init__(self, message: pb.Inventory) -> None:
        self.revision = message.revision
        self.node = message.node
        self.instance = message.instance
        self.interval = message.interval_seconds
        self.intervals: Mapping[str, float] = dict(message.intervals)
        self.allocations_problem = message.allocations_problem
        self.problems: Mapping[str, str] = dict(message.problems)
        self.unseen_vendors = frozenset(message.unseen_vendors)
        devices = [_device(device, self.node) for device in message.devices]
        self.devices = {device.id: device for device in devices}
        self.index = {device.id: place for place, device in enumerate(devices)}
        self.backends = frozenset(device.backend for device in devices)
        self.holdings = _holdings(message, self.node)

    def interval_of(self, metric: str) -> float:
        """Seconds between two readings of this metric."""
        return self.intervals.get(metric, self.interval)


class Report:
    """One agent's inventory and newest values, with the times on our clock.

    ``received`` is when the last message came. ``live`` says whether more may come on the stream;
    ``silence`` says why not.
    """

    def __init__(self, inventory: Inventory, clock: ClockOffset, received: float) -> None:
        self.inventory = inventory
        self.received = received
        self.live = True
        self.silence = ""
        self._clock = clock
        self._values: pb.Values | None = None
        self._series: dict[int, pb.SeriesValues] | None = None

    def take(self, values: pb.Values, received: float) -> None:
        """Take newer values; those of another inventory cannot be told whose they are."""
        self.received = received
        if values.inventory == self.inventory.revision:
            self._values, self._series = values, None

    def answer(
        self, device_id: str, series: Series, number: int
    ) -> Iterator[SeriesValue | Failure]:
        """What is known of a series, whose id is ``number``, of a device of the inventory.

        A value, or the reason why there is none, or both: then there is a reason why the value is
        not newer. Nothing while the agent has not answered for that series yet.
        """
        packed = self._packed(number)
        if packed is None:
            return
        place = self.inventory.index[device_id]
        yield from self._value(packed, place, device_id, series)
        for absence in packed.absent:
            if absence.device == place:
                yield self._failure(absence, device_id, series)

    def _packed(self, number: int) -> pb.SeriesValues | None:
        if self._values is None:
            return None
        if self._series is None:
            self._series = {packed.id: packed for packed in self._values.series}
        return self._series.get(number)

    def _value(
        self, packed: pb.SeriesValues, place: int, device_id: str, series: Series
    ) -> Iterator[SeriesValue | Failure]:
        try:
            at = list(packed.device).index(place)
        except ValueError:
            return
        try:
            value, flags = packed.value[at], packed.flags[at]
            taken = self._here(packed.sampled_at[at])
        except IndexError:
            value, flags, taken = math.nan, 0, math.nan
        if math.isfinite(value) and math.isfinite(taken):
            yield SeriesValue(value, taken, bool(flags & COVERED), bool(flags & SHARED))
        else:
            text = f"the agent of {self.inventory.node} sent no number"
            yield Failure(device_id, series.metric, Reason.ERROR, text, self.received)

    def _failure(self, absence: pb.Absence, device_id: str, series: Series) -> Failure:
        try:
            reason = Reason(absence.reason)
        except ValueError:  # an agent that knows more reasons than we do
            reason = Reason.ERROR
        taken = self._here(absence.sampled_at) if absence.sampled_at else math.nan
        return Failure(
            device_id, series.metric, reason, absence.detail, taken, permanent=absence.permanent
        )

    def _here(self, there: float) -> float:
        """A time of the agent's on our clock; nothing was sampled after it was received."""
        return min(self._clock.here(there), self.received)


def _device(message: pb.Device, node: str) -> Device:
    return Device(
        id=fleet_id(node, message.id),
        name=sys.intern(message.name),
        vendor=sys.intern(message.vendor),
        backend=sys.intern(message.backend),
        parent=fleet_id(node, message.parent) if message.parent else None,
        pci_address=message.pci_address or None,
        node=node,
        problem=_problem(message.problem),
        problem_detail=message.problem_detail,
        attributes=dict(message.attributes),
    )


def _problem(text: str) -> Reason | None:
    if not text:
        return None
    try:
        return Reason(text)
    except ValueError:
        return Reason.ERROR


def _holdings(message: pb.Inventory, node: str) -> Mapping[tuple[str, str], tuple[Allocation, ...]]:
    found: defaultdict[tuple[str, str], list[Allocation]] = defaultdict(list)
    for each in message.allocations:
        claim = each.claim
        found[each.namespace, each.pod].append(
            Allocation(
                device_id=fleet_id(node, each.device_id) if each.device_id else None,
                node=node,
                namespace=each.namespace,
                pod=each.pod,
                container=each.container,
                resource=each.resource,
                allocated_id=each.allocated_id,
                claim=Claim(claim.driver, claim.pool, claim.device)
                if each.HasField("claim")
                else None,
            )
        )
    return {pod: tuple(allocations) for pod, allocations in found.items()}
