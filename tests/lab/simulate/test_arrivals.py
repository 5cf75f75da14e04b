"""Traces of requests: the format, broken rows, more of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale.errors import ConfigurationError, NotFoundError
from accelscale.lab.simulate.arrivals import JITTER_SECONDS, multiplied, read_arrivals
from lab.simulate.cases import requests

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_trace_of_azure_is_read(tmp_path: Path) -> None:
    text = HEAD + (
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,3180,8\n"
        "2023-11-16 19:17:03.9799600,110,27"  # the file ends without a line break
    )
    found = read_arrivals(written(tmp_path, text))
    assert found.times.tolist() == pytest.approx([0.0, 0.052, 3600.0], abs=1e-5)
    assert found.prompt_tokens.tolist() == [4808, 3180, 110]
    assert found.answer_tokens.tolist() == [10, 8, 27]
    assert found.start == pytest.approx(1700158623.97996, abs=1e-5)
    assert found.seconds == 3600.0
    assert found.origin == "trace.csv"
    assert found.peak_rate == pytest.approx(2 / 15)


@pytest.mark.parametrize(
    "text",
    [
        "TIMESTAMP,GeneratedTokens,ContextTokens,Model\n10.5,5,100,x\n11.5,6,200,x\n",
        "\ufeff" + HEAD + "2024-05-10 00:00:00.5+00:00,100,5\n2024-05-10T00:00:01.5,200,6\n",
    ],
    ids=["other columns, times in seconds", "byte order mark, time zones"],
)
def test_spellings_of_a_trace(tmp_path: Path, text: str) -> None:
    found = read_arrivals(written(tmp_path, text))
    assert np.diff(found.times).tolist() == pytest.approx([1.0])
    assert found.prompt_tokens.tolist() == [100, 200]
    assert found.answer_tokens.tolist() == [5, 6]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("11,0,5", "line 3: has ContextTokens '0'"),
        ("11,7,", "line 3: has GeneratedTokens ''"),
        ("11,7,1.5", "line 3: has GeneratedTokens '1.5'"),
        ("11,7,-1", "line 3: has GeneratedTokens '-1'"),
        ("nan,7,1", "line 3: has the TIMESTAMP 'nan'"),
        ("yesterday,7,1", "line 3: has the TIMESTAMP 'yesterday'"),
        ("9,7,1", "line 3: goes back in time"),
    ],
)
def test_a_broken_row_is_refused_with_its_line_or_repaired(
    tmp_path: Path, row: str, problem: str
) -> None:
    path = written(tmp_path, f"{HEAD}10,100,5\n{row}\n12,100,5\n")
    with pytest.raises(ConfigurationError, match=problem):
        read_arrivals(path)
    found = read_arrivals(path, repair=True)
    kept = 3 if "goes back" in problem else 2
    assert len(found) == kept
    assert found.times.tolist() == sorted(found.times.tolist())
    assert problem.split(":")[0] in found.notes[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no column TIMESTAMP"),
        (HEAD, "holds no request"),
        ("TIMESTAMP,ContextTokens\n1,2\n", "line 1: has no column GeneratedTokens"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read_arrivals(written(tmp_path, text))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(HEAD.encode() + b"1,2,\xff\n")
    with pytest.raises(ConfigurationError, match="byte 44: is no text"):
        read_arrivals(path)
    with pytest.raises(NotFoundError):
        read_arrivals(tmp_path / "none.csv")


def test_twice_the_load_is_every_request_twice() -> None:
    found = requests([10.0, 20.0, 30.0], prompts=[1, 2, 3], seconds=60.0)
    twice = multiplied(found, 2.0, seed=1)
    assert sorted(twice.prompt_tokens.tolist()) == [1, 1, 2, 2, 3, 3]
    assert twice.seconds == 60.0
    assert twice.origin == "toy requests, 2 times"
    assert multiplied(found, 1.0, seed=1) is found


@given(
    times=st.lists(st.floats(0, 100), min_size=20, max_size=60).map(sorted),
    factor=st.floats(0.5, 5),
    seed=st.integers(0, 100),
)
def test_more_of_a_trace_keeps_its_shape(times: list[float], factor: float, seed: int) -> None:
    found = requests(times, prompts=list(range(1, len(times) + 1)), seconds=100.0)
    more = multiplied(found, factor, seed=seed)
    assert np.all(np.diff(more.times) >= 0)
    assert more.times.min() >= 0
    assert more.times.max() <= 100
    assert len(times) * np.floor(factor) <= len(more) <= len(times) * np.ceil(factor)
    first = found.times[more.prompt_tokens - 1]
    assert np.abs(more.times - first).max() <= JITTER_SECONDS
    again = multiplied(found, factor, seed=seed)
    assert again.times.tolist() == more.times.tolist()


def test_too_little_of_a_trace_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="leaves no request"):
        multiplied(requests([1.0]), 1e-9, seed=1)
