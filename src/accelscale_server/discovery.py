"""Finds the agents, and finds out when they are elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Collection
from typing import Protocol

from accelscale.errors import AccelscaleError
from accelscale_server.addresses import Address
from accelscale_server.whereabouts import Endpoints, Listed, Named, Whereabouts

logger = logging.getLogger("accelscale_server.fleet")

RESOLVED_EVERY = 5.0
"""Seconds between two questions to DNS, and at most until endpoints are looked at again."""


class EndpointView(Protocol):
    """Who knows the endpoints of Services."""

    def agents(self, namespace: str, service: str) -> Collection[str]:
        """The addresses behind a Service, as HOST:PORT.

        Raises:
            AccelscaleError: they are not known.
        """

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have ``callback`` called when something has changed; returns undo."""


class Discovery:
    """Tells ``found`` the addresses, now and whenever they change.

    ``problem`` says why they could not be looked up the last time. What was found before stays
    then: a name server that is away takes no agent away. ``settled`` is set once there was an
    answer.
    """

    def __init__(
        self,
        whereabouts: Whereabouts,
        found: Callable[[Collection[str]], None],
        cluster: EndpointView | None,
    ) -> None:
        self._whereabouts = whereabouts
        self._found = found
        self._cluster = cluster
        self._last: frozenset[str] | None = None
        self.problem: str | None = None

    @property
    def settled(self) -> bool:
        """Whether it is known where agents are, or that there are none."""
        return self._last is not None

    async def run(self) -> None:
        """Follow the changes, until cancelled."""
        match self._whereabouts:
            case Listed(addresses):
                self._take(frozenset(addresses))
                await asyncio.Event().wait()
            case Named(host, port):
                while True:
                    await self._resolve(host, port)
                    await asyncio.sleep(RESOLVED_EVERY)
            case Endpoints(namespace, service):
                await self._follow(namespace, service)

    async def _resolve(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            self._failed(f"{host} cannot be resolved: {error.strerror or error}")
        else:
            self._take(frozenset(str(Address(str(each[4][0]), port)) for each in found))

    async def _follow(self, namespace: str, service: str) -> None:
        assert self._cluster is not None
        changed = asyncio.Event()
        unsubscribe = self._cluster.subscribe(changed.set)
        try:
            while True:
                changed.clear()
                try:
                    self._take(frozenset(self._cluster.agents(namespace, service)))
                except AccelscaleError as error:
                    self._failed(str(error))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RESOLVED_EVERY):
                        await changed.wait()
        finally:
            unsubscribe()

    def _take(self, addresses: frozenset[str]) -> None:
        self.problem = None
        if addresses != self._last:
            self._last = addresses
            logger.info("agents are at other addresses", extra={"count": len(addresses)})
            self._found(addresses)

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            logger.warning("agents cannot be looked up", extra={"why": problem})
        self.problem = problem
