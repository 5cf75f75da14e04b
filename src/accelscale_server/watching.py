"""A copy of some objects of the API server, kept current by list and watch.

A list gives all objects and a version, a watch every change after a version. This loop is our own,
over lightkube's connection. lightkube's (1.0) reads without a time limit, so that it waits for
ever on a connection whose other end is gone; it starts anew after 410 without learning what was
deleted meanwhile, ends on a refused connection, takes a bookmark for an object, and splits events
at U+0085, which may stand in an annotation. It also makes whole objects, where we keep few fields.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from attrs import frozen

from accelscale.errors import ForbiddenError, NoDataError
from accelscale_server.api_server import ApiError, ApiServer, SilenceError, Status

logger = logging.getLogger("accelscale_server.cluster")

PAGE = 250
"""Objects in one page of a list: few enough that calls do not wait long for it to be read."""

TURN = 20
"""Events taken in one turn of the event loop, so that a burst of them holds up no call."""

GONE = 410
FORBIDDEN = 403
NOT_SERVED = 404

Key = tuple[str, str]
"""Namespace and name."""


@frozen
class Pace:
    """How long a watch waits for what, in seconds.

    The server ends a watch after ``lifetime`` and sends a bookmark each minute; after ``silence``
    without anything the connection is given up. Pauses grow from ``first_pause`` to
    ``longest_pause`` with the failures in a row, or are ``refused_pause`` where nothing but an
    administrator can help.
    """

    lifetime: float = 300.0
    silence: float = 75.0
    first_pause: float = 0.5
    longest_pause: float = 30.0
    refused_pause: float = 60.0


PACE = Pace()


@frozen
class Collection:
    """Which objects: a resource, of one namespace or of all, narrowed by selectors."""

    group: str
    version: str
    plural: str
    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    @property
    def path(self) -> str:
        """Where the objects are, relative to the server's address."""
        base = f"apis/{self.group}/{self.version}" if self.group else f"api/{self.version}"
        if self.namespace is None:
            return f"{base}/{self.plural}"
        return f"{base}/namespaces/{self.namespace}/{self.plural}"

    @property
    def selectors(self) -> dict[str, str]:
        """The selectors as parameters of a request."""
        given = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: text for name, text in given.items() if text}

    def __str__(self) -> str:
        name = f"{self.plural}.{self.group}" if self.group else self.plural
        return name if self.namespace is None else f"{name} in namespace {self.namespace}"


class Metadata(msgspec.Struct, rename="camel"):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class Wire(msgspec.Struct):
    """An object as it arrives; subclasses name the fields that are kept, all others are skipped."""

    metadata: Metadata


