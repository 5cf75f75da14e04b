"""The stream to one agent: opened again and again, and given up when it falls silent.

Every attempt has a connection of its own, which is closed with it. A connection whose packets are
dropped looks healthy for minutes, and a new stream over it would fare no better.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import grpc

from accelscale.errors import ConfigurationError
from accelscale_server._proto.accelscale.v1 import agent_pb2 as pb
from accelscale_server._proto.accelscale.v1.agent_pb2_grpc import AgentStub
from accelscale_server.clocks import ClockOffset
from accelscale_server.report import Inventory, Report

if TYPE_CHECKING:
    from accelscale_server.interest import Interest

logger = logging.getLogger("accelscale_server.fleet")

FIRST_WORD = 5.0
"""Seconds in which a connection must stand and the agent must have said something."""

HEARTBEAT = 5.0
"""Seconds after which an agent says something at the latest; its interval where that is longer."""

GRACE = 3.0
"""Seconds that a message may be late before the connection counts as dead."""

SOON = 0.02
BETWEEN_REQUESTS = 0.2
"""Seconds until a changed list of series is sent, and between two of them at least."""

FIRST_PAUSE = 0.5
MOST_PAUSE = 15.0
"""Seconds between two attempts, doubled with each that fails; each varies by half."""

LARGEST_MESSAGE = 4 * 1024 * 1024

OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.enable_http_proxy", 0),  # a proxy meant for the web would take over our own calls
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.enable_retries", 0),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)

Connect = Callable[[str], grpc.aio.Channel]


def plain(address: str) -> grpc.aio.Channel:
    """A channel without TLS."""
    return grpc.aio.insecure_channel(address, options=OPTIONS)


class Audience(Protocol):
    """Whom a stream tells what it hears."""

    def heard(self, report: Report, before: Report | None) -> None:
        """An agent has told its inventory; ``before`` is what came over this stream before."""

    def changed(self) -> None:
        """There are newer values, or a stream has ended."""

    def interest_in(self, node: str) -> Interest | None:
        """What is wanted of a node."""


class AgentStream:
    """Holds one address open as long as it is not retired.

    ``state`` is ``connecting``, ``connected`` or ``gone``, since ``since`` (monotonic seconds), and
    ``detail`` says why in words. ``report`` is what this agent told last, also after its end.
    """

    def __init__(self, address: str, audience: Audience, connect: Connect) -> None:
        self.address = address
        self.state = "connecting"
        self.detail = "not yet tried"
        self.since = time.monotonic()
        self.attempts = 0
        self.messages = 0
        self.report: Report | None = None
        self._audience = audience
        self._connect = connect
        self._retired = asyncio.Event()
        self._call: Any = None
        self._asked = -1
        self._asked_at = 0.0
        self._asking: asyncio.Task[None] | None = None

    @property
    def node(self) -> str | None:
        """The node that answered here last."""
        return None if self.report is None else self.report.inventory.node

    def keep(self) -> None:
        """Try again and again from now on."""
        self._retired.clear()

    def retire(self) -> None:
        """Let the stream go on while it lives, and do not open another."""
        self._retired.set()

    @property
    def retired(self) -> bool:
        """Whether no further attempt is made."""
        return self._retired.is_set()

    async def run(self) -> None:
        """Attempt after attempt, until retired or cancelled."""
        failures = 0
        while not self.retired:
            heard_before = self.messages
            why = await self._attempt()
            failures = 0 if self.messages > heard_before else failures + 1
            self._ended(why)
            try:
                async with asyncio.timeout(_pause(failures)):
                    await self._retired.wait()
            except TimeoutError:
                continue

    def ask(self) -> None:
        """Tell the agent soon what is wanted now."""
        if self._call is not None and self._asking is None:
            self._asking = asyncio.create_task(self._ask_soon(self._call))

    async def _attempt(self) -> str:
        """One stream from its beginning to its end; why it ended."""
        self.attempts += 1
        self._asked = -1
        clock = ClockOffset()
        patience = FIRST_WORD
        loop = asyncio.get_running_loop()
        try:
            async with self._connect(self.address) as channel:
                self._call = call = AgentStub(channel).Watch()  # type: ignore[no-untyped-call]
                self._ask_if_changed()
                async with asyncio.timeout(patience) as limit:
                    while (message := await call.read()) is not grpc.aio.EOF:
                        self._take(message, clock)
                        patience = self._patience()
                        limit.reschedule(loop.time() + patience)
                return "its agent ended the stream"
        except TimeoutError:
            return f"nothing was heard for {patience:g} s"
        except grpc.aio.AioRpcError as error:
            return _in_words(error)
        except (_BadMessageError, ConfigurationError) as error:  # the latter of TLS files
            return str(error)
        finally:
            self._call = None
            if self._asking is not None:
                self._asking.cancel()
                self._asking = None

    def _take(self, message: pb.WatchResponse, clock: ClockOffset) -> None:
        now = time.monotonic()
        self.messages += 1
        if message.HasField("values"):
            clock.note(now, message.values.sent_at)
        before = self.report
        if message.HasField("inventory"):
            self.report = Report(_checked(message.inventory), clock, now)
        if self.report is None:
            return
        if message.HasField("values"):
            self.report.take(message.values, now)
        if message.HasField("inventory"):
            if self.state != "connected":
                facts = {"address": self.address, "node": self.node}
                logger.info("an agent is connected", extra=facts)
                self.state, self.detail, self.since = "connected", "", now
            self._audience.heard(self.report, before)
            self._ask_if_changed()
        self._audience.changed()

    def _ended(self, why: str) -> None:
        if self.state == "connected":
            facts = {"address": self.address, "node": self.node, "why": why}
            logger.warning("an agent is lost", extra=facts)
        elif why != self.detail:
            facts = {"address": self.address, "why": why}
            logger.warning("an agent cannot be reached", extra=facts)
        if self.state != "gone":
            self.since = time.monotonic()
        self.state, self.detail = "gone", why
        if self.report is not None:
            self.report.live, self.report.silence = False, why
        self._audience.changed()

    def _patience(self) -> float:
        interval = 0.0 if self.report is None else self.report.inventory.interval
        return max(HEARTBEAT, interval) + GRACE

    def _ask_if_changed(self) -> None:
        interest = None if self.node is None else self._audience.interest_in(self.node)
        if interest is not None and interest.revision != self._asked and interest.revision:
            self.ask()

    async def _ask_soon(self, call: Any) -> None:
        wait = self._asked_at + BETWEEN_REQUESTS - time.monotonic()
        await asyncio.sleep(max(SOON, wait))
        interest = None if self.node is None else self._audience.interest_in(self.node)
        if interest is not None:
            self._asked, self._asked_at = interest.revision, time.monotonic()
            try:
                await call.write(interest.request())
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return  # the stream has ended, which its reader says
        self._asking = None
        if interest is not None and interest.revision != self._asked:
            self.ask()


class _BadMessageError(Exception):
    """What was received does not come from an agent of ours."""


def _checked(message: pb.Inventory) -> Inventory:
    if not message.node or "/" in message.node:
        raise _BadMessageError(f"its agent calls the node {message.node!r}, which is no name")
    if not 0 < message.interval_seconds <= 3600:
        text = f"its agent reads every {message.interval_seconds:g} s, which cannot be"
        raise _BadMessageError(text)
    return Inventory(message)


def _pause(failures: int) -> float:
    """Seconds until the next attempt; varied, so that a thousand agents are not tried at once."""
    return min(MOST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures, 16)) * random.uniform(0.5, 1.5)  # noqa: S311


def _in_words(error: grpc.aio.AioRpcError) -> str:
    text = (error.details() or "").partition("\n")[0][:200]
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return "what listens there is no agent"
    return f"{error.code().name}: {text}" if text else error.code().name
