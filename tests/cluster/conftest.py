"""Kubelet stand-ins and agents on the loopback interface and on unix sockets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.kubelet_stand_in import KubeletStandIn


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder with a short path: that of a unix socket has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="accelscale-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def kubelet_stand_in(socket_folder: Path) -> Iterator[KubeletStandIn]:
    """A kubelet that was not started yet."""
    kubelet = KubeletStandIn(socket_folder / "pod-resources" / "kubelet.sock")
    yield kubelet
    kubelet.stop()
