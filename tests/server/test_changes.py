from __future__ import annotations

import asyncio
import threading

import pytest

from accelscale_server.changes import WOKEN_AT_ONCE, Changes


async def test_an_announcement_from_a_thread_wakes_all_who_wait() -> None:
    changes = Changes()
    waiting = [asyncio.ensure_future(changes.after(changes.count)) for _ in range(100)]
    await asyncio.sleep(0)
    assert changes.waiters == 100
    thread = threading.Thread(target=changes.announce)
    thread.start()
    thread.join()
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [True] * 100
    assert changes.waiters == 0


async def test_announcements_within_one_turn_are_one() -> None:
    changes = Changes()
    for _ in range(1000):
        changes.announce()
    assert await changes.after(0)
    await asyncio.sleep(0)
    assert changes.count == 1


async def test_what_was_announced_before_waiting_is_not_missed() -> None:
    changes = Changes()
    count = changes.count
    changes.announce()
    await asyncio.sleep(0)
    assert await asyncio.wait_for(changes.after(count), 5) is True


async def test_waiters_are_woken_in_turns() -> None:
    changes = Changes()
    woken = []

    async def wait(number: int) -> None:
        await changes.after(changes.count)
        woken.append(number)

    waiting = [asyncio.ensure_future(wait(n)) for n in range(3 * WOKEN_AT_ONCE)]
    await asyncio.sleep(0)
    changes.announce()
    while not woken:  # noqa: ASYNC110 - turn by turn is the point
        await asyncio.sleep(0)
    assert len(woken) <= 2 * WOKEN_AT_ONCE  # others had their turn meanwhile
    await asyncio.wait_for(asyncio.gather(*waiting), 5)
    assert woken == list(range(3 * WOKEN_AT_ONCE))


async def test_a_cancelled_waiter_leaves_nothing_behind() -> None:
    changes = Changes()
    waiting = [asyncio.ensure_future(changes.after(changes.count)) for _ in range(50)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert changes.waiters == 0


async def test_the_end_is_for_good() -> None:
    changes = Changes()
    waiting = asyncio.ensure_future(changes.after(changes.count))
    await asyncio.sleep(0)
    changes.stop()
    assert await asyncio.wait_for(waiting, 5) is False
    assert await changes.after(changes.count) is False
    assert await changes.after(-1) is False


def test_an_announcement_after_the_loop_has_ended_is_harmless() -> None:
    async def make() -> Changes:
        return Changes()

    changes = asyncio.run(make())
    changes.announce()
    assert changes.count == 0


@pytest.mark.parametrize("rounds", [200])
async def test_no_pass_is_lost_while_threads_announce(rounds: int) -> None:
    changes = Changes()
    seen = threading.Event()

    def announce() -> None:
        for _ in range(rounds):
            seen.clear()
            changes.announce()
            seen.wait(5)

    thread = threading.Thread(target=announce)
    thread.start()
    count = 0
    for _ in range(rounds):
        assert await asyncio.wait_for(changes.after(count), 5)
        count = changes.count
        seen.set()
    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()
