"""The backend: FPGA cards from ``/sys``, completed by XRT's tool where it is installed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from accelscale.backend import Attempt, Backend, Probe
from accelscale.errors import BackendError
from accelscale.metrics import Tier
from accelscale.model import Device, Failure, Reading, Reason, Sample, normal_pci_address
from accelscale_fpga.cards import Card, find_cards
from accelscale_fpga.files import Absent, UnreadableError, text_or_empty
from accelscale_fpga.rows import ROWS, STARTS, STARTS_RATE, XRT_METRICS
from accelscale_fpga.sensors import READERS, Sensor, monitors, sensors_of

if TYPE_CHECKING:
    # Imported when a card needs it: most machines have none, and pay for the rest only.
    from accelscale_fpga.watch import Finding, Watch

TOOL_VARIABLE = "ACCELSCALE_FPGA_XBUTIL"
"""The path of XRT's tool, or ``off`` to run none."""

_TOOL_NAMES = ("xrt-smi", "xbutil")  # renamed in XRT 2024.2
_XRT_FOLDER = "opt/xilinx/xrt/bin"
_LONGEST_FIRST_REPORT = 5.0  # what `diagnose` waits for it

# AMD's device plugin names a resource by the card's shell, Intel's by function or interface.
_RESOURCES = re.compile(r"(?:amd\.com/xilinx_|xilinx\.com/fpga-|fpga\.intel\.com/(?:af|region)-).+")


