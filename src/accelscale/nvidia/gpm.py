"""GPM: how hard a card of Hopper or later works, from two samples of its counters.

A sample is taken at every reading, and the metrics are what lies between it and the one before, so
they are averages over the time from reading to reading. Two things go wrong with GPM elsewhere.
Readings by two threads at once crashed a driver (plazonic/nvidia_gpu_prometheus_exporter#7): here
one is made at a time, whatever the device. And two samples that do not belong together give
nonsense: those less than 100 ms apart, those with a long gap between them, and those of two devices
that bore the same number one after the other (utkuozdemir/nvidia_gpu_exporter#466).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from attrs import define, frozen

from accelscale.metrics import max_age
from accelscale.model import Reason
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.outcome import Absent, number

LEAST_SECONDS = 0.1
"""How far two samples must be apart at least, says NVML's documentation."""

_FIRST_PAIR_SECONDS = 60.0
"""How far they may be apart while it is not known yet how often a device is read."""

_TURN_SECONDS = 0.25
"""How long a thread waits for another one's reading; one that takes longer hangs."""

_MEBIBYTE = 2.0**20


@frozen
class Source:
    """The GPM metric behind one of ours, and by what it is multiplied."""

    constant: str
    factor: float = 1.0


SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "utilization_percent": Source("NVML_GPM_METRIC_GRAPHICS_UTIL"),
        "sm_activity_percent": Source("NVML_GPM_METRIC_SM_UTIL"),
        "sm_occupancy_percent": Source("NVML_GPM_METRIC_SM_OCCUPANCY"),
        "tensor_activity_percent": Source("NVML_GPM_METRIC_ANY_TENSOR_UTIL"),
        "memory_bandwidth_utilization_percent": Source("NVML_GPM_METRIC_DRAM_BW_UTIL"),
        "pcie_receive_bytes_per_second": Source("NVML_GPM_METRIC_PCIE_RX_PER_SEC", _MEBIBYTE),
        "pcie_transmit_bytes_per_second": Source("NVML_GPM_METRIC_PCIE_TX_PER_SEC", _MEBIBYTE),
        "interconnect_receive_bytes_per_second": Source(
            "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", _MEBIBYTE
        ),
        "interconnect_transmit_bytes_per_second": Source(
            "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", _MEBIBYTE
        ),
    }
)


@frozen
class Subject:
    """What is sampled: a card, or a GPU instance of it for one of its compute instances.

    Two subjects that differ in anything have nothing in common, so samples of the one are never
    held against samples of the other. ``life`` is that of the card.
    """

    device_id: str
    life: tuple[int, int]
    gpu_instance: int | None = None


@define(eq=False)
class Pair:
    """Two samples of one subject, which take turns.

    ``taken`` is when the newer one was complete, ``apart`` how many seconds they were apart.
    """

    older: Any
    newer: Any
    taken: float | None = None
    apart: float | None = None


