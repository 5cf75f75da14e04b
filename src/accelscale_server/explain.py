# ruff: noqa: N802 - gRPC gives the calls their names
"""How the scaler came to its answers, and what it knows of the fleet, for people who ask."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from accelscale.errors import AccelscaleError, NoDataError, NotFoundError
from accelscale.hpa.replicas import desired_replicas
from accelscale.model import Failure, Series, SeriesValue
from accelscale.trigger import KEYS
from accelscale_server._proto.accelscale.v1 import introspection_pb2 as pb
from accelscale_server._proto.accelscale.v1.introspection_pb2_grpc import IntrospectionServicer
from accelscale_server.explanation import headline
from accelscale_server.servicer import answering, status_of

if TYPE_CHECKING:
    from accelscale.engine import DeviceFigure, Evaluation, ReplicaFigure
    from accelscale.trigger import Trigger
    from accelscale_server.cluster import Cluster
    from accelscale_server.evaluations import Evaluations
    from accelscale_server.fleet import Fleet
    from accelscale_server.node import Node
    from accelscale_server.subjects import Subject, Subjects

INTROSPECTION = "accelscale.v1.Introspection"

MOST_METRICS = 32
WATCHED_SECONDS = 30.0
"""Seconds that metrics stay wanted of all nodes after somebody looked at the fleet."""

FIRST_LOOK = 1.0
"""Seconds that the first look at a metric waits for the agents' answers."""

_Context = Any  # grpc.aio.ServicerContext, which is generic for the type checker alone


