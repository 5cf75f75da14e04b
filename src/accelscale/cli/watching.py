"""Opens a monitor for a command, waits for its first readings, and says how its backends fare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import asdict, frozen

from accelscale.monitor import Monitor, open_monitor


@frozen
class BackendStatus:
    """How one backend fares: ``state`` is a phase of the monitor, or why it is not in there.

    That is ``on_request`` (it must be asked for), ``not_chosen`` (``--backend`` named others),
    or, for a plugin, ``refused`` and ``disabled``.
    """

    name: str
    vendor: str | None
    state: str
    reason: str
    devices: int = 0

    def record(self) -> dict[str, object]:
        """Its form in JSON."""
        return asdict(self)


@contextmanager
def watching(
    backends: Sequence[str] | None, *, interval: float, seconds: float, passes: int = 2
) -> Iterator[Monitor]:
    """A monitor that has had its first passes, or as much of them as fits into the seconds.

    Rates need two passes. What is still missing then is missing with a reason.
    """
    with open_monitor(backends or None, interval=interval) as monitor:
        monitor.wait(seconds, passes)
        yield monitor


def statuses(monitor: Monitor) -> list[BackendStatus]:
    """Every backend and plugin, whether the monitor reads it or not."""
    states = {state.name: state for state in monitor.states()}
    result = []
    for name, registered in monitor.registry.backends.items():
        vendor, state = registered.backend.vendor, states.get(name)
        if state is not None:
            result.append(BackendStatus(name, vendor, state.phase, state.reason, state.devices))
        elif registered.backend.on_request_only:
            reason = f"used only when asked for: --backend {name}"
            result.append(BackendStatus(name, vendor, "on_request", reason))
        else:
            result.append(BackendStatus(name, vendor, "not_chosen", "--backend names others"))
    result += (
        BackendStatus(failure.plugin, None, "refused", str(failure))
        for failure in monitor.registry.failures
    )
    result += (
        BackendStatus(plugin, None, "disabled", "by ACCELSCALE_DISABLE_PLUGINS")
        for plugin in monitor.registry.disabled
    )
    return result
