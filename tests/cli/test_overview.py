"""What ``top`` shows of a snapshot, at several widths."""

from __future__ import annotations

import pytest

from accelscale.cli.overview import (
    Mood,
    Overview,
    age_of,
    ordered,
    overview,
    plain_line,
    short_id,
    sort_metric,
)
from accelscale.errors import ConfigurationError
from accelscale.metrics import METRICS
from accelscale.model import Device, Failure, Reason, Sample, Snapshot

NOW = 1000.0
BUSY = "GPU-0a2b3c4d-1111-2222-3333-444444444444"
LOST = "GPU-1a2b3c4d-1111-2222-3333-444444444444"
SLICE = "MIG-2a2b3c4d-1111-2222-3333-444444444444"

DEVICES = (
    Device(BUSY, "ACME Accelerator 9000", "acme", "acme", pci_address="0000:1b:00.0"),
    Device(
        LOST, "ACME Accelerator 9000", "acme", "acme", problem=Reason.LOST, problem_detail="Xid 79"
    ),
    Device(SLICE, "ACME 1g.10gb", "acme", "acme", parent=BUSY),
)
VALUES = {
    BUSY: {
        "utilization_percent": 93.0,
        "memory_used_percent": 0.0,
        "memory_used_bytes": 0.0,
        "memory_total_bytes": 80 * 2.0**30,
        "temperature_celsius": 54.0,
        "process_count": 2.0,
    },
    SLICE: {"memory_used_percent": 40.0},
}


def snapshot(*, age: float = 0.5) -> Snapshot:
    """Of a busy card that refuses its power, a lost card, and a partition without utilization."""
    samples = {
        (device, name): Sample(device, name, value, NOW - age)
        for device, values in VALUES.items()
        for name, value in values.items()
    }
    failures = {(BUSY, "power_watts"): Failure(BUSY, "power_watts", Reason.PERMISSION)}
    for name in METRICS:
        failures[LOST, name] = Failure(LOST, name, Reason.LOST, "Xid 79")
        if name not in VALUES[SLICE]:
            reason = Reason.NOT_SUPPORTED
            failures[SLICE, name] = Failure(SLICE, name, reason, permanent=True)
    return Snapshot(NOW, 1, 1.0, DEVICES, samples, failures)


def shown(table: Overview, row: int) -> dict[str, str]:
    return {title: cell.text for title, cell in zip(table.titles, table.rows[row], strict=True)}


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 160, 200])
def test_the_table_fits(width: int) -> None:
    table = overview(snapshot(), width, NOW, None)
    assert sum(table.widths) + len(table.widths) - 1 <= width
    assert len(table.rows) == 3
    for row in table.rows:
        for cell, room in list(zip(row, table.widths, strict=True)):
            assert 0 < len(cell.text) <= room


def test_more_room_shows_more() -> None:
    columns = [overview(snapshot(), width, NOW, None).titles for width in (40, 60, 80, 120)]
    assert columns[0] == ("DEVICE", "UTIL", "MEM", "TEMP", "AGE")
    assert columns[1] == ("DEVICE", "UTIL", "MEM", "TEMP", "POWER", "AGE")
    assert "MEM USED/TOTAL" in columns[2]
    assert "PROCS" in columns[3]


def test_an_absent_value_is_a_reason_and_a_true_0_is_0() -> None:
    table = overview(snapshot(), 120, NOW, None)
    busy, lost, part = (shown(table, row) for row in range(3))
    assert busy["MEM"] == "0 %"
    assert busy["MEM USED/TOTAL"] == "0B/80GiB"
    assert busy["POWER"] == "denied"
    assert set(lost.values()) - {lost["DEVICE"]} == {"lost", "none"}
    assert part["UTIL"] == "unsupp"
    assert part["MEM"] == "40 %"


def test_a_metric_that_was_never_heard_of_is_a_dash() -> None:
    bare = Snapshot(NOW, 1, 1.0, DEVICES[:1])
    assert shown(overview(bare, 60, NOW, None), 0)["UTIL"] == "-"


