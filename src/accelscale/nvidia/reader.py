"""One step of a pass: everything that was asked of one card or one MIG instance."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence

from attrs import frozen

from accelscale.model import Failure, ProcessUse, Reading, Reason, Sample
from accelscale.nvidia.absence import absent, absent_of_instance, believed
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.card import Card, gives_sign_of_life
from accelscale.nvidia.driver import Driver
from accelscale.nvidia.gpm import Gpm
from accelscale.nvidia.instances import Instance, is_itself, look_at_instances
from accelscale.nvidia.outcome import Absent, Outcome, Result
from accelscale.nvidia.processes import read_processes
from accelscale.nvidia.readings import read_card, read_instance, read_memory

PROCESSES = "process_count"
XIDS = "xid_errors_total"

_UNKNOWN = Absent(Reason.NOT_SUPPORTED, "the nvidia backend has no such metric", None, True)


@frozen
class Reader:
    """Reads cards and instances that were found, and judges by the answers whether they are ill."""

    driver: Driver
    gpm: Gpm

    def read_card(self, card: Card, metrics: Sequence[str]) -> Reading:
        """Read a card. The count of XIDs is our own, so it proves nothing and comes last.

        Raises:
            CallError: the driver as a whole does not answer.
        """
        why = self._why_not(card)
        if why is not None:
            return nothing(card.id, metrics, why)
        card.reading = True
        try:
            results = list(read_card(self.driver, self.gpm, card, metrics))
            uses: tuple[ProcessUse, ...] | None = None
            if PROCESSES in metrics:
                count, uses = self._processes(card)
                results.append((PROCESSES, count, time.monotonic()))
            self._judge(card, [outcome for _, outcome, _ in results])
        finally:
            card.reading = False
        if XIDS in metrics:
            results.append((XIDS, _xids(card, results), time.monotonic()))
        return _reading(card.id, _completed(results, metrics), uses)

    def read_instance(self, instance: Instance, metrics: Sequence[str]) -> Reading:
        """Read a MIG instance, after making sure that its handle still means it.

        Raises:
            CallError: the driver as a whole does not answer.
        """
        why = self._why_not(instance.card)
        if why is not None:
            return nothing(instance.id, metrics, why)
        reading = self._if_itself(instance, metrics)
        if reading is None:  # its handle means something else now, or nothing
            look_at_instances(self.driver, instance.card)
            for found in instance.card.instances:
                if found.id == instance.id:
                    reading = self._if_itself(found, metrics)
        if reading is None:
            gone = Absent(Reason.LOST, f"{instance.card.id} has no such MIG instance any more")
            return nothing(instance.id, metrics, gone)
        return reading

    def _if_itself(self, instance: Instance, metrics: Sequence[str]) -> Reading | None:
        instance.reading = True
        try:
            return self._of(instance, metrics) if is_itself(self.driver, instance) else None
        finally:
            instance.reading = False

    def _of(self, instance: Instance, metrics: Sequence[str]) -> Reading:
        results = list(
            read_instance(
                self.driver, self.gpm, instance, [name for name in metrics if name != PROCESSES]
            )
        )
        uses: tuple[ProcessUse, ...] | None = None
        if PROCESSES in metrics:
            count, uses = self._processes(instance)
            results.append((PROCESSES, count, time.monotonic()))
        shared = {name for name, _, _ in results if instance.is_shared and name != PROCESSES}
        return _reading(instance.id, results, uses, shared)

    def _why_not(self, card: Card) -> Absent | None:
        """Why a card and its instances cannot be read, before any call."""
        if card.life is None or card.problem is Reason.LOST:
            return Absent(card.problem or Reason.LOST, card.problem_detail)
        if card.life[0] != self.driver.generation:  # its handle may point to nothing now
            detail = "NVML was initialised anew; the card is looked up next"
            return Absent(Reason.TIMEOUT, detail)
        return None

    def _processes(self, holder: Card | Instance) -> tuple[Outcome, tuple[ProcessUse, ...] | None]:
        """Their number, and what they use; the lists are judged by the memory that there is."""
        try:
            if "memory_total_bytes" not in holder.asked:
                self._ask_for_memory(holder)
            uses = read_processes(self.driver, holder)
        except CallError as error:
            if isinstance(holder, Card):
                return absent(self.driver, holder, PROCESSES, error), None
            return absent_of_instance(self.driver, holder, PROCESSES, error), None
        count = float(len(uses))
        return believed(holder, count) if isinstance(holder, Card) else count, uses

    def _ask_for_memory(self, holder: Card | Instance) -> None:
        try:
            read_memory(self.driver, holder)
        except CallError as error:
            if error.is_driver_wide:
                raise

    def _judge(self, card: Card, outcomes: Sequence[Outcome]) -> None:
        """Tell an ill card from a failed reading: an ill one answers nothing."""
        found = [outcome for outcome in outcomes if isinstance(outcome, Absent)]
        by_reason = {outcome.reason: outcome for outcome in found}
        answers = len(found) < len(outcomes) or Reason.OUT_OF_RANGE in by_reason
        if reset := by_reason.get(Reason.RESET_REQUIRED):
            card.is_ill(Reason.RESET_REQUIRED, reset.detail)
        elif answers:
            card.is_well()
        elif Reason.LOST in by_reason or Reason.ERROR in by_reason:
            error = gives_sign_of_life(self.driver, card)
            if error is None:
                card.is_well()
            elif error.reason is Reason.LOST or error.name == "INVALID_ARGUMENT":
                card.is_ill(Reason.LOST, str(error))
            else:
                card.is_ill(Reason.ERROR, str(error))


def nothing(device_id: str, metrics: Iterable[str], why: Absent) -> Reading:
    """The reading of a device that cannot be read at all."""
    now = time.monotonic()
    return _reading(device_id, [(metric, why, now) for metric in metrics])


def _xids(card: Card, results: Sequence[Result]) -> Outcome:
    """The count, unless the card gave nothing else: it is no sign of life."""
    found = [outcome for _, outcome, _ in results]
    if found and all(isinstance(outcome, Absent) for outcome in found) and card.problem:
        return Absent(card.problem, card.problem_detail)
    return card.health.xid_total()


def _completed(results: Iterable[Result], metrics: Collection[str]) -> Iterator[Result]:
    given = set()
    for result in results:
        given.add(result[0])
        yield result
    now = time.monotonic()
    yield from ((metric, _UNKNOWN, now) for metric in metrics if metric not in given)


def _reading(
    device_id: str,
    results: Iterable[Result],
    uses: tuple[ProcessUse, ...] | None = None,
    shared: Collection[str] = (),
) -> Reading:
    samples, failures = [], []
    for metric, outcome, when in results:
        if isinstance(outcome, Absent):
            why = (outcome.reason, outcome.detail, when, outcome.code, outcome.permanent)
            failures.append(Failure(device_id, metric, *why))
        else:
            samples.append(Sample(device_id, metric, outcome, when, metric in shared))
    return Reading(device_id, tuple(samples), tuple(failures), uses)