class Gpm:
    """Takes samples, one at a time, and keeps those of each subject for the next reading."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._turn = threading.Lock()
        self._turn_since = 0.0
        self._pairs: dict[Subject, Pair] = {}
        self._request: Any = None  # 19 kB, so it is made once

    def read(
        self, subject: Subject, card_handle: Any, metrics: Collection[str]
    ) -> Mapping[str, float | Absent | CallError]:
        """What lies between the last sample of this subject and one that is taken now.

        Raises:
            CallError: no sample can be taken, or no metrics made of two.
        """
        with self._my_turn() as is_mine:
            if not is_mine:
                detail = "another reading by GPM is under way, and only one may be at a time"
                return dict.fromkeys(metrics, Absent(Reason.TIMEOUT, detail))
            try:
                gap = self._advance(subject, card_handle)
                return dict.fromkeys(metrics, gap) if gap else self._between(subject, metrics)
            except CallError:
                self._drop(subject)
                raise

    def keep_only(self, subjects: Iterable[Subject]) -> None:
        """Free the samples of all others: devices that are lost, gone, or reached anew."""
        gone = self._pairs.keys() - set(subjects)
        if gone:
            with self._my_turn() as is_mine:
                for subject in gone if is_mine else ():
                    self._drop(subject)

    def _advance(self, subject: Subject, card_handle: Any) -> Absent | None:
        """Take the next sample; why nothing can be made of it yet, or None."""
        pair = self._pairs.get(subject)
        if pair is None:
            pair = self._pairs[subject] = self._new_pair()
        apart = None if pair.taken is None else time.monotonic() - pair.taken
        if apart is not None and apart < LEAST_SECONDS:
            detail = f"GPM was sampled {1000 * apart:.0f} ms ago, and needs 100 ms in between"
            return Absent(Reason.NO_PROGRESS, detail)
        pair.older, pair.newer = pair.newer, pair.older
        if subject.gpu_instance is None:
            self._driver.call("nvmlGpmSampleGet", card_handle, pair.newer)
        else:
            self._driver.call("nvmlGpmMigSampleGet", card_handle, subject.gpu_instance, pair.newer)
        pair.taken = time.monotonic()
        limit = _FIRST_PAIR_SECONDS if pair.apart is None else max_age(pair.apart)
        pair.apart = apart
        if apart is None:
            return Absent(Reason.NO_PROGRESS, "GPM needs a second sample")
        if apart > limit:
            return Absent(Reason.NO_PROGRESS, f"the sample before is {apart:.1f} s old")
        return None

    def _between(
        self, subject: Subject, metrics: Collection[str]
    ) -> Mapping[str, float | Absent | CallError]:
        pair, request = self._pairs[subject], self._request
        asked: list[str] = []
        results: dict[str, float | Absent | CallError] = {}
        for metric in metrics:
            constant = SOURCES[metric].constant
            number_of = self._driver.constant(constant)
            if number_of is None:
                old = "nvidia-ml-py is too old to know it"
                results[metric] = CallError(constant, None, "FUNCTION_NOT_FOUND", old)
                continue
            request.metrics[len(asked)].metricId = number_of
            asked.append(metric)
        request.numMetrics, request.sample1, request.sample2 = len(asked), pair.older, pair.newer
        if asked:
            self._driver.call("nvmlGpmMetricsGet", request)
        for place, metric in enumerate(asked):
            results[metric] = self._item(SOURCES[metric], request.metrics[place])
        return results

    def _item(self, source: Source, item: Any) -> float | Absent | CallError:
        """One metric. Its error is its own; it is rounded, lest noise lift 100 above 100."""
        if item.nvmlReturn != 0:
            error = self._driver.error(source.constant, item.nvmlReturn)
            self._driver.note(source.constant, error.in_brief, ok=False)
            return error
        self._driver.note(source.constant, item.value, ok=True)
        outcome = number(item.value)
        return outcome if isinstance(outcome, Absent) else round(source.factor * outcome, 3)

    def _new_pair(self) -> Pair:
        if self._request is None:
            layout = self._driver.attribute("c_nvmlGpmMetricsGet_t")
            if layout is None:
                old = "nvidia-ml-py is too old to know GPM"
                raise CallError("nvmlGpmMetricsGet", None, "FUNCTION_NOT_FOUND", old)
            self._request = layout()
            self._request.version = self._driver.constant("NVML_GPM_METRICS_GET_VERSION")
        older = self._driver.call("nvmlGpmSampleAlloc")
        try:
            return Pair(older, self._driver.call("nvmlGpmSampleAlloc"))
        except CallError:
            self._free(older)
            raise

    def _drop(self, subject: Subject) -> None:
        pair = self._pairs.pop(subject, None)
        if pair is not None and subject.life[0] == self._driver.generation:
            self._free(pair.older)
            self._free(pair.newer)

    def _free(self, sample: Any) -> None:
        try:
            self._driver.call("nvmlGpmSampleFree", sample)
        except CallError as error:
            self._driver.note("nvmlGpmSampleFree", error.in_brief, ok=False)

    @contextmanager
    def _my_turn(self) -> Iterator[bool]:
        """Wait for the one who is reading, but not for one who hangs in a call."""
        patience = _TURN_SECONDS - (time.monotonic() - self._turn_since)
        if not self._turn.acquire(timeout=max(patience, 0.0)):
            yield False
            return
        self._turn_since = time.monotonic()
        try:
            yield True
        finally:
            self._turn.release()
