"""The backend on real hardware: skipped where there is none.

In a process of its own, since this one may have the fake driver loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accelscale.metrics import METRICS
from accelscale.nvidia.backend import NvidiaBackend

ON_EVERY_CARD = {"power_watts", "temperature_celsius"}
"""Each card in use here gives one of these."""

SCRIPT = """
    import json, os, time
    from accelscale.nvidia.backend import NvidiaBackend

    backend = NvidiaBackend()
    probe = backend.probe()
    result = {"viable": probe.viable, "reason": probe.reason, "devices": {}}
    if probe.viable:
        backend.open()
        devices = backend.devices()
        list(backend.read(devices, backend.metrics))
        time.sleep(0.2)  # GPM needs two samples
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            time.sleep(0.12)
            readings = list(backend.read(backend.devices(), backend.metrics))
        result["descriptors"] = len(os.listdir("/proc/self/fd")) - before
        for device, reading in zip(devices, readings):
            result["devices"][device.id] = {
                "name": device.name,
                "parent": device.parent,
                "values": {sample.metric: sample.value for sample in reading.samples},
                "failures": {failure.metric: failure.detail for failure in reading.failures},
            }
        backend.close()
        backend.open()
        result["again"] = [device.id for device in backend.devices()]
        backend.close()
    print(json.dumps(result))
"""


@pytest.mark.gpu
def test_real_cards_are_read(run_script: Callable[..., Any]) -> None:
    result = run_script(SCRIPT, {})
    if not result["viable"]:
        pytest.skip(f"no NVIDIA hardware here: {result['reason']}")
    assert result["again"] == list(result["devices"])
    assert result["descriptors"] <= 5
    for device in result["devices"].values():
        assert device["name"]
        assert device["values"].keys() | device["failures"].keys() == set(NvidiaBackend.metrics)
        expected = {"memory_used_bytes"} if device["parent"] else ON_EVERY_CARD
        assert expected & device["values"].keys()
        for metric, value in device["values"].items():
            row = METRICS[metric]
            assert row.minimum <= value <= row.maximum, f"{metric} is {value}"
