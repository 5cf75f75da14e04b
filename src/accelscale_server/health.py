"""The gRPC health service: may traffic come here, and would a new process help?

Three names are known. The empty one and ``externalscaler.ExternalScaler`` are for readiness probes:
SERVING only while at least one backend is being read and at least one of its devices gives
readings. ``liveness`` is for liveness probes: NOT_SERVING only when nothing but a new process can
heal what this one had and lost. A driver that hangs, a lost card or a machine without accelerators
is no reason for a restart; see `Health.judge`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from accelscale.model import Reason
from accelscale_server.changes import Changes
from accelscale_server.servicer import SERVICE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accelscale.collector import BackendState
    from accelscale.model import Snapshot
    from accelscale.monitor import Monitor

logger = logging.getLogger("accelscale_server.health")

LIVENESS = "liveness"
READINESS = ("", SERVICE)
HOPELESS_PASSES = 30
"""Passes in which every device gave nothing but errors, after which a restart is due."""

_Status = health_pb2.HealthCheckResponse.ServingStatus


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Answers Check and Watch from the last judgement.

    The servicer of grpcio-health-checking is not used: in it, one watcher of a service that leaves
    takes the notifications of all its other watchers with it, and its watchers outlast a shutdown.
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._changes = Changes()
        self._ready: str | None = "nothing has been read yet"
        self._hopeless: str | None = None
        self._hopeless_since: float | None = None
        self._stopping = False

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """The state of a service now; NOT_FOUND for an unknown name."""
        status = self._status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            known = ", ".join(repr(name) for name in (*READINESS, LIVENESS))
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
        """Look at the readings of now and tell the watchers of a change.

        A restart is due when a backend says that it needs one (a replaced driver stays mapped in
        the old process), or when every device has given nothing but unexplained errors for
        `HOPELESS_PASSES` intervals, as in a container that lost its device nodes
        (NVIDIA/nvidia-container-toolkit#48). Both count only where this process once could read:
        a new process that meets the same fault from its start would gain nothing by another.
        """
        states, snapshot = self._monitor.states(), self._monitor.snapshot()
        ready = None if _is_ready(states, snapshot) else _why_not_ready(states, snapshot)
        hopeless = self._why_hopeless(states, snapshot)
        if (ready is None) != (self._ready is None) or _settled_reason(ready, self._ready):
            _log_readiness(ready)
        if hopeless is not None and self._hopeless is None:
            logger.error("needs a restart", extra={"why": hopeless})
        changed = (ready is None, hopeless) != (self._ready is None, self._hopeless)
        self._ready, self._hopeless = ready, hopeless
        if changed:
            self._changes.announce()

    def stop(self) -> None:
        """No traffic any more, for good; watchers learn it and their streams end."""
        self._stopping = True
        self._changes.stop()

    def _status(self, service: str) -> Any:
        if service in READINESS:
            serving = self._ready is None and not self._stopping
        elif service == LIVENESS:
            serving = self._hopeless is None
        else:
            return _Status.SERVICE_UNKNOWN
        return _Status.SERVING if serving else _Status.NOT_SERVING

    def _why_hopeless(self, states: Sequence[BackendState], snapshot: Snapshot) -> str | None:
        once_read = [state for state in states if state.collections]
        for state in once_read:
            if state.needs_restart:
                return f"{state.name}: {state.reason}"
        if not once_read or not _all_err(snapshot):
            self._hopeless_since = None
            return None
        now = time.monotonic()
        self._hopeless_since = now if self._hopeless_since is None else self._hopeless_since
        if now - self._hopeless_since < HOPELESS_PASSES * snapshot.interval:
            return None
        return f"every device gave nothing but errors for {HOPELESS_PASSES} passes"


def _is_ready(states: Sequence[BackendState], snapshot: Snapshot) -> bool:
    read = {state.name for state in states if state.phase == "ready"}
    giving = {device_id for device_id, _ in snapshot.samples}  # samples of an age that counts
    return any(
        device.backend in read and device.problem is None and device.id in giving
        for device in snapshot.devices
    )


def _why_not_ready(states: Sequence[BackendState], snapshot: Snapshot) -> str:
    if any(state.phase == "opening" for state in states):
        return "opening"
    ill = {
        f"{device.id}: {device.problem_detail or device.problem}"
        for device in snapshot.devices
        if device.problem is not None
    }
    reasons = [*(f"{state.name}: {state.reason}" for state in states), *sorted(ill)]
    return "; ".join(reasons) or "no backend is installed"


def _all_err(snapshot: Snapshot) -> bool:
    """Whether there are devices and each gives errors without a better name, and nothing else."""
    giving = {device_id for device_id, _ in snapshot.samples}
    reasons: dict[str, set[Reason]] = {}
    for failure in snapshot.failures.values():
        if not failure.permanent:
            reasons.setdefault(failure.device_id, set()).add(failure.reason)
    return bool(snapshot.devices) and all(
        device.id not in giving
        and (device.problem is Reason.ERROR or reasons.get(device.id) == {Reason.ERROR})
        for device in snapshot.devices
    )


def _settled_reason(new: str | None, old: str | None) -> bool:
    """Whether the first look has come to a result."""
    return new is not None and old in ("nothing has been read yet", "opening") and new != "opening"


def _log_readiness(reason: str | None) -> None:
    if reason is None:
        logger.info("ready")
    else:
        logger.warning("not ready", extra={"why": reason})
