"""Requests made up by chance: a Poisson stream whose rate may swing over the day and burst.

All chance comes from one seed: the same seed gives the same requests.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen

from accelscale import values
from accelscale.errors import ConfigurationError, Fault
from accelscale.lab.recording import Floats
from accelscale.lab.simulate.arrivals import Arrivals, Ints

START = 1_704_067_200.0
"""Midnight of 2024-01-01 UTC: a made-up stream begins then, so that pictures can be compared."""


@frozen
class Rate:
    """Requests a second: from ``low`` up to ``high`` and back as a cosine within ``period``."""

    low: float
    high: float
    period: float = 86400.0

    def at(self, times: Floats) -> Floats:
        """The rate at each of the times."""
        middle, swing = (self.low + self.high) / 2, (self.high - self.low) / 2
        found: Floats = middle - swing * np.cos(2 * math.pi * times / self.period)
        return found


@frozen
class Burst:
    """``factor`` times the rate for ``length`` seconds, at every multiple of ``every`` seconds."""

    every: float
    length: float
    factor: float

    def at(self, times: Floats) -> Floats:
        """The factor at each of the times."""
        bursting = (times >= self.every) & (times % self.every < self.length)
        found: Floats = np.where(bursting, self.factor, 1.0)
        return found


@frozen
class Lengths:
    """Mean tokens of prompt and answer; log-normal, with deviations as large as the means."""

    prompt: float = 1024.0
    answer: float = 256.0


def synthetic(
    rate: Rate,
    *,
    seconds: float,
    bursts: tuple[Burst, ...] = (),
    lengths: Lengths = Lengths(),
    seed: int = 1,
) -> Arrivals:
    """Requests of a Poisson process whose rate is constant within each second.

    Raises:
        ConfigurationError: no request came of it.
    """
    chance = np.random.default_rng(seed)
    begins = np.arange(0.0, seconds)
    widths = np.minimum(begins + 1.0, seconds) - begins
    rates = rate.at(begins)
    for burst in bursts:
        rates = rates * burst.at(begins)
    counts = chance.poisson(rates * widths)
    at = np.repeat(np.arange(len(begins)), counts)
    times = np.sort(begins[at] + chance.random(len(at)) * widths[at])
    if not len(times):
        fault = Fault("rate", f"{rate.low:g}..{rate.high:g}", "gives no request in that time")
        raise ConfigurationError([fault], subject="arrivals")
    return Arrivals(
        start=START,
        seconds=seconds,
        times=times,
        prompt_tokens=_tokens(chance, lengths.prompt, len(times)),
        answer_tokens=_tokens(chance, lengths.answer, len(times)),
        origin=f"synthetic requests, seed {seed}",
    )


def parse_rate(text: str, period: float) -> Rate:
    """``4`` or ``1..6``, in requests a second.

    Raises:
        ConfigurationError: it is neither.
    """
    ends = text.strip().split("..")
    try:
        low, high = (values.decimal(end) for end in (ends if len(ends) == 2 else ends * 2))
    except ValueError:
        raise _fault("rate", text, "must be a number such as 4, or a swing such as 1..6") from None
    if not 0 <= low <= high or high == 0:
        raise _fault("rate", text, "must be above 0, and a swing begins with the lower rate")
    return Rate(low, high, period)


def parse_burst(text: str) -> Burst:
    """``10m:45s:4``: every ten minutes, for 45 seconds, four times the rate.

    Raises:
        ConfigurationError: it is no such text.
    """
    parts = text.split(":")
    problem = "must be EVERY:LENGTH:FACTOR, such as 10m:45s:4, with LENGTH below EVERY"
    try:
        every, length = (values.duration(part.strip(), values.LONGEST_STAY) for part in parts[:2])
        (factor,) = (values.decimal(part.strip()) for part in parts[2:])
    except ValueError:
        raise _fault("burst", text, problem) from None
    if not 0 < length < every:
        raise _fault("burst", text, problem)
    return Burst(every, length, factor)


def parse_lengths(text: str) -> Lengths:
    """``1024:256``: the mean tokens of prompt and answer.

    Raises:
        ConfigurationError: it is no such text.
    """
    problem = "must be the mean tokens of PROMPT:ANSWER, such as 1024:256"
    try:
        prompt, answer = (values.decimal(part.strip()) for part in text.split(":"))
    except ValueError:
        raise _fault("tokens", text, problem) from None
    if prompt < 1 or answer < 1:
        raise _fault("tokens", text, problem)
    return Lengths(prompt, answer)


def _tokens(chance: np.random.Generator, mean: float, count: int) -> Ints:
    variance = math.log(2.0)  # of the logarithm: a deviation as large as the mean
    drawn = chance.lognormal(math.log(mean) - variance / 2, math.sqrt(variance), count)
    tokens: Ints = np.maximum(1, np.rint(drawn)).astype(np.int64)
    return tokens


def _fault(key: str, text: str, problem: str) -> ConfigurationError:
    return ConfigurationError([Fault(key, text, problem)], subject="arrivals")
