"""Waits for what comes about by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


async def until(
    condition: Callable[[], bool | Awaitable[bool]], seconds: float = 10.0, what: str = ""
) -> None:
    """Wait until the condition holds, looking again and again."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = condition()
                if found if isinstance(found, bool) else await found:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"in vain for {seconds:g} s: {what or 'the condition'}") from None
