"""Who uses a card or an instance: how many processes, and what each of them takes.

NVML names processes by the pids of the host, wherever this runs. Some drivers list records of no
process: impossible pids, or more memory than there is (Syllo/nvtop#432, XuehaiPan/nvitop#181).
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from accelscale.model import ProcessUse, Reason
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.card import Card
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.instances import Instance

_GREATEST_PID = 2**22  # PID_MAX_LIMIT of Linux


def read_processes(driver: Driver, holder: Card | Instance) -> tuple[ProcessUse, ...]:
    """The processes with a compute or graphics context, or a connection to the MPS server.

    ``memory_total_bytes`` of the holder must be known, where it can be.

    Raises:
        CallError: a list cannot be had; a driver that lacks one of them is no such case.
    """
    memory = _listed(driver, holder)
    shares = _shares(driver, holder, memory) if memory and isinstance(holder, Card) else {}
    return tuple(
        ProcessUse(pid, memory_used_bytes=used, utilization_percent=shares.get(pid))
        for pid, used in memory.items()
    )


def _listed(driver: Driver, holder: Card | Instance) -> dict[int, float | None]:
    """The memory of each process, None where that is unknown.

    A process that is in several lists is listed with all its memory in each.
    """
    call = "nvmlDeviceGet{}RunningProcesses_v{}".format
    handle = holder.handle
    records = list(driver.call_first((call("Compute", 3), handle), (call("Compute", 2), handle)))
    for forms in (
        ((call("Graphics", 3), handle), (call("Graphics", 2), handle)),
        ((call("MPSCompute", 3), handle),),
    ):
        try:
            records += driver.call_first(*forms)
        except CallError as error:
            if error.reason is not Reason.NOT_SUPPORTED:
                raise
    total = math.inf if holder.memory_total_bytes is None else holder.memory_total_bytes
    memory: dict[int, float | None] = {}
    for record in records:
        used = record.usedGpuMemory
        if not _is_pid(record.pid) or (used or 0) > total:
            continue
        known = memory.get(record.pid)
        memory[record.pid] = known if used is None else max(float(used), known or 0.0)
    return memory


def _shares(driver: Driver, card: Card, pids: Collection[int]) -> Mapping[int, float]:
    """The share of the card's time that each process took since this was last asked.

    The driver gives samples of those alone that worked, so a process without one did not, as long
    as there are samples at all. Without any, nothing is known: an idle card gives none, nor does
    a driver that cannot.
    """
    now = time.time_ns() // 1000
    if card.newest_use > now:
        card.newest_use = 0  # the clock by which the driver dates its samples was set back
    try:
        samples = driver.call("nvmlDeviceGetProcessUtilization", card.handle, card.newest_use)
    except CallError as error:
        if error.is_driver_wide:
            raise
        return {}
    newest = _newest_of_each(samples, pids)
    if not newest:
        return {}
    card.newest_use = max(sample.timeStamp for sample in newest.values())
    return {pid: float(newest[pid].smUtil) if pid in newest else 0.0 for pid in pids}


def _newest_of_each(samples: Iterable[Any], pids: Collection[int]) -> dict[int, Any]:
    """The newest sample of each of these processes, of those that make sense."""
    newest: dict[int, Any] = {}
    for sample in samples:
        if sample.pid not in pids or sample.smUtil > 100:
            continue
        if sample.pid not in newest or sample.timeStamp > newest[sample.pid].timeStamp:
            newest[sample.pid] = sample
    return newest


def _is_pid(pid: int) -> bool:
    return 0 < pid <= _GREATEST_PID
