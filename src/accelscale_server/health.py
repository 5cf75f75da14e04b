"""The gRPC health service: may traffic come here, and would a new process help?

The empty name and those of the server's own services (``externalscaler.ExternalScaler``) are for
readiness probes: SERVING only while the server could answer. ``liveness`` is for liveness probes:
NOT_SERVING only when nothing but a new process can heal what this one had and lost. A driver that
hangs, a lost card or a machine without accelerators is no reason for a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from accelscale_server.changes import Changes
from accelscale_server.judgement import OPENING, Judgement

logger = logging.getLogger("accelscale_server.health")

LIVENESS = "liveness"
UNJUDGED = "nothing has been read yet"

_Status = health_pb2.HealthCheckResponse.ServingStatus


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Answers Check and Watch from the last judgement; ``services`` are those of the server.

    The servicer of grpcio-health-checking is not used: in it, one watcher of a service that leaves
    takes the notifications of all its other watchers with it, and its watchers outlast a shutdown.
    """

    def __init__(self, judge: Callable[[], Judgement], services: Sequence[str]) -> None:
        self._judge = judge
        self._readiness = ("", *services)
        self._changes = Changes()
        self._last = Judgement(not_ready=UNJUDGED)
        self._stopping = False

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """The state of a service now; NOT_FOUND for an unknown name."""
        status = self._status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            known = ", ".join(repr(name) for name in (*self._readiness, LIVENESS))
            text = f"no service {request.service!r}; known are {known}"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 - gRPC's name
        """The state of a service on open and every change of it."""
        sent = None
        while True:
            count, status = self._changes.count, self._status(request.service)
            if status != sent:
                await context.write(health_pb2.HealthCheckResponse(status=status))
                sent = status
            going_on = await self._changes.after(count)
            # The end itself is a change that a watcher is told of.
            if not going_on and self._status(request.service) == sent:
                return

    def judge(self) -> None:
        """Judge anew, and tell the log and the watchers of a change."""
        last, now = self._last, self._judge()
        self._last = now
        was_ready, is_ready = last.not_ready is None, now.not_ready is None
        if is_ready is not was_ready or _settled_reason(now.not_ready, last.not_ready):
            _log_readiness(now.not_ready)
        if now.hopeless is not None and last.hopeless is None:
            logger.error("needs a restart", extra={"why": now.hopeless})
        if (is_ready, now.hopeless) != (was_ready, last.hopeless):
            self._changes.announce()

    def stop(self) -> None:
        """No traffic any more, for good; watchers learn it and their streams end."""
        self._stopping = True
        self._changes.stop()

    def _status(self, service: str) -> Any:
        if service in self._readiness:
            serving = self._last.not_ready is None and not self._stopping
        elif service == LIVENESS:
            serving = self._last.hopeless is None
        else:
            return _Status.SERVICE_UNKNOWN
        return _Status.SERVING if serving else _Status.NOT_SERVING


def _settled_reason(new: str | None, old: str | None) -> bool:
    """Whether the first look has come to a result."""
    return new is not None and old in (UNJUDGED, OPENING) and new != OPENING


def _log_readiness(reason: str | None) -> None:
    if reason is None:
        logger.info("ready")
    else:
        logger.warning("not ready", extra={"why": reason})
