"""What is known of one node, from the words of its agents.

Mostly that is one agent. A node with cards of two vendors may have one for each, and while an agent
is replaced there are the old and the new one, which tell the same devices. A device therefore
counts once, however many tell it, and the newest that lives speaks for it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from accelscale.model import Device, Failure, Reason, Series, SeriesValue
from accelscale_server.interest import MOST_SERIES, Interest

if TYPE_CHECKING:
    from accelscale.model import Allocation
    from accelscale_server.report import Report

FORGET_NODE = 600.0
"""Seconds after which an agent is forgotten that is gone, and its devices with it."""

FORGET_REPLACED = 60.0
"""Seconds after which it is forgotten if another tells the devices of its backends."""

MOST_REPORTS = 8
"""Agents of a node that are remembered, also of one whose agent starts again and again."""


class Node:
    """The reports of a node's agents, the newest first; there is at least one once it is known."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reports: list[Report] = []
        self.interest = Interest()

    @property
    def devices(self) -> Mapping[str, Device]:
        """All devices; those that an agent told which is gone are silent, not away."""
        return {
            device_id: device
            for report in reversed(self._preferred())
            for device_id, device in report.inventory.devices.items()
        }

    @property
    def live(self) -> bool:
        """Whether any of its agents is heard."""
        return any(report.live for report in self.reports)

    @property
    def received(self) -> float:
        """When one of its agents was heard last, in monotonic seconds."""
        return max(report.received for report in self.reports)

    def take(self, report: Report, before: Report | None) -> None:
        """Note what an agent told; it replaces what the same process told before.

        ``before`` came over the same stream. An agent that answers at two addresses has two.
        """
        instance = report.inventory.instance
        for place, known in enumerate(self.reports):
            over = known is before or not known.live
            if over and known.inventory.instance == instance:
                self.reports[place] = report
                return
        telling = [known for known in self.reports if known.live or known.inventory.devices]
        self.reports = [report, *telling][:MOST_REPORTS]

    def forget(self, now: float) -> None:
        """Drop the agents that are gone for long, and sooner where others took their place."""
        self.reports = [
            report
            for report in self.reports
            if report.live
            or now - report.received
            < (FORGET_REPLACED if self._is_replaced(report) else FORGET_NODE)
        ]

    def speaker(self, device_id: str) -> Report | None:
        """The agent that speaks for a device, or None where none ever told it."""
        return next((r for r in self._preferred() if device_id in r.inventory.index), None)

    def device(self, device_id: str) -> Device | None:
        """The device with this id among all nodes, or None."""
        report = self.speaker(device_id)
        return None if report is None else report.inventory.devices[device_id]

    def silence(self, device_id: str, now: float) -> str | None:
        """Why nothing is heard of a device's agent, or None while one of them is heard."""
        report = self.speaker(device_id) or self._preferred()[0]
        return None if report.live else self._silence(report, now)

    def read(self, device_id: str, series: Series) -> tuple[SeriesValue | None, Failure | None]:
        """The newest value, and the reason why there is none or no newer one."""
        value: SeriesValue | None = None
        failure: Failure | None = None
        number = self.interest.id_of(series)
        if number is None:
            text = f"more than {MOST_SERIES} different series are wanted of {self.name}"
            return None, Failure(device_id, series.metric, Reason.ERROR, text, math.nan)
        for report in self.reports:
            if device_id not in report.inventory.index:
                continue
            for found in report.answer(device_id, series, number):
                if isinstance(found, Failure):
                    failure = failure or found
                elif value is None or found.time > value.time + report.inventory.interval:
                    value = found
            if report.live and value is not None:
                break
        return value, failure

    def held_by(self, namespace: str, pod: str) -> tuple[Allocation, ...]:
        """The allocations of a pod, as far as they are told.

        An agent that was replaced tells nothing any more.
        """
        found = {
            allocation: None
            for report in self._preferred()
            if not self._is_replaced(report)
            for allocation in report.inventory.holdings.get((namespace, pod), ())
        }
        return tuple(found)

    def allocations(self) -> Iterator[tuple[str, str, Allocation]]:
        """Namespace and name of each pod with each device that it holds, as `held_by` has them."""
        pods = {pod for report in self.reports for pod in report.inventory.holdings}
        for namespace, pod in pods:
            for allocation in self.held_by(namespace, pod):
                yield namespace, pod, allocation

    def why_unknown(self, now: float) -> str | None:
        """Why a pod that nobody lists may hold devices all the same, or None."""
        for report in self._preferred():
            problem = report.inventory.allocations_problem
            if report.live and problem:
                return f"{self.name} cannot tell who holds its devices: {problem}"
            if not report.live and not self._is_replaced(report):
                return self._silence(report, now)
        return None

    def holders(self) -> Mapping[str, list[str]]:
        """The pods that hold each device, as NAMESPACE/NAME."""
        found: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for report in self._preferred():
            for (namespace, pod), allocations in report.inventory.holdings.items():
                for allocation in allocations:
                    device_id = allocation.device_id
                    if device_id is not None and self.speaker(device_id) is report:
                        found[device_id][f"{namespace}/{pod}"] = None
        return {device_id: list(pods) for device_id, pods in found.items()}

    def problems(self) -> Iterator[str]:
        """What its agents complain of, each in a sentence."""
        for report in self.reports:
            if not report.live and not self._is_replaced(report):
                yield report.silence
            elif report.live:
                if report.inventory.allocations_problem:
                    yield f"allocations are not known: {report.inventory.allocations_problem}"
                for name, problem in sorted(report.inventory.problems.items()):
                    yield f"{name}: {problem}"

    def unseen(self) -> Mapping[str, str]:
        """The vendors whose devices nobody has counted here yet, each with the reason."""
        counted = {device.vendor for device in self.devices.values()}
        return {
            vendor: "; ".join(report.inventory.problems.values()) or "not read yet"
            for report in self.reports
            if report.live
            for vendor in report.inventory.unseen_vendors - counted
        }

    def _preferred(self) -> list[Report]:
        """The newest first, but all that live before any that is gone."""
        return sorted(self.reports, key=lambda report: not report.live)

    def _is_replaced(self, report: Report) -> bool:
        """Whether this agent is gone and others tell the devices of its backends."""
        if report.live:
            return False
        living = {b for other in self.reports if other.live for b in other.inventory.backends}
        return bool(living) and report.inventory.backends <= living

    def _silence(self, report: Report, now: float) -> str:
        age = now - report.received
        return f"no word from the agent of {self.name} for {age:.0f} s: {report.silence}"
