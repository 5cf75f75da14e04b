"""What decides about a pod: where it runs, how it is labelled, whether it is or was Ready.

A pod arrives with up to a megabyte of specification; of that a few fields are kept. Pods that have
finished or failed are not even sent, by a field selector.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from sys import intern

import msgspec
from attrs import field, frozen

from accelscale.selectors import Selector
from accelscale_server.watching import Collection, Key, Store, Wire

FIRST_TRANSITION = timedelta(seconds=10)
"""A condition that turned false this soon after the containers' start has never been true since."""

_ALIVE = "status.phase!=Succeeded,status.phase!=Failed"


@frozen
class Pod:
    """A pod that may be a replica.

    ``ready`` is what the HPA looks at: running, and its Ready condition true. ``was_ready`` says
    whether that has been so since its containers started last. ``running`` says whether each of its
    containers has started.
    """

    namespace: str
    name: str
    uid: str
    labels: dict[str, str] = field(hash=False)
    node: str | None
    containers: tuple[str, ...]
    running: bool
    ready: bool
    was_ready: bool
    terminating: bool


class _Running(msgspec.Struct):
    started: datetime | None = msgspec.field(name="startedAt", default=None)


class _Terminated(msgspec.Struct):
    exit_code: int = msgspec.field(name="exitCode", default=0)


class _State(msgspec.Struct):
    running: _Running | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct):
    name: str
    state: _State | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str
    turned: datetime | None = msgspec.field(name="lastTransitionTime", default=None)


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    start_time: datetime | None = None
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None


class _Container(msgspec.Struct):
    name: str


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    containers: list[_Container] | None = None


class PodWire(Wire):
    """A pod as it arrives."""

    spec: _PodSpec
    status: _PodStatus


def pods_of(namespace: str) -> Collection:
    """The pods of a namespace that have neither finished nor failed."""
    return Collection("", "v1", "pods", namespace, fields=_ALIVE)


def pod_record(wire: PodWire) -> Pod:
    """What is kept of a pod."""
    metadata, spec, status = wire.metadata, wire.spec, wire.status
    running = status.phase == "Running"
    ready = _condition(status, "Ready")
    is_ready = running and ready is not None and ready.status == "True"
    return Pod(
        namespace=intern(metadata.namespace),
        name=metadata.name,
        uid=metadata.uid,
        labels={intern(label): intern(text) for label, text in (metadata.labels or {}).items()},
        node=intern(spec.node_name) if spec.node_name else None,
        containers=tuple(intern(container.name) for container in spec.containers or ()),
        running=running and _latest_start(status) is not None,
        ready=is_ready,
        was_ready=is_ready or (running and ready is not None and _has_been_ready(status, ready)),
        terminating=metadata.deletion_timestamp is not None,
    )


def _condition(status: _PodStatus, kind: str) -> _Condition | None:
    return next((c for c in status.conditions or () if c.type == kind), None)


def _has_been_ready(status: _PodStatus, ready: _Condition) -> bool:
    """Whether a condition that is not true now was true since the containers' last start.

    The kubelet sets it to false as the pod starts, so one that turned later has been true between.
    The HPA judges alike by the pod's start (``replica_calculator.go``). Here that of the containers
    counts: a server that crashed is loading its model anew, and its idle device says nothing. In
    doubt it has not been Ready, for a replica that is still starting never counts as idle.
    """
    start = _latest_start(status)
    if start is None or ready.turned is None:
        return False
    return ready.turned - start > FIRST_TRANSITION


def _latest_start(status: _PodStatus) -> datetime | None:
    """When the pod or the last of its containers started; None while one has still to start."""
    starts = [status.start_time]
    for container in status.container_statuses or ():
        state = container.state or _State()
        if state.running is not None:
            starts.append(state.running.started)
        elif state.terminated is None or state.terminated.exit_code != 0:
            return None
    known = [start for start in starts if start is not None]
    return max(known) if len(known) == len(starts) else None


class PodStore(Store[Pod]):
    """The pods of a namespace, found by their labels without looking at all of them."""

    def __init__(self) -> None:
        super().__init__()
        self._by_label: dict[str, dict[str, dict[Key, Pod]]] = {}

    def selected(self, selector: Selector) -> list[Pod]:
        """The pods that a selector selects, by name."""
        found = [pod for pod in self._candidates(selector) if selector.matches(pod.labels)]
        return sorted(found, key=lambda pod: pod.name)

    def noted(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        """Keep the indexes current."""
        for label, by_value in self._by_label.items():
            if old is not None and (value := old.labels.get(label)) is not None:
                del by_value[value][key]
                if not by_value[value]:
                    del by_value[value]
            if new is not None and (value := new.labels.get(label)) is not None:
                by_value.setdefault(value, {})[key] = new

    def _candidates(self, selector: Selector) -> Iterable[Pod]:
        for requirement in selector.requirements:
            if requirement.values is not None and not requirement.negated:
                by_value = self._index(requirement.key)
                return [p for value in requirement.values for p in by_value.get(value, {}).values()]
        return self.objects.values()

    def _index(self, label: str) -> dict[str, dict[Key, Pod]]:
        """The pods by the value of a label; made when first asked for, and kept current then."""
        by_value = self._by_label.get(label)
        if by_value is None:
            by_value = self._by_label[label] = {}
            for key, pod in self.objects.items():
                if label in pod.labels:
                    by_value.setdefault(pod.labels[label], {})[key] = pod
        return by_value
