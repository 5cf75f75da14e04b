"""The promises of every backend, kept over each of the ways in which AMD cards are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelscale.backend import Backend
from accelscale.testing import BackendConformance
from accelscale_amd import AmdBackend
from amd import tables
from amd.conftest import FIRST, SECOND
from amd.trees import Tree
from drivers.amdsmi.state import FakeAmdSmi

IDS = {FIRST: "bd2a3a1c0f000001", SECOND: "bd2a3a1c0f000002"}


class OverATree(BackendConformance):
    vendor_modules = ("amdsmi",)
    limit_seconds = 60.0

    @pytest.fixture(autouse=True)
    def two_cards(self, tree: Tree) -> None:
        self.tree = tree
        self.cards = [tree.card(address, unique_id=IDS[address]) for address in IDS]

    def make_backend(self) -> Backend:
        return AmdBackend(self.tree.root)

    def break_device(self, backend: Backend, device_id: str) -> None:
        card = next(card for card in self.cards if IDS[card.address] in device_id)
        card.write("gpu_busy_percent", "N/A")
        card.write_bytes("gpu_metrics", b"\x01")


class TestFiles(OverATree):
    """No library: everything is read from /sys."""


class TestPartitions(OverATree):
    """The second card is split."""

    @pytest.fixture(autouse=True)
    def split_the_second(self, two_cards: None) -> None:
        self.tree.split(self.cards[1], "DPX", 2)


class TestAnApu(OverATree):
    """A table without values, and memory that is the machine's."""

    @pytest.fixture(autouse=True)
    def make_apus(self, two_cards: None) -> None:
        for card in self.cards:
            card.write_bytes("gpu_metrics", tables.gpu_metrics((3, 0), average_vcn_activity=3))
            card.write("mem_info_vram_total", 2**29)


class TestThroughAmdSmi(OverATree):
    """The real binding over the fake library."""

    @pytest.fixture(autouse=True)
    def library(
        self, two_cards: None, fake_amdsmi: FakeAmdSmi, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("accelscale_amd.session.OPEN_WAIT_SECONDS", 60.0)
        self.fake = fake_amdsmi
        for address in IDS:
            fake_amdsmi.device(address, address)
        fake_amdsmi.write()

    def break_device(self, backend: Backend, device_id: str) -> None:
        address = next(card.address for card in self.cards if IDS[card.address] in device_id)
        self.fake.set(address, {"error": 7}).write()


class TestThisMachine(BackendConformance):
    """The hardware of this machine, if it has any."""

    vendor_modules = ("amdsmi",)
    hardware_optional = True

    def make_backend(self) -> Backend:
        return AmdBackend(Path("/"))
