"""Accelerator metrics for autoscaling: read them, and decide on them.

The public names are gathered here and loaded on first use, so that importing the package costs
next to nothing. Everything else is reachable under the module that defines it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelscale.backend import Attempt as Attempt
    from accelscale.backend import Backend as Backend
    from accelscale.backend import Probe as Probe
    from accelscale.engine import Evaluation as Evaluation
    from accelscale.engine import evaluate as evaluate
    from accelscale.errors import AccelscaleError as AccelscaleError
    from accelscale.errors import BackendError as BackendError
    from accelscale.errors import ConfigurationError as ConfigurationError
    from accelscale.errors import ForbiddenError as ForbiddenError
    from accelscale.errors import NoDataError as NoDataError
    from accelscale.errors import NotFoundError as NotFoundError
    from accelscale.errors import UnsupportedError as UnsupportedError
    from accelscale.hookspecs import hookimpl as hookimpl
    from accelscale.metrics import METRICS as METRICS
    from accelscale.metrics import Metric as Metric
    from accelscale.metrics import Tier as Tier
    from accelscale.model import Device as Device
    from accelscale.model import Failure as Failure
    from accelscale.model import Reading as Reading
    from accelscale.model import Reason as Reason
    from accelscale.model import Replica as Replica
    from accelscale.model import Sample as Sample
    from accelscale.model import Series as Series
    from accelscale.model import Snapshot as Snapshot
    from accelscale.model import Workload as Workload
    from accelscale.monitor import Monitor as Monitor
    from accelscale.monitor import open_monitor as open_monitor
    from accelscale.plugins import load_plugins as load_plugins
    from accelscale.trigger import Trigger as Trigger
    from accelscale.trigger import parse_trigger as parse_trigger

__version__ = "0.1.0"

_HOMES = {
    "Attempt": "backend",
    "Backend": "backend",
    "Probe": "backend",
    "Evaluation": "engine",
    "evaluate": "engine",
    "AccelscaleError": "errors",
    "BackendError": "errors",
    "ConfigurationError": "errors",
    "ForbiddenError": "errors",
    "NoDataError": "errors",
    "NotFoundError": "errors",
    "UnsupportedError": "errors",
    "hookimpl": "hookspecs",
    "METRICS": "metrics",
    "Metric": "metrics",
    "Tier": "metrics",
    "Device": "model",
    "Failure": "model",
    "Reading": "model",
    "Reason": "model",
    "Replica": "model",
    "Sample": "model",
    "Series": "model",
    "Snapshot": "model",
    "Workload": "model",
    "Monitor": "monitor",
    "open_monitor": "monitor",
    "load_plugins": "plugins",
    "Trigger": "trigger",
    "parse_trigger": "trigger",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - the names of the table above


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
