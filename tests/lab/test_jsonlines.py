from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from accelscale.errors import ConfigurationError
from accelscale.lab.jsonlines import (
    devices_line,
    head_line,
    is_jsonlines,
    missing_line,
    read_jsonlines,
    time_line,
    values_line,
    write_jsonlines,
)
from accelscale.lab.recording import Absence, Holder, Recording, Span
from accelscale.model import Device, Reason
from lab.toys import recording

HEAD = head_line(1000.0, 1.0, {"power_watts": 10.0}, {"power_watts": "watts"})


def text(*lines: str) -> str:
    return HEAD + devices_line(0.0, [Device("a", "A", "x", "x")]) + "".join(lines)


def read(tmp_path: Path, content: str, **options: bool) -> Recording:
    path = tmp_path / "trace.jsonl"
    path.write_text(content)
    return read_jsonlines(path, **options)


def values(time: float, value: object, metric: str = "utilization_percent") -> str:
    return json.dumps({"time": time, "device": "a", "values": {metric: value}}) + "\n"


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    lost = Absence("GPU-1", "power_watts", 3.0, 7.5, Reason.LOST, "Xid 79")
    never = Absence("GPU-1", "process_count", 0.0, 20.0, Reason.NOT_SUPPORTED, "", permanent=True)
    found = recording(
        {"utilization_percent": [1.5, 2.0], "power_watts": [100.0]},
        seconds=20.0,
        absences=[lost, never],
        holders=[Holder("GPU-0", "ns", "pod", "main", 2.0, 20.0)],
        presence={"GPU-0": (Span(0.0, 20.0),), "GPU-1": (Span(0.0, 9.0), Span(15.0, 20.0))},
    )
    written = io.StringIO()
    write_jsonlines(found, written)
    assert is_jsonlines(written.getvalue().encode())
    again = read(tmp_path, written.getvalue())
    assert (again.start, again.end, again.interval) == (found.start, 20.0, 1.0)
    assert again.devices == found.devices
    assert again.presence == found.presence
    assert again.holders == found.holders
    assert again.absences["GPU-1", "power_watts"] == (lost,)
    assert again.absences["GPU-1", "process_count"][0].permanent
    assert again.notes == ()
    for key, column in found.columns.items():
        assert np.array_equal(again.columns[key].times, column.times)
        assert np.array_equal(again.columns[key].values, column.values)


def test_a_file_cut_anywhere_loses_its_last_line_alone(tmp_path: Path) -> None:
    lines = [values(float(time), 50 + time) for time in range(10)]
    whole = text(*lines, time_line(9.0, end=True))
    first = len(text(lines[0]))
    for end in range(first, len(whole)):
        found = read(tmp_path, whole[:end])
        complete = whole[:end].count("\n") - 2  # the head and the devices
        column = found.columns["a", "utilization_percent"]
        # A last line that lacks nothing but its line break is whole all the same.
        assert complete <= len(column) + (complete > 10) <= complete + 1
        assert column.values.tolist() == [50.0 + time for time in range(len(column))]
        assert (
            any("its writer was stopped" in note for note in found.notes) or end == len(whole) - 1
        )


def test_the_line_that_is_cut_off_is_named(tmp_path: Path) -> None:
    found = read(tmp_path, text(values(0.0, 1.0), values(1.0, 2.0)[:20]))
    assert "trace.jsonl:4: the last line is cut off and was left out" in found.notes


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{broken}\n", r"trace\.jsonl:4: is no JSON"),
        ("[1, 2]\n", r"trace\.jsonl:4: is no JSON object"),
        ('{"values": {}}\n', r"trace\.jsonl:4: is no line of a recording \(KeyError\('time'\)\)"),
        (values(1.0, "high"), r"trace\.jsonl:4: .*utilization_percent is no number"),
        (values(1.0, True), r"trace\.jsonl:4: .*is no number"),
        ('{"time": 1, "device": "a", "values": {"power_watts": NaN}}\n', r":4: is no JSON .*NaN"),
        (values(1.0, 100.5), r":4: utilization_percent = 100.5 lies outside 0 to 100 percent"),
        (values(0.0, 5.0), r":4: time stands still for utilization_percent of a"),
        (values(-1.0, 5.0), r":4: time goes back for utilization_percent of a: 1 s before"),
        (
            '{"time": 1, "device": "a", "missing": {"power_watts": {"reason": "shy"}}}\n',
            r"trace\.jsonl:4: .*'shy' is not a valid Reason",
        ),
    ],
)
def test_a_broken_line_is_refused_by_name_and_left_out_on_request(
    tmp_path: Path, line: str, problem: str
) -> None:
    content = text(values(0.0, 1.0), line, values(2.0, 3.0), time_line(2.0, end=True))
    with pytest.raises(ConfigurationError, match=problem):
        read(tmp_path, content)
    found = read(tmp_path, content, repair=True)
    assert found.columns["a", "utilization_percent"].values.tolist() == [1.0, 3.0]
    assert len(found.notes) == 1
    assert found.notes[0].startswith("left out 1 reading, the first at trace.jsonl:4: ")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "is empty"),
        ("nonsense\n", r"trace\.jsonl:1: is no JSON"),
        ('{"accelscale_recording": 2}\n', r"trace\.jsonl:1: must be the head .* of version 1"),
        ('{"accelscale_recording": 1}\n', r"trace\.jsonl:1: is a head without start or interval"),
        (
            '{"accelscale_recording": 1, "start": 0, "interval": 0}\n',
            r"trace\.jsonl:1: is a head with an interval",
        ),
        (HEAD, "holds no sample"),
    ],
)
def test_a_file_without_a_head_or_a_sample_is_refused(
    tmp_path: Path, content: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read(tmp_path, content)


def test_what_is_missing_stays_so_until_the_next_value(tmp_path: Path) -> None:
    why = {"power_watts": (Reason.LOST, "gone", False)}
    found = read(
        tmp_path,
        text(
            missing_line(2.0, "a", why),
            time_line(5.0),
            values_line(6.0, "a", {"power_watts": 90.0}, ["power_watts"]),
            missing_line(8.0, "a", {"power_watts": (Reason.TIMEOUT, "", False)}),
            time_line(9.0, end=True),
        ),
    )
    spans = [(a.start, a.end, a.reason) for a in found.absences["a", "power_watts"]]
    assert spans == [(2.0, 6.0, Reason.LOST), (8.0, 9.0, Reason.TIMEOUT)]
    assert found.columns["a", "power_watts"].shared
    assert found.interval_of("power_watts") == 10.0


def test_only_the_metrics_that_are_wanted_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text(values(0.0, 1.0), values(0.0, 90.0, "power_watts")))
    assert read_jsonlines(path, metrics=["power_watts"]).metrics == ("power_watts",)
