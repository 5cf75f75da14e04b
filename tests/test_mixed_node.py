"""A node with the cards of two vendors and a CPU that is read too: each keeps to its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from accelscale.errors import NotFoundError
from accelscale.monitor import Monitor, open_monitor
from accelscale.nvidia.backend import NvidiaBackend
from accelscale.trigger import parse_trigger
from amd.trees import Tree
from cli.distributions import write_distribution
from cli.workbench import Workbench, without
from drivers.nvml.state import GIBIBYTE, STATE_VARIABLE, FakeNvml

accelscale_amd = pytest.importorskip("accelscale_amd")
accelscale_host = pytest.importorskip("accelscale_host")

NVIDIA = "GPU-3f2a9b1c-8d1e-4c5b-9a77-0123456789ab"
AMD_WHOLE, AMD_SPLIT = "0000:43:00.0", "0000:83:00.0"

AMD_BELOW_A_FOLDER = """
import os
from pathlib import Path

from accelscale.hookspecs import hookimpl
from accelscale_amd import AmdBackend


class Below(AmdBackend):
    def __init__(self):
        super().__init__(Path(os.environ["MIXED_NODE_ROOT"]))


@hookimpl
def accelscale_register_backends(register):
    register(Below)
"""


@pytest.fixture(autouse=True)
def no_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROCM_HOME", "ROCM_PATH", "LD_LIBRARY_PATH", "ACCELSCALE_AMD_SOURCE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """One AMD card in one piece at 30 %, one in two partitions."""
    tree = Tree(tmp_path / "root")
    tree.card(AMD_WHOLE, gpu_busy_percent=30)
    tree.split(tree.card(AMD_SPLIT, gpu_busy_percent=90), "DPX", 2)
    return tree


@pytest.fixture
def nvml(fake_nvml: FakeNvml) -> FakeNvml:
    return fake_nvml.device(NVIDIA, utilization_gpu=80, temperature=45).write()


@pytest.fixture
def document(workbench: Workbench, tree: Tree, nvml: FakeNvml) -> dict[str, Any]:
    """What ``accelscale devices --json`` says of all three."""
    write_distribution(
        workbench.plugins,
        "amd-below-a-folder",
        {"accelscale": {"below": "amd_below_a_folder"}},
        {"amd_below_a_folder": AMD_BELOW_A_FOLDER},
    )
    backends = [word for name in ("nvidia", "amd", "host") for word in ("--backend", name)]
    result = workbench.run(
        *("devices", "--json", "--wait", "20", *backends),
        ACCELSCALE_DISABLE_PLUGINS=without("nvidia", "host"),
        ACCELSCALE_NVML_LIBRARY=os.environ["ACCELSCALE_NVML_LIBRARY"],
        MIXED_NODE_ROOT=str(tree.root),
        **{STATE_VARIABLE: str(nvml.path)},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def workbench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


def test_one_list_shows_each_right(document: dict[str, Any]) -> None:
    devices = {device["id"]: device for device in document["devices"]}
    by_vendor: dict[str, list[str]] = {}
    for device in devices.values():
        assert device["backend"] == device["vendor"]
        by_vendor.setdefault(device["vendor"], []).append(device["id"])
    assert {vendor: len(ids) for vendor, ids in by_vendor.items()} == {
        "nvidia": 1,
        "amd": 4,
        "host": 1,
    }

    card = devices[NVIDIA]["metrics"]
    assert card["utilization_percent"] == 80.0
    assert card["temperature_celsius"] == 45.0
    assert card["memory_total_bytes"] == 80 * GIBIBYTE

    whole = next(d for d in devices.values() if d["pci_address"] == AMD_WHOLE)
    assert whole["metrics"]["utilization_percent"] == 30.0
    assert whole["metrics"]["temperature_celsius"] == 60.0
    assert whole["metrics"]["memory_total_bytes"] == 192 * GIBIBYTE

    (host,) = by_vendor["host"]
    assert devices[host]["metrics"]["memory_total_bytes"] == psutil.virtual_memory().total
    assert devices[host]["parent"] is None


def test_nothing_copies_a_parents_figure_into_a_slice(document: dict[str, Any]) -> None:
    amd = [device for device in document["devices"] if device["vendor"] == "amd"]
    split = next(d for d in amd if d["parent"] is None and d["pci_address"] == AMD_SPLIT)
    parts = [device for device in amd if device["parent"] == split["id"]]
    assert len(parts) == 2
    assert split["failures"]["utilization_percent"] == "not_supported"
    for part in parts:
        assert part["failures"]["power_watts"] == "not_supported"
        assert part["failures"]["temperature_celsius"] == "not_supported"


def test_every_backend_says_how_it_fares(document: dict[str, Any]) -> None:
    states = {
        status["name"]: (status["state"], status["devices"])
        for status in document["backends"]
        if status["state"] != "disabled"  # the installed amd plugin, in whose place another stands
    }
    assert states["nvidia"] == ("ready", 1)
    assert states["amd"] == ("ready", 4)
    assert states["host"] == ("ready", 1)


@pytest.fixture
def monitor(tree: Tree, nvml: FakeNvml, tmp_path: Path) -> Iterator[Monitor]:
    backends = [
        NvidiaBackend(pci_devices=tmp_path / "no-pci"),
        accelscale_amd.AmdBackend(tree.root),
        accelscale_host.HostBackend(),
    ]
    with open_monitor(backends, interval=0.2) as monitor:
        assert monitor.wait(20, passes=2)
        yield monitor


@pytest.mark.parametrize(
    ("vendor", "value"), [("nvidia", 80.0), ("amd", 30.0), (None, None), ("host", None)]
)
def test_a_trigger_with_a_vendor_sees_only_its_own(
    monitor: Monitor, vendor: str | None, value: float | None
) -> None:
    keys = {"metric": "utilization_percent", "threshold": "70", "windowStatistic": "last"}
    if vendor is not None:
        keys["vendor"] = vendor
    evaluation = monitor.evaluate(parse_trigger(keys, scopes=("node",)))
    vendors = {device.id: device.vendor for device in monitor.snapshot().devices}
    seen = {vendors[id_] for replica in evaluation.replicas for id_ in replica.replica.devices}
    assert seen == ({vendor} if vendor else {"nvidia", "amd", "host"})
    if value is not None:
        figures = {replica.value for replica in evaluation.replicas}
        assert value in figures
        assert not figures & ({80.0, 30.0} - {value}), "a neighbour's figure"


def test_a_vendor_that_is_not_there_is_an_error_and_no_number(monitor: Monitor) -> None:
    keys = {"metric": "utilization_percent", "threshold": "70", "vendor": "intel"}
    evaluation = monitor.evaluate(parse_trigger(keys, scopes=("node",)))
    with pytest.raises(NotFoundError, match="vendor"):
        evaluation.metric_value()
