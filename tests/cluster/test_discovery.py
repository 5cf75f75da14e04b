"""Where agents are: three ways to say it, and what happens while nobody can tell."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import pytest

from accelscale.errors import ForbiddenError
from accelscale_server import discovery
from accelscale_server.discovery import Discovery
from accelscale_server.whereabouts import Endpoints, Listed, Named, parse_agents
from cluster.waiting import until


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1:6001", Listed(("10.0.0.1:6001",))),
        ("a:6001, b:6002,a:6001", Listed(("a:6001", "b:6002"))),
        ("[fd00::1]:6001", Listed(("[fd00::1]:6001",))),
        ("dns:agents.accelscale.svc:6001", Named("agents.accelscale.svc", 6001)),
        ("kubernetes:accelscale/agents", Endpoints("accelscale", "agents")),
    ],
)
def test_three_ways_to_say_where_agents_are(text: str, expected: object) -> None:
    assert parse_agents(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a:6001,",
        "a:0",
        ":6001",
        "fd00::1:6001",
        "dns:agents",
        "dns::6001",
        "kubernetes:agents",
        "kubernetes:a/b/c",
        "kubernetes:/agents",
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be HOST:PORT,\.\.\., dns:NAME:PORT or kubernetes:"):
        parse_agents(text)


class Slices:
    """Endpoints as a test has them; an exception stands for what is not known."""

    def __init__(self) -> None:
        self.found: Collection[str] | Exception = frozenset()
        self.callbacks: list[Callable[[], None]] = []
        self.asked: set[tuple[str, str]] = set()

    def agents(self, namespace: str, service: str) -> Collection[str]:
        self.asked.add((namespace, service))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    def become(self, found: Collection[str] | Exception) -> None:
        self.found = found
        for callback in self.callbacks:
            callback()


@pytest.fixture
async def follow() -> AsyncIterator[Callable[..., Any]]:
    """Starts a discovery; gives it, and the list that grows with each set it finds."""
    tasks: list[asyncio.Task[None]] = []

    def follow(text: str, slices: Slices | None = None) -> tuple[Discovery, list[Any]]:
        found: list[Any] = []
        looking = Discovery(parse_agents(text), found.append, slices)
        assert not looking.settled
        tasks.append(asyncio.create_task(looking.run()))
        return looking, found

    yield follow
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_list_is_what_it_is(follow: Any) -> None:
    looking, found = follow("a:6001,b:6001")
    await until(lambda: found == [{"a:6001", "b:6001"}])
    assert looking.settled


async def test_a_name_is_resolved_again_and_again_and_what_was_found_outlives_dns(
    follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "RESOLVED_EVERY", 0.02)
    known: list[str] | None = ["10.0.0.1", "fd00::2"]
    real = asyncio.get_running_loop().getaddrinfo

    async def resolve(host: str, port: int, **options: Any) -> Any:
        assert host == "agents.test"
        if known is None:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return [each for ip in known for each in await real(ip, port, **options)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    looking, found = follow("dns:agents.test:6001")
    await until(lambda: found == [{"10.0.0.1:6001", "[fd00::2]:6001"}])
    known = None
    await until(lambda: looking.problem == "agents.test cannot be resolved: try again")
    known = ["10.0.0.3"]
    await until(lambda: found[1:] == [{"10.0.0.3:6001"}])
    assert looking.problem is None


async def test_localhost_needs_no_stand_in(follow: Any) -> None:
    _, found = follow("dns:localhost:6001")
    await until(lambda: bool(found) and found[0] <= {"127.0.0.1:6001", "[::1]:6001"})


async def test_endpoints_are_followed_as_they_change(
    follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "RESOLVED_EVERY", 30.0)
    slices = Slices()
    slices.found = ForbiddenError("may not list endpointslices")
    looking, found = follow("kubernetes:accelscale/agents", slices)
    await until(lambda: looking.problem == "may not list endpointslices")
    assert not looking.settled
    slices.become(frozenset())
    await until(lambda: found == [frozenset()])
    assert looking.settled
    slices.become({"10.0.0.1:6001"})
    await until(lambda: found[1:] == [{"10.0.0.1:6001"}])
    slices.become(ForbiddenError("away"))
    await until(lambda: looking.problem == "away")
    assert len(found) == 2
    assert slices.asked == {("accelscale", "agents")}


async def test_endpoints_are_looked_at_even_if_nobody_tells_of_a_change(
    follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "RESOLVED_EVERY", 0.02)
    slices = Slices()
    _, found = follow("kubernetes:accelscale/agents", slices)
    await until(lambda: len(found) == 1)
    slices.found = {"10.0.0.1:6001"}
    await until(lambda: len(found) == 2)