class Introspection(IntrospectionServicer):
    """Explains, from memory, by the same evaluations that KEDA gets."""

    def __init__(
        self,
        subjects: Subjects,
        evaluations: Evaluations,
        fleet: Fleet,
        cluster: Cluster | None,
    ) -> None:
        self._subjects = subjects
        self._evaluations = evaluations
        self._fleet = fleet
        self._cluster = cluster

    @answering
    async def Explain(self, request: pb.ExplainRequest, context: _Context) -> pb.ExplainResponse:
        """Each trigger of a ScaledObject as it is evaluated now."""
        subjects = self._subjects_of(request.namespace, request.name)
        return pb.ExplainResponse(explanations=[self._explanation(each) for each in subjects])

    @answering
    async def Fleet(self, request: pb.FleetRequest, context: _Context) -> pb.FleetResponse:
        """All nodes with their devices, and the newest values of some metrics."""
        wanted = [Series(name, 0.0, "last") for name in request.metrics[:MOST_METRICS]]
        if self._fleet.want(wanted, seconds=WATCHED_SECONDS):
            await asyncio.sleep(FIRST_LOOK)
        now = time.monotonic()
        nodes = []
        for _, node in sorted(self._fleet.nodes.items()):
            nodes.append(self._node(node, wanted, now))
            await asyncio.sleep(0)  # KEDA's calls need not wait until a thousand are through
        nodes += [
            pb.Node(address=address, state=self._fleet.streams[address].state, detail=why)
            for address, why in sorted(self._fleet.unheard.items())
        ]
        return pb.FleetResponse(nodes=nodes)

    def _subjects_of(self, namespace: str, name: str) -> list[Subject]:
        found = self._subjects.asked_by(namespace, name)
        if not found and self._cluster is not None:
            # What stands in the ScaledObject may ask another replica, or another scaler.
            written = self._cluster.triggers(namespace, name)
            all_of_them = [self._subjects.of(namespace, name, metadata) for metadata in written]
            found = [subject for subject in all_of_them if subject.error is None] or all_of_them
        if not found and self._cluster is not None and not self._cluster.ready:
            raise NoDataError("the ScaledObjects have not been read yet")
        if not found:
            raise NotFoundError(
                f"no ScaledObject {namespace}/{name} has asked this scaler lately, and Kubernetes"
                " shows none with an external trigger"
            )
        return found

    def _explanation(self, subject: Subject) -> pb.Explanation:
        explanation = pb.Explanation(
            # What stands under a key that is not ours may be a secret.
            metadata={key: text for key, text in subject.metadata.items() if key in KEYS},
        )
        try:
            trigger = self._subjects.trigger_of(subject)
        except AccelscaleError as error:
            explanation.error.CopyFrom(_error(error))
            explanation.active_error.CopyFrom(_error(error))
            return explanation
        evaluation = self._evaluations.of(trigger, subject.namespace, subject.name)
        _tell_trigger(explanation, trigger)
        _tell_outcome(explanation, evaluation)
        now = time.monotonic()
        explanation.replicas.extend(self._replica(figure, now) for figure in evaluation.replicas)
        self._tell_replicas(explanation, subject, evaluation)
        return explanation

    def _tell_replicas(
        self, explanation: pb.Explanation, subject: Subject, evaluation: Evaluation
    ) -> None:
        """How many there are and may be, and what the HPA makes of the value."""
        figures = evaluation.replicas
        counts = len(figures), sum(figure.replica.ready for figure in figures)
        if self._cluster is not None and evaluation.trigger.scope == "workload":
            counts = self._cluster.replicas(subject.namespace, subject.name) or counts
        if self._cluster is not None:
            bounds = self._cluster.bounds(subject.namespace, subject.name) or (0, 0)
            explanation.least_replicas, explanation.most_replicas = bounds
        current, ready = counts
        explanation.current_replicas, explanation.ready_replicas = counts
        if isinstance(evaluation.value, AccelscaleError):
            return
        trigger = evaluation.trigger
        try:
            explanation.hpa_replicas = desired_replicas(
                evaluation.value,
                trigger.threshold,
                metric_type=trigger.metric_type,
                current=current,
                ready=ready,
            )
        except AccelscaleError as error:  # the HPA would report an error as well
            explanation.warnings.append(f"the HPA: {error}")

    def _replica(self, figure: ReplicaFigure, now: float) -> pb.Replica:
        return pb.Replica(
            name=figure.replica.name,
            ready=figure.replica.ready,
            was_ready=figure.replica.was_ready,
            value=figure.value,
            counted=figure.counted,
            problem=figure.replica.problem,
            devices=[
                self._device(each, figure.replica.shares.get(each.device_id, 1.0), now)
                for each in figure.devices
            ],
        )

    def _device(self, figure: DeviceFigure, share: float, now: float) -> pb.DeviceFigure:
        node, _, device_id = figure.device_id.partition("/")
        known = self._fleet.nodes.get(node)
        device = None if known is None else known.device(figure.device_id)
        told = pb.DeviceFigure(
            device_id=device_id, node=node, name=device.name if device else "", share=share
        )
        if figure.value is not None:
            told.value = figure.value.value
            told.age_seconds = max(0.0, now - figure.value.time)
            told.covered = figure.value.covered and (figure.idle is None or figure.idle.covered)
            told.shared = figure.value.shared or share < 1
        if figure.failure is not None:
            told.reason, told.detail = figure.failure.reason, figure.failure.detail
            if figure.value is None and math.isfinite(figure.failure.time):
                told.age_seconds = max(0.0, now - figure.failure.time)
        return told

    def _node(self, node: Node, wanted: Iterable[Series], now: float) -> pb.Node:
        streams = self._fleet.streams.values()
        told = pb.Node(
            name=node.name,
            address=",".join(sorted(s.address for s in streams if s.report in node.reports)),
            state="connected" if node.live else "gone",
            detail="; ".join(node.problems()),
            age_seconds=max(0.0, now - node.received),
        )
        holders = node.holders()
        for device_id, device in node.devices.items():
            one = told.devices.add(
                id=device_id.partition("/")[2],
                name=device.name,
                vendor=device.vendor,
                problem=device.problem or "",
                pods=holders.get(device_id, ()),
            )
            snapshot = self._fleet.snapshot([device_id], wanted)
            for series in wanted:
                found = snapshot.series[device_id, series]
                if isinstance(found, SeriesValue):
                    one.values[series.metric] = found.value
                elif isinstance(found, Failure):
                    one.reasons[series.metric] = found.reason
        return told


def _tell_trigger(explanation: pb.Explanation, trigger: Trigger) -> None:
    explanation.metric_name = trigger.metric_name
    explanation.metric_type = trigger.metric_type
    explanation.threshold = trigger.threshold
    explanation.activation_threshold = trigger.activation_threshold
    explanation.scope = trigger.scope
    explanation.replica_aggregation = trigger.resolved_replica_aggregation
    explanation.series = str(trigger.series)
    explanation.aggregation = trigger.aggregation
    explanation.warnings.extend(trigger.warnings)


def _tell_outcome(explanation: pb.Explanation, evaluation: Evaluation) -> None:
    explanation.workload = evaluation.workload.name
    explanation.fill = evaluation.fill
    explanation.summary = headline(evaluation)
    if isinstance(evaluation.value, AccelscaleError):
        explanation.error.CopyFrom(_error(evaluation.value))
    else:
        explanation.value = evaluation.value
    if isinstance(evaluation.active, AccelscaleError):
        explanation.active_error.CopyFrom(_error(evaluation.active))
    else:
        explanation.active = evaluation.active
    if evaluation.activation_value is not None:
        explanation.activation_value = evaluation.activation_value


def _error(error: AccelscaleError) -> pb.Error:
    code, text = status_of(error)
    return pb.Error(code=code.name, message=text)
