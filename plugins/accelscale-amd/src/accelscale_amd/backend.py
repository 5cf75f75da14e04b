"""The backend: AMD GPUs and their partitions, through amdsmi where it works, else from ``/sys``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from accelscale.backend import Attempt, Backend, Probe
from accelscale.errors import BackendError
from accelscale.metrics import METRICS, Metric, Tier
from accelscale.model import Device, Failure, Reading, Reason, Sample
from accelscale_amd import kubernetes, smi_readings
from accelscale_amd.cards import VENDOR_ID, Card, Cards, Partition, as_devices
from accelscale_amd.files import UnreadableError, text_or_none
from accelscale_amd.library import AmdSmi
from accelscale_amd.sysfs import CardFiles, PartitionFiles
from accelscale_amd.trial import LIMIT_SECONDS, Trial, Verdict

logger = logging.getLogger("accelscale.amd")

OPEN_WAIT_SECONDS = 1.0
"""How long opening waits for the trial of amdsmi; later the backend goes over to it by itself."""

_VIDEO = Metric(
    "amd_video_utilization_percent",
    "percent",
    "Share of time that the video engines (VCN) worked, decoding or encoding: the mean over those"
    " that the card has.",
    0.0,
    100.0,
)

_Read = Callable[[str, float], float]


class AmdBackend(Backend):
    """Cards that the driver amdgpu has, and the partitions of those that are split.

    ``root`` is where ``/sys``, ``/opt`` and so on are looked for. Cards are always found through
    ``/sys``, so that ids are the same whichever way they are read.
    """

    name = "amd"
    vendor = "amd"
    isolates_devices = True
    extra_metrics = (_VIDEO,)
    metrics: ClassVar[Mapping[str, Tier]] = {
        "utilization_percent": Tier.FAST,
        "memory_bandwidth_utilization_percent": Tier.FAST,
        "memory_used_bytes": Tier.FAST,
        "memory_total_bytes": Tier.SLOW,
        "temperature_celsius": Tier.FAST,
        "memory_temperature_celsius": Tier.FAST,
        "slowdown_temperature_celsius": Tier.SLOW,
        "power_watts": Tier.FAST,
        "power_limit_watts": Tier.SLOW,
        "energy_joules_total": Tier.FAST,
        "throttled_power_seconds_total": Tier.FAST,
        "throttled_thermal_seconds_total": Tier.FAST,
        "sm_clock_megahertz": Tier.FAST,
        "memory_clock_megahertz": Tier.FAST,
        "interconnect_receive_bytes_total": Tier.FAST,
        "interconnect_transmit_bytes_total": Tier.FAST,
        "ecc_uncorrected_errors_total": Tier.SLOW,
        "process_count": Tier.SLOW,
        "amd_video_utilization_percent": Tier.FAST,
    }

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._is_open = False
        self._cards = Cards(root)
        self._trial = Trial(root)
        self._library = AmdSmi()
        self._uses_library = False
        self._source = ""
        self._layout: dict[str, int] = {}
        self._units: dict[str, tuple[Card, Partition | None]] = {}

    def probe(self) -> Probe:
        started = time.perf_counter()
        cards = Cards(self._root)
        cards.look()
        found = len(cards.all())
        looked = "look for amdgpu cards in /sys/class/drm"
        if not found:
            reason = self._absence()
            seconds = time.perf_counter() - started
            attempt = Attempt(looked, reason, ok=False, seconds=seconds)
            return Probe(viable=False, reason=reason, attempts=(attempt,))
        seconds = time.perf_counter() - started
        attempts = [Attempt(looked, f"{found} found", ok=True, seconds=seconds)]
        started = time.perf_counter()
        trial = Trial(self._root)
        verdict = trial.wait(LIMIT_SECONDS)
        trial.close()
        seconds = time.perf_counter() - started
        words = "undecided" if verdict is None else verdict.reason
        works = verdict is not None and verdict.works
        attempts.append(Attempt("try amdsmi", words, ok=works, seconds=seconds))
        source = f"read through amdsmi ({words})" if works else f"read from /sys; amdsmi: {words}"
        return Probe(
            viable=True,
            reason=f"{found} AMD {'GPU' if found == 1 else 'GPUs'}, {source}",
            version=f"amdsmi {verdict.version}" if verdict is not None and works else None,
            attempts=tuple(attempts),
        )

    def open(self) -> None:
        if self._is_open:
            return
        self._cards.look()
        if not self._cards.all():
            raise BackendError(self._absence(), reason=Reason.NOT_SUPPORTED)
        self._is_open = True
        self._choose_source(self._trial.wait(OPEN_WAIT_SECONDS))

    def devices(self) -> Sequence[Device]:
        self._require_open()
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
        return [device for card in cards for device in as_devices(card, self.name, self.vendor)]

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        self._require_open()
        for device in devices:
            answers = list(self._answers(device.id, metrics))
            yield Reading(
                device.id,
                samples=tuple(answer for answer in answers if isinstance(answer, Sample)),
                failures=tuple(answer for answer in answers if isinstance(answer, Failure)),
            )

    def close(self) -> None:
        self._is_open = False
        self._uses_library = False
        self._trial.close()
        self._library.close()

    def owns_resource(self, resource: str) -> bool:
        return kubernetes.is_gpu_resource(resource)

    def device_of(self, allocated_id: str, devices: Sequence[Device]) -> Device | None:
        return kubernetes.device_of(allocated_id, devices)

    def _require_open(self) -> None:
        if not self._is_open:
            raise BackendError("the amd backend is not open", reason=Reason.ERROR)

    def _absence(self) -> str:
        """Why there is no card, for people."""
        root = self._root
        idle = sorted(
            folder.name
            for folder in (root / "sys/bus/pci/devices").glob("*")
            if text_or_none(folder / "vendor") == VENDOR_ID
            and (text_or_none(folder / "class") or "").startswith(("0x03", "0x12"))
        )
        if not idle:
            return f"no AMD GPU: none in {root / 'sys/class/drm'} or on the PCI bus"
        if not (root / "sys/bus/pci/drivers/amdgpu").exists():
            return f"AMD GPU at {', '.join(idle)}, but the driver amdgpu is not loaded (yet)"
        return f"AMD GPU at {', '.join(idle)}, but the driver amdgpu does not have it (yet)"

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
                self._note_source(f"/sys, because of amdsmi {error.detail}")
        elif verdict is not None and not verdict.works and self._uses_library:
            self._library.close()
            self._uses_library = False
        if self._uses_library:
            self._note_source(f"amdsmi {self._library.version}".rstrip())
        elif verdict is not None and not verdict.works:
            self._note_source(f"/sys, because of amdsmi: {verdict.reason}")

    def _note_source(self, source: str) -> None:
        if source != self._source:
            logger.info("AMD GPUs are read through %s", source)
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
    row = METRICS.get(metric, _VIDEO)
    now = time.monotonic()
    if metric not in AmdBackend.metrics:
        detail = f"the amd backend does not read {metric}"
        return Failure(device_id, metric, Reason.NOT_SUPPORTED, detail, now, permanent=True)
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
