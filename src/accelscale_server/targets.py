"""What KEDA's objects say: which target a ScaledObject scales, and with which triggers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from attrs import field, frozen

from accelscale.trigger import MetricType
from accelscale_server.watching import Collection, Wire

JOB_LABEL = "scaledjob.keda.sh/name"
"""KEDA labels the pods of a ScaledJob's Jobs with its name (``create_jobs.go`` of KEDA)."""

_EXTERNAL = frozenset({"external", "external-push"})


@frozen
class Target:
    """The object that is scaled."""

    namespace: str
    group: str
    version: str
    kind: str
    name: str

    @property
    def group_version(self) -> str:
        """As ``apiVersion`` has it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@frozen
class WrittenTrigger:
    """A trigger as it stands in the ScaledObject."""

    type: str
    metric_type: str
    metadata: Mapping[str, str] = field(hash=False)


@frozen
class Scaled:
    """A ScaledObject, or a ScaledJob, which has no target: its Jobs are its own.

    ``least`` and ``most`` are the bounds that KEDA gives the HPA.
    """

    kind: str
    namespace: str
    name: str
    target: Target | None
    triggers: tuple[WrittenTrigger, ...]
    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def external(self) -> tuple[WrittenTrigger, ...]:
        """The triggers that external scalers answer."""
        return tuple(trigger for trigger in self.triggers if trigger.type in _EXTERNAL)

    @property
    def asks_outside(self) -> bool:
        """Whether any of its triggers is answered by an external scaler."""
        return bool(self.external)

    def metric_type(self, metadata: Mapping[str, str]) -> MetricType | None:
        """The metricType of the trigger with this metadata, as KEDA sends it.

        None where several could be meant that differ in it. A trigger that was edited a moment ago
        may have reached KEDA before us or us before KEDA; then all external triggers could be.
        """
        sent = _lasting(metadata)
        external = self.external
        same = [trigger for trigger in external if _lasting(trigger.metadata) == sent]
        types = {trigger.metric_type for trigger in same or external}
        text = types.pop() if len(types) == 1 else ""
        return MetricType(text) if text in set(MetricType) else None


def _lasting(metadata: Mapping[str, str]) -> dict[str, str]:
    """Without the keys that KEDA resolves: it sends what their variables hold, or nothing."""
    return {key: text for key, text in metadata.items() if not key.endswith("FromEnv")}


class _TargetReference(msgspec.Struct):
    name: str
    api_version: str | None = msgspec.field(name="apiVersion", default=None)
    kind: str | None = None


class _Trigger(msgspec.Struct):
    type: str
    metric_type: str | None = msgspec.field(name="metricType", default=None)
    metadata: dict[str, str] | None = None


class _ScaledSpec(msgspec.Struct, rename="camel"):
    scale_target_ref: _TargetReference | None = None
    triggers: list[_Trigger] | None = None
    min_replica_count: int | None = None
    max_replica_count: int | None = None


class ScaledWire(Wire):
    """A ScaledObject or a ScaledJob as it arrives."""

    spec: _ScaledSpec


def scaled_objects(namespace: str | None) -> Collection:
    """The ScaledObjects of a namespace, or of all."""
    return Collection("keda.sh", "v1alpha1", "scaledobjects", namespace)


def scaled_jobs(namespace: str | None) -> Collection:
    """The ScaledJobs of a namespace, or of all."""
    return Collection("keda.sh", "v1alpha1", "scaledjobs", namespace)


def scaled_object_record(wire: ScaledWire) -> Scaled:
    """What is kept of a ScaledObject; KEDA's defaults fill in what is not written."""
    return _scaled("ScaledObject", wire, _target(wire))


def scaled_job_record(wire: ScaledWire) -> Scaled:
    """What is kept of a ScaledJob."""
    return _scaled("ScaledJob", wire, None)


def _scaled(kind: str, wire: ScaledWire, target: Target | None) -> Scaled:
    spec = wire.spec
    return Scaled(
        kind=kind,
        namespace=wire.metadata.namespace,
        name=wire.metadata.name,
        target=target,
        triggers=tuple(
            WrittenTrigger(
                trigger.type,
                trigger.metric_type or MetricType.AVERAGE_VALUE.value,
                trigger.metadata or {},
            )
            for trigger in spec.triggers or ()
        ),
        least=spec.min_replica_count or 0,
        most=100 if spec.max_replica_count is None else spec.max_replica_count,
    )


def _target(wire: ScaledWire) -> Target | None:
    reference = wire.spec.scale_target_ref
    if reference is None:
        return None
    group, _, version = (reference.api_version or "apps/v1").rpartition("/")
    kind = reference.kind or "Deployment"
    return Target(wire.metadata.namespace, group, version, kind, reference.name)
