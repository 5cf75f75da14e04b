"""``accelscale devices``: every device with what it reads at this moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelscale.cli.options import AsJson, Backends, positive_seconds, print_json, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from accelscale.cli.watching import BackendStatus
    from accelscale.metrics import Metric
    from accelscale.model import Device, Failure, Snapshot

INTERVAL_SECONDS = 0.5
MOST_LINES_OF_A_REASON = 4
"""More metrics that are missing for the same reason share a line."""


def devices(
    backend: Backends = None,
    as_json: AsJson = False,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            parser=positive_seconds,
            help="Most time to wait for the first readings.",
        ),
    ] = 5.0,
) -> None:
    """List the devices with what each reads now."""
    from accelscale.cli.watching import statuses, watching

    with watching(backend, interval=INTERVAL_SECONDS, seconds=wait) as monitor:
        snapshot = monitor.snapshot()
        backends = statuses(monitor)
        metrics = monitor.metrics
    if as_json:
        print_json(
            {
                "devices": [device_record(device, snapshot) for device in snapshot.devices],
                "backends": [status.record() for status in backends],
            }
        )
    else:
        for line in _lines(snapshot, metrics):
            say(line)
    if not snapshot.devices:
        complain_of_no_devices(backends)
        raise typer.Exit(1)


def device_record(device: Device, snapshot: Snapshot) -> dict[str, Any]:
    """One device in JSON: each metric is in ``metrics`` as a number, or in ``failures``."""
    return {
        "id": device.id,
        "name": device.name,
        "vendor": device.vendor,
        "backend": device.backend,
        "parent": device.parent,
        "pci_address": device.pci_address,
        "metrics": {s.metric: s.value for s in snapshot.samples_of(device.id)},
        "failures": {f.metric: str(f.reason) for f in snapshot.failures_of(device.id)},
    }


def complain_of_no_devices(backends: Sequence[BackendStatus]) -> None:
    """Say on standard error what each backend answered."""
    say("accelscale: no devices found", err=True)
    for status in backends:
        say(f"  {status.name}: {status.reason or status.state}", err=True)
    say("  `accelscale doctor` shows each call that was tried", err=True)


def _lines(snapshot: Snapshot, metrics: Mapping[str, Metric]) -> Iterator[str]:
    for index, device in enumerate(snapshot.devices):
        if index:
            yield ""
        yield from _device_lines(device, snapshot, metrics)


def _device_lines(
    device: Device, snapshot: Snapshot, metrics: Mapping[str, Metric]
) -> Iterator[str]:
    from accelscale.cli.figures import figure

    yield f"{device.name} ({device.vendor})"
    yield f"  id           {device.id}"
    if device.pci_address:
        yield f"  pci address  {device.pci_address}"
    if device.parent:
        yield f"  part of      {device.parent}"
    if device.problem:
        yield f"  problem      {_why(device.problem, device.problem_detail)}"
    texts = {
        s.metric: figure(s.value, metrics.get(s.metric)) for s in snapshot.samples_of(device.id)
    }
    reasons: dict[str, list[Failure]] = {}
    for failure in snapshot.failures_of(device.id):
        reason = "never on this device" if failure.permanent else str(failure.reason)
        reasons.setdefault(reason, []).append(failure)
    lines = []
    for reason, failures in reasons.items():
        if len(failures) <= MOST_LINES_OF_A_REASON and not failures[0].permanent:
            texts.update({f.metric: f"- {_why(f.reason, f.detail)}" for f in failures})
        else:
            detail = "" if failures[0].permanent else failures[0].detail
            names = ", ".join(failure.metric for failure in failures)
            lines.append(f"  {_why(reason, detail)}: {names}")
    width = max(map(len, texts), default=0)
    yield from (f"  {name:<{width}}  {texts[name]}" for name in metrics if name in texts)
    yield from lines


def _why(reason: str, detail: str) -> str:
    return f"{reason}: {detail}" if detail else str(reason)