def test_columns_that_no_healthy_device_can_fill_are_left_out() -> None:
    titles = overview(snapshot(), 200, NOW, None).titles
    assert "PROCS" in titles
    assert "PCIE IN" not in titles
    assert "THROTTLE" not in titles


def test_devices_are_told_apart_at_every_width() -> None:
    for width in (40, 60, 80, 120):
        names = [row[0].text for row in overview(snapshot(), width, NOW, None).rows]
        assert "0a2b3c4d" in names[0]
        assert "1a2b3c4d" in names[1]
        assert names[2].startswith("└ ")
        assert "2a2b3c4d" in names[2]
    assert overview(snapshot(), 120, NOW, None).rows[0][0].text.startswith("Accelerator")


def test_the_lost_device_and_what_words_mean_stand_below() -> None:
    table = overview(snapshot(), 80, NOW, None)
    assert "GPU-1a2b3c4d lost: Xid 79" in table.notes
    assert "unsupp = not_supported, denied = permission" in table.notes
    assert table.rows[1][0].mood is Mood.ILL


def test_old_samples_are_marked_as_late() -> None:
    fresh, late = overview(snapshot(), 40, NOW, None), overview(snapshot(age=3.5), 40, NOW, None)
    assert shown(fresh, 0)["AGE"] == "0.5s"
    assert shown(late, 0)["AGE"] == "3.5s"
    assert fresh.rows[0][1].mood is Mood.BUSY
    assert {cell.mood for cell in late.rows[0][1:4]} == {Mood.LATE}
    assert late.rows[0][-1].mood is Mood.LATE


def test_very_old_samples_have_an_age_that_fits() -> None:
    assert shown(overview(snapshot(age=7200.0), 40, NOW, None), 0)["AGE"] == "120m"


def test_devices_beyond_the_height_are_counted() -> None:
    table = overview(snapshot(), 80, NOW, None, most_rows=1)
    assert len(table.rows) == 1
    assert table.notes[0] == "and 2 more devices"


def test_problems_of_backends_are_shown() -> None:
    ill = Snapshot(NOW, 1, 1.0, problems={"acme": "the driver is not loaded"})
    assert overview(ill, 80, NOW, None).notes == ("acme: the driver is not loaded",)


def test_order_puts_the_largest_first_and_the_absent_last() -> None:
    devices = ordered(snapshot(), "memory_used_percent")
    assert [device.id for device in devices] == [SLICE, BUSY, LOST]
    assert ordered(snapshot(), None) == DEVICES


def test_sort_takes_words_and_metrics() -> None:
    assert sort_metric(None, METRICS) is None
    assert sort_metric("device", METRICS) is None
    assert sort_metric("power", METRICS) == "power_watts"
    assert sort_metric("process_count", METRICS) == "process_count"
    with pytest.raises(ConfigurationError, match=r"did you mean power_watts\?"):
        sort_metric("power_wats", METRICS)


def test_the_age_is_that_of_the_newest_sample() -> None:
    assert age_of(snapshot(), DEVICES[0], NOW) == 0.5
    assert age_of(snapshot(), DEVICES[1], NOW) is None


def test_a_plain_line_names_every_value_or_its_reason() -> None:
    words = plain_line(snapshot(), DEVICES[0], NOW).split()
    assert words[1:3] == ["acme", BUSY]
    assert "utilization_percent=93" in words
    assert "power_watts=permission" in words
    assert words[-1] == "age=0.5s"
    lost = plain_line(snapshot(), DEVICES[1], NOW).split()
    assert "problem=lost" in lost
    assert "utilization_percent=lost" in lost
    assert not [word for word in lost if word.endswith(("=0", "=nan"))]


def test_short_ids() -> None:
    assert short_id(BUSY) == "GPU-0a2b3c4d"
    assert short_id("0000:1b:00.0") == "0000:1b:00.0"
    assert short_id("cpu-package-0") == "cpu-package-0"
    assert short_id(f"MIG-{BUSY}/1/0") == "MIG-GPU-0a2b3c4d/1/0"
    assert short_id("an-id-of-nobody-knows-whom") == "an-id-of-nobody-kno…"
