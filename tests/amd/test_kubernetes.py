"""Resource names and device ids, as AMD's device plugin writes them."""

from __future__ import annotations

import pytest

from accelscale_amd import AmdBackend
from amd.conftest import FIRST, SECOND
from amd.trees import Tree


@pytest.mark.parametrize(
    ("resource", "ours"),
    [
        ("amd.com/gpu", True),
        ("amd.com/cpx_nps4", True),
        ("amd.com/spx_nps1", True),
        ("amd.com/tpx_nps1", True),
        ("amd.com/gpu_vf", False),  # passed through to a virtual machine
        ("amd.com/gpu_pf", False),
        ("amd.com/xilinx_u55c_gen3x16_xdma_base_3-0", False),
        ("amd.com/GPU", False),
        ("amd.com/gpu ", False),
        ("xamd.com/gpu", False),
        ("nvidia.com/gpu", False),
        ("", False),
    ],
)
def test_resources(resource: str, ours: bool) -> None:
    assert AmdBackend().owns_resource(resource) is ours


@pytest.fixture
def split(tree: Tree, backend: AmdBackend) -> AmdBackend:
    """A card in one piece, and one in four."""
    tree.card(FIRST, unique_id="bd2a3a1c0f000001")
    tree.split(tree.card(SECOND, unique_id="bd2a3a1c0f000002"), "CPX", 4)
    backend.open()
    return backend


@pytest.mark.parametrize(
    ("allocated", "device"),
    [
        (FIRST, "GPU-bd2a3a1c0f000001"),
        ("00000000:03:00.0", "GPU-bd2a3a1c0f000001"),
        (f"{FIRST}-slice-2", "GPU-bd2a3a1c0f000001"),
        ("GPU-bd2a3a1c0f000001", "GPU-bd2a3a1c0f000001"),
        (SECOND, "GPU-bd2a3a1c0f000002/xcp0"),  # the first partition, not the card
        ("amdgpu_xcp_0", "GPU-bd2a3a1c0f000002/xcp1"),
        ("AMDGPU_XCP_2", "GPU-bd2a3a1c0f000002/xcp3"),
        ("amdgpu_xcp_1-slice-0", "GPU-bd2a3a1c0f000002/xcp2"),
        ("GPU-bd2a3a1c0f000002", "GPU-bd2a3a1c0f000002"),
        ("amdgpu_xcp_3", None),
        (f"{FIRST}-slice-", None),
        (f"{FIRST}-slice-x", None),
        (f"{FIRST}::0", None),
        ("0000:04:00.0", None),
        ("card0", None),
    ],
)
def test_device_ids(split: AmdBackend, allocated: str, device: str | None) -> None:
    found = split.device_of(allocated, split.devices())
    assert (found.id if found else None) == device
