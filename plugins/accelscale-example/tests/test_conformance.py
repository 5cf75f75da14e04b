"""What every backend promises, kept by this one over a tree of files."""

from __future__ import annotations

import pytest
from trees import Tree

from accelscale.backend import Backend
from accelscale.testing import BackendConformance
from accelscale_example import ExampleBackend


class TestExampleBackend(BackendConformance):
    @pytest.fixture(autouse=True)
    def two_cards(self, tree: Tree) -> None:
        self.tree = tree
        self.folders = {
            address: tree.card(number, address)
            for number, address in enumerate(("0000:17:00.0", "0000:5e:00.0"))
        }

    def make_backend(self) -> Backend:
        return ExampleBackend(self.tree.root)

    def break_device(self, backend: Backend, device_id: str) -> None:
        self.tree.write(f"{self.folders[device_id]}/busy_percent", "N/A")


class TestPartitions(TestExampleBackend):
    """The second card is split."""

    @pytest.fixture(autouse=True)
    def split_the_second(self, two_cards: None) -> None:
        for number in (0, 1):
            self.tree.partition(self.folders["0000:5e:00.0"], number)


class TestALostCard(TestExampleBackend):
    """A card that fell off the bus while a backend was using it is still listed, and ill."""

    def make_backend(self) -> Backend:
        backend = super().make_backend()
        self.tree.write(f"{self.folders['0000:5e:00.0']}/state", None)
        return backend
