"""What is known of one node: the words of its agent, and of one that it replaced."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from accelscale.model import Device, Failure, Reason, Series, SeriesValue
from accelscale_server.interest import MOST_SERIES, Interest

if TYPE_CHECKING:
    from accelscale_server.report import Report

FORGET_NODE = 600.0
"""Seconds after which a node is forgotten whose agent is gone."""

FORGET_REPLACED = 60.0
"""Seconds after which an agent is forgotten that another one has replaced."""


class Node:
    """What the agents of one node told; hardly ever more than one, the newest first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reports: list[Report] = []
        self.interest = Interest()

    @property
    def newest(self) -> Report:
        """The report that speaks for the node: the newest of those that still live."""
        return next((report for report in self.reports if report.live), self.reports[0])

    @property
    def devices(self) -> Mapping[str, Device]:
        """All devices; those that an agent told which is gone are silent, not away."""
        return {
            device_id: device
            for report in reversed(self.reports)
            for device_id, device in report.inventory.devices.items()
        }

    def take(self, report: Report) -> None:
        """Note what an agent told; it replaces what the same process told before."""
        for place, known in enumerate(self.reports):
            if known.inventory.instance == report.inventory.instance:
                self.reports[place] = report
                return
        self.reports.insert(0, report)

    def forget(self, now: float) -> None:
        """Drop the agents that are gone for long, and sooner where another took their place."""
        replaced = any(report.live and report.inventory.devices for report in self.reports)
        limit = FORGET_REPLACED if replaced else FORGET_NODE
        self.reports = [r for r in self.reports if r.live or now - r.received < limit]

    def device(self, device_id: str) -> Device | None:
        """The device with this id among all nodes, or None."""
        for report in self.reports:
            device = report.inventory.devices.get(device_id)
            if device is not None:
                return device
        return None

    def silence(self, now: float) -> str | None:
        """Why nothing is heard from this node, or None while an agent of it is."""
        newest = self.newest
        if newest.live:
            return None
        age = now - newest.received
        return f"no word from the agent of {self.name} for {age:.0f} s: {newest.silence}"

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
