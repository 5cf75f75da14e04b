"""What the data of a backend class must look like, so that the rest may rely on it unchecked.

The plugin façade refuses a class that breaks a rule; `accelscale.testing.BackendConformance`
shows an author the same sentences. What a backend *does* is for the conformance class alone.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping

from accelscale.backend import Backend
from accelscale.metrics import METRICS, Derivation, Metric, Tier

_BACKEND_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_METRIC_NAME = re.compile(r"[a-z][a-z0-9_]*")


def metric_prefix(backend: str) -> str:
    """How the names of a backend's extra metrics begin; a metric name holds no hyphen."""
    return backend.replace("-", "_") + "_"


def class_faults(candidate: object) -> Iterator[str]:
    """Every fault of what was registered as a backend class, as sentences for its author."""
    if not isinstance(candidate, type):
        yield f"an object of type {type(candidate).__qualname__} is no class"
        return
    title = candidate.__qualname__
    if not issubclass(candidate, Backend):
        yield f"{title} is not derived from accelscale.backend.Backend"
        return
    if inspect.isabstract(candidate):
        yield f"{title} does not define {', '.join(sorted(candidate.__abstractmethods__))}"
    yield from (f"{title}: {fault}" for fault in _name_faults(candidate))
    yield from (f"{title}: {fault}" for fault in _metric_faults(candidate))


def _name_faults(backend: type[Backend]) -> Iterator[str]:
    name: object = getattr(backend, "name", None)
    if not (isinstance(name, str) and _BACKEND_NAME.fullmatch(name)):
        yield f"its name is {name!r}, but must be lower case like 'nvidia' or 'my-fpga'"
    vendor: object = getattr(backend, "vendor", None)
    if not (isinstance(vendor, str) and vendor.strip() and vendor == vendor.lower()):
        yield f"its vendor is {vendor!r}, but must be a lower-case name"


def _metric_faults(backend: type[Backend]) -> Iterator[str]:
    known: dict[str, Metric] = dict(METRICS)
    prefix = metric_prefix(str(getattr(backend, "name", "")))
    extra: object = backend.extra_metrics
    if not (isinstance(extra, tuple) and all(isinstance(row, Metric) for row in extra)):
        yield f"extra_metrics is {extra!r}, but must be a tuple of accelscale.metrics.Metric"
        return
    for row in extra:
        if row.name in known:
            yield f"the extra metric {row.name!r} is defined already"
        if not (_METRIC_NAME.fullmatch(row.name) and row.name.startswith(prefix)):
            yield f"the extra metric {row.name!r} must be lower case and start with {prefix!r}"
        known[row.name] = row
    metrics: object = getattr(backend, "metrics", None)
    if not (isinstance(metrics, Mapping) and metrics):
        yield f"metrics is {metrics!r}, but must map the names of metrics to their tiers"
        return
    for metric, tier in metrics.items():
        if metric not in known:
            yield f"it lists the metric {metric!r}, which neither accelscale nor it defines"
        elif known[metric].derivation not in {None, Derivation.RATE}:
            yield f"it lists {metric!r}, which accelscale derives from other metrics"
        if not isinstance(tier, Tier):
            yield f"the tier of {metric!r} is {tier!r}, but must be one of accelscale.metrics.Tier"
