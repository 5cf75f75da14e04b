"""What the demonstration reads: an accelerator that works here, or else the machine's CPU."""

from __future__ import annotations

from attrs import frozen

from accelscale.errors import BackendError
from accelscale.model import Device, Snapshot
from accelscale.monitor import Monitor, open_monitor
from accelscale.plugins import load_plugins
from accelscale.trigger import MetricType
from accelscale_server.client import Request

READ_SECONDS = 5.0
WINDOW_SECONDS = 2
"""Short, so that it is soon full: before that nobody can tell idle from not yet known."""

_CHOICES = (  # metric, threshold, activationThreshold: the first that a device has
    ("utilization_percent", "70", "5"),
    ("memory_used_percent", "80", "5"),
    ("power_used_percent", "60", "20"),
    ("temperature_celsius", "60", "40"),
)
_CPU_CHOICE = ("utilization_percent", "30", "15")
_PREFERRED = "nvidia"


@frozen
class Subject:
    """The devices, and the trigger to poll for. ``stand_in``: it is no accelerator."""

    backend: str
    devices: tuple[Device, ...]
    request: Request
    stand_in: bool
    description: tuple[str, ...]


def choose() -> Subject:
    """The first backend with a device that can be read; those on request come last.

    Raises:
        BackendError: there is none.
    """
    registry = load_plugins()
    on_request = [name for name, r in registry.backends.items() if r.backend.on_request_only]
    usual = [name for name in registry.backends if name not in on_request]
    usual.sort(key=lambda name: name != _PREFERRED)
    reasons: list[str] = [str(failure) for failure in registry.failures]
    for names, stand_in in ((usual, False), (on_request, True)):
        if not names:
            continue
        with open_monitor(names, interval=0.25, registry=registry) as monitor:
            monitor.wait(READ_SECONDS, passes=2)
            snapshot = monitor.snapshot()
            reasons += _reasons(monitor)
        for name in names:
            subject = _subject(snapshot, name, stand_in=stand_in, reasons=reasons)
            if subject is not None:
                return subject
    if on_request:
        raise BackendError(f"nothing here can be read ({'; '.join(reasons)})")
    raise BackendError(
        f"no accelerator works here ({'; '.join(reasons) or 'no backend is installed'}), and"
        " accelscale-host, which reads the machine's own CPU instead, is not installed:"
        " python -m pip install accelscale-host"
    )


def _subject(
    snapshot: Snapshot, name: str, *, stand_in: bool, reasons: list[str]
) -> Subject | None:
    for choice in (_CPU_CHOICE,) if stand_in else _CHOICES:
        devices = tuple(
            device
            for device in snapshot.devices
            if device.backend == name and snapshot.value(device.id, choice[0]) is not None
        )
        if devices:
            break
    else:
        return None
    metadata = {
        **dict(zip(("metric", "threshold", "activationThreshold"), choice, strict=True)),
        "window": f"{WINDOW_SECONDS}s",
        "devices": ",".join(device.id for device in devices),
    }
    request = Request("demo", "default", metadata, MetricType.AVERAGE_VALUE)
    names = ", ".join(dict.fromkeys(device.name for device in devices))
    if stand_in:
        description = (
            "no accelerator works here; `accelscale doctor` says more",
            *map(_indented, reasons),
            f"reading the CPU instead: {names}; half of its cores will be kept busy for a while",
        )
    else:
        description = (f"reading {len(devices)} x {names}; no load is put on it",)
    return Subject(name, devices, request, stand_in, description)


def _reasons(monitor: Monitor) -> list[str]:
    return [f"{state.name}: {state.reason}" for state in monitor.states() if not state.devices]


def _indented(reason: str) -> str:
    return f"  {reason if len(reason) <= 100 else reason[:99] + '…'}"
