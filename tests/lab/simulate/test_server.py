"""One server: its steps, its limits, and that looking ahead changes nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelscale.lab.simulate.server import NEVER, Server
from accelscale.lab.simulate.server_model import ServerModel, setup
from lab.simulate.cases import SIMPLE, model


class Trial:
    """Drives one server with requests at given times, and keeps what happened when."""

    def __init__(self, server_model: ServerModel, prompts: list[int], answers: list[int]) -> None:
        self.server = Server(server_model, prompts, answers, 0.0)
        self.first: dict[int, float] = {}
        self.done: dict[int, float] = {}
        self.peak_batch = 0
        self.peak_reserved = 0
        self.peak_cached = 0

    def run(self, times: list[float], until: float = NEVER) -> None:
        """Offer request n at ``times[n]`` and go on until all is done, or until a time."""
        pending = list(enumerate(times))
        while pending or self.server.ends != NEVER:
            arrival = pending[0][1] if pending else NEVER
            if min(arrival, self.server.ends) > until:
                break
            if self.server.ends <= arrival:
                self.end_run()
            else:
                number, now = pending.pop(0)
                self.server.offer(number, now)
                self._look()

    def end_run(self) -> None:
        now = self.server.ends
        first, done = self.server.finish(now)
        for request in first:
            assert request not in self.first
            self.first[request] = now
        for request in done:
            assert request not in self.done
            self.done[request] = now
        self._look()

    def _look(self) -> None:
        server = self.server
        self.peak_batch = max(self.peak_batch, server.in_work)
        self.peak_reserved = max(self.peak_reserved, server.reserved)
        self.peak_cached = max(self.peak_cached, server.cached)
        assert server.cached <= server.reserved
        assert server.outstanding == server.in_work + len(server.waiting)


def tried(server_model: ServerModel, *requests: tuple[float, int, int]) -> Trial:
    """A trial of (time, prompt, answer)."""
    trial = Trial(server_model, [p for _, p, _ in requests], [a for _, _, a in requests])
    trial.run([time for time, _, _ in requests])
    return trial


def test_one_request_takes_its_prompt_and_a_step_for_each_further_token() -> None:
    trial = tried(SIMPLE, (5.0, 100, 11))
    assert trial.first == {0: pytest.approx(5.0 + 0.110)}  # 100 ms to read, and the step of 10 ms
    assert trial.done == {0: pytest.approx(5.110 + 10 * 0.010)}


def test_an_answer_of_one_token_is_done_with_its_prompt() -> None:
    trial = tried(SIMPLE, (0.0, 100, 1))
    assert trial.first == trial.done == {0: pytest.approx(0.110)}
    assert trial.server.cached == trial.server.reserved == 0


def test_a_second_request_joins_at_the_next_step_and_both_go_on() -> None:
    # The first is at its 5th step of 10 ms when the second comes, 4 ms into it.
    trial = tried(SIMPLE, (0.0, 100, 101), (0.154, 200, 2))
    joined = 0.160
    assert trial.first[1] == pytest.approx(joined + 0.210)
    assert trial.done[1] == pytest.approx(joined + 0.220)
    # The first got a token in the long step too, so it lost 200 ms and nothing more.
    assert trial.done[0] == pytest.approx(0.110 + 100 * 0.010 + 0.200)


def test_a_long_prompt_is_read_in_chunks() -> None:
    trial = tried(SIMPLE, (0.0, 2500, 1))
    assert trial.first == {0: pytest.approx(2.5 + 3 * 0.010)}


def test_running_requests_take_their_tokens_of_the_budget_first() -> None:
    # One token of 1000 is for the running request: 999 of the prompt of 1000 are read at first.
    trial = tried(SIMPLE, (0.0, 10, 100), (0.025, 1000, 1))
    assert trial.first[1] == pytest.approx(0.030 + 0.010 + 0.999 + 0.010 + 0.001)


def test_the_cache_and_the_batch_slow_a_step() -> None:
    slower = model(step_seconds_per_request=0.002, step_seconds_per_cached_token=1e-4)
    trial = tried(slower, (0.0, 100, 3))
    read = 0.1 + 0.010  # nothing runs and nothing is cached yet
    second = 0.010 + 0.002 + 100e-4
    third = 0.010 + 0.002 + 101e-4
    assert trial.done == {0: pytest.approx(read + second + third)}


def test_the_batch_limit_lets_the_next_wait() -> None:
    trial = tried(model(max_requests=1), (0.0, 100, 11), (0.001, 100, 11))
    assert trial.peak_batch == 1
    assert trial.first[1] == pytest.approx(trial.done[0] + 0.110)


def test_who_does_not_fit_into_the_cache_waits_and_nobody_passes() -> None:
    small = model(cache_tokens=300)
    trial = tried(small, (0.0, 190, 10), (0.001, 190, 10), (0.002, 10, 5))
    assert trial.first[1] > trial.done[0]
    assert trial.first[2] >= trial.first[1]  # it would have fitted, but is not first
    assert trial.peak_reserved <= 300


def test_power_follows_what_is_done() -> None:
    trial = tried(SIMPLE, (1.0, 100, 11))
    server = trial.server
    server.account(3.0)
    assert server.busy_seconds == pytest.approx(0.210)
    reading, generating, idle = 0.110 * 500, 0.100 * 300, (3.0 - 0.210) * 100
    assert server.joules == pytest.approx(reading + generating + idle)


def test_a_larger_batch_draws_more_up_to_what_prompts_draw() -> None:
    rising = model(decode_watts_per_doubling=50.0)
    assert [rising.generating_watts(n) for n in (1, 2, 4, 16, 64)] == [300, 350, 400, 500, 500]
    trial = tried(rising, (0.0, 100, 101), (0.0001, 100, 101))
    server = trial.server
    alone = 0.110 * 500  # the first reads its prompt, then the second does while the first runs
    mixed = 0.100 * 500 + 0.010 * 300
    both = 99 * 0.010 * 350
    last = 0.010 * 300  # the first was a step ahead
    assert server.joules == pytest.approx(alone + mixed + both + last)


def test_all_devices_of_a_server_draw_power() -> None:
    trial = tried(model(devices=4), (0.0, 100, 1))
    trial.server.account(0.11)
    assert trial.server.joules == pytest.approx(4 * 0.110 * 500)


def test_what_waits_and_what_is_in_work_can_be_taken_back() -> None:
    trial = Trial(model(max_requests=1), [100, 100], [50, 50])
    trial.run([0.0, 0.001], until=0.2)
    assert trial.server.give_back() == [1]
    assert trial.server.evict(0.2) == [0]
    assert trial.server.ends == NEVER
    assert (trial.server.reserved, trial.server.cached, trial.server.outstanding) == (0, 0, 0)
    assert trial.server.busy_seconds == pytest.approx(0.2)


class Stepwise:
    """The same server, one step after the other, with nothing but lists of what is where."""

    def __init__(self, server_model: ServerModel, requests: list[tuple[float, int, int]]) -> None:
        self.model = server_model
        self.requests = requests
        self.cached = dict.fromkeys(range(len(requests)), 0)
        self.first: dict[int, float] = {}
        self.done: dict[int, float] = {}
        self._waiting: list[int] = []
        self._prefilling: list[list[int]] = []  # number, prompt tokens left
        self._running: list[list[int]] = []  # number, answer tokens left
        pending = list(range(len(requests)))
        now = 0.0
        while pending or self._waiting or self._prefilling or self._running:
            while pending and requests[pending[0]][0] <= now:
                self._waiting.append(pending.pop(0))
            if self._waiting or self._prefilling or self._running:
                while self._waiting and self._fits(self._waiting[0]):
                    number = self._waiting.pop(0)
                    self._prefilling.append([number, requests[number][1]])
                now = self._step(now)
            else:
                now = requests[pending[0]][0]

    def _fits(self, number: int) -> bool:
        held = [n for n, _ in self._prefilling + self._running]
        tokens = sum(sum(self.requests[n][1:]) for n in [*held, number])
        budget = self.model.step_tokens - len(self._running)
        return (
            len(held) < self.model.max_requests
            and tokens <= self.model.cache_tokens
            and sum(left for _, left in self._prefilling) < budget
        )

    def _step(self, now: float) -> float:
        running = len(self._running)
        budget = self.model.step_tokens - running
        seconds = self.model.decode_seconds(running, sum(self.cached.values()))
        for entry in self._running:
            entry[1] -= 1
            self.cached[entry[0]] += 1
        for entry in self._prefilling:
            taken = min(entry[1], budget)
            budget -= taken
            entry[1] -= taken
            self.cached[entry[0]] += taken
            seconds += taken / self.model.prefill_tokens_per_second
        now += seconds
        for number, left in self._prefilling:
            if not left:
                self.first[number] = now
                self._running.append([number, self.requests[number][2] - 1])
        self._prefilling = [entry for entry in self._prefilling if entry[1]]
        for number, left in self._running:
            if not left:
                self.done[number] = now
                self.cached[number] = 0
        self._running = [entry for entry in self._running if entry[1]]
        return now


# No two at one moment, and none at the end of a step: who comes then may join a step later.
TIMES = st.integers(0, 3_000_000).map(lambda n: 1.2345678e-7 + n * 1.0000031e-6)
REQUESTS = st.lists(
    st.tuples(TIMES, st.integers(1, 400), st.integers(1, 60)),
    min_size=1,
    max_size=25,
    unique_by=lambda request: request[0],
).map(sorted)
MODELS = st.builds(
    model,
    step_tokens=st.integers(40, 500),
    max_requests=st.integers(1, 12),
    cache_tokens=st.integers(470, 3000),
    step_seconds_per_request=st.sampled_from([0.0, 0.0007]),
    step_seconds_per_cached_token=st.sampled_from([0.0, 0.00003]),
)


@settings(max_examples=80, deadline=None)
@given(requests=REQUESTS, server_model=MODELS)
def test_looking_ahead_changes_nothing(
    requests: list[tuple[float, int, int]], server_model: ServerModel
) -> None:
    trial = tried(server_model, *requests)
    slow = Stepwise(server_model, requests)
    close = {"rel": 1e-9, "abs": 1e-9}
    assert trial.done == {n: pytest.approx(time, **close) for n, time in slow.done.items()}
    assert trial.first == {n: pytest.approx(time, **close) for n, time in slow.first.items()}


@settings(max_examples=80, deadline=None)
@given(requests=REQUESTS, server_model=MODELS)
def test_work_is_conserved_within_the_limits(
    requests: list[tuple[float, int, int]], server_model: ServerModel
) -> None:
    trial = tried(server_model, *requests)
    server = trial.server
    assert sorted(trial.done) == list(range(len(requests)))
    assert all(time <= trial.first[n] <= trial.done[n] for n, (time, _, _) in enumerate(requests))
    assert server.generated == sum(answer for _, _, answer in requests)
    assert trial.peak_batch <= server_model.max_requests
    assert trial.peak_cached <= trial.peak_reserved <= server_model.cache_tokens
    assert (server.cached, server.reserved, server.outstanding) == (0, 0, 0)
    end = max(trial.done.values())
    server.account(end + 1.0)
    prompts = sum(prompt for _, prompt, _ in requests)
    assert server.busy_seconds >= prompts / server_model.prefill_tokens_per_second - 1e-9
    idle = end + 1.0 - server.busy_seconds
    low = idle * 100 + server.busy_seconds * 300
    high = idle * 100 + server.busy_seconds * 500
    assert low - 1e-6 <= server.joules <= high + 1e-6


def closed_loop(server_model: ServerModel, clients: int, prompt: int, answer: int) -> Any:
    """So many clients, each sending its next request when it has its answer.

    The middle of the run: seconds between tokens, and tokens a second.
    """
    total = max(40, 10 * clients)
    server = Server(server_model, [prompt] * total, [answer] * total, 0.0)
    for number in range(clients):
        server.offer(number, 0.0)
    sent, first, done = clients, {}, {}
    while len(done) < total:
        now = server.ends
        started, finished = server.finish(now)
        first.update(dict.fromkeys(started, now))
        for number in finished:
            done[number] = now
            if sent < total:
                server.offer(sent, now)
                sent += 1
    middle = range(total // 4, 3 * total // 4)
    gaps = [(done[n] - first[n]) / (answer - 1) for n in middle]
    ends = [done[n] for n in middle]
    return math.fsum(gaps) / len(gaps), len(ends) * answer / (max(ends) - min(ends))


@pytest.mark.parametrize(
    ("clients", "between_tokens", "throughput"),
    [
        (1, 18.58, 51.67),
        (5, 21.83, 218.48),
        (25, 38.75, 623.4),
        (50, 59.73, 814.37),
        (100, 92.91, 917.26),
        (200, 93.06, 920.54),
    ],
)
def test_the_large_setup_is_near_its_published_figures(
    clients: int, between_tokens: float, throughput: float
) -> None:
    """NVIDIA's figures for Llama 3.3 70B, FP8, on two H100, 5000 tokens in and 500 out."""
    gap, rate = closed_loop(setup("llama-70b"), clients, 5000, 500)
    assert 1000 * gap == pytest.approx(between_tokens, rel=0.10)
    assert rate == pytest.approx(throughput, rel=0.25)


@pytest.mark.parametrize(
    ("clients", "between_tokens", "throughput"),
    [
        (1, 4.63, 214.56),
        (5, 4.58, 1076.88),
        (25, 5.19, 4678.88),
        (50, 5.91, 8018.23),
        (100, 7.57, 12214.97),
        (150, 9.81, 12988.89),
        (200, 12.65, 13348.4),
    ],
)
def test_the_small_setup_is_near_its_published_figures(
    clients: int, between_tokens: float, throughput: float
) -> None:
    """NVIDIA's figures for Llama 3.1 8B, FP8, on one H100, 200 tokens in and 200 out."""
    gap, rate = closed_loop(setup("llama-8b"), clients, 200, 200)
    assert 1000 * gap == pytest.approx(between_tokens, rel=0.15)
    assert rate == pytest.approx(throughput, rel=0.25)
