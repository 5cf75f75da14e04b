"""Which FPGAs are found, and under which ids."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from accelscale_fpga.cards import find_cards
from fpga.trees import PCI

if TYPE_CHECKING:
    from fpga.trees import SysTree


def test_the_two_functions_of_an_alveo_card_are_one_card(tree: SysTree) -> None:
    tree.alveo("0000:65:00.1")
    (card,) = find_cards(tree.root)
    assert (card.id, card.pci_address, card.uses_xrt) == ("0000:65:00.1", "0000:65:00.1", True)
    assert card.attributes["functions"] == "0000:65:00.0 0000:65:00.1"
    assert card.attributes["maker"] == "xilinx"
    assert card.name == "xilinx FPGA card 505d"


def test_a_management_function_alone_is_a_card_that_xrt_cannot_be_asked_about(
    tree: SysTree,
) -> None:
    tree.pci("0000:65:00.0", "0x10ee", "0x505c", driver="xclmgmt")
    (card,) = find_cards(tree.root)
    assert (card.id, card.uses_xrt) == ("0000:65:00.0", False)


def test_an_intel_card_is_known_by_its_address_and_names_its_parts(tree: SysTree) -> None:
    tree.intel("0000:3b:00.0")
    (card,) = find_cards(tree.root)
    assert card.id == "0000:3b:00.0"
    assert card.attributes == {
        "maker": "intel",
        "driver": "dfl-pci",
        "functions": "0000:3b:00.0",
        "regions": "region0 dfl-fme.0 dfl-port.0",
    }


def test_a_region_makes_a_card_of_a_device_with_any_driver(tree: SysTree) -> None:
    folder = tree.pci("0000:3b:00.0", "0x1c2c", "0x1000", kind="0x020000", driver="vendor-own")
    tree.link("sys/class/fpga_region/region3", f"{folder}/fpga_region/region3")
    (card,) = find_cards(tree.root)
    assert (card.id, card.attributes["maker"]) == ("0000:3b:00.0", "silicom")


def test_a_system_on_chip_is_known_by_its_platform_device(tree: SysTree) -> None:
    tree.manager("fpga0", "sys/devices/soc0/f8007000.devcfg", "Xilinx Zynq FPGA Manager", "unknown")
    (card,) = find_cards(tree.root)
    assert (card.id, card.pci_address) == ("f8007000.devcfg", None)
    assert (card.name, card.state_problem) == ("Xilinx Zynq FPGA Manager", "")


@pytest.mark.parametrize(
    ("vendor", "kind", "driver"),
    [
        ("0x8086", "0x120000", "intel_vpu"),  # a neural processor has the same class
        ("0x1da3", "0x120000", "habanalabs"),
        ("0x10de", "0x030200", "nvidia"),
        ("0x10ee", "0x020000", "a-network-card-made-of-an-fpga"),
        ("0x8086", "0x060000", ""),
    ],
)
def test_other_devices_are_no_fpga(tree: SysTree, vendor: str, kind: str, driver: str) -> None:
    tree.pci("0000:03:00.0", vendor, "0x0001", kind=kind, driver=driver)
    assert find_cards(tree.root) == ()


def test_a_machine_without_sys_has_none(tree: SysTree) -> None:
    assert find_cards(tree.root) == ()


def test_ids_do_not_follow_the_order_of_discovery(tree: SysTree) -> None:
    parents = ["sys/devices/soc0/b.fpga", "sys/devices/soc0/a.fpga"]
    for number, parent in enumerate(parents):
        tree.manager(f"fpga{number}", parent, "FPGA", "operating")
    before = [card.id for card in find_cards(tree.root)]
    shutil.rmtree(tree.root / "sys/class/fpga_manager")
    for number, parent in enumerate(reversed(parents)):
        tree.manager(f"fpga{number + 5}", parent, "FPGA", "operating")
    assert [card.id for card in find_cards(tree.root)] == before == ["a.fpga", "b.fpga"]


@pytest.mark.parametrize(
    ("state", "is_ill"),
    [
        ("operating", False),
        ("unknown", False),
        ("power off", False),
        ("write", False),
        ("write error", True),
        ("firmware request error", True),
    ],
)
def test_a_failed_programming_is_a_problem(tree: SysTree, state: str, is_ill: bool) -> None:
    tree.intel("0000:3b:00.0")
    manager = f"{PCI}/0000:3b:00.0/fpga_region/region0/dfl-fme.0/dfl-fme-mgr.1/fpga_manager/fpga0"
    tree.write(f"{manager}/state", state)
    (card,) = find_cards(tree.root)
    assert (state in card.state_problem) == is_ill
