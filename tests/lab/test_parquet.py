from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve

from accelscale.errors import ConfigurationError
from accelscale.lab import parquet
from accelscale.lab.parquet import merge_parts, read_parquet, write_parquet
from accelscale.lab.recording import Absence, Holder, Recording, Span
from accelscale.model import Reason
from lab.toys import recording


def example(seconds: float = 50.0) -> Recording:
    return recording(
        {"utilization_percent": [10.0, 20.0], "power_watts": [100.0, 200.0]},
        seconds=seconds,
        absences=[
            Absence("GPU-0", "temperature_celsius", 0.0, seconds, Reason.PERMISSION, "no"),
            Absence("GPU-1", "power_watts", 60.0, 70.0, Reason.LOST),
        ],
        holders=[Holder("GPU-0", "ns", "pod", "c", 0.0, seconds)],
        presence={"GPU-1": (Span(0.0, 30.0),)},
    )


def same(one: Recording, other: Recording) -> None:
    assert (one.start, one.end, one.interval) == (other.start, other.end, other.interval)
    assert one.devices == other.devices
    assert one.absences == other.absences
    assert one.holders == other.holders
    assert one.presence == other.presence
    assert set(one.columns) == set(other.columns)
    for key, column in one.columns.items():
        assert np.array_equal(column.times, other.columns[key].times)
        assert np.array_equal(column.values, other.columns[key].values)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    write_parquet(example(), path)
    same(read_parquet(path), example())
    assert [file.name for file in tmp_path.iterdir()] == ["trace.parquet"]


def test_others_can_read_it_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    write_parquet(example(), path)
    rows = pq.read_table(path).to_pylist()
    lost = [row for row in rows if row["reason"] == "lost"]
    assert lost[0]["value"] is None
    assert (lost[0]["time"], lost[0]["until"]) == (60.0, 70.0)
    assert sum(row["value"] is not None for row in rows) == example().samples


def test_several_row_groups_are_one_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 40)
    path = tmp_path / "trace.parquet"
    write_parquet(example(), path)
    assert pq.ParquetFile(path).num_row_groups > 3
    same(read_parquet(path), example())


def test_only_the_metrics_that_are_wanted_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    write_parquet(example(), path)
    found = read_parquet(path, metrics=["power_watts"])
    assert found.metrics == ("power_watts",)
    assert set(found.absences) == {("GPU-1", "power_watts")}
    with pytest.raises(ConfigurationError, match="holds no sample of a metric that is wanted"):
        read_parquet(path, metrics=["process_count"])


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.parquet", tmp_path / "cut.parquet"
    write_parquet(example(), whole)
    data = whole.read_bytes()
    for end in range(0, len(data), 97):
        cut.write_bytes(data[:end])
        with pytest.raises(ConfigurationError, match=r"cut\.parquet"):
            read_parquet(cut)


def test_a_foreign_file_and_a_newer_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(ConfigurationError, match="no recording of accelscale"):
        read_parquet(path)
    schema = pa.schema([("a", pa.int64())], {b"accelscale": b'{"version": 9}'})
    pq.write_table(pa.table([[1]], schema=schema), path)
    with pytest.raises(ConfigurationError, match="is of version 9, not 1"):
        read_parquet(path)
    schema = pa.schema([("a", pa.int64())], {b"accelscale": b'{"version": 1}'})
    pq.write_table(pa.table([[1]], schema=schema), path)
    with pytest.raises(ConfigurationError, match="has no column time, device, metric, value"):
        read_parquet(path)


@pytest.mark.parametrize(
    ("times", "values", "problem"),
    [
        ([0.0, 2.0, 1.0], [1.0, 2.0, 3.0], "row group 0: time does not rise at 1 s"),
        ([0.0, 1.0, 2.0], [1.0, float("inf"), 3.0], "is no number"),
    ],
)
def test_times_that_go_back_and_no_numbers_are_found(
    tmp_path: Path, times: list[float], values: list[float], problem: str
) -> None:
    path = tmp_path / "trace.parquet"
    good = recording({"utilization_percent": [1.0]}, seconds=2.0)
    column = evolve(
        good.columns["GPU-0", "utilization_percent"],
        times=np.array(times),
        values=np.array(values),
    )
    write_parquet(evolve(good, columns={("GPU-0", "utilization_percent"): column}), path)
    with pytest.raises(ConfigurationError, match=problem):
        read_parquet(path)


def test_parts_become_one_file(tmp_path: Path) -> None:
    def part(number: int) -> Path:
        found = example(50.0)
        by = 51.0 * number
        moved = evolve(
            found,
            end=by + 50.0,
            columns={key: evolve(c, times=c.times + by) for key, c in found.columns.items()},
            absences={
                ("GPU-0", "temperature_celsius"): (
                    Absence("GPU-0", "temperature_celsius", by, by + 50.0, Reason.PERMISSION, "no"),
                )
            },
            holders=(),
            presence={d.id: (Span(by, by + 50.0),) for d in found.devices},
        )
        path = tmp_path / f"{number}.parquet"
        write_parquet(moved, path)
        return path

    merge_parts([part(0), part(1), part(2)], tmp_path / "whole.parquet")
    whole = read_parquet(tmp_path / "whole.parquet")
    assert len(whole.columns["GPU-0", "power_watts"]) == 3 * 51
    assert whole.end == 152.0
    (absence,) = whole.absences["GPU-0", "temperature_celsius"]
    assert (absence.start, absence.end) == (0.0, 152.0)
    assert whole.presence["GPU-0"] == (Span(0.0, 152.0),)
