"""What the agents would have recorded of a simulated fleet: a recording like any other."""

from __future__ import annotations

import numpy as np

from accelscale.lab.recording import Column, Holder, Recording, Span
from accelscale.lab.simulate.replica import Replica
from accelscale.lab.simulate.run import Simulation
from accelscale.metrics import METRICS
from accelscale.model import Device

RECORDED = (
    "utilization_percent",
    "memory_used_bytes",
    "memory_total_bytes",
    "memory_used_percent",
    "power_watts",
)


def recorded(simulation: Simulation) -> Recording:
    """Utilisation, memory and power of every device of every replica, held by its pod.

    What no agent told is not in it: a faulted agent leaves a gap.
    """
    policy, end = simulation.policy, simulation.seconds
    columns: dict[tuple[str, str], Column] = {}
    devices: list[Device] = []
    holders: list[Holder] = []
    presence: dict[str, tuple[Span, ...]] = {}
    for replica in simulation.fleet.all_replicas:
        start, until = max(replica.created, 0.0), min(replica.gone, end)
        found = _columns(replica)
        for device_id in replica.device_ids:
            devices.append(Device(device_id, simulation.model.name, "simulated", "simulated"))
            presence[device_id] = (Span(start, until),)
            holders.append(
                Holder(device_id, policy.namespace, replica.name, "server", start, until)
            )
            columns.update({(device_id, metric): column for metric, column in found.items()})
    return Recording(
        start=simulation.arrivals.start,
        end=end,
        interval=simulation.conditions.interval,
        devices=tuple(devices),
        columns=columns,
        presence=presence,
        holders=tuple(holders),
        units={metric: METRICS[metric].unit for metric in RECORDED},
        origin=f"simulated fleet {policy.namespace}/{policy.name}",
    )


def _columns(replica: Replica) -> dict[str, Column]:
    heard = np.array(replica.heard, dtype=bool)
    times = np.array(replica.times)[heard]
    used = np.array(replica.memory_bytes)[heard]
    total = replica.model.memory_bytes
    values = {
        "utilization_percent": np.array(replica.utilization_percent)[heard],
        "memory_used_bytes": used,
        "memory_total_bytes": np.full(len(times), total),
        "memory_used_percent": 100 * used / total,
        "power_watts": np.array(replica.power_watts)[heard],
    }
    return {metric: Column(times, values[metric]) for metric in RECORDED}
