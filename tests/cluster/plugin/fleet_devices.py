"""A plugin whose devices are what a JSON file says: ``{device: {metric: value}}``, read again and
again, so that a test changes what an agent in another process measures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from accelscale import hookimpl
from accelscale.backend import Backend
from accelscale.testing import FakeBackend

FILE = Path(os.environ["FLEET_DEVICES"])


def _reading(device: str, metric: str) -> Callable[[float], float]:
    return lambda now: float(json.loads(FILE.read_text())[device][metric])


fake = FakeBackend(
    {
        device: {metric: _reading(device, metric) for metric in values}
        for device, values in json.loads(FILE.read_text()).items()
    },
    name="fleet",
)


@hookimpl
def accelscale_register_backends(register: Callable[[type[Backend]], None]) -> None:
    register(fake.as_class())
