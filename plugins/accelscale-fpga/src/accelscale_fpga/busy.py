"""How busy a card's compute units were between two reports, as far as that can be known.

XRT counts how often a unit was started and shows whether it runs at this moment; it does not count
the time that it ran. So the share of time is known of a unit that was not started in between and
was in the same state at both ends, running or idle. Of any other unit only a guess could be made,
and a guess of 0 would let a card with short kernels look idle: there is no number then.
"""

from __future__ import annotations

from collections.abc import Mapping

from accelscale.model import Reason
from accelscale_fpga.files import Absent, UnreadableError
from accelscale_fpga.xrt import CardReport, ComputeUnit


def busy_percent(before: CardReport | None, now: CardReport) -> float:
    """The share of the card's compute units that worked between the two reports, in percent.

    Raises:
        UnreadableError: it is not known.
    """
    units = _units(now)
    if before is None:
        detail = "a share of time needs a second report on the compute units"
        raise UnreadableError(Reason.NO_PROGRESS, detail)
    if before.design != now.design:
        raise UnreadableError(Reason.COUNTER_RESET, "another design was loaded")
    earlier = _units(before)
    running = [_ran(earlier.get(unit.name), unit) for unit in units.values()]
    return 100.0 * sum(running) / len(running)


def starts_between(before: CardReport | None, now: CardReport) -> int:
    """How often compute units were started between the two reports.

    After a new design is loaded, as often as since then; with no report before, as often as the
    driver has counted.

    Raises:
        UnreadableError: the starts are not known.
    """
    units = _units(now)
    earlier: Mapping[str, int] = {}
    if before is not None and before.design == now.design:
        earlier = {name: unit.starts for name, unit in _units(before).items()}
    return sum(_step(earlier.get(unit.name, 0), unit.starts) for unit in units.values())


def _units(report: CardReport) -> Mapping[str, ComputeUnit]:
    if isinstance(report.units, Absent):
        raise UnreadableError(report.units.reason, report.units.detail)
    if not report.units:
        detail = "no design with compute units is loaded"
        raise UnreadableError(Reason.NOT_SUPPORTED, detail)
    return {unit.name: unit for unit in report.units}


def _ran(before: ComputeUnit | None, now: ComputeUnit) -> bool:
    """Whether the unit ran all the time or not at all."""
    if before is None or before.running is None or now.running is None:
        detail = f"XRT does not say whether compute unit {now.name} runs"
        raise UnreadableError(Reason.ERROR, detail)
    if before.starts != now.starts or before.running != now.running:
        detail = (
            f"compute unit {now.name} was started or ended between two reports, and XRT does not"
            " count the time that it ran; fpga_compute_unit_starts_per_second is known"
        )
        raise UnreadableError(Reason.NOT_SUPPORTED, detail)
    return now.running


def _step(before: int, now: int) -> int:
    """The starts since the report before; a count that went back began again at 0."""
    return now - before if now >= before else now
