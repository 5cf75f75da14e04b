"""Reads the scale subresource of targets: the selector of their pods, and how many they want.

Scale subresources cannot be watched. Those that somebody asks about are read again every minute or
so, a few at a time, and never while a caller waits.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable

import msgspec
from attrs import define, frozen

from accelscale.errors import (
    AccelscaleError,
    ForbiddenError,
    NoDataError,
    NotFoundError,
    UnsupportedError,
)
from accelscale.selectors import Selector, parse_selector
from accelscale_server.api_server import ApiError, ApiServer
from accelscale_server.targets import Target
from accelscale_server.watching import FORBIDDEN, NOT_SERVED

logger = logging.getLogger("accelscale_server.cluster")

READERS = 8
"""Reads in progress at one time."""

SETTLED = 3600.0
"""Seconds until a target that nobody asks about any more is forgotten."""


@frozen
class ScalePace:
    """Seconds until a scale is read again: after a good answer, a refusal, a failure.

    ``spacing`` is the least time that a reader takes for a scale that was read before.
    """

    refresh: float = 60.0
    refused: float = 15.0
    failed: float = 2.0
    longest: float = 60.0
    spacing: float = 0.4


SCALE_PACE = ScalePace()


@frozen
class Scale:
    """What a target says of itself: its pods, and how many replicas are wanted and counted."""

    selector: Selector
    wanted: int
    counted: int


class _ScaleSpec(msgspec.Struct):
    replicas: int = 0


class _ScaleStatus(msgspec.Struct):
    replicas: int = 0
    selector: str = ""


class _ScaleWire(msgspec.Struct):
    spec: _ScaleSpec
    status: _ScaleStatus


@define
class _Entry:
    scale: Scale | None = None
    read: float = -math.inf
    error: AccelscaleError | None = None
    due: float = -math.inf
    asked: float = 0.0
    failures: int = 0
    busy: bool = False


class Scales:
    """The scales of the targets that were asked about. For one event loop.

    ``changed`` is called whenever one has changed. An answer counts for ``limit`` seconds while no
    newer one comes.
    """

    def __init__(
        self,
        api: ApiServer,
        changed: Callable[[], None],
        *,
        limit: float,
        pace: ScalePace = SCALE_PACE,
    ) -> None:
        self._api = api
        self._kinds = Kinds(api)
        self._changed = changed
        self._limit = limit
        self._pace = pace
        self._entries: dict[Target, _Entry] = {}
        self._wanted = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, target: Target) -> Scale:
        """The scale of a target as it was read last; the first question has it read.

        Raises:
            NoDataError: it has not been read yet, or not for too long.
            NotFoundError, ForbiddenError, UnsupportedError: as the API server said.
        """
        entry = self._entries.get(target)
        if entry is None:
            entry = self._entries[target] = _Entry()
            self._wanted.set()
        entry.asked = time.monotonic()
        if entry.scale is not None and entry.asked - entry.read <= self._limit:
            return entry.scale
        if entry.error is not None:
            raise entry.error.with_traceback(None)
        raise NoDataError(f"the scale of {target} has not been read yet")

    def read_soon(self, target: Target) -> None:
        """Read it again, since something says that it has changed."""
        entry = self._entries.get(target)
        if entry is not None:
            soon = time.monotonic() + self._pace.failed
            entry.due = min(entry.due, max(soon, entry.read + self._pace.failed))
            self._wanted.set()

    async def run(self) -> None:
        """Read what is due, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(READERS):
                group.create_task(self._reader())

    async def _reader(self) -> None:
        while True:
            target, wait = self._next()
            if target is None:
                self._wanted.clear()
                try:
                    async with asyncio.timeout(wait):
                        await self._wanted.wait()
                except TimeoutError:
                    continue
            else:
                entry = self._entries[target]
                again = entry.read > -math.inf
                entry.busy = True
                try:
                    await self._read(target, entry)
                finally:
                    entry.busy = False
                await asyncio.sleep(self._pace.spacing if again else 0)

    def _next(self) -> tuple[Target | None, float]:
        """The target that is due, or how long none will be."""
        now = time.monotonic()
        for target in [t for t, e in self._entries.items() if now - e.asked > SETTLED]:
            del self._entries[target]
        waiting = [(e.due, t) for t, e in self._entries.items() if not e.busy]
        if not waiting:
            return None, self._pace.refresh
        due, target = min(waiting, key=lambda pair: pair[0])
        return (target, 0.0) if due <= now else (None, due - now)

    async def _read(self, target: Target, entry: _Entry) -> None:
        before = entry.scale, str(entry.error)
        try:
            entry.scale = await self._scale(target)
        except ApiError as error:
            self._note(target, entry, NoDataError(f"the scale of {target} cannot be read: {error}"))
            growing = self._pace.failed * 2.0 ** min(entry.failures, 16)
            pause = max(min(growing, self._pace.longest), error.retry_after)
            entry.failures += 1
        except AccelscaleError as error:
            self._note(target, entry, error)
            entry.scale = None
            pause = self._pace.refused
        else:
            entry.read, entry.error, entry.failures = time.monotonic(), None, 0
            pause = self._pace.refresh
        entry.due = time.monotonic() + pause * random.uniform(0.8, 1.0)  # noqa: S311 - no secret
        if before != (entry.scale, str(entry.error)):
            self._changed()

    def _note(self, target: Target, entry: _Entry, error: AccelscaleError) -> None:
        if str(error) != str(entry.error):
            logger.warning("no scale", extra={"target": str(target), "why": str(error)})
        entry.error = error

    async def _scale(self, target: Target) -> Scale:
        plural = await self._kinds.plural(target)
        base = f"apis/{target.group_version}" if target.group else f"api/{target.version}"
        path = f"{base}/namespaces/{target.namespace}/{plural}/{target.name}/scale"
        try:
            body = await self._api.get(path)
        except ApiError as error:
            if error.status == NOT_SERVED:
                raise NotFoundError(f"scale target {target} does not exist") from error
            if error.status == FORBIDDEN:
                group = f" of API group {target.group}" if target.group else ""
                raise ForbiddenError(
                    f"the scaler may not read the scale of {target}: its account needs the right"
                    f" to get {plural}/scale{group}"
                ) from error
            raise
        try:
            wire = msgspec.json.decode(body, type=_ScaleWire)
        except msgspec.DecodeError as error:
            raise ApiError(f"not understood: {error}") from error
        try:
            selector = parse_selector(wire.status.selector)
        except ValueError as error:
            raise UnsupportedError(f"{target}: the selector in its scale: {error}") from error
        return Scale(selector, wire.spec.replicas, wire.status.replicas)


