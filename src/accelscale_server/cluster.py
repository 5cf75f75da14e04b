"""What the Kubernetes API says of the workloads that ask: pods, scale targets, KEDA's objects.

Everything is answered from memory; what is missing there is fetched in the background, and the
caller told that it is not known yet. ScaledObjects and ScaledJobs are watched from the start. The
pods of a namespace are watched, and a target's scale is read, once a ScaledObject there asks: one
that nobody asks about costs nothing, and the account needs no right to pods elsewhere. While the
API server is away, what was known counts for some minutes; after that it is not known, which is
never the same as no pods.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import frozen

from accelscale.errors import AccelscaleError, ForbiddenError, NoDataError, NotFoundError
from accelscale.model import Device, Replica, Workload
from accelscale.selectors import Requirement, Selector
from accelscale_server import endpoints, targets
from accelscale_server.pods import Pod, PodStore, PodWire, pod_record, pods_of
from accelscale_server.replicas import (
    GROUP_SET,
    GROUP_SET_NAME,
    AllocationsOf,
    DevicesOf,
    Holdings,
    group_replicas,
    leaders,
    pod_replicas,
)
from accelscale_server.scales import SCALE_PACE, ScalePace, Scales
from accelscale_server.slices import Slices
from accelscale_server.targets import Scaled, ScaledWire
from accelscale_server.watching import (
    PACE,
    Collection,
    Pace,
    Store,
    Watch,
    WatchState,
    Wire,
    need,
)

if TYPE_CHECKING:
    from accelscale.trigger import MetricType, Trigger
    from accelscale_server.api_server import ApiServer

LIMIT = 600.0
"""Seconds that what was known last counts while the API server is away."""

ASKED = 3600.0
"""Seconds until a namespace that nobody asks about any more is watched no longer."""

W = TypeVar("W", bound=Wire)
R = TypeVar("R")


@frozen
class _Members:
    """The pods of a workload, terminating ones included, and how many replicas it wants."""

    title: str
    pods: tuple[Pod, ...]
    wanted: int
    grouped: bool

    @property
    def living(self) -> tuple[Pod, ...]:
        """Those that count as replicas, or as parts of one."""
        return tuple(pod for pod in self.pods if not pod.terminating)


def _no_devices(node: str) -> Iterable[Device]:
    return ()


class Cluster:
    """The picture of a cluster. For one event loop; `run` keeps it current.

    With ``namespaces`` only these are looked at, and the account needs no right beyond them.
    ``sequence`` grows with every change. ``limit`` is how many seconds what was known counts while
    no news comes; after ``kept`` seconds pods that nobody asks about are watched no longer.
    """

    def __init__(
        self,
        api: ApiServer,
        namespaces: Iterable[str] = (),
        *,
        limit: float = LIMIT,
        kept: float = ASKED,
        pace: Pace = PACE,
        scale_pace: ScalePace = SCALE_PACE,
    ) -> None:
        self.sequence = 0
        self._api = api
        self._namespaces = frozenset(namespaces)
        self._limit = limit
        self._kept = kept
        self._pace = pace
        self._subscribers: list[Callable[[], None]] = []
        self._watches: dict[tuple[str, ...], Watch[Any, Any, Any]] = {}
        self._tasks: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._asked: dict[str, float] = {}
        self._scales = Scales(api, self._changed, limit=limit, pace=scale_pace)
        self._slices = Slices(api, self._changed, limit=limit, pace=pace)
        for namespace in self._namespaces or {None}:
            self._scaled_objects(namespace)
            self._scaled_jobs(namespace)

    @property
    def ready(self) -> bool:
        """Whether the ScaledObjects have been read, or are known not to be readable."""
        return all(
            watch.synced or watch.refused
            for key, watch in self._watches.items()
            if key[0] == "scaledobjects"
        )

    @property
    def problem(self) -> str | None:
        """What is not current, with the reasons, or None."""
        texts = [f"{each.objects}: {each.problem}" for each in self.states() if each.problem]
        return "; ".join(texts) or None

    def states(self) -> tuple[WatchState, ...]:
        """How each of the watches does."""
        watches = list(self._watches.values())
        if self._slices.watch is not None:
            watches.append(self._slices.watch)
        return tuple(watch.state for watch in watches)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have ``callback`` called after every change of ``sequence``; returns undo."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    async def run(self) -> None:
        """Watch and read, until cancelled; then all connections are closed."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._tasks.clear()
                for key in self._watches:
                    self._start(key)
                group.create_task(self._scales.run())
                group.create_task(self._slices.run())
                group.create_task(self._tidy())
        except asyncio.CancelledError:
            await self._api.close()
            raise
        finally:
            self._group = None

    def workload(
        self,
        namespace: str,
        name: str,
        trigger: Trigger,
        allocations_of: AllocationsOf,
        devices_of: DevicesOf = _no_devices,
    ) -> Workload:
        """The replicas of what this ScaledObject or ScaledJob scales, with the devices they hold.

        ``podSelector``, ``container`` and ``node`` of the trigger are applied; ``devices`` and
        ``vendor`` are not (see `accelscale.attribution.counted_devices`).

        Raises:
            NotFoundError: no such ScaledObject, scale target or container; or the trigger selects
                none of the pods.
            NoDataError: it is not known yet, or not known any more.
            ForbiddenError: the scaler may not see what it needs, or not serve this namespace.
            UnsupportedError: the target cannot be scaled, or a pod holds no accelerator.
        """
        members = self._members(self._scaled(namespace, name))
        chosen = [pod for pod in members.living if _chosen(trigger, pod)]
        if members.living and not chosen:
            raise NotFoundError(_nothing_chosen(trigger, members))
        problem = self._pods(namespace).problem
        outdated = "" if problem is None else f"no news of pods from the API server: {problem}"
        holdings = Holdings(allocations_of, devices_of, self._slices.claimed, outdated)
        make = group_replicas if members.grouped else pod_replicas
        replicas: tuple[Replica, ...] = tuple(make(chosen, holdings, trigger.container))
        if not replicas and members.wanted:
            raise NoDataError(
                f"{members.title} wants {members.wanted} replicas, and has no pod that runs or is"
                " about to"
            )
        return Workload(members.title, replicas, namespace, "workload")

    def metric_type(
        self, namespace: str, name: str, metadata: Mapping[str, str]
    ) -> MetricType | None:
        """KEDA's metricType for the trigger with this metadata, or None where it cannot be told.

        Once known it counts for however long the API server is away.

        Raises:
            NoDataError: the ScaledObjects have not been read yet.
        """
        try:
            scaled = self._scaled(namespace, name, limit=math.inf)
        except (ForbiddenError, NotFoundError):
            return None
        return scaled.metric_type(metadata)

    def bounds(self, namespace: str, name: str) -> tuple[int, int] | None:
        """The least and the most replicas that the ScaledObject allows, or None."""
        try:
            scaled = self._scaled(namespace, name)
        except AccelscaleError:
            return None
        return scaled.least, scaled.most

    def triggers(self, namespace: str, name: str) -> tuple[Mapping[str, str], ...]:
        """The metadata of the external triggers that stand there now; none if that is not known."""
        try:
            scaled = self._scaled(namespace, name)
        except AccelscaleError:
            return ()
        return tuple(trigger.metadata for trigger in scaled.external)

    def replicas(self, namespace: str, name: str) -> tuple[int, int] | None:
        """How many replicas there are, and how many of them an HPA finds Ready, or None.

        Like the HPA, this counts a pod as Ready that is terminating.
        """
        try:
            members = self._members(self._scaled(namespace, name))
        except AccelscaleError:
            return None
        if members.grouped:
            return len(leaders(members.living)), sum(pod.ready for pod in leaders(members.pods))
        return len(members.living), sum(pod.ready for pod in members.pods)

    def agents(self, namespace: str, service: str) -> frozenset[str]:
        """HOST:PORT of each pod behind a headless Service; the last known ones in an outage.

        Raises:
            NoDataError, ForbiddenError: none are known yet.
        """
        return frozenset(self.agent_nodes(namespace, service))

    def agent_nodes(self, namespace: str, service: str) -> dict[str, str | None]:
        """As `agents`, each with the name of its node where that is told."""
        watch = self._watch(
            ("endpointslices", namespace, service),
            lambda: endpoints.endpoints_of(namespace, service),
            endpoints.EndpointSliceWire,
            endpoints.endpoint_slice_record,
        )
        return endpoints.addresses(need(watch, math.inf).objects.values())

    def _scaled(self, namespace: str, name: str, limit: float | None = None) -> Scaled:
        limit = self._limit if limit is None else limit
        if self._namespaces and namespace not in self._namespaces:
            served = ", ".join(sorted(self._namespaces))
            raise ForbiddenError(f"this scaler serves the namespaces {served}, not {namespace}")
        within = namespace if self._namespaces else None
        objects, jobs = self._scaled_objects(within), self._scaled_jobs(within)
        found = objects.store.objects.get((namespace, name))
        job = jobs.store.objects.get((namespace, name))
        if job is not None and (found is None or (job.asks_outside and not found.asks_outside)):
            found, objects = job, jobs
        need(objects, limit)
        if found is not None:
            return found
        try:
            need(jobs, limit)
        except ForbiddenError as error:
            raise NotFoundError(f"no ScaledObject {namespace}/{name}; {error}") from error
        except NoDataError:
            if not jobs.refused:  # there are clusters without ScaledJobs
                raise
        raise NotFoundError(f"no ScaledObject or ScaledJob {namespace}/{name}")

    def _members(self, scaled: Scaled) -> _Members:
        """The pods of what is scaled; the first question has them watched."""
        self._asked[scaled.namespace] = time.monotonic()
        watch = self._pods(scaled.namespace)
        target, grouped, wanted = scaled.target, False, 0
        if target is None:
            title, selector = str(scaled), _labelled(targets.JOB_LABEL, scaled.name)
        else:
            scale = self._scales.of(target)
            title, selector, wanted = str(target), scale.selector, scale.wanted
            grouped = target.kind == GROUP_SET
            if grouped:
                selector = _labelled(GROUP_SET_NAME, target.name)
            if not selector.requirements:
                raise NoDataError(f"{target} tells no selector of its pods in its scale yet")
        need(watch, self._limit)
        members = tuple(watch.store.selected(selector))
        if target is not None and bool(members) != bool(wanted):
            self._scales.read_soon(target)
        return _Members(title, members, wanted, grouped)

    def _scaled_objects(self, namespace: str | None) -> Watch[ScaledWire, Scaled, Store[Scaled]]:
        return self._watch(
            ("scaledobjects", namespace or ""),
            lambda: targets.scaled_objects(namespace),
            ScaledWire,
            targets.scaled_object_record,
        )

    def _scaled_jobs(self, namespace: str | None) -> Watch[ScaledWire, Scaled, Store[Scaled]]:
        return self._watch(
            ("scaledjobs", namespace or ""),
            lambda: targets.scaled_jobs(namespace),
            ScaledWire,
            targets.scaled_job_record,
        )

    def _pods(self, namespace: str) -> Watch[PodWire, Pod, PodStore]:
        key = ("pods", namespace)
        if key not in self._watches:
            self._add(
                key,
                Watch(
                    self._api,
                    pods_of(namespace),
                    PodWire,
                    pod_record,
                    PodStore(),
                    self._changed,
                    self._pace,
                ),
            )
        return self._watches[key]

    def _watch(
        self,
        key: tuple[str, ...],
        collection: Callable[[], Collection],
        wire: type[W],
        record: Callable[[W], R],
    ) -> Watch[W, R, Store[R]]:
        if key not in self._watches:
            store: Store[R] = Store()
            made = Watch(self._api, collection(), wire, record, store, self._changed, self._pace)
            self._add(key, made)
        return self._watches[key]

    def _add(self, key: tuple[str, ...], watch: Watch[Any, Any, Any]) -> None:
        self._watches[key] = watch
        self._start(key)

    def _start(self, key: tuple[str, ...]) -> None:
        if self._group is not None:
            self._tasks[key] = self._group.create_task(self._watches[key].run())

    async def _tidy(self) -> None:
        """Stop watching the pods of namespaces that nobody asks about any more."""
        while True:
            await asyncio.sleep(self._kept / 10)
            now = time.monotonic()
            for namespace, asked in list(self._asked.items()):
                if now - asked > self._kept:
                    del self._asked[namespace], self._watches["pods", namespace]
                    self._tasks.pop(("pods", namespace)).cancel()

    def _changed(self) -> None:
        self.sequence += 1
        for subscriber in tuple(self._subscribers):
            subscriber()


def _labelled(label: str, value: str) -> Selector:
    return Selector((Requirement(label, frozenset({value})),), f"{label}={value}")


def _chosen(trigger: Trigger, pod: Pod) -> bool:
    if trigger.node is not None and pod.node != trigger.node:
        return False
    return trigger.pod_selector is None or trigger.pod_selector.matches(pod.labels)


def _nothing_chosen(trigger: Trigger, members: _Members) -> str:
    keys = {"podSelector": trigger.pod_selector, "node": trigger.node}
    written = " and ".join(f"{key}={text}" for key, text in keys.items() if text is not None)
    names = ", ".join(pod.name for pod in members.living[:3])
    more = f" and {len(members.living) - 3} more" if len(members.living) > 3 else ""
    return f"{written} selects none of the pods of {members.title}, which are {names}{more}"
