from __future__ import annotations

from pathlib import Path

import pytest

from accelscale.errors import ConfigurationError, NotFoundError
from accelscale.lab.loading import load
from accelscale.lab.recording import Recording

WIDE = (
    'Time,"DCGM_FI_DEV_GPU_UTIL{UUID=""GPU-a"", pod=""vllm-0""}",'
    '"{__name__=""DCGM_FI_DEV_POWER_USAGE"", UUID=""GPU-a""}"\n'
    "2026-01-31 12:00:00,37%,312 W\n"
    "2026-01-31 12:00:15,,0.31 kW\n"
    "2026-01-31 12:00:30,40%,315 W\n"
)
LONG = (
    "timestamp,metric,UUID,value\n"
    "1760000000,DCGM_FI_DEV_GPU_UTIL,GPU-a,10\n"
    "1760000000,DCGM_FI_DEV_GPU_UTIL,GPU-b,20\n"
    "1760000015,DCGM_FI_DEV_GPU_UTIL,GPU-a,30\n"
    "1760000015,DCGM_FI_DEV_GPU_UTIL,GPU-b,40\n"
)


def read(tmp_path: Path, text: str, **options: bool) -> Recording:
    path = tmp_path / "panel.csv"
    path.write_text(text)
    return load([path], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [WIDE, "sep=,\n" + WIDE])
def test_a_panel_of_grafana_becomes_a_recording(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text)
    assert found.columns["GPU-a", "utilization_percent"].times.tolist() == [0.0, 30.0]
    assert found.columns["GPU-a", "power_watts"].values.tolist() == [312.0, 310.0, 315.0]
    assert found.holders[0].pod == "vllm-0"
    assert found.start == 1769860800.0


def test_one_row_a_point_is_understood_too(tmp_path: Path) -> None:
    found = read(tmp_path, LONG)
    assert found.columns["GPU-b", "utilization_percent"].values.tolist() == [20.0, 40.0]
    assert (found.start, found.interval) == (1760000000.0, 15.0)
    in_milliseconds = LONG.replace("1760000000", "1760000000000").replace("15,", "15000,")
    assert read(tmp_path, in_milliseconds).end == 15.0


def test_percent_and_mebibytes_in_one_column_are_found(tmp_path: Path) -> None:
    mixed = WIDE.replace("40%", "40 MiB")
    with pytest.raises(
        ConfigurationError, match=r"panel\.csv:4, column 2: '40 MiB' is in MiB, where percent"
    ):
        read(tmp_path, mixed)
    assert len(read(tmp_path, mixed, repair=True).columns["GPU-a", "utilization_percent"]) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LONG.replace("GPU-b,20", "GPU-b"), r"panel\.csv:3: has 3 fields where the header has 4"),
        (
            LONG.replace("1760000015,DCGM_FI_DEV_GPU_UTIL,GPU-a", "noon,x,GPU-a"),
            r":4: 'noon' is no",
        ),
        (LONG.replace("1760000015", "1759999999"), r"panel\.csv:4: time goes back"),
        (LONG.replace("DCGM_FI_DEV_GPU_UTIL", "cpu_seconds"), "no metric that is known here"),
        (LONG.replace(",30", ",300"), r"panel\.csv:4: .*lies outside 0 to 100"),
    ],
)
def test_a_broken_row_is_refused_by_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read(tmp_path, text)


def test_a_last_line_that_is_cut_off_is_left_out_with_a_note(tmp_path: Path) -> None:
    cut = LONG[: LONG.rindex("GPU-b") + 3]
    found = read(tmp_path, cut)
    assert found.notes == ("panel.csv:5: the last line is cut off and was left out",)
    assert len(found.columns["GPU-b", "utilization_percent"]) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"a,b\n1,2\n", "is no recording that is known here"),
        (b"\xff\xfe\x00rubbish\xff", r"byte 0: is no text"),
        (b"hello", "is no recording that is known here"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=problem):
        load([path])


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        load([tmp_path / "nowhere.parquet"])
    with pytest.raises(NotFoundError, match="no recording in this folder"):
        load([tmp_path])
