"""Made-up requests: rate, swing, bursts, lengths, and one seed for all chance."""

from __future__ import annotations

import numpy as np
import pytest

from accelscale.errors import ConfigurationError
from accelscale.lab.simulate.synthetic import (
    Burst,
    Lengths,
    Rate,
    parse_burst,
    parse_lengths,
    parse_rate,
    synthetic,
)


def test_the_rate_is_that_asked_for() -> None:
    found = synthetic(Rate(5.0, 5.0), seconds=4000.0)
    assert len(found) == pytest.approx(20_000, rel=0.03)
    gaps = np.diff(found.times)
    assert gaps.min() >= 0
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # as it is for a Poisson stream
    assert found.times.max() < 4000.0


def test_a_swing_begins_low_and_is_high_in_the_middle_of_its_period() -> None:
    found = synthetic(Rate(1.0, 9.0, 4000.0), seconds=4000.0)
    counts, _ = np.histogram(found.times, bins=4, range=(0.0, 4000.0))
    assert len(found) == pytest.approx(20_000, rel=0.03)
    assert counts[1] == pytest.approx(counts[2], rel=0.1)
    assert counts[1] > 2.5 * counts[0]


def test_bursts_come_at_every_multiple() -> None:
    found = synthetic(Rate(2.0, 2.0), seconds=3000.0, bursts=(Burst(1000.0, 100.0, 10.0),))
    counts, _ = np.histogram(found.times, bins=30, range=(0.0, 3000.0))
    assert counts[[10, 20]].min() > 1500
    assert np.delete(counts, [10, 20]).max() < 300


def test_lengths_have_the_mean_asked_for() -> None:
    found = synthetic(Rate(10.0, 10.0), seconds=3000.0, lengths=Lengths(800.0, 40.0))
    assert found.prompt_tokens.mean() == pytest.approx(800.0, rel=0.03)
    assert found.answer_tokens.mean() == pytest.approx(40.0, rel=0.03)
    assert min(found.prompt_tokens.min(), found.answer_tokens.min()) >= 1


def test_one_seed_gives_one_stream() -> None:
    one, same = (synthetic(Rate(3.0, 3.0), seconds=100.0, seed=7) for _ in range(2))
    other = synthetic(Rate(3.0, 3.0), seconds=100.0, seed=8)
    assert one.times.tolist() == same.times.tolist()
    assert one.answer_tokens.tolist() == same.answer_tokens.tolist()
    assert one.times.tolist() != other.times.tolist()


def test_texts_are_read() -> None:
    assert parse_rate("4", 60.0) == Rate(4.0, 4.0, 60.0)
    assert parse_rate("1..6.5", 60.0) == Rate(1.0, 6.5, 60.0)
    assert parse_burst("10m:45s:4") == Burst(600.0, 45.0, 4.0)
    assert parse_lengths("1024:256") == Lengths(1024.0, 256.0)


@pytest.mark.parametrize("text", ["", "fast", "6..1", "0", "1..2..3", "-1", "..3"])
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="rate="):
        parse_rate(text, 60.0)


@pytest.mark.parametrize("text", ["10m", "10m:45s", "45s:10m:4", "10m:0:4", "10m:45s:x", "a:b:c"])
def test_a_burst_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="EVERY:LENGTH:FACTOR"):
        parse_burst(text)


@pytest.mark.parametrize("text", ["1024", "0:5", "5:0", "a:b", "1:2:3"])
def test_lengths_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="PROMPT:ANSWER"):
        parse_lengths(text)


def test_a_stream_without_a_request_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="gives no request"):
        synthetic(Rate(1e-9, 1e-9), seconds=10.0)
