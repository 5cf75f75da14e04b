"""A Kubernetes API server for tests: real HTTP on the loopback, list and watch as it does them.

Objects are dictionaries as in JSON. Every change gets the next resource version. A list is
consistent, comes in pages and names its version; a watch sends every change after a version, once
and in order, with bookmarks, and tells a version that is too old with 410. Faults are switched on
by the test. HTTP is served by a thread of its own; everything else may be called from any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from attrs import define

from kubernetes.semantics import (
    Asked,
    Key,
    Object,
    Reply,
    Resource,
    bookmark_of,
    chosen_by,
    event_of,
    group_description,
    resource_list,
    scale_of,
    split_path,
)
from kubernetes.storage import Storage


@define(eq=False)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    watching: str | None = None  # the plural, while a watch is open here
    silent: bool = False


class ApiServerStandIn:
    """Start it, fill it with `put`, and break it.

    ``folder`` gets the token file that the kubeconfig names.
    """

    def __init__(self, folder: Path, *, tls: ssl.SSLContext | None = None) -> None:
        self.storage = Storage()
        self.tokens = {"first"}
        self.forbidden: set[tuple[str, str]] = set()  # (verb, plural)
        self.instead: Callable[[Asked], Reply | None] = lambda asked: None
        self.hanging = False
        self.delay = 0.0
        self.bookmark_seconds = 60.0
        self.expired_in_stream = False  # whether a watch says 410 as an event or as a status
        self.requests: list[Asked] = []
        self.token_file = folder / "token"
        self._folder = folder
        self._tls = tls
        self._connections: set[_Connection] = set()
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api-server")

    # The test's side: the life of the server.

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        self.token_file.write_text("first\n")
        self.come_back()

    def stop(self) -> None:
        """End for good."""
        if self._thread.is_alive():
            self.go_away()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
        self._loop.close()

    def go_away(self) -> None:
        """Refuse connections, and cut those that are open."""
        self._do(self._close())

    def come_back(self) -> None:
        """Answer again, at the same address."""
        self._do(self._listen())

    @property
    def port(self) -> int:
        """Where it answers on the loopback interface."""
        return self._port

    def kubeconfig(self, **cluster: str) -> Path:
        """A kubeconfig whose user has a token file, like an account in a pod."""
        path = self._folder / "kubeconfig"
        scheme = "https" if self._tls else "http"
        server = {"server": f"{scheme}://127.0.0.1:{self._port}", **cluster}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "test", "user": {"tokenFile": str(self.token_file)}}],
        }
        path.write_text(json.dumps(config))
        return path

    def write_token(self, token: str) -> None:
        """Replace the token file as the kubelet does, by a rename; `tokens` says which count."""
        new = self.token_file.with_suffix(".new")
        new.write_text(token)
        new.rename(self.token_file)

    # The test's side: objects.

    def put(self, plural: str, *values: Object) -> None:
        """Create or replace objects."""
        for value in values:
            self.storage.put(plural, value)
        self._announce()

    def delete(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object, at once."""
        self.storage.delete(plural, namespace, name)
        self._announce()

    def objects(self, plural: str) -> dict[Key, Object]:
        """The truth: all objects of a resource, by namespace and name."""
        return self.storage.objects(plural)

    def serve(self, resource: Resource) -> None:
        """Know one more resource."""
        self.storage.resources[resource.group_version, resource.plural] = resource

    def withdraw(self, plural: str) -> None:
        """Know a resource no more."""
        resource = self.storage.resource(plural)
        del self.storage.resources[resource.group_version, plural]

    # The test's side: faults and figures.

    def drop_connections(self) -> None:
        """Cut all connections, in the middle of whatever they carry."""
        self._do(self._cut())

    def silence_watches(self) -> None:
        """Send nothing more on the watches that are open, and leave them open."""
        for connection in list(self._connections):
            connection.silent = connection.watching is not None

    @property
    def watching(self) -> list[str]:
        """The resources of the watches that are open and speak."""
        open_ones = list(self._connections)
        return sorted(c.watching for c in open_ones if c.watching and not c.silent)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def count(self, verb: str, plural: str = "") -> int:
        """How often this was asked."""
        asked = list(self.requests)
        return sum(1 for each in asked if each.verb == verb and plural in ("", each.plural))

    # From here on: the server's thread.

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _announce(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, ssl=self._tls
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            for socket in self._server.sockets:
                self._loop.remove_reader(socket)
            await asyncio.sleep(0.01)  # asyncio leaks what it is accepting while a server closes
            self._server.close()
            self._server = None
        await self._cut()

    async def _cut(self) -> None:
        cut = set(self._connections)
        for connection in cut:
            connection.writer.transport.abort()
        while cut & self._connections:  # noqa: ASYNC110 - they leave one by one
            await asyncio.sleep(0.001)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(reader, writer)
        self._connections.add(connection)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    await self._one(connection)
        finally:
            self._connections.discard(connection)
            writer.transport.abort()

    async def _one(self, connection: _Connection) -> None:
        """Read a request and answer it."""
        head = (await connection.reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (text.partition(":") for text in lines)}
        url = urlsplit(line.split(" ")[1])
        while self.hanging:
            await asyncio.sleep(0.01)
            if connection.reader.at_eof():
                raise ConnectionResetError
        await asyncio.sleep(self.delay)
        try:
            payload = await self._answer(connection, url.path, dict(parse_qsl(url.query)), headers)
            if payload is None:
                return
            status, more = 200, {}
        except Reply as reply:
            payload, status, more = reply.payload(), reply.status, dict(reply.headers)
        if len(payload) > 128 * 1024 and "gzip" in headers.get("accept-encoding", ""):
            payload, more = gzip.compress(payload, 1), {**more, "Content-Encoding": "gzip"}
        length = str(len(payload))
        more = {"Content-Type": "application/json", "Content-Length": length, **more}
        lines = [f"HTTP/1.1 {status} -", *(f"{k}: {v}" for k, v in more.items()), "", ""]
        connection.writer.write("\r\n".join(lines).encode() + payload)
        await connection.writer.drain()

    async def _answer(
        self,
        connection: _Connection,
        path: str,
        parameters: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> bytes | None:
        if headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            raise Reply(401, "Unauthorized")
        group_version, namespace, rest = split_path(path)
        verb = "discover" if not rest else "get" if len(rest) > 1 else "list"
        if parameters.get("watch") == "true":
            verb = "watch"
        name = "/".join(rest[::2])
        self.requests.append(Asked(name, verb, path, parameters))
        if (instead := self.instead(self.requests[-1])) is not None:
            raise instead
        if not rest:
            return json.dumps(self._discovered(group_version)).encode()
        resource = self.storage.resources.get((group_version, rest[0]))
        if resource is None:
            raise Reply(404, "the server could not find the requested resource")
        if (verb, name) in self.forbidden:
            where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
            raise Reply(403, f'{name} is forbidden: User "test" cannot {verb} it{where}')
        if verb == "watch":
            await self._watch(connection, resource, namespace, parameters)
            return None
        if verb == "list":
            return json.dumps(self.storage.page(resource, namespace, parameters)).encode()
        return json.dumps(self._object(resource, namespace, rest)).encode()

    def _discovered(self, group_version: str) -> Object:
        resources = list(self.storage.resources.values())
        if "/" in group_version or group_version == "v1":
            served = [each for each in resources if each.group_version == group_version]
            if served:
                return resource_list(group_version, served)
        versions = [each.version for each in resources if each.group == group_version]
        if not versions:
            raise Reply(404, body=b"404 page not found\n")
        return group_description(group_version, list(dict.fromkeys(versions)))

    def _object(self, resource: Resource, namespace: str, rest: list[str]) -> Object:
        found = self.storage.find(resource, (namespace, rest[1]))
        wants_scale = rest[2:] == ["scale"]
        if found is None or (wants_scale and not resource.scalable):
            raise Reply(404, f'{resource.plural} "{rest[1]}" not found')
        return scale_of(found) if wants_scale else found

    async def _watch(
        self,
        connection: _Connection,
        resource: Resource,
        namespace: str,
        parameters: Mapping[str, str],
    ) -> None:
        """Send events until the time of the watch is over."""
        seen = int(parameters.get("resourceVersion") or 0)
        if seen < self.storage.oldest and not self.expired_in_stream:
            raise self._expired(seen)
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
        connection.writer.write(f"{head}\r\n\r\n".encode())
        connection.watching = resource.plural
        chosen = chosen_by(namespace, parameters)
        until = time.monotonic() + float(parameters.get("timeoutSeconds") or 1800)
        bookmark_at = time.monotonic() + self.bookmark_seconds
        while time.monotonic() < until:
            news = self._news
            if seen < self.storage.oldest:
                self._send(connection, "ERROR", self._expired(seen).as_status())
                break
            now = self.storage.version
            for change in self.storage.changes_after(seen):
                seen = change.version
                if change.resource is resource and (event := event_of(change, chosen)):
                    self._send(connection, *event)
            if time.monotonic() >= bookmark_at and parameters.get("allowWatchBookmarks") == "true":
                seen = max(seen, now) if self.storage.version >= seen else now
                self._send(connection, "BOOKMARK", bookmark_of(resource, seen))
                bookmark_at = time.monotonic() + self.bookmark_seconds
            await connection.writer.drain()
            await self._quiet(connection, news, min(until, bookmark_at))
        connection.watching = None
        while connection.silent and not connection.reader.at_eof():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        connection.writer.write(b"0\r\n\r\n")
        await connection.writer.drain()

    def _expired(self, seen: int) -> Reply:
        return Reply(410, f"too old resource version: {seen} ({self.storage.oldest})")

    async def _quiet(self, connection: _Connection, news: asyncio.Event, until: float) -> None:
        """Wait for news, in steps, for the client may have left or the past been forgotten."""
        oldest = self.storage.oldest
        while time.monotonic() < until and not news.is_set() and oldest == self.storage.oldest:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(0.05, max(0.0, until - time.monotonic()))):
                    await news.wait()
            if connection.reader.at_eof() or connection.writer.is_closing():
                raise ConnectionResetError

    def _send(self, connection: _Connection, kind: str, value: Object) -> None:
        if connection.silent:
            return
        line = json.dumps({"type": kind, "object": value}, ensure_ascii=False).encode() + b"\n"
        half = len(line) // 2  # a line may come in any number of chunks
        for part in (line[:half], line[half:]):
            connection.writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
