"""The cards of one machine while they are used: how each is read, and the change between ways."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from accelscale.backend import Attempt, Probe
from accelscale.metrics import METRICS
from accelscale.model import Device, Failure, Reading, Reason, Sample
from accelscale_amd import smi_readings
from accelscale_amd.cards import Card, Cards, Partition, as_devices
from accelscale_amd.extra import VIDEO
from accelscale_amd.files import UnreadableError
from accelscale_amd.library import AmdSmi
from accelscale_amd.sysfs import CardFiles, PartitionFiles
from accelscale_amd.trial import LIMIT_SECONDS, Trial, Verdict

logger = logging.getLogger("accelscale.amd")

OPEN_WAIT_SECONDS = 1.0
"""How long opening waits for the trial of amdsmi; later the session goes over to it by itself."""

_Read = Callable[[str, float], float]


def probe(root: Path) -> Probe:
    """What is found here and how it would be read; there is a card."""
    started = time.perf_counter()
    cards = Cards(root)
    cards.look()
    found = len(cards.all())
    seconds = time.perf_counter() - started
    looked = Attempt("look for amdgpu cards", f"{found} found", ok=True, seconds=seconds)
    started = time.perf_counter()
    trial = Trial(root)
    verdict = trial.wait(LIMIT_SECONDS)
    trial.close()
    seconds = time.perf_counter() - started
    words = "undecided" if verdict is None else verdict.reason
    works = verdict is not None and verdict.works
    source = f"read through amdsmi ({words})" if works else f"read from /sys (amdsmi: {words})"
    return Probe(
        viable=True,
        reason=f"{found} AMD {'GPU' if found == 1 else 'GPUs'}, {source}",
        version=f"amdsmi {verdict.version}" if verdict is not None and works else None,
        attempts=(looked, Attempt("try amdsmi", words, ok=works, seconds=seconds)),
    )


class Session:
    """Cards and library of one backend; `open` may follow `close`.

    Cards are kept meanwhile, so that one that does not come back shows as lost.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._cards = Cards(root)
        self._trial = Trial(root)
        self._library = AmdSmi()
        self._uses_library = False
        self._source = ""
        self._layout: dict[str, int] = {}
        self._units: dict[str, tuple[Card, Partition | None]] = {}

    def open(self) -> None:
        """Find the cards, and wait a moment for the trial of amdsmi."""
        self._cards.look()
        self._choose_source(self._trial.wait(OPEN_WAIT_SECONDS))

    def devices(self, backend: str, vendor: str) -> Sequence[Device]:
        """Cards and partitions as they are now."""
        self._cards.look()
        self._choose_source(self._trial.verdict())
        cards = self._cards.all()
        for card in cards:
            self._note_memory_pool(card)
        units: dict[str, tuple[Card, Partition | None]] = {}
        for card in cards:
            units[card.id] = (card, None)
            units.update((partition.id, (card, partition)) for partition in card.partitions)
        self._units = units
        return [device for card in cards for device in as_devices(card, backend, vendor)]

    def read(self, device_id: str, metrics: Collection[str]) -> Reading:
        """A sample or failure of each of these metrics; the backend has listed them all."""
        answers = list(self._answers(device_id, metrics))
        return Reading(
            device_id,
            samples=tuple(answer for answer in answers if isinstance(answer, Sample)),
            failures=tuple(answer for answer in answers if isinstance(answer, Failure)),
        )

    def close(self) -> None:
        """Let go of the library, and end a trial that runs."""
        self._uses_library = False
        self._trial.close()
        self._library.close()

    def _choose_source(self, verdict: Verdict | None) -> None:
        """Go over to amdsmi when a trial says that it works, and back when it does not."""
        if self._library.needs_restart or self._split_anew():
            self._library.close()
            self._uses_library = False
        if verdict is not None and verdict.works and not self._uses_library:
            try:
                self._library.open(verdict)
                self._uses_library = True
                verdict = None
            except UnreadableError as error:
                self._trial.failed_here(error.detail)
                self._note_source(f"from /sys (amdsmi: {error.detail})")
        elif verdict is not None and not verdict.works and self._uses_library:
            self._library.close()
            self._uses_library = False
        if self._uses_library:
            self._note_source(f"through amdsmi {self._library.version}".rstrip())
        elif verdict is not None and not verdict.works:
            self._note_source(f"from /sys (amdsmi: {verdict.reason})")

    def _note_source(self, source: str) -> None:
        if source != self._source:
            logger.info("AMD GPUs are read %s", source)
        self._source = source

    def _split_anew(self) -> bool:
        """Whether a card was split in another way, which makes the library's handles stale."""
        before = self._layout
        self._layout = {card.address: len(card.partitions) for card in self._cards.all()}
        return bool(before) and before != self._layout

    def _note_memory_pool(self, card: Card) -> None:
        """Say on the device which memory counts, once that can be seen."""
        if "memory_pool" in card.attributes or card.problem is not None:
            return
        try:
            card.require_awake()
            pool = CardFiles(self._root, card).memory_pool()
        except UnreadableError:
            return
        card.attributes = {**card.attributes, "memory_pool": pool.name}

    def _answers(self, device_id: str, metrics: Collection[str]) -> Iterator[Sample | Failure]:
        try:
            readers = self._readers(device_id)
        except UnreadableError as error:
            yield from (_failure(device_id, metric, error) for metric in metrics)
            return
        for metric in metrics:
            yield _answer(device_id, metric, readers)

    def _readers(self, device_id: str) -> Callable[[str], _Read]:
        """Who reads which metric of a device.

        Raises:
            UnreadableError: nothing of it may be read now.
        """
        if device_id not in self._units:
            raise UnreadableError(Reason.LOST, "there is no such card or partition")
        card, partition = self._units[device_id]
        if card.problem is not None:
            raise UnreadableError(card.problem, card.problem_detail)
        card.require_awake()
        if partition is not None:
            partition_files = PartitionFiles(self._root, card, partition)
            return lambda metric: partition_files.read
        files = CardFiles(self._root, card)
        handle = self._library.handle(card.address) if self._uses_library else None
        if handle is None:
            return lambda metric: files.read
        calls = smi_readings.CardCalls(self._library, handle, files)

        def reader(metric: str) -> _Read:
            return calls.read if metric in smi_readings.METRICS else files.read

        return reader


def _answer(device_id: str, metric: str, readers: Callable[[str], _Read]) -> Sample | Failure:
    row = METRICS.get(metric, VIDEO)
    now = time.monotonic()
    try:
        value = readers(metric)(metric, now)
    except UnreadableError as error:
        return _failure(device_id, metric, error)
    except Exception as error:
        logger.exception("%s of %s", metric, device_id)
        text = f"{type(error).__name__}: {error}"
        return Failure(device_id, metric, Reason.ERROR, text, now)
    if not row.minimum <= value <= row.maximum:
        text = f"{value:g} is outside {row.minimum:g} to {row.maximum:g} {row.unit}"
        return Failure(device_id, metric, Reason.OUT_OF_RANGE, text, now)
    return Sample(device_id, metric, float(value), now)


def _failure(device_id: str, metric: str, error: UnreadableError) -> Failure:
    return Failure(
        device_id,
        metric,
        error.reason,
        error.detail,
        time.monotonic(),
        error.code,
        error.permanent,
    )
