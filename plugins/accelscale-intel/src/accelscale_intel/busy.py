"""How busy a card is, from what its DRM clients have done between two looks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from attrs import define

from accelscale.model import Reason
from accelscale_intel.clients import Client, Look, Usage, later
from accelscale_intel.files import UnreadableError

SLACK = 1.05
"""Engine time and our clock are not read at the same instant, so a little more than all is all."""


@define
class ClientShares:
    """Utilisation of one card, look by look.

    The work of the clients is added up per engine class, and the busiest class counts: classes
    work side by side, so their sum would count one moment twice. Of the several engines that a
    class may have, one that works is enough for the card to be working: their times are added as
    if they never overlapped, up to all of the time.
    """

    _before: tuple[float, Mapping[str, Client]] | None = None
    _cycles_per_second: float | None = None
    _has_counted: bool = False

    def forget(self) -> None:
        """Start anew with the next look: nobody knows what happened since the last."""
        self._before = None

    def percent(self, look: Look, usage: Usage, driver: str) -> float:
        """Share of the time since the previous look that the card worked, in percent.

        Raises:
            UnreadableError: there is no previous look, the kernel does not count the work of a
                client, or a client ended, and with it the record of what it did last.
        """
        if usage.uncounted is not None:
            self.forget()
            detail = f"this kernel's {driver} does not say what {usage.uncounted} does on the card"
            raise UnreadableError(Reason.NOT_SUPPORTED, detail)
        before = self._before
        now = _without_steps_back(usage.clients, {} if before is None else before[1])
        self._before = (look.started, now)
        self._has_counted |= any(any(client.busy.values()) for client in now.values())
        if before is None:
            raise UnreadableError(Reason.NO_PROGRESS, "needs two looks through the processes")
        if not before[1].keys() <= now.keys():
            detail = "a process let go of the card, and what it did last is not known"
            raise UnreadableError(Reason.NO_PROGRESS, detail)
        shares = self._shares(*before, now)
        if not self._has_counted:
            # Kernels that do not count write zeros, or nothing: not to be told from an idle card.
            detail = "no process has been seen to work on the card, so whether it counts is unknown"
            raise UnreadableError(Reason.NO_PROGRESS, detail)
        return 100.0 * min(1.0, max(shares.values(), default=0.0))

    def _shares(
        self, since: float, before: Mapping[str, Client], now: Mapping[str, Client]
    ) -> Mapping[str, float]:
        """Engine time of each class, as a multiple of the time that passed."""
        shares: dict[str, float] = defaultdict(float)
        capacity: dict[str, int] = {}
        # Those seen before come first: from them the speed of the clock is known.
        for name in sorted(now, key=lambda name: name not in before):
            client, earlier = now[name], before.get(name)
            if earlier is None:
                earlier = Client(name, since)  # opened since then, with nothing done
            capacity.update(client.capacity)
            for engine, change, span in self._steps(earlier, client):
                shares[engine] += change / span
        for engine, share in shares.items():
            if share > capacity.get(engine, 1) * SLACK:
                detail = f"{share:.2f} s of work in each second on engines of class {engine}"
                raise UnreadableError(Reason.OUT_OF_RANGE, detail)
        return shares

    def _steps(self, before: Client, now: Client) -> Iterator[tuple[str, int, float]]:
        """Per class: what was done between two readings, and what would have been all."""
        elapsed = now.time - before.time
        if elapsed <= 0:
            raise UnreadableError(Reason.NO_PROGRESS, "two looks at the same time")
        for engine, busy in now.busy.items():
            change = busy - before.busy.get(engine, 0)
            if engine not in now.clock:
                yield engine, change, elapsed * 1e9
                continue
            if engine in before.clock:
                span: float = now.clock[engine] - before.clock[engine]
                if span <= 0:
                    detail = "the clock of the engines went back, or stands still"
                    raise UnreadableError(Reason.COUNTER_RESET, detail)
                self._cycles_per_second = span / elapsed
            elif self._cycles_per_second is not None:
                span = elapsed * self._cycles_per_second
            else:
                detail = "the speed of the engines' clock is known only from two looks at a client"
                raise UnreadableError(Reason.NO_PROGRESS, detail)
            yield engine, change, span


def _without_steps_back(
    now: Mapping[str, Client], before: Mapping[str, Client]
) -> Mapping[str, Client]:
    return {
        name: later(before[name], client) if name in before else client
        for name, client in now.items()
    }


def used_bytes(usage: Usage, *, has_shown_memory: bool) -> float:
    """Memory of the card that its clients hold, in bytes.

    ``has_shown_memory`` says that the driver has been seen to tell of memory of this card, so that
    nobody holding any is believed.

    Raises:
        UnreadableError: the kernel does not tell, or clients share memory, which each of them
            would count.
    """
    if usage.uncounted is not None or any(not c.resident for c in usage.clients.values()):
        detail = "this kernel does not say how much memory of the card each process holds"
        raise UnreadableError(Reason.NOT_SUPPORTED, detail)
    if any(size for client in usage.clients.values() for size in client.shared.values()):
        detail = "processes share memory of the card; how much it is in all only Level Zero tells"
        raise UnreadableError(Reason.NOT_SUPPORTED, detail)
    if not usage.clients and not has_shown_memory:
        detail = "no process has been seen to hold memory, so whether the kernel tells is unknown"
        raise UnreadableError(Reason.NO_PROGRESS, detail)
    return float(sum(sum(client.resident.values()) for client in usage.clients.values()))
