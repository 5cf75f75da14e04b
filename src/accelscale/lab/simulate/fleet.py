"""The replicas, the router in front of them, and the requests on their way, event by event.

The router gives each request, as it comes, to the serving replica with the fewest requests on it
(the oldest of equals); while none serves, requests wait at the router. What has been given to a
replica stays there, as with a router that knows no queue of its own, so a new replica helps those
that come after it. A removed replica gets nothing new; what only waits on it goes back to the
router, what is in work is finished within the grace period, and what is not is begun again
elsewhere.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Collection, Sequence
from enum import IntEnum

from attrs import frozen

from accelscale.lab.simulate.arrivals import Arrivals
from accelscale.lab.simulate.replica import Replica
from accelscale.lab.simulate.server import NEVER, Server
from accelscale.lab.simulate.server_model import ServerModel


@frozen
class Silence:
    """A faulted agent: of the ``replicas`` oldest replicas (all of them if None) nothing is heard.

    From ``start`` to before ``end``, in seconds.
    """

    start: float
    end: float
    replicas: int | None = None

    def covers(self, now: float, place: int) -> bool:
        """Whether the replica at that place of the fleet, oldest first, is not heard."""
        among = self.replicas is None or place < self.replicas
        return among and self.start <= now < self.end


@frozen
class Gauges:
    """What servers and router show of themselves at one moment.

    ``waiting``, ``running`` and ``cache_used`` (0 to 1) are of each serving replica, oldest first.
    """

    at_router: int = 0
    waiting: tuple[int, ...] = ()
    running: tuple[int, ...] = ()
    cache_used: tuple[float, ...] = ()


class _Event(IntEnum):
    RUN_ENDS = 0
    SERVES = 1
    GRACE_ENDS = 2


class Fleet:
    """Replicas that work on ``arrivals``. Time goes on with `advance`, and replicas with `scaled`.

    ``first_token`` and ``finished`` hold for each request when that was, NaN until then.
    ``begun_again`` counts requests that lost their replica, ``refused`` holds those that fit into
    no cache. ``moments`` and the columns after it are the fleet at each sampling.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        model: ServerModel,
        *,
        replicas: int,
        readiness_delay: float,
        grace: float,
        metrics: Collection[str],
        interval: float,
        scrape_interval: float,
        longest_window: float,
        silences: Sequence[Silence] = (),
    ) -> None:
        self.model = model
        self.interval = interval
        self.replicas: list[Replica] = []
        self.all_replicas: list[Replica] = []
        self.first_token = [math.nan] * len(arrivals)
        self.finished = [math.nan] * len(arrivals)
        self.served_by = [-1] * len(arrivals)
        self.begun_again = 0
        self.refused: list[int] = []
        self.scraped = Gauges()
        self.moments: list[float] = []
        self.serving_counts: list[int] = []
        self.waiting_counts: list[int] = []
        self.running_counts: list[int] = []
        self.held_counts: list[int] = []
        self._times: list[float] = [*arrivals.times.tolist(), NEVER]
        self._prompts: list[int] = arrivals.prompt_tokens.tolist()
        self._answers: list[int] = arrivals.answer_tokens.tolist()
        self._next = 0
        self._router: deque[int] = deque()
        self._serving: list[Replica] = []
        self._draining: list[Replica] = []
        self._events: list[tuple[float, _Event, int, float]] = []
        self._readiness_delay = readiness_delay
        self._grace = grace
        self._metrics = tuple(metrics)
        self._scrape_interval = scrape_interval
        self._next_scrape = 0.0
        self._longest_window = longest_window
        self._silences = tuple(silences)
        for _ in range(replicas):
            self._add(-NEVER)

    @property
    def at_router(self) -> int:
        """Requests that no replica has yet."""
        return len(self._router)

    @property
    def came(self) -> int:
        """Requests so far."""
        return self._next

    def is_ready(self, replica: Replica, now: float) -> bool:
        """Whether its pod is Ready, whatever it can do."""
        return now - replica.created >= self._readiness_delay

    def scaled(self, replicas: int, now: float) -> None:
        """That many replicas are wanted from now on; the youngest go first."""
        self.advance(now)
        while len(self.replicas) > replicas:
            self._remove(self.replicas.pop(), now)
        while len(self.replicas) < replicas:
            self._add(now)

    def advance(self, now: float) -> None:
        """Everything up to ``now``: runs that end, requests that come, samples that are taken."""
        times, events = self._times, self._events
        while True:
            event = events[0][0] if events else NEVER
            arrival = times[self._next]
            sampling = len(self.moments) * self.interval
            moment = min(event, arrival, sampling)
            if moment > now:
                return
            if event <= moment:
                self._happens(*heapq.heappop(events))
            elif arrival <= moment:
                self._next += 1
                self._arrives(self._next - 1, arrival)
            else:
                self._sample(sampling)

    def close(self, now: float) -> None:
        """The end: count busy time and energy up to here."""
        self.advance(now)
        for replica in self.all_replicas:
            replica.server.account(min(now, replica.gone))

    def _add(self, now: float) -> None:
        """A replica created now, or one that has been there for ever (minus infinity)."""
        begin = max(now, 0.0)
        loads_until = now + self.model.load_seconds
        serves_from = max(loads_until, now + self._readiness_delay)
        replica = Replica(
            len(self.all_replicas),
            Server(self.model, self._prompts, self._answers, begin),
            self.model,
            created=now,
            loads_until=loads_until,
            serves_from=serves_from,
            metrics=self._metrics,
            interval=self.interval,
            longest_window=self._longest_window,
        )
        self.replicas.append(replica)
        self.all_replicas.append(replica)
        if serves_from <= begin:
            self._serves(replica, begin)
        else:
            self._push(serves_from, _Event.SERVES, replica)

    def _remove(self, replica: Replica, now: float) -> None:
        replica.removed = now
        server = replica.server
        if replica in self._serving:
            self._serving.remove(replica)
        back = server.give_back()
        if server.outstanding and self._grace:
            self._draining.append(replica)
            self._push(now + self._grace, _Event.GRACE_ENDS, replica)
        else:
            back = sorted([*back, *self._leave(replica, now)])
        self._route_again(back, now)

    def _leave(self, replica: Replica, now: float) -> list[int]:
        """It is gone; the requests that it had not finished."""
        replica.gone = now
        lost = replica.server.evict(now)
        self.begun_again += len(lost)
        for request in lost:
            self.first_token[request] = math.nan
        return lost

    def _route_again(self, requests: Sequence[int], now: float) -> None:
        waiting = sorted([*requests, *self._router])
        self._router.clear()
        for request in waiting:
            self._route(request, now)

    def _arrives(self, request: int, now: float) -> None:
        if self._prompts[request] + self._answers[request] > self.model.cache_tokens:
            self.refused.append(request)
            return
        self._route(request, now)

    def _route(self, request: int, now: float) -> None:
        if not self._serving:
            self._router.append(request)
            return
        chosen = self._serving[0]
        fewest = chosen.server.outstanding
        for replica in self._serving:
            if replica.server.outstanding < fewest:
                chosen, fewest = replica, replica.server.outstanding
        if chosen.server.offer(request, now):
            self._push(chosen.server.ends, _Event.RUN_ENDS, chosen)

    def _push(self, time: float, event: _Event, replica: Replica) -> None:
        heapq.heappush(self._events, (time, event, replica.number, time))

    def _happens(self, now: float, event: _Event, number: int, planned: float) -> None:
        replica = self.all_replicas[number]
        if replica.gone <= now:
            return
        if event is _Event.RUN_ENDS:
            if replica.server.ends == planned:  # else the run was cut since
                self._run_ends(replica, now)
        elif event is _Event.SERVES:
            if replica.removed == NEVER:
                self._serves(replica, now)
        else:
            self._draining.remove(replica)
            self._route_again(self._leave(replica, now), now)

    def _run_ends(self, replica: Replica, now: float) -> None:
        first, done = replica.server.finish(now)
        for request in first:
            self.first_token[request] = now
        for request in done:
            self.finished[request] = now
            self.served_by[request] = replica.number
        if replica.server.ends != NEVER:
            self._push(replica.server.ends, _Event.RUN_ENDS, replica)
        elif replica.removed != NEVER:
            self._draining.remove(replica)
            replica.gone = now

    def _serves(self, replica: Replica, now: float) -> None:
        self._serving.append(replica)
        self._serving.sort(key=lambda one: one.number)
        self._route_again((), now)

    def _sample(self, now: float) -> None:
        seconds = self.interval if self.moments else 0.0
        for place, replica in enumerate(self.replicas):
            silent = any(silence.covers(now, place) for silence in self._silences)
            since = min(seconds, now - replica.created)
            replica.sample(now, since, heard=not silent)
        for replica in self._draining:
            replica.sample(now, seconds, heard=True)
        servers = [replica.server for replica in (*self._serving, *self._draining)]
        self.moments.append(now)
        self.serving_counts.append(len(self._serving))
        self.held_counts.append(len(self.replicas) + len(self._draining))
        self.running_counts.append(sum(server.in_work for server in servers))
        waiting = sum(len(server.waiting) for server in servers)
        self.waiting_counts.append(len(self._router) + waiting)
        if now >= self._next_scrape:
            self._scrape(now)
            self._next_scrape += self._scrape_interval

    def _scrape(self, now: float) -> None:
        servers = [replica.server for replica in self._serving]
        size = self.model.cache_tokens
        self.scraped = Gauges(
            len(self._router),
            tuple(len(server.waiting) for server in servers),
            tuple(server.in_work for server in servers),
            tuple(server.cached_at(now) / size for server in servers),
        )
