from __future__ import annotations

import re
from pathlib import Path

import pytest

from accelscale.engine import evaluate
from accelscale.errors import ConfigurationError
from accelscale.lab.loading import load
from accelscale.lab.recording import Recording
from accelscale.lab.view import View
from accelscale.model import Reason
from accelscale.trigger import parse_trigger

HEAD = (
    "timestamp, uuid, name, pci.bus_id, utilization.gpu [%], memory.used [MiB], memory.total [MiB],"
    " power.draw [W], temperature.gpu\n"
)
UUID = "GPU-5c1f7b62-0000-1111-2222-333344445555"


def row(second: int, use: str = "37 %", power: str = "71.23 W", uuid: str = UUID) -> str:
    return (
        f"2026/01/31 12:00:{second:02}.250, {uuid}, NVIDIA H100, 00000000:1B:00.0, {use},"
        f" 1024 MiB, 81920 MiB, {power}, 54\n"
    )


def read(tmp_path: Path, text: str, **options: bool) -> Recording:
    path = tmp_path / "smi.csv"
    path.write_text(text)
    return load([path], **options)  # type: ignore[arg-type]


def test_a_log_becomes_columns_in_the_units_of_the_table(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD + row(0) + row(5, "0 %") + row(10))
    (device,) = found.devices
    assert (device.id, device.name, device.vendor) == (UUID, "NVIDIA H100", "nvidia")
    assert device.pci_address == "0000:1b:00.0"
    assert found.columns[UUID, "utilization_percent"].values.tolist() == [37.0, 0.0, 37.0]
    assert found.columns[UUID, "utilization_percent"].times.tolist() == [0.0, 5.0, 10.0]
    assert found.columns[UUID, "memory_used_bytes"].values[0] == 1024 * 2**20
    assert found.columns[UUID, "memory_used_percent"].values[0] == 1.25
    assert found.columns[UUID, "power_watts"].values[0] == 71.23
    assert found.columns[UUID, "temperature_celsius"].values[0] == 54.0
    assert (found.interval, found.end) == (5.0, 10.0)
    assert found.start == 1769860800.25
    assert found.notes == ()


def test_without_units_the_numbers_are_in_those_of_nvidia_smi(tmp_path: Path) -> None:
    text = (
        "timestamp, index, utilization.gpu [%], memory.used [MiB]\n"
        "2026/01/31 12:00:00.000, 0, 37, 1024\n"
        "2026/01/31 12:00:00.001, 1, 4, 1\n"
        "2026/01/31 12:00:01.000, 0, 38, 1024\n"
    )
    found = read(tmp_path, text)
    assert [device.id for device in found.devices] == ["gpu-0", "gpu-1"]
    assert found.columns["gpu-0", "memory_used_bytes"].values[0] == 2**30


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[N/A]", Reason.NOT_SUPPORTED),
        ("[Not Supported]", Reason.NOT_SUPPORTED),
        ("N/A", Reason.NOT_SUPPORTED),
        ("ERR!", Reason.ERROR),
        ("[Unknown Error]", Reason.ERROR),
        ("[Insufficient Permissions]", Reason.PERMISSION),
        ("[GPU is lost]", Reason.LOST),
        ("[GPU requires reset]", Reason.RESET_REQUIRED),
    ],
)
def test_what_the_driver_does_not_give_is_absent_with_its_reason(
    tmp_path: Path, text: str, reason: Reason
) -> None:
    found = read(tmp_path, HEAD + row(0) + row(1, power=text) + row(2, power=text) + row(3))
    (absence,) = found.absences[UUID, "power_watts"]
    assert (absence.start, absence.end, absence.reason) == (1.0, 3.0, reason)
    assert absence.detail == text.strip("[]")
    assert found.columns[UUID, "power_watts"].times.tolist() == [0.0, 3.0]
    assert len(found.columns[UUID, "utilization_percent"]) == 4


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (row(1).replace(", 54", ""), r"smi\.csv:3: has 8 fields where the header has 9"),
        (row(1).replace("\n", ", 3\n"), r"smi\.csv:3: has 10 fields where the header has 9"),
        (row(1, "12 W"), r"smi\.csv:3: utilization\.gpu: '12 W' is in W, where percent stand"),
        (row(1, "1200 MiB"), r"is in MiB, where percent stand elsewhere"),
        (row(1, "lots"), r"smi\.csv:3: utilization\.gpu: 'lots' is no number"),
        (row(1, "137 %"), r"smi\.csv:3, utilization\.gpu: .* = 137 lies outside 0 to 100"),
        (row(0), r"smi\.csv:3, utilization\.gpu: time stands still"),
        (row(0).replace(".250", ".100"), r"smi\.csv:3.*time goes back"),
        (row(1).replace("2026/01/31", "yesterday"), r"smi\.csv:3: 'yesterday .* is no time"),
    ],
)
def test_a_row_that_cannot_be_true_is_refused_by_line_and_left_out_on_request(
    tmp_path: Path, line: str, problem: str
) -> None:
    text = HEAD + row(0) + line + row(2)
    with pytest.raises(ConfigurationError, match=problem):
        read(tmp_path, text)
    found = read(tmp_path, text, repair=True)
    assert found.columns[UUID, "utilization_percent"].times.tolist() == [0.0, 2.0]
    assert re.match(r"left out [15] readings?, the first at smi\.csv:3", found.notes[0])


