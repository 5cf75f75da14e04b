"""An API server for the tests of rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubernetes.api_server import ApiServerStandIn


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServerStandIn]:
    """A Kubernetes API server without any objects."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ApiServerStandIn(tmp_path)
    server.start()
    yield server
    server.stop()