class _KindLine(msgspec.Struct):
    name: str
    kind: str


class _KindList(msgspec.Struct):
    resources: list[_KindLine]


_WELL_KNOWN = {
    ("apps/v1", "Deployment"): "deployments",
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("apps/v1", "ReplicaSet"): "replicasets",
}


class Kinds:
    """Which resource has the objects of a kind, by the API server's own lists."""

    def __init__(self, api: ApiServer, *, remembered: float = 600.0) -> None:
        self._api = api
        self._remembered = remembered
        self._lists: dict[str, tuple[float, list[_KindLine]]] = {}

    async def plural(self, target: Target) -> str:
        """The name of the resource in paths, such as ``rollouts``.

        Raises:
            NotFoundError: the server has no such kind.
            UnsupportedError: objects of this kind cannot be scaled.
            ApiError: the server does not say.
        """
        known = _WELL_KNOWN.get((target.group_version, target.kind))
        if known is not None:
            return known
        lines = await self._of(target)
        names = {line.name for line in lines}
        plurals = [line.name for line in lines if line.kind == target.kind and "/" not in line.name]
        for plural in plurals:
            if f"{plural}/scale" in names:
                return plural
        if plurals:
            raise UnsupportedError(
                f"{target} cannot be scaled: {target.group_version} {target.kind} has no scale"
                " subresource"
            )
        raise NotFoundError(
            f"scale target {target}: the API server knows no kind {target.kind} in"
            f" {target.group_version}"
        )

    async def _of(self, target: Target) -> list[_KindLine]:
        read, lines = self._lists.get(target.group_version, (-math.inf, []))
        known = any(line.kind == target.kind for line in lines)
        if known and time.monotonic() - read < self._remembered:
            return lines
        base = "apis" if target.group else "api"
        try:
            body = await self._api.get(f"{base}/{target.group_version}")
            lines = msgspec.json.decode(body, type=_KindList).resources
        except ApiError as error:
            if error.status != NOT_SERVED:
                raise
            lines = []
        except msgspec.DecodeError as error:
            raise ApiError(f"not understood: {error}") from error
        self._lists[target.group_version] = time.monotonic(), lines
        return lines
