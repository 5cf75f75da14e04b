from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest

from accelscale_server import logs


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    names = ("", "accelscale", "accelscale_server", logs.LIFECYCLE)
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = root.handlers[:]
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def lines(log_format: str, level: str) -> list[str]:
    """What comes out of one record of each kind."""
    stream = io.StringIO()
    logs.configure(log_format, level, stream)
    logging.getLogger("accelscale.collector").info("%s: ready", "fake")
    logging.getLogger("accelscale_server.health").warning("not ready", extra={"why": "lost"})
    logging.getLogger("elsewhere").info("chatter")
    logging.getLogger("elsewhere").warning("trouble")
    logging.getLogger(logs.LIFECYCLE).info("listening", extra={"address": "[::]:6000"})
    try:
        int("broken")
    except ValueError:
        logging.getLogger("accelscale").exception("a call failed")
    return stream.getvalue().splitlines()


def test_json_is_one_object_per_line() -> None:
    records = [json.loads(line) for line in lines("json", "info")]
    assert [record["event"] for record in records] == [
        "fake: ready",
        "not ready",
        "trouble",
        "listening",
        "a call failed",
    ]
    assert records[1]["why"] == "lost"
    assert (records[1]["level"], records[1]["logger"]) == ("warning", "accelscale_server.health")
    assert records[3]["address"] == "[::]:6000"
    assert "ValueError: invalid literal" in records[4]["exception"].splitlines()[-1]
    assert all(record["timestamp"].endswith("Z") for record in records)


def test_text_says_the_same() -> None:
    text = "\n".join(lines("text", "info"))
    assert "fake: ready" in text
    assert "why=lost" in text
    assert "listening" in text
    assert "address=[::]:6000" in text
    assert "ValueError: invalid literal" in text
    assert "chatter" not in text
    assert "\x1b[" not in text  # no colours where it is no terminal


def test_levels() -> None:
    assert any("chatter" in line for line in lines("json", "debug"))
    said = [json.loads(line)["event"] for line in lines("json", "error")]
    assert said == ["listening", "a call failed"]  # scripts wait for the first of them


def test_configuring_again_replaces() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.configure("text", "info", first)
    logs.configure("text", "info", second)
    logging.getLogger("accelscale").warning("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_warnings_of_python_go_the_same_way() -> None:
    stream = io.StringIO()
    logs.configure("json", "info", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    logging.captureWarnings(False)
    assert "DeprecationWarning: old" in json.loads(stream.getvalue().splitlines()[0])["event"]
