"""Asks XRT's tool about the cards, over and over, in a thread of its own.

A run takes a good part of a second, and minutes where a card's controller does not answer
(Xilinx/XRT#5211), so it never happens while somebody waits for a reading. Whoever reads gets the
newest result, dated by when it was measured. A card that is not ready is not examined.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from types import MappingProxyType

from attrs import define, evolve, field, frozen

from accelscale.model import Reason
from accelscale_fpga.busy import busy_percent, starts_between
from accelscale_fpga.files import Absent, UnreadableError
from accelscale_fpga.rows import STARTS
from accelscale_fpga.tool import Tool
from accelscale_fpga.xrt import (
    REPORTS,
    CardReport,
    Presence,
    card_report,
    parse,
    presences,
)

logger = logging.getLogger("accelscale.fpga")

FRESH_SECONDS = 25.0
"""How old a result may be: at a period of 8 seconds, two rounds may be slow."""

_LONGEST_PAUSE = 60.0  # after rounds that failed as a whole

UTILIZATION = "utilization_percent"


@frozen
class Finding:
    """The newest that is known about a card: figures of one time, or why there are none."""

    time: float
    values: Mapping[str, float | Absent] = field(factory=dict, hash=False)
    trouble: Absent | None = None
    problem: str = ""
    problem_reason: Reason = Reason.ERROR
    shell: str = ""

    def value(self, metric: str, now: float) -> float | Absent:
        """The value of a metric, in its unit, unless there is none or it is too old."""
        if self.trouble is not None:
            return self.trouble
        if now - self.time > FRESH_SECONDS:
            return Absent(Reason.STALE, f"the last report of XRT is {now - self.time:.0f} s old")
        absent = Absent(Reason.NOT_SUPPORTED, f"XRT does not report {metric}", permanent=True)
        return self.values.get(metric, absent)


_AWAITED = Finding(0.0, trouble=Absent(Reason.STALE, "XRT's first report is awaited"))


@define
class _Past:
    """What is kept of a card from round to round: counters go on while a report fails."""

    report: CardReport | None = None
    starts: int = 0


class Watch:
    """Keeps a finding about each card that it is told to follow.

    ``period`` is the seconds from the start of one round to the next; a round asks each card once.
    """

    def __init__(self, tool: Tool, *, period: float) -> None:
        self.tool = tool
        self._period = period
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._followed: tuple[str, ...] = ()
        self._findings: Mapping[str, Finding] = MappingProxyType({})
        self._past: dict[str, _Past] = {}
        self._thread = threading.Thread(target=self._run, name="accelscale-fpga-xrt", daemon=True)

    def start(self) -> None:
        """Begin. A watch is started once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the run that it waits for; returns soon."""
        self._stopped.set()
        self.tool.stop()
        self._thread.join(3.0)

    def follow(self, addresses: Collection[str]) -> None:
        """Ask about these cards, by PCI address, from the next round on."""
        self._followed = tuple(addresses)

    def finding(self, address: str) -> Finding:
        """The newest finding about a card; never waits."""
        return self._findings.get(address, _AWAITED)

    def wait(self, seconds: float) -> bool:
        """Wait until every followed card has a finding, at most so long."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(address in self._findings for address in self._followed), seconds
            )

    def _run(self) -> None:
        failed_rounds = 0
        while not self._stopped.is_set():
            started = time.monotonic()
            try:
                healthy = self._round()
            except Exception:
                logger.exception("reading XRT's reports failed")
                healthy = False
            failed_rounds = 0 if healthy else failed_rounds + 1
            pause = min(self._period * 2**failed_rounds, max(_LONGEST_PAUSE, self._period))
            self._stopped.wait(max(started + pause - time.monotonic(), 0.1 * self._period))

    def _round(self) -> bool:
        """Ask about every card once; False if the tool works for none of them."""
        followed = self._followed
        started = time.monotonic()
        try:
            cards = presences(parse(self.tool.report(["examine", "-r", "host"])))
        except UnreadableError as error:
            self._publish({one: Finding(started, trouble=error.absent) for one in followed})
            return False
        for address in followed:
            if self._stopped.is_set():
                break
            self._publish({address: self._examine(address, cards.get(address))})
        return not followed or any(self.finding(one).trouble is None for one in followed)

    def _examine(self, address: str, presence: Presence | None) -> Finding:
        now = time.monotonic()
        if presence is None:
            return Finding(now, trouble=Absent(Reason.LOST, "XRT does not list this card"))
        if presence.ready is False:
            problem = "not ready: XRT cannot use the card until it is reset or its shell is mended"
            trouble = Absent(Reason.ERROR, problem)
            return Finding(now, trouble=trouble, problem=problem, shell=presence.shell)
        try:
            text = self.tool.report(["examine", "-d", address, "-r", *REPORTS])
            report = card_report(parse(text), address, now)
        except UnreadableError as error:
            return Finding(now, trouble=error.absent, shell=presence.shell)
        finding = Finding(now, {**report.values, **self._of_units(address, report)})
        if report.hangs:
            text = "XRT says HANG: a compute unit does not come back, and the card must be reset"
            finding = evolve(finding, problem=text, problem_reason=Reason.RESET_REQUIRED)
        return evolve(finding, shell=presence.shell)

    def _of_units(self, address: str, now: CardReport) -> dict[str, float | Absent]:
        past = self._past.setdefault(address, _Past())
        values: dict[str, float | Absent] = {}
        try:
            values[UTILIZATION] = busy_percent(past.report, now)
        except UnreadableError as error:
            values[UTILIZATION] = error.absent
        try:
            past.starts += starts_between(past.report, now)
            values[STARTS.name] = float(past.starts)
        except UnreadableError as error:
            values[STARTS.name] = error.absent
        if now.units and not isinstance(now.units, Absent):
            past.report = now
        return values

    def _publish(self, findings: Mapping[str, Finding]) -> None:
        with self._changed:
            kept = {one: f for one, f in self._findings.items() if one in self._followed}
            self._findings = MappingProxyType({**kept, **findings})
            self._changed.notify_all()
