"""Asks the kubelet of this node, over its unix socket, which container holds which device.

The service is PodResources v1 of Kubernetes. It has no watch, and one rate limit for all its
clients together (kubernetes/kubernetes#116459), so there is one List per period at most, whatever
the load, and fewer while it refuses. The kubelet makes its socket anew whenever it starts; each
List therefore takes a connection of its own, which can never be one to a kubelet of the past.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket as sockets
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from accelscale_server._proto.podresources.v1 import podresources_pb2 as pb
from accelscale_server._proto.podresources.v1.podresources_pb2_grpc import PodResourcesListerStub
from accelscale_server.allocations import listed

if TYPE_CHECKING:
    from accelscale.model import Allocation

logger = logging.getLogger("accelscale_server.kubelet")

PERIOD = 10.0
MOST_PAUSE = 60.0
"""Seconds between two Lists while the kubelet keeps refusing them; the period where longer."""

MAX_AGE = 300.0
"""Seconds that the last answer counts while no newer one comes. A kubelet that is down hands out
no device, so what it said last stays right for as long as it is away; one that only refuses us may
hand out devices meanwhile, so this has an end."""

PATIENCE = 10.0
"""Seconds that a List may take."""

LARGEST_REPLY = 64 * 1024 * 1024
"""gRPC's own limit of 4 MiB is less than a large node's reply."""


class Kubelet:
    """The allocations of this node, kept current by `run`. For one event loop.

    ``owned`` says which extended resources are of interest; ``changed`` is called whenever
    ``allocations`` or ``problem`` have changed and ``revision`` has grown. ``problem`` says why
    allocations are not known. ``trouble`` says why the last List failed, also while the answer
    before it still counts; ``answered`` is the time of that answer in monotonic seconds.
    """

    def __init__(
        self,
        socket: Path,
        node: str,
        owned: Callable[[str], bool],
        changed: Callable[[], None],
        *,
        period: float = PERIOD,
        max_age: float = MAX_AGE,
    ) -> None:
        self.socket = socket
        self._node = node
        self._owned = owned
        self._changed = changed
        self._period = period
        self._max_age = max_age
        self._refusals = 0
        self.revision = 0
        self.allocations: tuple[Allocation, ...] = ()
        self.problem: str | None = "the kubelet has not answered yet"
        self.trouble: str | None = None
        self.answered: float | None = None
        self.lists: Counter[str] = Counter()

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        while True:
            try:
                await self._ask()
            except Exception as error:
                logger.exception("the kubelet could not be asked")
                self._failed(f"asking the kubelet failed: {type(error).__name__}")
            await asyncio.sleep(self._pause())

    async def _ask(self) -> None:
        try:
            response = await self._list()
        except grpc.aio.AioRpcError as error:
            self.lists[error.code().name] += 1
            unreachable = why_unreachable(self.socket)
            self._refusals = 0 if unreachable else self._refusals + 1
            self._failed(unreachable or self._refusal(error))
        else:
            self.lists["OK"] += 1
            self._refusals = 0
            self._took(listed(response, self._node, self._owned))

    async def _list(self) -> pb.ListPodResourcesResponse:
        options = [
            ("grpc.enable_http_proxy", 0),  # a proxy variable would capture unix sockets as well
            ("grpc.default_authority", "localhost"),
            ("grpc.max_receive_message_length", LARGEST_REPLY),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        target = f"unix:{self.socket.absolute()}"
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            stub = PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]
            response: pb.ListPodResourcesResponse = await stub.List(
                pb.ListPodResourcesRequest(), timeout=PATIENCE
            )
            return response

    def _took(self, allocations: tuple[Allocation, ...]) -> None:
        if self.trouble is not None or self.answered is None:
            logger.info("the kubelet answers", extra={"allocations": len(allocations)})
        self.answered, self.trouble = time.monotonic(), None
        self._know(allocations, None)

    def _failed(self, trouble: str) -> None:
        """What is known stays until its age limit; then it is unknown, which is not nothing."""
        if trouble != self.trouble:
            logger.warning("allocations cannot be renewed", extra={"why": trouble})
        self.trouble = trouble
        if self._left() <= 0:
            self._know((), trouble)

    def _know(self, allocations: tuple[Allocation, ...], problem: str | None) -> None:
        if (allocations, problem) == (self.allocations, self.problem):
            return
        self.allocations, self.problem = allocations, problem
        self.revision += 1
        self._changed()

    def _left(self) -> float:
        """Seconds that the last answer still counts."""
        if self.answered is None:
            return 0.0
        return self.answered + self._max_age - time.monotonic()

    def _pause(self) -> float:
        """Longer with every refusal in a row, but not past the moment when what is known ends."""
        pause = min(MOST_PAUSE, self._period * 2.0 ** min(self._refusals, 16))
        left = self._left()
        return max(self._period, min(pause, left) if left > 0 else pause)

    def _refusal(self, error: grpc.aio.AioRpcError) -> str:
        if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            if "larger than max" in (error.details() or ""):
                return f"{self.socket}: the reply is larger than {LARGEST_REPLY} bytes"
            return f"{self.socket}: refused by the kubelet's rate limit"
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"{self.socket}: no answer within {PATIENCE:g} s"
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return f"{self.socket}: this kubelet has no PodResources v1 (Kubernetes before 1.20)"
        return f"{self.socket}: {error.code().name}"


def why_unreachable(socket: Path) -> str | None:
    """Why nobody can be connected to at this socket, or None if somebody can.

    gRPC says only that it failed; the system knows whether it was the path or the permission.
    """
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as trial:
        trial.setblocking(False)
        try:
            trial.connect(os.fspath(socket))
        except BlockingIOError:
            return None  # somebody listens, and is busy
        except OSError as error:
            return f"{socket}: {_REASONS.get(error.errno or 0) or error.strerror or error}"
    return None


_REASONS = {
    errno.ENOENT: "no such socket; is the kubelet's pod-resources directory mounted here?",
    errno.ENOTDIR: "no such socket; is the kubelet's pod-resources directory mounted here?",
    errno.EACCES: "permission denied; the agent must run as a user that may open it",
    errno.EROFS: "read-only file system; mount the directory of the socket read-write",
    errno.ECONNREFUSED: "connection refused; the kubelet may be starting",
}
