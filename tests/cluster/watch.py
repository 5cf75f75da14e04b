"""A stream of an agent, read as a scaler reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from accelscale_server._proto.accelscale.v1 import agent_pb2 as pb


class Watch:
    """A stream of an agent: what was asked, and what the newest messages say."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.inventory: pb.Inventory | None = None
        self.values: pb.Values | None = None

    async def ask(self, *series: tuple[int, str, float, str]) -> None:
        """Ask for series: id, metric, window, statistic."""
        request = pb.WatchRequest(
            series=[
                pb.Series(id=number, metric=metric, window_seconds=window, statistic=statistic)
                for number, metric, window, statistic in series
            ]
        )
        await self.call.write(request)

    async def next(self) -> pb.WatchResponse:
        """The next message."""
        response = await asyncio.wait_for(self.call.read(), 10)
        assert response is not grpc.aio.EOF, "the stream has ended"
        if response.HasField("inventory"):
            self.inventory = response.inventory
        if response.HasField("values"):
            self.values = response.values
        return response

    async def until(self, condition: Callable[[Watch], object]) -> None:
        """Read until what was told last fulfils the condition."""
        async with asyncio.timeout(10):
            while self.inventory is None or self.values is None or not condition(self):
                await self.next()

    def series(self, number: int) -> pb.SeriesValues | None:
        """The newest values of the series with this id, if any."""
        assert self.values is not None
        return next((each for each in self.values.series if each.id == number), None)

    def value(self, number: int, device_id: str) -> float | None:
        """The newest value of a device in a series, or None."""
        series = self.series(number)
        assert self.inventory is not None
        for index, value in zip(series.device, series.value, strict=True) if series else ():
            if self.inventory.devices[index].id == device_id:
                return value
        return None

    def absence(self, number: int, device_id: str) -> pb.Absence | None:
        """Why a device has no value in a series, or None."""
        series = self.series(number)
        assert self.inventory is not None
        for absence in series.absent if series else ():
            if self.inventory.devices[absence.device].id == device_id:
                return absence
        return None