def test_another_size_of_the_same_unit_is_converted(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD + row(0) + row(1, power="71230 mW"))
    assert found.columns[UUID, "power_watts"].values.tolist() == pytest.approx([71.23, 71.23])


def test_a_header_that_is_repeated_is_skipped_and_another_one_refused(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD + row(0) + HEAD + row(1))
    assert len(found.columns[UUID, "utilization_percent"]) == 2
    other = "timestamp, uuid, utilization.gpu [%]\n"
    with pytest.raises(ConfigurationError, match=r"smi\.csv:3: another header begins here"):
        read(tmp_path, HEAD + row(0) + other)


def test_a_log_cut_off_anywhere_loses_its_last_line_alone(tmp_path: Path) -> None:
    text = HEAD + row(0) + row(1, "100 %") + row(2, "50 %")
    begin = len(HEAD + row(0) + row(1))
    for end in range(begin + 1, len(text)):
        found = read(tmp_path, text[:end])
        values = found.columns[UUID, "utilization_percent"].values.tolist()
        assert values == [37.0, 100.0]
        if not text[:end].endswith("\n"):
            assert found.notes == ("smi.csv:4: the last line is cut off and was left out",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("utilization.gpu [%], power.draw [W]\n37 %, 3 W\n", r":1: has no column timestamp"),
        (
            "timestamp, power.draw [W], power.draw [W]\n",
            r":1: has the column power\.draw twice",
        ),
        (HEAD, "holds no row below its header"),
    ],
)
def test_a_header_that_does_not_do_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read(tmp_path, text)


def test_a_card_that_comes_later_is_there_from_then_on(tmp_path: Path) -> None:
    rows = [row(second) for second in range(30)]
    rows[20:] = [row(s) + row(s, uuid="GPU-second") for s in range(20, 30)]
    found = read(tmp_path, HEAD + "".join(rows))
    assert found.spans_of("GPU-second")[0].start == 20.0
    assert found.spans_of(UUID)[0].end == 29.0


def test_a_card_whose_rows_stop_is_silent_and_not_away(tmp_path: Path) -> None:
    rows = [row(s) + (row(s, uuid="GPU-lost") if s < 20 else "") for s in range(50)]
    found = read(tmp_path, HEAD + "".join(rows))
    view = View(found, [10.0, 45.0])
    trigger = parse_trigger({"metric": "utilization_percent", "threshold": "20"})
    results = []
    for index, moment in enumerate((10.0, 45.0)):
        snapshot = view.snapshot(index, trigger.wanted_series)
        outcome = evaluate(trigger, snapshot, view.workload(trigger, moment), now=moment)
        results.append((outcome.value, outcome.fill))
    # 37 each; the silent one counts nothing, for the other alone asks for more.
    assert results == [(74.0, "none"), (40.0, "no change")]
