"""Fixtures of the FPGA backend's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivers.xrt.tool import FakeXrt
from fpga.trees import SysTree


@pytest.fixture
def tree(tmp_path: Path) -> SysTree:
    return SysTree(tmp_path / "root")


@pytest.fixture
def xrt(tmp_path: Path) -> FakeXrt:
    return FakeXrt(tmp_path / "xrt")
