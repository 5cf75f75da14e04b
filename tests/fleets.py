"""Fleets made of plain numbers, for tests of the engine and of what stands on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelscale.model import (
    Device,
    Failure,
    Reason,
    Replica,
    SeriesValue,
    Snapshot,
    Workload,
)
from accelscale.trigger import Trigger, parse_trigger

NOW = 1000.0

Reading = float | Reason | tuple[float, float] | None
"""A value, the reason of a failure, a value with its age, or nothing at all."""


def trigger(**keys: str) -> Trigger:
    """A trigger on utilisation with threshold 70, and these keys."""
    return parse_trigger({"metric": "utilization_percent", "threshold": "70", **keys})


def fleet(
    wanted: Trigger,
    pods: Mapping[str, Sequence[Reading]],
    *,
    starting: Sequence[str] = (),
    unready: Sequence[str] = (),
    covered: bool = True,
    peaks: Mapping[str, float] | None = None,
    problems: Mapping[str, str] | None = None,
) -> tuple[Trigger, Snapshot, Workload]:
    """The arguments of ``evaluate`` for pods that hold devices with these readings.

    ``starting`` pods were never Ready, ``unready`` ones were; ``peaks`` are the maxima over
    ``idleAfter`` of the devices of a pod, where they differ from its readings. ``problems`` say of
    a pod why not all of its devices are known.
    """
    devices, series, failures, replicas = [], {}, {}, []
    for pod, readings in pods.items():
        ids = tuple(f"{pod}/{index}" for index in range(len(readings)))
        replicas.append(
            Replica(
                pod,
                ids,
                ready=pod not in (*starting, *unready),
                was_ready=pod not in starting,
                problem=(problems or {}).get(pod, ""),
            )
        )
        for device_id, reading in zip(ids, readings, strict=True):
            devices.append(Device(device_id, "Toy", "toy", "toy"))
            result = _result(device_id, wanted.metric, reading, covered)
            if isinstance(result, Failure):
                failures[device_id, wanted.metric] = result
            for one in wanted.wanted_series if result is not None else ():
                series[device_id, one] = result
            if wanted.idle_series and peaks and pod in peaks:
                series[device_id, wanted.idle_series] = SeriesValue(peaks[pod], NOW, covered)
    snapshot = Snapshot(
        time=NOW,
        sequence=1,
        interval=1.0,
        devices=tuple(devices),
        series=series,  # type: ignore[arg-type]
        failures=failures,
    )
    return wanted, snapshot, Workload("web", tuple(replicas), "ns", "workload")


def _result(
    device_id: str, metric: str, reading: Reading, covered: bool
) -> SeriesValue | Failure | None:
    if reading is None:
        return None
    if isinstance(reading, Reason):
        return Failure(device_id, metric, reading, "made up", NOW)
    value, age = reading if isinstance(reading, tuple) else (reading, 0.0)
    return SeriesValue(value, NOW - age, covered)
