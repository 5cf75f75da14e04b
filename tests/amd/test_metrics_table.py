"""The binary tables, against the same layouts spelt as C structures."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale.model import Reason
from accelscale_amd.files import UnreadableError
from accelscale_amd.metrics_table import parse_gpu_metrics, parse_xcp_metrics
from amd import tables

LINKED = [(1, 4), (1, 5), (1, 6), (1, 7), (1, 8)]
WITH_PARTITIONS = [(1, 6), (1, 7), (1, 8)]


def test_the_size_is_the_one_that_a_driver_writes() -> None:
    """``78 00 01 03`` is how the table of a Radeon begins: 120 bytes, revision 1.3."""
    assert ctypes.sizeof(tables.GPU_METRICS[1, 3]) == 0x78


@pytest.mark.parametrize("revision", [(1, 0), (1, 1), (1, 2), (1, 3)])
def test_old_tables(revision: tuple[int, int]) -> None:
    data = tables.gpu_metrics(revision, energy_accumulator=77, average_mm_activity=12)
    table = parse_gpu_metrics(data)
    assert table.number("energy") == 77
    assert table.number("mm") == 12
    assert table.revision == f"1.{revision[1]}"


@pytest.mark.parametrize("revision", LINKED)
def test_energy_and_links(revision: tuple[int, int]) -> None:
    data = tables.gpu_metrics(
        revision,
        energy_accumulator=2**40,
        xgmi_link_width=16,
        xgmi_read_data_acc=[1, 2, 3, 4, 5, 6, 7, 8],
        xgmi_write_data_acc=[10, 20],
        current_gfxclk=[2100, 132],
    )
    table = parse_gpu_metrics(data)
    assert table.number("energy") == 2**40
    assert table.number("xgmi_width") == 16
    assert table.known("xgmi_read") == (1, 2, 3, 4, 5, 6, 7, 8)
    assert table.known("xgmi_write") == (10, 20)
    assert table.known("gfxclk") == (2100, 132)


@pytest.mark.parametrize("revision", WITH_PARTITIONS)
def test_residencies_and_partitions(revision: tuple[int, int]) -> None:
    stats = [{"gfx_busy_inst": [n, 100 - n], "vcn_busy": [n + 1]} for n in range(8)]
    data = tables.gpu_metrics(
        revision,
        accumulation_counter=5,
        prochot_residency_acc=1,
        ppt_residency_acc=2,
        socket_thm_residency_acc=3,
        vr_thm_residency_acc=4,
        hbm_thm_residency_acc=6,
        xcp_stats=stats,
    )
    table = parse_gpu_metrics(data)
    names = ("accumulation", "prochot_residency", "ppt_residency", "socket_residency")
    assert [table.number(name) for name in names] == [5, 1, 2, 3]
    assert (table.number("vr_residency"), table.number("hbm_residency")) == (4, 6)
    for number in range(8):
        assert table.known(f"xcp{number}_gfx_busy") == (number, 100 - number)
        assert table.known(f"xcp{number}_vcn") == (number + 1,)


@pytest.mark.parametrize("revision", [(1, 4), (1, 5)])
def test_video_engines(revision: tuple[int, int]) -> None:
    table = parse_gpu_metrics(tables.gpu_metrics(revision, vcn_activity=[30, 0]))
    assert table.known("vcn") == (30, 0)


def test_apu_tables() -> None:
    table = parse_gpu_metrics(tables.gpu_metrics((3, 0), average_vcn_activity=17))
    assert (table.format, table.number("vcn")) == (3, 17)
    assert parse_gpu_metrics(bytes([120, 0, 2, 4]) + bytes(116)).format == 2


def test_a_partition_table() -> None:
    data = tables.xcp_metrics(gfx_busy_inst=[80], vcn_busy=[1, 2], current_gfxclk=[900])
    table = parse_xcp_metrics(data)
    assert table.known("gfx_busy") == (80,)
    assert table.known("vcn") == (1, 2)
    assert table.known("gfxclk") == (900,)


def test_all_bits_set_is_absent_whatever_the_width() -> None:
    table = parse_gpu_metrics(tables.gpu_metrics((1, 6)))
    assert all(not table.known(name) for name in table.fields)
    full = parse_gpu_metrics(tables.gpu_metrics((1, 6), energy_accumulator=0xFFFF))
    assert full.number("energy") == 0xFFFF  # in 64 bits that is a value like any other


def test_a_list_of_attributes() -> None:
    data = tables.dynamic(
        (1, 9),
        (0, 2, "H", [55]),  # a temperature, not read from here
        (7, 0, "Q", [12345]),
        (9, 0, "I", [1000]),
        (11, 0, "Q", [250]),
        (29, 9, "Q", [7, 8, 2**64 - 1]),
        (999, 3, "b", [-1, -2]),  # one of a later kernel
        (42, 10, "H", [3, 0xFFFF]),
    )
    table = parse_gpu_metrics(data)
    assert table.revision == "1.9"
    assert table.number("energy") == 12345
    assert table.number("accumulation") == 1000
    assert table.number("ppt_residency") == 250
    assert table.known("xgmi_read") == (7, 8)
    assert table.known("vcn") == (3,)


def test_an_attribute_in_another_unit_is_not_read() -> None:
    megabytes = 11
    table = parse_gpu_metrics(tables.dynamic((1, 9), (29, megabytes, "Q", [7])))
    assert table.known("xgmi_read") == ()


def test_a_partition_list_of_attributes() -> None:
    table = parse_xcp_metrics(tables.dynamic((1, 1), (40, 10, "I", [20, 40])))
    assert table.known("gfx_busy") == (20, 40)


@pytest.mark.parametrize(
    "data",
    [
        bytes([0, 1, 1, 12]) + bytes(252),  # a revision of a later kernel
        bytes([0, 1, 9, 9]) + bytes(252),
        bytes([8, 0, 1, 6, 0, 0, 0, 0]),  # a revision that is known, in another layout
        tables.gpu_metrics((1, 6))[:2] + b"\x01\x03" + bytes(200),
    ],
)
def test_what_is_not_known_is_not_read(data: bytes) -> None:
    with pytest.raises(UnreadableError) as caught:
        parse_gpu_metrics(data)
    assert caught.value.reason is Reason.NOT_SUPPORTED
    assert caught.value.permanent
    assert "no layout that is known" in caught.value.detail


@pytest.mark.parametrize("length", [0, 3, 4, 100])
def test_a_table_that_is_cut_short(length: int) -> None:
    with pytest.raises(UnreadableError) as caught:
        parse_gpu_metrics(tables.gpu_metrics((1, 3))[:length])
    assert caught.value.reason is Reason.ERROR
    assert not caught.value.permanent


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for parse in (parse_gpu_metrics, parse_xcp_metrics):
        for start in (b"", b"\x2c\x01\x01\x09", b"\x2c\x01\x01\x01"):
            try:
                table = parse(start + data)
            except UnreadableError:
                continue
            assert all(isinstance(v, int | None) for f in table.fields.values() for v in f)
