"""One server at work: continuous batching with chunked prefill, from event to event.

Between two events nothing changes but that each running request gets a token a step, so the server
looks ahead: a *run* is one step that reads prompts, or all the steps until the first running
request is done. A request that comes meanwhile joins at the next step; the run is cut there.

A request is let in when its whole context, prompt and answer, fits into what is left of the cache,
so none is ever thrown out again. The order is first come, first served.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence

from accelscale.lab.simulate.server_model import ServerModel

NEVER = math.inf


class Server:
    """Works on requests, which are numbers into ``prompts`` and ``answers`` (tokens).

    ``busy_seconds``, ``joules`` (of all its devices) and ``generated`` (tokens) count up to the
    time of the last `account`.
    """

    __slots__ = (
        "_accounted",
        "_answers",
        "_began",
        "_chunks",
        "_pending",
        "_prefilling",
        "_prompts",
        "_reserved",
        "_run_steps",
        "_running",
        "_steps",
        "_watts",
        "busy_seconds",
        "cached",
        "ends",
        "generated",
        "joules",
        "model",
        "outstanding",
        "waiting",
    )

    def __init__(
        self, model: ServerModel, prompts: Sequence[int], answers: Sequence[int], now: float
    ) -> None:
        self.model = model
        self.waiting: deque[int] = deque()
        self.outstanding = 0
        self.cached = 0
        self.ends = NEVER
        self.busy_seconds = 0.0
        self.joules = 0.0
        self.generated = 0
        self._prompts = prompts
        self._answers = answers
        self._prefilling: deque[list[int]] = deque()  # request and the prompt tokens left
        self._pending = 0  # the prompt tokens left of all of them
        self._running: list[tuple[int, int]] = []  # a heap: last step, request
        self._reserved = 0
        self._steps = 0
        self._began = now
        self._run_steps = 0
        self._chunks: list[tuple[list[int], int]] = []
        self._accounted = now
        self._watts = model.idle_watts * model.devices

    @property
    def in_work(self) -> int:
        """Requests that have been let in: the batch."""
        return len(self._running) + len(self._prefilling)

    @property
    def reserved(self) -> int:
        """Tokens of the cache that are promised to the requests in work."""
        return self._reserved

    def offer(self, request: int, now: float) -> bool:
        """Take a request; whether the end of the run has moved."""
        self.waiting.append(request)
        self.outstanding += 1
        if self.ends == NEVER:
            self.account(now)
            self._begin(now)
            return True
        if self._run_steps > 1 and len(self.waiting) == 1 and self._fits(request):
            return self._cut(now)
        return False

    def finish(self, now: float) -> tuple[list[int], list[int]]:
        """End the run, which is due, and begin the next: who got a first token, and who is done."""
        self.account(now)
        decoding = len(self._running)
        self._steps += self._run_steps
        self.cached += decoding * self._run_steps
        self.generated += decoding * self._run_steps
        first, done = self._read()
        running, steps = self._running, self._steps
        while running and running[0][0] <= steps:
            _, request = heapq.heappop(running)
            done.append(request)
            self._release(request, self._answers[request] - 1)
        self._begin(now)
        return first, done

    def evict(self, now: float) -> list[int]:
        """Give every request back as it came, first come first; what was done for them is lost."""
        self.account(now)
        requests = [request for _, request in self._running]
        requests += [entry[0] for entry in self._prefilling]
        requests = sorted([*requests, *self.waiting])
        self._running.clear()
        self._prefilling.clear()
        self.waiting.clear()
        self._pending = self._reserved = self.cached = self.outstanding = 0
        self._chunks = []
        self._idle()
        return requests

    def give_back(self) -> list[int]:
        """Give back the requests that only wait."""
        requests = list(self.waiting)
        self.waiting.clear()
        self.outstanding -= len(requests)
        return requests

    def account(self, now: float) -> None:
        """Count busy time and energy up to ``now``."""
        passed = now - self._accounted
        if passed <= 0:
            return
        self.joules += passed * self._watts
        if self.ends != NEVER:
            self.busy_seconds += passed
        self._accounted = now

    def cached_at(self, now: float) -> float:
        """Tokens in the cache at a moment of the run."""
        if self.ends == NEVER or self._run_steps <= 1:
            return float(self.cached)
        done = (now - self._began) / (self.ends - self._began)
        return self.cached + len(self._running) * math.floor(self._run_steps * done)

    def _fits(self, request: int) -> bool:
        model = self.model
        needed = self._prompts[request] + self._answers[request]
        return (
            self.in_work < model.max_requests
            and self._reserved + needed <= model.cache_tokens
            and self._pending < model.step_tokens - len(self._running)
        )

    def _begin(self, now: float) -> None:
        """Let in who fits, and look ahead to the end of the next run."""
        while self.waiting and self._fits(self.waiting[0]):
            request = self.waiting.popleft()
            prompt = self._prompts[request]
            self._prefilling.append([request, prompt])
            self._pending += prompt
            self._reserved += prompt + self._answers[request]
        self._began = now
        model, decoding = self.model, len(self._running)
        step = model.decode_seconds(decoding, self.cached)
        if self._prefilling:
            self._run_steps = 1
            reading = self._take_chunks(model.step_tokens - decoding)
            reading_seconds = reading / model.prefill_tokens_per_second
            self.ends = now + step + reading_seconds
            watts = model.prefill_watts
            if decoding:
                share = step / (step + reading_seconds)
                watts += share * (model.generating_watts(decoding) - watts)
            self._watts = watts * model.devices
        elif decoding:
            self._run_steps = self._running[0][0] - self._steps
            self.ends = now + self._run_seconds(self._run_steps)
            self._watts = model.generating_watts(decoding) * model.devices
        else:
            self._idle()

    def _idle(self) -> None:
        self.ends = NEVER
        self._run_steps = 0
        self._watts = self.model.idle_watts * self.model.devices

    def _take_chunks(self, budget: int) -> int:
        """Deal out the tokens of one step among the prompts, oldest first."""
        self._chunks = []
        left = budget
        for entry in self._prefilling:
            taken = min(entry[1], left)
            self._chunks.append((entry, taken))
            left -= taken
            if left == 0:
                break
        return budget - left

    def _read(self) -> tuple[list[int], list[int]]:
        """The prompts that the step has read: who got a first token, and whom that is all."""
        first: list[int] = []
        done: list[int] = []
        for entry, taken in self._chunks:
            entry[1] -= taken
            self._pending -= taken
            self.cached += taken
            if entry[1]:
                break
            self._prefilling.popleft()
            request = entry[0]
            first.append(request)
            self.generated += 1
            if self._answers[request] == 1:
                done.append(request)
                self._release(request, 0)
            else:
                heapq.heappush(self._running, (self._steps + self._answers[request] - 1, request))
        self._chunks = []
        return first, done

    def _release(self, request: int, decoded: int) -> None:
        self.outstanding -= 1
        self.cached -= self._prompts[request] + decoded
        self._reserved -= self._prompts[request] + self._answers[request]

    def _run_seconds(self, steps: int) -> float:
        """So many decode steps from the beginning of the run: the cache grows with each."""
        decoding = len(self._running)
        growth = self.model.step_seconds_per_cached_token * decoding
        first = self.model.decode_seconds(decoding, self.cached)
        return steps * first + growth * steps * (steps - 1) / 2

    def _cut(self, now: float) -> bool:
        """End the run with the step that is under way; whether that is earlier than planned."""
        passed = now - self._began
        low, high = 1, self._run_steps
        while low < high:
            middle = (low + high) // 2
            if self._run_seconds(middle) < passed:
                low = middle + 1
            else:
                high = middle
        if low == self._run_steps:
            return False
        self._run_steps = low
        self.ends = self._began + self._run_seconds(low)
        return True
