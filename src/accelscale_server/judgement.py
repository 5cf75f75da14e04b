"""How a server is doing that reads devices: may calls come here, and would a new process help?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from attrs import frozen

from accelscale.model import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accelscale.backend_loop import BackendState
    from accelscale.model import Snapshot
    from accelscale.monitor import Monitor

OPENING = "opening"
"""Why a server is not ready that has not yet looked at everything: no fault."""

HOPELESS_PASSES = 30
"""Passes in which every device gave nothing but errors, after which a restart is due."""


@frozen
class Judgement:
    """Why no calls should come here, or None; and why only a new process can heal, or None."""

    not_ready: str | None = None
    hopeless: str | None = None


class MonitorJudge:
    """Judges by what a monitor reads.

    Ready while at least one backend is being read and one of its devices gives readings. A restart
    is due when a backend says that it needs one (a replaced driver stays mapped in the old
    process), or when every device has given nothing but unexplained errors for `HOPELESS_PASSES`
    intervals, as in a container that lost its device nodes
    (NVIDIA/nvidia-container-toolkit#48). Both count only where this process once could read: a new
    process that meets the same fault from its start would gain nothing by another.
    """

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._hopeless_since: float | None = None

    def __call__(self) -> Judgement:
        """Look at the readings of now."""
        states, snapshot = self._monitor.states(), self._monitor.snapshot()
        not_ready = None if _is_ready(states, snapshot) else _why_not_ready(states, snapshot)
        return Judgement(not_ready, self._why_hopeless(states, snapshot))

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
        return OPENING
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