class _ListMetadata(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    token: str = msgspec.field(name="continue", default="")


W = TypeVar("W", bound=Wire)
R = TypeVar("R")


class _Page(msgspec.Struct, Generic[W]):
    kind: str
    metadata: _ListMetadata
    items: list[W] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class Store(Generic[R]):
    """The objects that are there, as far as is known; ``revision`` grows with every difference."""

    def __init__(self) -> None:
        self.objects: dict[Key, R] = {}
        self.revision = 0

    def put(self, key: Key, record: R) -> None:
        """One is new or has changed; a change in nothing that is kept is none."""
        old = self.objects.get(key)
        if old != record:
            self.objects[key] = record
            self.revision += 1
            self.noted(key, old, record)

    def drop(self, key: Key) -> None:
        """One is gone."""
        old = self.objects.pop(key, None)
        if old is not None:
            self.revision += 1
            self.noted(key, old, None)

    def noted(self, key: Key, old: R | None, new: R | None) -> None:
        """Called after each difference, for those who keep an index."""

    def replace(self, records: Mapping[Key, R]) -> None:
        """These are all."""
        for key in self.objects.keys() - records.keys():
            self.drop(key)
        for key, record in records.items():
            self.put(key, record)


S = TypeVar("S", bound="Store[Any]")


@frozen
class WatchState:
    """How watching some objects goes; ``age`` is the seconds since the server was heard."""

    objects: str
    count: int
    synced: bool
    age: float
    lists: int
    problem: str | None


class Watch(Generic[W, R, S]):
    """Keeps a store equal to a collection while `run` runs. For one event loop.

    ``record`` turns what arrived into what is kept. ``changed`` is called after each difference.
    ``synced`` says whether there has been a whole list; ``problem`` why there is no news now.
    ``version`` is the resource version up to which the store is right.
    """

    def __init__(
        self,
        api: ApiServer,
        collection: Collection,
        wire: type[W],
        record: Callable[[W], R],
        store: S,
        changed: Callable[[], None],
        pace: Pace = PACE,
    ) -> None:
        self.collection = collection
        self.store = store
        self.synced = False
        self.problem: ApiError | None = None
        self.lists = 0
        self._api = api
        self._record = record
        self._changed = changed
        self._pace = pace
        self._page = msgspec.json.Decoder(_Page[wire])  # type: ignore[valid-type]
        self._object = msgspec.json.Decoder(wire)
        self.version = ""
        self._heard = -math.inf
        self._failures = 0

    @property
    def age(self) -> float:
        """Seconds since the server last showed that the store is current."""
        return time.monotonic() - self._heard

    @property
    def refused(self) -> bool:
        """Whether only an administrator can bring these objects into sight."""
        return self.problem is not None and self.problem.status in (FORBIDDEN, NOT_SERVED)

    @property
    def state(self) -> WatchState:
        """How it goes."""
        problem = None if self.problem is None else str(self.problem)
        count = len(self.store.objects)
        return WatchState(str(self.collection), count, self.synced, self.age, self.lists, problem)

    async def run(self, *, while_served: bool = False) -> None:
        """List and watch, until cancelled, or until the server has no such resource."""
        while True:
            pause = await self._turn()
            if while_served and self.problem is not None and self.problem.status == NOT_SERVED:
                return
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def _turn(self) -> float:
        """List if need be, and watch to the end; gives the pause after it."""
        began = time.monotonic()
        try:
            if not self.version:
                await self._list()
            await self._follow()
        except SilenceError:
            return 0.0  # a quiet server without bookmarks looks like this, too
        except ApiError as error:
            return self._after(error)
        except Exception as error:
            logger.exception("watching failed", extra={"objects": str(self.collection)})
            return self._after(ApiError(f"{type(error).__name__}: {error}"))
        return self._after_end(time.monotonic() - began)

    async def _list(self) -> None:
        """All objects, page by page; they count only once the last page is there."""
        found: dict[Key, R] = {}
        parameters = {"limit": str(PAGE), **self.collection.selectors}
        while True:
            body = await self._api.get(self.collection.path, parameters)
            try:
                page = self._page.decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ApiError(f"not understood: {error}") from error
            if not page.kind.endswith("List") or not page.metadata.resource_version:
                raise ApiError(f"asked for a list, got {page.kind}")
            for item in page.items or ():
                found[_key(item)] = self._record(item)
            if not page.metadata.token:
                break
            parameters["continue"] = page.metadata.token
        self.lists += 1
        self.version = page.metadata.resource_version
        self._alive()
        before = self.store.revision, self.synced
        self.synced = True
        self.store.replace(found)
        if before != (self.store.revision, True):
            self._changed()

    async def _follow(self) -> None:
        """Every change after the version, until the server ends it."""
        parameters = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.version,
            "timeoutSeconds": str(max(1, round(self._pace.lifetime * random.uniform(0.8, 1.0)))),  # noqa: S311
            **self.collection.selectors,
        }
        path, silence = self.collection.path, self._pace.silence
        async with self._api.lines(path, parameters, silence) as lines:
            self._alive()
            count = 0
            async for line in lines:
                self._take(line)
                self._alive()
                self._failures = 0
                count += 1
                if count % TURN == 0:
                    await asyncio.sleep(0)

    def _take(self, line: bytes) -> None:
        try:
            event = _EVENT.decode(line)
            if event.type == "ERROR":
                status = _STATUS.decode(event.object)
                raise ApiError(status.message or status.reason, status.code or None)
            if event.type == "BOOKMARK":
                self._advance(_BARE.decode(event.object).metadata)
                return
            item = self._object.decode(event.object)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiError(f"not understood: {error}") from error
        self._advance(item.metadata)
        before = self.store.revision
        if event.type == "DELETED":
            self.store.drop(_key(item))
        elif event.type in ("ADDED", "MODIFIED"):
            self.store.put(_key(item), self._record(item))
        else:
            raise ApiError(f"not understood: an event of type {event.type}")
        if self.store.revision != before:
            self._changed()

    def _advance(self, metadata: Metadata) -> None:
        """Versions only grow, unless the server was put back to a backup: then nothing is sure."""
        new, old = metadata.resource_version, self.version
        if new.isdigit() and old.isdigit() and int(new) < int(old):
            raise ApiError(f"the server went back from version {old} to {new}", GONE)
        self.version = new or old

    def _alive(self) -> None:
        self._heard = time.monotonic()
        if self.problem is not None:
            logger.info("watching again", extra={"objects": str(self.collection)})
            self.problem = None

    def _after_end(self, seconds: float) -> float:
        """The pause after a watch that ended in good order; one that always ends at once is ill."""
        if seconds > self._pace.first_pause:
            self._failures = 0
            return 0.0
        return self._longer_pause()

    def _after(self, error: ApiError) -> float:
        """The pause after a failure; what is known stays as it is."""
        if error.status == GONE:
            self.version = ""
            text = "the version is too old; listing anew"
            logger.info(text, extra={"objects": str(self.collection), "why": str(error)})
            return self._longer_pause() if self._failures else self._failed_once()
        if self.problem is None or self.problem.status != error.status:
            extra = {"objects": str(self.collection), "why": str(error), "status": error.status}
            logger.warning("watching failed", extra=extra)
        self.problem = error
        if self.refused:
            return self._pace.refused_pause
        return max(self._longer_pause(), error.retry_after)

    def _failed_once(self) -> float:
        self._failures = 1
        return 0.0

    def _longer_pause(self) -> float:
        self._failures += 1
        growing = self._pace.first_pause * 2.0 ** min(self._failures - 1, 16)
        return min(growing, self._pace.longest_pause)


def need(watch: Watch[W, R, S], limit: float) -> S:
    """The store of a watch, if it may be relied on.

    Raises:
        ForbiddenError: the account may not watch these objects.
        NoDataError: they were never listed, or the server was not heard for ``limit`` seconds.
    """
    problem, objects = watch.problem, watch.collection
    if watch.synced and watch.age <= limit:
        return watch.store
    if problem is not None and problem.status == FORBIDDEN:
        raise ForbiddenError(
            f"the scaler may not see {objects}: its account needs the rights to list and to watch"
            " them"
        )
    why = f": {problem}" if problem is not None else ""
    if not watch.synced:
        raise NoDataError(f"{objects} have not been read yet{why}")
    raise NoDataError(f"no news of {objects} from the API server for {watch.age:.0f} s{why}")


_EVENT = msgspec.json.Decoder(_Event)
_STATUS = msgspec.json.Decoder(Status)
_BARE = msgspec.json.Decoder(Wire)


def _key(item: Wire) -> Key:
    return item.metadata.namespace, item.metadata.name
