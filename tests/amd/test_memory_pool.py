"""Which memory counts: an APU's carve-out is not its memory, and a card's GTT is not its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accelscale_amd import AmdBackend
from amd import tables
from amd.conftest import FIRST, Results, failure_of
from amd.trees import GIBIBYTE, HWMON, Tree

Read = Callable[..., Results]
MEBIBYTE = 2**20
CARVED = {
    "mem_info_vram_total": 512 * MEBIBYTE,
    "mem_info_vram_used": 489 * MEBIBYTE,
    "mem_info_gtt_total": 13649 * MEBIBYTE,
    "mem_info_gtt_used": 938 * MEBIBYTE,
}
APU_SENSORS = {"name": "amdgpu", "in1_label": "vddnb", "in1_input": 700, "temp1_label": "edge"}
BARE_SENSORS = {"name": "amdgpu", "power1_average": 5_000_000}


@pytest.mark.parametrize(
    ("table", "hwmon"),
    [
        (tables.gpu_metrics((3, 0)), HWMON),
        (bytes([120, 0, 2, 2]) + bytes(116), HWMON),
        (None, APU_SENSORS),
        (None, BARE_SENSORS),  # shows neither way what it is
        (None, None),
    ],
)
def test_the_larger_pool_of_an_apu(
    tree: Tree, results: Read, backend: AmdBackend, table: bytes | None, hwmon: dict[str, object]
) -> None:
    tree.card(FIRST, table=table, hwmon=hwmon, **CARVED)
    found = results("memory_used_bytes", "memory_total_bytes")
    used, total = found[FIRST, "memory_used_bytes"], found[FIRST, "memory_total_bytes"]
    assert (used, total) == (938 * MEBIBYTE, 13649 * MEBIBYTE)
    (device,) = backend.devices()
    assert device.attributes["memory_pool"] == "gtt"


def test_a_large_carve_out_is_the_larger_pool(tree: Tree, results: Read) -> None:
    sizes = {**CARVED, "mem_info_vram_total": 96 * GIBIBYTE}
    tree.card(FIRST, table=tables.gpu_metrics((3, 0)), **sizes)
    assert results("memory_total_bytes")[FIRST, "memory_total_bytes"] == 96 * GIBIBYTE


@pytest.mark.parametrize("table", ["default", None])
def test_a_card_has_its_own_memory_however_large_the_machine(
    tree: Tree, results: Read, backend: AmdBackend, table: str | None
) -> None:
    sizes = {"mem_info_vram_total": 2 * GIBIBYTE, "mem_info_vram_used": GIBIBYTE}
    tree.card(FIRST, table=table, **sizes)  # GTT is 256 GiB; a fan shows that it is a card
    found = results("memory_used_bytes", "memory_total_bytes")
    assert found[FIRST, "memory_used_bytes"] == GIBIBYTE
    assert found[FIRST, "memory_total_bytes"] == 2 * GIBIBYTE
    assert backend.devices()[0].attributes["memory_pool"] == "vram"


def test_no_memory_at_all_is_no_number(tree: Tree, results: Read) -> None:
    tree.card(FIRST, mem_info_vram_total=0, mem_info_gtt_total=0)
    assert failure_of(results("memory_total_bytes")[FIRST, "memory_total_bytes"]).detail
