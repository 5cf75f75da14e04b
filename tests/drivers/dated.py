"""Conformance of backends whose samples are measured beside the reading path.

A tool that takes seconds, or that speaks when it likes, is listened to by a thread of the backend;
a sample then bears the time of its measurement, which lies before the call that hands it out.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import ClassVar

from accelscale.backend import Backend
from accelscale.metrics import METRICS
from accelscale.model import Device, Reading
from accelscale.testing import BackendConformance
from accelscale.testing.reading_rules import reading_faults


class DatedConformance(BackendConformance):
    """As its parent, but a sample may be up to ``oldest_seconds`` older than the call."""

    oldest_seconds: ClassVar[float]

    def _checked_read(
        self, backend: Backend, devices: Sequence[Device], metrics: Collection[str]
    ) -> list[Reading]:
        since = time.monotonic() - self.oldest_seconds
        readings = self._within("read", lambda: list(backend.read(devices, tuple(metrics))))
        until = time.monotonic()
        assert [one.device_id for one in readings] == [device.id for device in devices]
        table = {**METRICS, **{row.name: row for row in backend.extra_metrics}}
        for reading in readings:
            faults = list(reading_faults(reading, metrics, table, since=since, until=until))
            assert not faults, "; ".join(faults)
        return readings
