"""The binary tables of amdgpu, spelt as C structures: what the parser is held against.

Written down from the kernel's header by itself, not from the parser, so that a slip in one of the
two shows. Every field holds all bits set, which means "absent", until a test sets it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

u8, u16, u32, u64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64

Field = tuple[str, Any]

HEADER: list[Field] = [("structure_size", u16), ("format_revision", u8), ("content_revision", u8)]


def _u16(*names: str) -> list[Field]:
    return [(name, u16) for name in names]


def _u32(*names: str) -> list[Field]:
    return [(name, u32) for name in names]


def _u64(*names: str) -> list[Field]:
    return [(name, u64) for name in names]


def structure(name: str, fields: Sequence[Field]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


_TEMPERATURES = _u16(
    "temperature_edge",
    "temperature_hotspot",
    "temperature_mem",
    "temperature_vrgfx",
    "temperature_vrsoc",
    "temperature_vrmem",
)
_ACTIVITY = _u16("average_gfx_activity", "average_umc_activity", "average_mm_activity")
_AVERAGE_CLOCKS = _u16(
    "average_gfxclk_frequency",
    "average_socclk_frequency",
    "average_uclk_frequency",
    "average_vclk0_frequency",
    "average_dclk0_frequency",
    "average_vclk1_frequency",
    "average_dclk1_frequency",
)
_CURRENT_CLOCKS = _u16(
    "current_gfxclk",
    "current_socclk",
    "current_uclk",
    "current_vclk0",
    "current_dclk0",
    "current_vclk1",
    "current_dclk1",
)
_V1_0 = [
    *HEADER,
    *_u64("system_clock_counter"),
    *_TEMPERATURES,
    *_ACTIVITY,
    *_u16("average_socket_power"),
    *_u32("energy_accumulator"),
    *_AVERAGE_CLOCKS,
    *_CURRENT_CLOCKS,
    *_u32("throttle_status"),
    *_u16("current_fan_speed"),
    ("pcie_link_width", u8),
    ("pcie_link_speed", u8),
]
_V1_1 = [
    *HEADER,
    *_TEMPERATURES,
    *_ACTIVITY,
    *_u16("average_socket_power"),
    *_u64("energy_accumulator", "system_clock_counter"),
    *_AVERAGE_CLOCKS,
    *_CURRENT_CLOCKS,
    *_u32("throttle_status"),
    *_u16("current_fan_speed", "pcie_link_width", "pcie_link_speed", "padding"),
    *_u32("gfx_activity_acc", "mem_activity_acc"),
    ("temperature_hbm", u16 * 4),
]
_V1_2 = [*_V1_1, *_u64("firmware_timestamp")]
_V1_3 = [
    *_V1_2,
    *_u16("voltage_soc", "voltage_gfx", "voltage_mem", "padding1"),
    *_u64("indep_throttle_status"),
]

_NEW_SENSORS = _u16(
    "temperature_hotspot",
    "temperature_mem",
    "temperature_vrsoc",
    "curr_socket_power",
    "average_gfx_activity",
    "average_umc_activity",
)
_STATUS = _u32("throttle_status", "gfxclk_lock_status")
_LINKS = [
    *_u16("pcie_link_width", "pcie_link_speed", "xgmi_link_width", "xgmi_link_speed"),
    *_u32("gfx_activity_acc", "mem_activity_acc"),
    *_u64(
        "pcie_bandwidth_acc",
        "pcie_bandwidth_inst",
        "pcie_l0_to_recov_count_acc",
        "pcie_replay_count_acc",
        "pcie_replay_rover_count_acc",
    ),
]
_NAK = _u32("pcie_nak_sent_count_acc", "pcie_nak_rcvd_count_acc")
_XGMI: list[Field] = [("xgmi_read_data_acc", u64 * 8), ("xgmi_write_data_acc", u64 * 8)]
_CLOCK_ARRAYS: list[Field] = [
    ("current_gfxclk", u16 * 8),
    ("current_socclk", u16 * 4),
    ("current_vclk0", u16 * 4),
    ("current_dclk0", u16 * 4),
    ("current_uclk", u16),
]
_V1_4 = [
    *HEADER,
    *_NEW_SENSORS,
    ("vcn_activity", u16 * 4),
    *_u64("energy_accumulator", "system_clock_counter"),
    *_STATUS,
    *_LINKS,
    *_XGMI,
    *_u64("firmware_timestamp"),
    *_CLOCK_ARRAYS,
    *_u16("padding"),
]
_V1_5 = [
    *HEADER,
    *_NEW_SENSORS,
    ("vcn_activity", u16 * 4),
    ("jpeg_activity", u16 * 32),
    *_u64("energy_accumulator", "system_clock_counter"),
    *_STATUS,
    *_LINKS,
    *_NAK,
    *_XGMI,
    *_u64("firmware_timestamp"),
    *_CLOCK_ARRAYS,
    *_u16("padding"),
]
_RESIDENCIES = _u32(
    "accumulation_counter",
    "prochot_residency_acc",
    "ppt_residency_acc",
    "socket_thm_residency_acc",
    "vr_thm_residency_acc",
    "hbm_thm_residency_acc",
)


def _xcp(name: str, jpeg: int, *counters: str) -> type[ctypes.Structure]:
    return structure(
        name,
        [
            ("gfx_busy_inst", u32 * 8),
            ("jpeg_busy", u16 * jpeg),
            ("vcn_busy", u16 * 4),
            *((counter, u64 * 8) for counter in counters),
        ],
    )


_XCP_1_0 = _xcp("XcpMetrics", 32, "gfx_busy_acc")
_XCP_1_1 = _xcp("XcpMetrics11", 32, "gfx_busy_acc", "gfx_below_host_limit_acc")
_LIMITS = (
    "gfx_below_host_limit_ppt_acc",
    "gfx_below_host_limit_thm_acc",
    "gfx_low_utilization_acc",
    "gfx_below_host_limit_total_acc",
)
_XCP_1_2 = _xcp("XcpMetrics12", 40, "gfx_busy_acc", *_LIMITS)


def _with_partitions(xcp: type[ctypes.Structure], *, newer: bool) -> list[Field]:
    status: list[Field] = [("xgmi_link_status", u16 * 8), *_u16("padding")]
    return [
        *HEADER,
        *_NEW_SENSORS,
        *(_u64("mem_max_bandwidth") if newer else []),
        *_u64("energy_accumulator", "system_clock_counter"),
        *_RESIDENCIES,
        *_u32("gfxclk_lock_status"),
        *_LINKS,
        *_NAK,
        *_XGMI,
        *(status if newer else []),
        *_u64("firmware_timestamp"),
        *_CLOCK_ARRAYS,
        *_u16("num_partition"),
        ("xcp_stats", xcp * 8),
        *_u32("pcie_lc_perf_other_end_recovery"),
    ]


_V3_0 = [
    *HEADER,
    *_u16("temperature_gfx", "temperature_soc"),
    ("temperature_core", u16 * 16),
    *_u16("temperature_skin", "average_gfx_activity", "average_vcn_activity"),
    ("average_ipu_activity", u16 * 8),
    ("average_core_c0_activity", u16 * 16),
    *_u16("dram_reads", "dram_writes", "ipu_reads", "ipu_writes"),
    *_u64("system_clock_counter"),
    *_u32("average_socket_power"),
    *_u16("average_ipu_power"),
    *_u32("apu_power", "gfx_power", "dgpu_power", "all_core_power"),
    ("average_core_power", u16 * 16),
    *_u16("sys_power", "stapm_power_limit", "current_stapm_power_limit"),
    ("average_clocks", u16 * 8),
    ("current_coreclk", u16 * 16),
    *_u16("current_core_maxfreq", "current_gfx_maxfreq"),
    ("throttle_residency", u32 * 7),
    *_u32("time_filter_alphavalue"),
]

GPU_METRICS: dict[tuple[int, int], type[ctypes.Structure]] = {
    (1, 0): structure("V1_0", _V1_0),
    (1, 1): structure("V1_1", _V1_1),
    (1, 2): structure("V1_2", _V1_2),
    (1, 3): structure("V1_3", _V1_3),
    (1, 4): structure("V1_4", _V1_4),
    (1, 5): structure("V1_5", _V1_5),
    (1, 6): structure("V1_6", _with_partitions(_XCP_1_0, newer=False)),
    (1, 7): structure("V1_7", _with_partitions(_XCP_1_1, newer=True)),
    (1, 8): structure("V1_8", _with_partitions(_XCP_1_2, newer=True)),
    (3, 0): structure("V3_0", _V3_0),
}

XCP_METRICS = structure(
    "Partition1_0",
    [
        *HEADER,
        *_CLOCK_ARRAYS,
        *_u16("padding"),
        ("gfx_busy_inst", u32 * 8),
        ("jpeg_busy", u16 * 40),
        ("vcn_busy", u16 * 4),
        ("gfx_busy_acc", u64 * 8),
        *((name, u64 * 8) for name in _LIMITS),
    ],
)


def gpu_metrics(revision: tuple[int, int] = (1, 3), **values: Any) -> bytes:
    """A card's table of that revision; arrays are given as lists, as long or shorter.

    ``xcp_stats`` is a list with one dictionary per partition.
    """
    return _filled(GPU_METRICS[revision], revision, values)


def xcp_metrics(**values: Any) -> bytes:
    """A partition's table, revision 1.0."""
    return _filled(XCP_METRICS, (1, 0), values)


def dynamic(revision: tuple[int, int], *attributes: tuple[int, int, str, Sequence[int]]) -> bytes:
    """A table of attributes: each ``(id, unit, type, values)``, the type a code of `struct`."""
    import struct

    body = b""
    for number, unit, code, values in attributes:
        encoding = unit << 24 | "BbHhIiQq".index(code) << 20 | number << 10 | len(values)
        body += struct.pack(f"<Q{len(values)}{code}", encoding, *values)
    return struct.pack("<HBBi", 8 + len(body), *revision, len(attributes)) + body


def _filled(kind: type[ctypes.Structure], revision: tuple[int, int], values: Any) -> bytes:
    table: Any = kind.from_buffer_copy(b"\xff" * ctypes.sizeof(kind))
    table.structure_size = ctypes.sizeof(kind)
    table.format_revision, table.content_revision = revision
    _fill(table, values)
    return bytes(table)


def _fill(target: Any, values: Any) -> None:
    for name, value in values.items():
        if name == "xcp_stats":
            for number, part in enumerate(value):
                _fill(target.xcp_stats[number], part)
        elif isinstance(value, list):
            getattr(target, name)[: len(value)] = value
        else:
            setattr(target, name, value)
