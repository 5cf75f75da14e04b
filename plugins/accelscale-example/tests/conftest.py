"""Fixtures of the tests: a tree of files, and a backend over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from trees import Results, Tree

from accelscale.model import Failure
from accelscale_example import ExampleBackend


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def results(tree: Tree) -> Callable[..., Results]:
    """Opens a backend over the tree and reads it; gives what came of each metric of each device."""

    def read(*metrics: str) -> Results:
        backend = ExampleBackend(tree.root)
        backend.open()
        found: dict[tuple[str, str], float | Failure] = {}
        for reading in backend.read(backend.devices(), metrics or tuple(backend.metrics)):
            for sample in reading.samples:
                found[sample.device_id, sample.metric] = sample.value
            for failure in reading.failures:
                found[failure.device_id, failure.metric] = failure
        backend.close()
        return found

    return read
