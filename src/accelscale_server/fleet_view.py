"""The fleet of a scaler, as ``accelscale top`` shows it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import grpc
from attrs import frozen

from accelscale.cli.overview import COLUMNS
from accelscale.metrics import METRICS, Metric
from accelscale.model import Device, Failure, Reason, Sample, Snapshot
from accelscale_server._proto.accelscale.v1 import introspection_pb2 as pb
from accelscale_server._proto.accelscale.v1.introspection_pb2_grpc import IntrospectionStub
from accelscale_server.explain_command import ask, open_channel
from accelscale_server.report import fleet_id

PATIENCE = 5.0


@frozen
class NodeState:
    """A node, and whether its agent is heard."""

    name: str
    phase: str


class FleetView:
    """Asks the scaler anew for every snapshot."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.interval = 1.0
        self.metrics: Mapping[str, Metric] = METRICS
        self._stub = IntrospectionStub(channel)  # type: ignore[no-untyped-call]
        self._states: tuple[NodeState, ...] = ()
        self._sequence = 0

    def snapshot(self) -> Snapshot:
        """The newest values of all devices.

        Raises:
            ScalerError: the scaler does not answer.
        """
        names = dict.fromkeys(name for column in COLUMNS for name in column.metrics)
        answer = ask(self._stub.Fleet, pb.FleetRequest(metrics=names), PATIENCE)
        self._states = tuple(
            NodeState(node.name or node.address, node.state) for node in answer.nodes
        )
        self._sequence += 1
        return snapshot_of(answer, self._sequence)

    def states(self) -> Sequence[NodeState]:
        """The nodes of the last snapshot."""
        return self._states


@contextmanager
def watching_fleet(target: str) -> Iterator[FleetView]:
    """A view of the fleet of a scaler, for as long as the block runs."""
    with open_channel(target, None) as channel:
        yield FleetView(channel)


def snapshot_of(answer: pb.FleetResponse, sequence: int) -> Snapshot:
    """The fleet as a snapshot; nodes that are not heard are its problems."""
    now = time.monotonic()
    devices: list[Device] = []
    samples: dict[tuple[str, str], Sample] = {}
    failures: dict[tuple[str, str], Failure] = {}
    for node in answer.nodes:
        taken = now - node.age_seconds
        for told in node.devices:
            key = fleet_id(node.name, told.id)
            problem = Reason(told.problem) if told.problem else None
            devices.append(
                Device(key, told.name, told.vendor, told.vendor, node=node.name, problem=problem)
            )
            for metric, value in told.values.items():
                samples[key, metric] = Sample(key, metric, value, taken)
            for metric, reason in told.reasons.items():
                lasting = reason == Reason.NOT_SUPPORTED
                failures[key, metric] = Failure(key, metric, Reason(reason), permanent=lasting)
    return Snapshot(
        time=now,
        sequence=sequence,
        interval=1.0,
        devices=tuple(devices),
        samples=samples,
        failures=failures,
        problems={
            node.name or node.address: f"{node.state}: {node.detail}"
            for node in answer.nodes
            if node.detail
        },
    )
