"""The FPGA backend on trees of machines, with XRT's stand-in beside them."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accelscale.errors import BackendError
from accelscale.model import Failure, Reason, Sample
from accelscale.monitor import open_monitor
from accelscale_fpga import FpgaBackend
from accelscale_fpga.rows import STARTS
from drivers.xrt.tool import bank, compute_unit, host_entry, memory, regions, thermals
from fpga.trees import PCI

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from accelscale.model import Device
    from drivers.xrt.tool import FakeXrt
    from fpga.trees import SysTree

CARD = "0000:65:00.1"
OTHER = "0000:b3:00.1"
INTEL = "0000:3b:00.0"


@contextmanager
def opened(tree: SysTree, **options: object) -> Iterator[FpgaBackend]:
    backend = FpgaBackend(tree.root, **options)  # type: ignore[arg-type]
    backend.open()
    try:
        yield backend
    finally:
        backend.close()


def answers(backend: FpgaBackend, device_id: str) -> dict[str, Sample | Failure]:
    devices = [device for device in backend.devices() if device.id == device_id]
    (reading,) = backend.read(devices, tuple(backend.metrics))
    return {one.metric: one for one in (*reading.samples, *reading.failures)}


def device_of(backend: FpgaBackend, device_id: str) -> Device:
    return next(device for device in backend.devices() if device.id == device_id)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def sampled(backend: FpgaBackend, device_id: str, metric: str) -> bool:
    return isinstance(answers(backend, device_id)[metric], Sample)


def healthy(xrt: FakeXrt, address: str, starts: int = 7, status: str = "IDLE") -> None:
    xrt.card(
        address,
        electrical={"power_consumption_watts": "22.47"},
        thermals=thermals(FPGA=("39", "true"), FPGA_HBM=("0", "false")),
        mem_topology=memory([bank("HBM[0]", "0x0", "0x10000000", "4096")]),
        dynamic_regions=regions(compute_unit("vadd:vadd_1", str(starts), status)),
    )


def test_an_intel_card_without_any_tool(tree: SysTree) -> None:
    tree.intel(INTEL)
    with opened(tree) as backend:
        found = answers(backend, INTEL)
        samples = {name: one.value for name, one in found.items() if isinstance(one, Sample)}
        assert samples == {
            "temperature_celsius": 54.0,
            "slowdown_temperature_celsius": 95.0,
            "power_watts": 35.5,
        }
        busy = found["utilization_percent"]
        assert isinstance(busy, Failure)
        assert (busy.reason, busy.permanent) == (Reason.NOT_SUPPORTED, True)
        (device,) = backend.devices()
        assert (device.vendor, device.backend, device.problem) == ("fpga", "fpga", None)


def test_xrt_completes_what_the_kernel_does_not_show(tree: SysTree, xrt: FakeXrt) -> None:
    tree.alveo(CARD)
    xrt.host(host_entry(CARD, shell="xilinx_u55c_gen3x16"))
    healthy(xrt, CARD)
    started = time.monotonic()
    with opened(tree, tool=xrt.path, period=0.2) as backend:
        first = answers(backend, CARD)["power_watts"]
        assert isinstance(first, Sample) or first.reason is Reason.STALE
        wait_until(lambda: sampled(backend, CARD, "utilization_percent"))
        now = time.monotonic()
        found = answers(backend, CARD)
        samples = {name: one for name, one in found.items() if isinstance(one, Sample)}
        assert {name: one.value for name, one in samples.items()} == {
            "utilization_percent": 0.0,
            "temperature_celsius": 39.0,
            "power_watts": 22.47,
            "memory_total_bytes": float(0x10000000),
            "memory_used_bytes": 4096.0,
            STARTS.name: 7.0,
        }
        # Dated by the report, not by the reading.
        runs = [run.started for run in xrt.runs() if CARD in run.arguments]
        assert all(started < one.time < now for one in samples.values())
        assert min(abs(run - samples["power_watts"].time) for run in runs) < 1.0
        assert device_of(backend, CARD).name == "xilinx_u55c_gen3x16"


def test_short_kernels_leave_no_share_of_time_but_starts(tree: SysTree, xrt: FakeXrt) -> None:
    tree.alveo(CARD)
    xrt.host(host_entry(CARD))
    healthy(xrt, CARD, starts=7)
    with opened(tree, tool=xrt.path, period=0.2) as backend:
        wait_until(lambda: sampled(backend, CARD, "utilization_percent"))
        healthy(xrt, CARD, starts=19)
        wait_until(lambda: not sampled(backend, CARD, "utilization_percent"))
        found = answers(backend, CARD)
        busy, starts = found["utilization_percent"], found[STARTS.name]
        assert isinstance(busy, Failure)
        assert "starts_per_second" in busy.detail
        assert isinstance(starts, Sample)
        assert starts.value == 19.0
        healthy(xrt, CARD, starts=20, status="START")  # a long one begins
        wait_until(lambda: answers(backend, CARD)["utilization_percent"] != busy)
        wait_until(lambda: sampled(backend, CARD, "utilization_percent"))
        busy = answers(backend, CARD)["utilization_percent"]
        assert isinstance(busy, Sample)
        assert busy.value == 100.0


def test_a_card_that_is_not_ready_is_listed_and_neither_read_nor_examined(
    tree: SysTree, xrt: FakeXrt
) -> None:
    for address in (CARD, OTHER):
        tree.hwmon(int(address[5:7], 16), tree.alveo(address), "xrt", temp1_input=0)
    healthy(xrt, CARD)
    xrt.host(host_entry(CARD), host_entry(OTHER, ready="false", shell="xilinx_u250_GOLDEN_5"))
    with opened(tree, tool=xrt.path, period=0.2) as backend:
        wait_until(lambda: device_of(backend, OTHER).problem is not None)
        device = device_of(backend, OTHER)
        assert (device.problem, device.name) == (Reason.ERROR, "xilinx_u250_GOLDEN_5")
        assert device.problem_detail.startswith("not ready")
        failures = answers(backend, OTHER)
        assert all(isinstance(one, Failure) for one in failures.values())
        assert not any(OTHER in run.arguments for run in xrt.runs())
        wait_until(lambda: sampled(backend, CARD, "power_watts"))
        assert device_of(backend, CARD).problem is None


def test_a_hanging_compute_unit_is_a_problem_and_the_rest_is_read(
    tree: SysTree, xrt: FakeXrt
) -> None:
    tree.alveo(CARD)
    xrt.host(host_entry(CARD))
    xrt.card(CARD, device_status="HANG", electrical={"power_consumption_watts": "22"})
    with opened(tree, tool=xrt.path, period=0.2) as backend:
        wait_until(lambda: device_of(backend, CARD).problem is Reason.RESET_REQUIRED)
        assert sampled(backend, CARD, "power_watts")


def test_a_tool_that_hangs_delays_no_reading_and_runs_once(tree: SysTree, xrt: FakeXrt) -> None:
    tree.hwmon(4, tree.alveo(CARD), "xrt", temp1_input=50_000)
    xrt.host(host_entry(CARD))
    healthy(xrt, CARD)
    xrt.act(CARD, hang=True)
    with opened(tree, tool=xrt.path, period=0.1, timeout=1.0) as backend:
        wait_until(lambda: any(CARD in run.arguments for run in xrt.runs()))
        before = len(xrt.runs())
        for _ in range(50):  # all of them while the tool hangs
            found = answers(backend, CARD)
            assert isinstance(found["temperature_celsius"], Sample)
            assert isinstance(found["power_watts"], Failure)
        assert len(xrt.runs()) == before

        def reason() -> Reason | None:
            one = answers(backend, CARD)["power_watts"]
            return one.reason if isinstance(one, Failure) else None

        wait_until(lambda: reason() is Reason.TIMEOUT)
        xrt.behave()
        wait_until(lambda: sampled(backend, CARD, "power_watts"))
    runs = xrt.runs()
    for earlier, later in itertools.pairwise(runs):
        ended = earlier.ended if earlier.ended is not None else earlier.started + 0.9
        assert later.started > ended


def test_closing_while_the_tool_hangs_returns_and_opens_again(tree: SysTree, xrt: FakeXrt) -> None:
    tree.alveo(CARD)
    xrt.act(hang=True)
    backend = FpgaBackend(tree.root, tool=xrt.path, timeout=60.0)
    backend.open()
    wait_until(lambda: bool(xrt.runs()))
    backend.close()
    pid = xrt.runs()[0].pid
    wait_until(lambda: not Path(f"/proc/{pid}/exe").exists())  # ended, whoever waits for it
    xrt.behave()
    xrt.host(host_entry(CARD))
    healthy(xrt, CARD)
    backend.open()
    try:
        wait_until(lambda: sampled(backend, CARD, "power_watts"))
    finally:
        backend.close()


@pytest.mark.parametrize("text", ["", "no JSON", "[]", json.dumps({"system": {"host": {}}})])
def test_nonsense_from_the_tool_is_a_reason(tree: SysTree, xrt: FakeXrt, text: str) -> None:
    tree.alveo(CARD)
    xrt.act(text=text)
    with opened(tree, tool=xrt.path, period=0.2) as backend:

        def has_spoken() -> bool:
            one = answers(backend, CARD)["power_watts"]
            assert isinstance(one, Failure)
            return one.reason is not Reason.STALE

        wait_until(has_spoken)


def test_without_the_tool_the_way_out_is_named(
    tree: SysTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.alveo(CARD)
    monkeypatch.setenv("ACCELSCALE_FPGA_XBUTIL", "off")
    with opened(tree) as backend:
        absent = answers(backend, CARD)["memory_used_bytes"]
        assert isinstance(absent, Failure)
        assert (absent.reason, absent.permanent) == (Reason.NOT_SUPPORTED, False)
        assert "xrt-smi" in absent.detail


@pytest.mark.parametrize("name", ["xrt-smi", "xbutil"])
def test_the_tool_is_found_where_xrt_installs_it(
    tree: SysTree, xrt: FakeXrt, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("ACCELSCALE_FPGA_XBUTIL", raising=False)
    tree.alveo(CARD)
    xrt.host(host_entry(CARD))
    healthy(xrt, CARD)
    path = tree.write(f"opt/xilinx/xrt/bin/{name}", "")
    path.unlink()
    path.symlink_to(xrt.path)
    probe = FpgaBackend(tree.root).probe()
    assert str(path) in probe.attempts[-1].result
    with opened(tree, period=0.2) as backend:
        wait_until(lambda: sampled(backend, CARD, "power_watts"))


def test_a_sleeping_card_is_not_woken(tree: SysTree, xrt: FakeXrt) -> None:
    folder = tree.alveo(CARD)
    tree.hwmon(4, folder, "xrt", temp1_input=50_000)
    tree.write(f"{folder}/power/runtime_status", "suspended")
    with opened(tree, tool=xrt.path, period=0.1) as backend:
        found = answers(backend, CARD)
        assert {one.reason for one in found.values() if isinstance(one, Failure)} == {Reason.STALE}
        assert len(found) == len(backend.metrics)
        assert xrt.runs() == []
        tree.write(f"{folder}/power/runtime_status", "active")
        assert sampled(backend, CARD, "temperature_celsius")
        wait_until(lambda: bool(xrt.runs()))


def test_a_card_that_vanishes_is_lost_and_no_longer_listed(tree: SysTree) -> None:
    tree.intel(INTEL)
    with opened(tree) as backend:
        (device,) = backend.devices()
        (tree.root / f"sys/bus/pci/devices/{INTEL}").unlink()
        (tree.root / f"{PCI}/{INTEL}").rename(tree.root / "gone")
        (reading,) = backend.read([device], ("power_watts",))
        assert reading.failures[0].reason is Reason.LOST
        (tree.root / "sys/class/fpga_manager/fpga0").unlink()
        assert backend.devices() == ()


def test_absurd_values_are_out_of_range(tree: SysTree) -> None:
    tree.hwmon(0, tree.alveo(CARD), "x", temp1_input=0xFFFFFFFF, power1_input=2**63)
    with opened(tree) as backend:
        found = answers(backend, CARD)
        for metric in ("temperature_celsius", "power_watts"):
            one = found[metric]
            assert isinstance(one, Failure)
            assert one.reason is Reason.OUT_OF_RANGE


def test_a_machine_without_fpgas(tree: SysTree) -> None:
    backend = FpgaBackend(tree.root)
    probe = backend.probe()
    assert not probe.viable
    assert "no FPGA" in probe.reason
    with pytest.raises(BackendError, match="no FPGA") as caught:
        backend.open()
    assert caught.value.reason is Reason.NOT_SUPPORTED
    with pytest.raises(BackendError):
        backend.devices()


def test_the_figures_reach_a_snapshot(tree: SysTree, xrt: FakeXrt) -> None:
    tree.alveo(CARD)
    xrt.host(host_entry(CARD))
    healthy(xrt, CARD)
    backend = FpgaBackend(tree.root, tool=xrt.path, period=0.2)
    backend.open()
    assert backend._watch is not None
    assert backend._watch.wait(10.0)
    with open_monitor([backend], interval=0.1) as monitor:
        assert monitor.wait(10.0)
        snapshot = monitor.snapshot()
        assert snapshot.value(CARD, "power_watts") == 22.47
        assert snapshot.value(CARD, "memory_used_percent") == pytest.approx(100 * 4096 / 2**28)
        assert snapshot.failure(CARD, "fpga_compute_unit_starts_per_second") is not None


@pytest.mark.parametrize(
    ("resource", "owned"),
    [
        ("amd.com/xilinx_u55c_gen3x16_xdma_base_3-0", True),
        ("xilinx.com/fpga-xilinx_u200_xdma_201830_2-1", True),
        ("fpga.intel.com/af-ce4.d84.zkiWk5jwXtOLbfbFV2X7uQ", True),
        ("fpga.intel.com/region-9926ab6d6c925a68aabca7d84c545738", True),
        ("amd.com/gpu", False),
        ("amd.com/xilinx_", False),
        ("fpga.intel.com/other", False),
        ("qat.intel.com/generic", False),
        ("xamd.com/xilinx_u55c", False),
    ],
)
def test_resources_in_a_cluster(resource: str, owned: bool) -> None:
    assert FpgaBackend().owns_resource(resource) is owned


def test_allocated_ids(tree: SysTree) -> None:
    tree.intel(INTEL)
    tree.alveo(CARD)
    with opened(tree) as backend:
        devices = backend.devices()

        def allocated(text: str) -> str | None:
            device = backend.device_of(text, devices)
            return None if device is None else device.id

        for text in (INTEL, "3b:00.0", "00000000:3B:00.0", "region0", "dfl-fme.0", "dfl-port.0"):
            assert allocated(text) == INTEL
        for text in (CARD, "0000:65:00.0"):
            assert allocated(text) == CARD
        for text in ("region1", "dfl-fme.0 dfl-port.0", "", "0", "0000:65:00.2"):
            assert allocated(text) is None
