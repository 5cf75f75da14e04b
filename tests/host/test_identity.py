"""The id and the name of a machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from accelscale_host.identity import cpu_attributes, cpu_model, device_id

if TYPE_CHECKING:
    from host.trees import Tree

MACHINE = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def _no_node_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCELSCALE_NODE_NAME", raising=False)


def test_the_id_is_stable_and_does_not_tell_the_machine_id(tree: Tree) -> None:
    tree.write("etc/machine-id", MACHINE)
    first = device_id(tree.root)
    assert re.fullmatch(r"cpu-[0-9a-f]{16}", first)
    assert device_id(tree.root) == first
    assert first.removeprefix("cpu-") not in MACHINE


def test_machines_differ(tree: Tree) -> None:
    tree.write("etc/machine-id", MACHINE)
    first = device_id(tree.root)
    tree.write("etc/machine-id", MACHINE[::-1])
    assert device_id(tree.root) != first


@pytest.mark.parametrize("text", ["", "uninitialized"])
def test_without_a_machine_id_the_host_name_counts(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("platform.node", lambda: "worker-1")
    absent = device_id(tree.root)
    tree.write("etc/machine-id", text)
    assert device_id(tree.root) == absent
    monkeypatch.setattr("platform.node", lambda: "worker-2")
    assert device_id(tree.root) != absent


def test_nodes_with_the_machine_id_of_one_image_differ(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.write("etc/machine-id", MACHINE)
    ids = set()
    for node in ("worker-1", "worker-2"):
        monkeypatch.setenv("ACCELSCALE_NODE_NAME", node)
        ids.add(device_id(tree.root))
    assert len(ids) == 2


def test_a_machine_without_cpuinfo_still_has_a_name(tree: Tree) -> None:
    assert cpu_model(tree.root).strip()
    assert cpu_attributes(tree.root) == {}


def test_an_arm_board_is_named_by_its_model(tree: Tree) -> None:
    tree.write("proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 108.00\n\nModel\t\t: Board 5 Rev 1.0")
    assert cpu_model(tree.root) == "Board 5 Rev 1.0"
    assert cpu_attributes(tree.root) == {"logical_cpus": "1"}
