"""Many changes, few beats."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

import pytest

from accelscale_server import beat as beat_module
from accelscale_server.beat import Beat


async def beats(
    beat: Beat, seconds: float, meanwhile: Callable[[], Awaitable[None]]
) -> list[float]:
    """When it beat."""
    moments: list[float] = []
    unsubscribe = beat.subscribe(lambda: moments.append(time.monotonic()))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await meanwhile()
    unsubscribe()
    return moments


async def test_a_change_after_a_quiet_time_is_told_at_once() -> None:
    beat = Beat(lambda: 0, quickest=10.0)
    beat.note()
    moments = await beats(beat, 0.05, lambda: asyncio.sleep(0.01))
    assert len(moments) == 1
    beat.note()
    assert await beats(beat, 0.1, lambda: asyncio.sleep(0.01)) == []
    assert beat.sequence == 1


@pytest.mark.parametrize(("listeners", "pace"), [(0, 0.05), (100, 0.15)])
async def test_many_changes_are_one_and_more_so_the_more_listen(
    listeners: int, pace: float
) -> None:
    beat = Beat(lambda: listeners, quickest=0.05)

    async def change() -> None:
        beat.note()
        await asyncio.sleep(0.001)

    moments = await beats(beat, 0.7, change)
    assert 2 <= len(moments) <= 0.7 / pace + 1
    gaps = [after - before for before, after in itertools.pairwise(moments)]
    assert min(gaps) > pace - 0.01
    assert beat.sequence == len(moments)


async def test_it_beats_now_and_then_without_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beat_module, "SLOWEST", 0.05)
    beat = Beat(lambda: 10**9)
    running = asyncio.create_task(beat.run())
    moments = await beats(beat, 0.5, lambda: asyncio.sleep(0.01))
    running.cancel()
    assert len(moments) >= 3
