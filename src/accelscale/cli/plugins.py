"""``accelscale plugins``: the backends, who brought them, and which work here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelscale.cli.options import AsJson, print_json, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from accelscale.backend import Probe
    from accelscale.plugins import Registry


def plugins(as_json: AsJson = False) -> None:
    """List the backends and whether each works here."""
    from accelscale.cli.diagnosis import bounded_probe
    from accelscale.plugins import load_plugins

    registry = load_plugins()
    probes = {name: bounded_probe(registry, name) for name in registry.backends}
    if as_json:
        print_json(_record(registry, probes))
    else:
        for line in _lines(registry, probes):
            say(line)


def _record(registry: Registry, probes: dict[str, Probe]) -> dict[str, object]:
    return {
        "backends": [
            {
                "name": name,
                "vendor": registered.backend.vendor,
                "distribution": registered.distribution,
                "version": registered.version,
                "viable": probes[name].viable,
                "reason": probes[name].reason,
                "on_request_only": registered.backend.on_request_only,
            }
            for name, registered in registry.backends.items()
        ],
        "failures": [
            {
                "plugin": failure.plugin,
                "distribution": failure.distribution,
                "version": failure.version,
                "reason": failure.reason,
            }
            for failure in registry.failures
        ],
        "disabled": list(registry.disabled),
    }


def _lines(registry: Registry, probes: dict[str, Probe]) -> Iterator[str]:
    if not registry.backends:
        yield "no backend is registered"
    for name, registered in registry.backends.items():
        origin = f"{registered.distribution} {registered.version or ''}".rstrip()
        state = "works here" if probes[name].viable else "does not work here"
        yield f"{name}  ({origin})  {state}"
        yield f"  {probes[name].reason}"
        if registered.backend.on_request_only:
            yield f"  used only when asked for: --backend {name}"
    for failure in registry.failures:
        yield f"refused: {failure}"
    for plugin in registry.disabled:
        yield f"disabled: {plugin} (ACCELSCALE_DISABLE_PLUGINS)"