class FpgaBackend(Backend):
    """FPGAs of every maker as devices of vendor ``fpga``; ``attributes["maker"]`` says whose.

    One vendor name for all, because what can be read is decided by the kernel's interfaces and not
    by the maker. ``root`` is where ``/sys`` and ``/opt`` are looked for; ``tool`` is XRT's tool,
    looked for by default. ``period`` is the seconds between two rounds of that tool, ``timeout``
    what one run may take.

    All readings are of the slow tier: a card's sensors are behind a controller that takes
    milliseconds, and XRT's reports are renewed every few seconds.
    """

    name = "fpga"
    vendor = "fpga"
    metrics: ClassVar[Mapping[str, Tier]] = dict.fromkeys(
        (
            "utilization_percent",
            "memory_used_bytes",
            "memory_total_bytes",
            "temperature_celsius",
            "memory_temperature_celsius",
            "slowdown_temperature_celsius",
            "power_watts",
            STARTS.name,
        ),
        Tier.SLOW,
    )
    extra_metrics = (STARTS, STARTS_RATE)
    isolates_devices = True

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        tool: Path | None = None,
        period: float = 8.0,
        timeout: float = 10.0,
    ) -> None:
        self._root = root
        self._tool_path = tool
        self._period = period
        self._timeout = timeout
        self._watch: Watch | None = None
        self._is_open = False
        self._cards: Mapping[str, tuple[Card, tuple[Sensor, ...]]] = {}

    def probe(self) -> Probe:
        started = time.perf_counter()
        cards = find_cards(self._root)
        seconds = time.perf_counter() - started
        attempts = [Attempt("search /sys", _listed(cards), bool(cards), seconds)]
        if any(card.uses_xrt for card in cards):
            started = time.perf_counter()
            path = self._find_tool()
            text = str(path) if path is not None else self._no_tool().detail
            seconds = time.perf_counter() - started
            attempts.append(Attempt("find XRT's tool", text, path is not None, seconds))
        version = text_or_empty(self._root / "sys/module/xocl/version")
        reason = _listed(cards) if cards else self._nothing_found()
        return Probe(bool(cards), reason, version.partition(",")[0] or None, tuple(attempts))

    def open(self) -> None:
        if self._is_open:
            return
        if not find_cards(self._root):
            raise BackendError(self._nothing_found(), reason=Reason.NOT_SUPPORTED)
        self._is_open = True
        self._list()

    def devices(self) -> Sequence[Device]:
        self._opened()
        return tuple(self._device(card) for card in self._list())

    def read(self, devices: Sequence[Device], metrics: Collection[str]) -> Iterator[Reading]:
        self._opened()
        for device in devices:
            answers = self._answers(device.id, metrics)
            yield Reading(
                device.id,
                samples=tuple(answer for answer in answers if isinstance(answer, Sample)),
                failures=tuple(answer for answer in answers if isinstance(answer, Failure)),
            )

    def close(self) -> None:
        self._is_open = False
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()

    def diagnose(self) -> Iterator[Attempt]:
        try:
            self.open()
        except BackendError as error:
            yield Attempt("open", str(error), False, 0.0)
            return
        if self._watch is not None:
            started = time.perf_counter()
            done = self._watch.wait(_LONGEST_FIRST_REPORT)
            text = "done" if done else f"not done after {_LONGEST_FIRST_REPORT:g} s; it goes on"
            seconds = time.perf_counter() - started
            yield Attempt(f"first round of {self._watch.tool.path}", text, done, seconds)
        yield from super().diagnose()

    def owns_resource(self, resource: str) -> bool:
        return _RESOURCES.fullmatch(resource) is not None

    def device_of(self, allocated_id: str, devices: Sequence[Device]) -> Device | None:
        """By PCI address of any function of the card, or by name of a region or port, exactly.

        Intel's plugin allocates regions and ports; what AMD's uses as ids is not established.
        """
        address = normal_pci_address(allocated_id)
        for device in devices:
            functions = device.attributes.get("functions", "").split()
            regions = device.attributes.get("regions", "").split()
            if allocated_id in {device.id, *regions} or address in functions:
                return device
        return None

    def _opened(self) -> None:
        if not self._is_open:
            raise BackendError("the fpga backend is not open", reason=Reason.ERROR)

    def _list(self) -> Sequence[Card]:
        """Look for cards, and have XRT's tool follow those that it knows."""
        cards = find_cards(self._root)
        found = monitors(self._root)
        self._cards = {card.id: (card, sensors_of(card.folders, found)) for card in cards}
        asked = [card.id for card in cards if card.uses_xrt and not card.is_asleep]
        if self._watch is None and asked:
            path = self._find_tool()
            if path is not None:
                self._watch = self._new_watch(path)
                self._watch.follow(asked)
                self._watch.start()
        if self._watch is not None:
            self._watch.follow(asked)
        return cards

    def _new_watch(self, path: Path) -> Watch:
        from accelscale_fpga.tool import Tool
        from accelscale_fpga.watch import Watch

        return Watch(Tool(path, timeout=self._timeout), period=self._period)

    def _finding(self, card: Card) -> Finding | None:
        return self._watch.finding(card.id) if self._watch is not None and card.uses_xrt else None

    def _device(self, card: Card) -> Device:
        finding = self._finding(card)
        problem, reason = card.state_problem, Reason.ERROR
        name = card.name
        if finding is not None:
            name = finding.shell or name
            if finding.problem:
                problem, reason = finding.problem, finding.problem_reason
        return Device(
            id=card.id,
            name=name,
            vendor=self.vendor,
            backend=self.name,
            pci_address=card.pci_address,
            problem=reason if problem else None,
            problem_detail=problem,
            attributes=card.attributes,
        )

    def _answers(self, device_id: str, metrics: Collection[str]) -> list[Sample | Failure]:
        now = time.monotonic()
        known = self._cards.get(device_id)
        trouble = _GONE if known is None else self._trouble(known[0])
        answers: list[Sample | Failure] = []
        for metric in metrics:
            value: float | Absent = trouble or _GONE
            measured = now
            if known is not None and trouble is None:
                value, measured = self._value(*known, metric, now)
            answers.append(_answer(device_id, metric, value, measured, now))
        return answers

    def _trouble(self, card: Card) -> Absent | None:
        """Why nothing can be read from this card, if so."""
        if not card.folders[0].exists():
            return _GONE
        if card.is_asleep:
            detail = "the kernel has put the card to sleep, and reading would wake it"
            return Absent(Reason.STALE, detail)
        finding = self._finding(card)
        # A card that is not ready shows 0 in its sensors, or what they said long ago.
        return finding.trouble if finding is not None and finding.problem else None

    def _value(
        self, card: Card, sensors: Sequence[Sensor], metric: str, now: float
    ) -> tuple[float | Absent, float]:
        """The value and its time: from the kernel where it has it, else from XRT."""
        detail = f"neither the kernel nor a tool shows {metric} of this kind of FPGA"
        absent = Absent(Reason.NOT_SUPPORTED, detail, permanent=True)
        if metric in READERS:
            try:
                return READERS[metric](sensors), time.monotonic()
            except UnreadableError as error:
                absent = error.absent
        if not (card.uses_xrt and absent.permanent and metric in XRT_METRICS):
            return absent, now
        finding = self._finding(card)
        if finding is None:
            return self._no_tool(), now
        return finding.value(metric, now), finding.time

    def _find_tool(self) -> Path | None:
        if self._tool_path is not None:
            return self._tool_path
        named = os.environ.get(TOOL_VARIABLE, "").strip()
        if named.lower() == "off":
            return None
        if named:
            return Path(named)
        folders = [self._root / _XRT_FOLDER]
        if self._root == Path("/"):
            folders += [Path(text) for text in os.environ.get("PATH", "").split(os.pathsep) if text]
        paths = (folder / name for name in _TOOL_NAMES for folder in folders)
        return next((path for path in paths if os.access(path, os.X_OK)), None)

    def _no_tool(self) -> Absent:
        detail = (
            f"only XRT's tool shows it: neither {' nor '.join(_TOOL_NAMES)} is in /{_XRT_FOLDER} or"
            f" on the path, or {TOOL_VARIABLE} is off"
        )
        return Absent(Reason.NOT_SUPPORTED, detail)

    def _nothing_found(self) -> str:
        return (
            f"no FPGA: nothing in {self._root / 'sys/class/fpga_manager'} or fpga_region, and no"
            " such PCI device; a driver (xocl, dfl-pci) shows it, and in a container /sys"
        )


_GONE = Absent(Reason.LOST, "the kernel does not show this card")


def _answer(
    device_id: str, metric: str, value: float | Absent, measured: float, now: float
) -> Sample | Failure:
    if not isinstance(value, Absent):
        row = ROWS[metric]
        if row.minimum <= value <= row.maximum:
            return Sample(device_id, metric, value, measured)
        detail = f"{value:g} is outside {row.minimum:g} to {row.maximum:g} {row.unit}"
        value = Absent(Reason.OUT_OF_RANGE, detail)
    return Failure(device_id, metric, value.reason, value.detail, now, permanent=value.permanent)


def _listed(cards: Sequence[Card]) -> str:
    return f"found {', '.join(f'{card.name} ({card.id})' for card in cards)}" if cards else "none"
