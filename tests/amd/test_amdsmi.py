"""The real binding over a library of our own making: what it says, and how it fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from accelscale.errors import BackendError
from accelscale.model import Reason
from accelscale_amd import AmdBackend
from amd import tables
from amd.conftest import FIRST, SECOND, Results, failure_of
from amd.trees import GIBIBYTE, Tree
from drivers.amdsmi.state import FakeAmdSmi

Read = Callable[..., Results]

MAXIMA = (0xFFFF, 0xFFFFFFFF, 2**64 - 1)


@pytest.fixture(autouse=True)
def wait_for_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about what follows a trial, however slow the machine makes it."""
    monkeypatch.setattr("accelscale_amd.session.OPEN_WAIT_SECONDS", 60.0)


@pytest.fixture
def fake(tree: Tree, fake_amdsmi: FakeAmdSmi, backend: AmdBackend) -> FakeAmdSmi:
    """One card, in the tree and in the library; the tree's own figures are all different."""
    tree.card(FIRST, gpu_busy_percent=1, mem_busy_percent=1, mem_info_vram_used=1)
    return fake_amdsmi.device("first", FIRST, gfx_activity=37).write()


def test_a_healthy_card(fake: FakeAmdSmi, tree: Tree, results: Read) -> None:
    tree.process(4711, queues=[1001])
    found = {metric: value for (_, metric), value in results().items()}
    energy = found.pop("energy_joules_total")
    assert isinstance(energy, float)
    assert 15.2 < energy < 1e6
    assert found == {
        "utilization_percent": 37,
        "memory_bandwidth_utilization_percent": 20,
        "memory_used_bytes": 40 * GIBIBYTE,
        "memory_total_bytes": 192 * GIBIBYTE,
        "temperature_celsius": 60,
        "memory_temperature_celsius": 45,
        "slowdown_temperature_celsius": 100,
        "power_watts": 300,
        "power_limit_watts": 750,
        "throttled_power_seconds_total": 0,
        "throttled_thermal_seconds_total": 0,
        "sm_clock_megahertz": 2100,
        "memory_clock_megahertz": 1300,
        "interconnect_receive_bytes_total": 30 * 1024,
        "interconnect_transmit_bytes_total": 3 * 1024,
        "ecc_uncorrected_errors_total": 0,
        "process_count": 1,
        "amd_video_utilization_percent": 0,
    }


def test_what_blocks_or_overruns_is_never_called(fake: FakeAmdSmi, results: Read) -> None:
    results()
    calls = fake.calls()
    assert calls["amdsmi_get_gpu_activity"] == 1  # once for three metrics
    forbidden = {"violation_status", "gpu_metrics_info", "pci_throughput", "gpu_process_list"}
    assert not [call for call in calls if any(word in call for word in forbidden)]


def test_probe_says_what_was_tried(fake: FakeAmdSmi, backend: AmdBackend) -> None:
    probe = backend.probe()
    assert probe.viable
    assert probe.version == "amdsmi 26.0.2"
    assert "through amdsmi" in probe.reason
    assert [attempt.ok for attempt in probe.attempts] == [True, True]
    assert fake.users == 0


def test_one_call_fails_and_the_others_work(fake: FakeAmdSmi, results: Read) -> None:
    fake.set("first", {"error.amdsmi_get_gpu_activity": 43}).write()
    found = results()
    failure = failure_of(found[FIRST, "utilization_percent"])
    assert (failure.reason, failure.code) == (Reason.ERROR, 43)
    assert "UNEXPECTED_DATA" in failure.detail
    assert found[FIRST, "memory_used_bytes"] == 40 * GIBIBYTE
    assert found[FIRST, "power_watts"] == 300


@pytest.mark.parametrize(
    ("code", "reason", "permanent"),
    [
        (2, Reason.NOT_SUPPORTED, True),
        (3, Reason.NOT_SUPPORTED, True),
        (8, Reason.TIMEOUT, False),
        (9, Reason.TIMEOUT, False),
        (10, Reason.PERMISSION, False),
        (14, Reason.ERROR, False),
        (30, Reason.TIMEOUT, False),
        (40, Reason.NOT_SUPPORTED, False),
        (4321, Reason.ERROR, False),
    ],
)
def test_errors(
    fake: FakeAmdSmi, results: Read, code: int, reason: Reason, permanent: bool
) -> None:
    fake.set("first", {"error": code}).set("first", {"error.amdsmi_get_gpu_device_bdf": 0})
    fake.set("first", {"error.amdsmi_get_processor_handles": 0}).write()
    failure = failure_of(results("power_limit_watts")[FIRST, "power_limit_watts"])
    assert (failure.reason, failure.code, failure.permanent) == (reason, code, permanent)
    if reason is Reason.PERMISSION:
        assert "renderD" in failure.detail


@pytest.mark.parametrize("value", [*MAXIMA, None])
def test_activity_that_is_no_number(fake: FakeAmdSmi, results: Read, value: int | None) -> None:
    """All bits set in the library, which the binding shows as ``N/A``."""
    fake.set("first", {"gfx_activity": value}).write()
    found = results("utilization_percent", "memory_bandwidth_utilization_percent")
    failure = failure_of(found[FIRST, "utilization_percent"])
    assert failure.reason is Reason.NOT_SUPPORTED
    assert "N/A" in failure.detail
    assert found[FIRST, "memory_bandwidth_utilization_percent"] == 20


@pytest.mark.parametrize(
    ("socket", "current", "average", "watts"),
    [
        (None, 717, None, 717),
        (None, None, 94, 94),
        (0, 717, None, 717),
        (255, None, None, 255),  # a number like any other in a field of 16 bits
        (None, None, None, None),
        (0, 0, 0, None),
    ],
)
def test_each_generation_fills_another_power_field(
    fake: FakeAmdSmi,
    results: Read,
    socket: int | None,
    current: int | None,
    average: int | None,
    watts: int | None,
) -> None:
    powers = {"socket_power": socket, "current_power": current, "average_power": average}
    fake.set("first", powers).write()
    result = results("power_watts")[FIRST, "power_watts"]
    if watts is None:
        assert failure_of(result).reason is Reason.NOT_SUPPORTED
    else:
        assert result == watts


@pytest.mark.parametrize(("cap", "watts"), [(750_000_000, 750), (750, 750), (0, None)])
def test_the_limit_is_in_microwatts(
    fake: FakeAmdSmi, results: Read, cap: int, watts: int | None
) -> None:
    fake.set("first", {"power_cap": cap}).write()
    result = results("power_limit_watts")[FIRST, "power_limit_watts"]
    assert result == watts if watts else failure_of(result).reason is Reason.NOT_SUPPORTED


def test_the_second_die_has_no_power(
    tree: Tree, fake_amdsmi: FakeAmdSmi, backend: AmdBackend, results: Read
) -> None:
    tree.card(FIRST, device="0x7408")
    tree.card(SECOND, device="0x7408").sensor("power1_cap", 0)
    none = {"socket_power": 0, "current_power": 0, "energy_count": 0, "power_cap": 0}
    fake_amdsmi.device("first", FIRST).device("second", SECOND, **none).write()
    found = results("power_watts", "power_limit_watts", "energy_joules_total")
    assert found[FIRST, "power_watts"] == 300
    for metric in ("power_watts", "power_limit_watts", "energy_joules_total"):
        failure = failure_of(found[SECOND, metric])
        assert failure.permanent
        assert "first one only" in failure.detail


def test_energy_is_the_same_however_it_is_read(
    fake: FakeAmdSmi, tree: Tree, backend: AmdBackend, results: Read
) -> None:
    """After a month at 300 W; the library rounds the unit."""
    count = 50_000_000_000_000
    table = tables.gpu_metrics((1, 6), energy_accumulator=count)
    (tree.root / f"sys/devices/pci0000:00/{FIRST}/gpu_metrics").write_bytes(table)
    fake.set("first", {"energy_count": count}).write()
    metric = "energy_joules_total"
    through_library = results(metric)[FIRST, metric]
    other = AmdBackend(tree.root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCELSCALE_AMD_SOURCE", "sysfs")
        other.open()
        (reading,) = other.read(other.devices(), [metric])
    other.close()
    assert reading.samples[0].value == through_library == count / 65536


def test_the_first_temperature_that_the_card_has(fake: FakeAmdSmi, results: Read) -> None:
    gone = {"temperature_hotspot_0": None, "temperature_vram_0": 0, "temperature_hbm_2_0": 71}
    fake.set("first", {**gone, "temperature_edge_5": 97}).write()
    found = results(
        "temperature_celsius", "memory_temperature_celsius", "slowdown_temperature_celsius"
    )
    assert found[FIRST, "temperature_celsius"] == 50
    assert found[FIRST, "slowdown_temperature_celsius"] == 97
    assert found[FIRST, "memory_temperature_celsius"] == 71
    fake.set("first", {"temperature_edge_0": -1}).write()  # all bits set
    assert failure_of(results("temperature_celsius")[FIRST, "temperature_celsius"]).detail


def test_the_pool_of_an_apu(fake: FakeAmdSmi, tree: Tree, results: Read) -> None:
    card = tree.root / f"sys/devices/pci0000:00/{FIRST}"
    (card / "gpu_metrics").write_bytes(bytes([120, 0, 2, 2]) + bytes(116))
    mebibyte = 2**20
    sizes = {"vram_total": 512, "vram_used": 489, "gtt_total": 13649, "gtt_used": 938}
    fake.set("first", {key: size * mebibyte for key, size in sizes.items()}).write()
    found = results("memory_used_bytes", "memory_total_bytes")
    assert found[FIRST, "memory_used_bytes"] == 938 * mebibyte
    assert found[FIRST, "memory_total_bytes"] == 13649 * mebibyte


@pytest.mark.parametrize("value", [2**64 - 1, 0, None])
def test_memory_that_is_no_number(fake: FakeAmdSmi, results: Read, value: int | None) -> None:
    fake.set("first", {"vram_total": value}).write()
    assert failure_of(results("memory_total_bytes")[FIRST, "memory_total_bytes"]).detail


def test_cards_that_share_a_uuid(
    tree: Tree, fake_amdsmi: FakeAmdSmi, backend: AmdBackend, results: Read
) -> None:
    uuid = "00000000-0000-0000-0000-000000000000"
    for name, bdf, busy in (("a", "0000:05:00.0", 90), ("b", "0000:06:00.0", 10)):
        tree.card(bdf, unique_id="0" * 16)
        fake_amdsmi.device(name, bdf, uuid=uuid, gfx_activity=busy)
    fake_amdsmi.write()
    found = results("utilization_percent")
    assert sorted(found.values()) == [10, 90]
    assert {device for device, _ in found} == {"0000:05:00.0", "0000:06:00.0"}


def test_partitions_at_one_address(
    tree: Tree, fake_amdsmi: FakeAmdSmi, backend: AmdBackend, results: Read
) -> None:
    """The library says 0 of a partition behind the first, and of the first what the card does."""
    card = tree.card(FIRST)
    card.table(xcp_stats=[{"gfx_busy_inst": [80]}, {"gfx_busy_inst": [20]}])
    tree.split(card, "DPX", 2)
    fake_amdsmi.device("first", FIRST, gfx_activity=50)
    fake_amdsmi.device("second", FIRST, gfx_activity=0, socket_power=0).write()
    found = results()
    assert found[f"{FIRST}/xcp0", "utilization_percent"] == 80
    assert found[f"{FIRST}/xcp1", "utilization_percent"] == 20
    assert found[FIRST, "power_watts"] == 300
    assert failure_of(found[f"{FIRST}/xcp0", "power_watts"]).permanent
    assert failure_of(found[FIRST, "utilization_percent"]).permanent


def test_splitting_anew_initialises_anew(
    fake: FakeAmdSmi, tree: Tree, backend: AmdBackend, results: Read
) -> None:
    card = tree.card(SECOND)
    fake.device("second", SECOND).write()
    results()
    before = fake.calls()["initialised"]
    tree.split(card, "DPX", 2)
    assert results("power_watts")[SECOND, "power_watts"] == 300
    assert fake.calls()["initialised"] == before + 1


def test_a_card_that_the_library_does_not_list(fake: FakeAmdSmi, tree: Tree, results: Read) -> None:
    tree.card(SECOND, gpu_busy_percent=77)
    found = results("utilization_percent")
    assert found[FIRST, "utilization_percent"] == 37
    assert found[SECOND, "utilization_percent"] == 77


def test_a_card_that_sleeps_is_not_asked(fake: FakeAmdSmi, tree: Tree, results: Read) -> None:
    results()
    folder = tree.root / f"sys/devices/pci0000:00/{FIRST}"
    (folder / "power/runtime_status").write_text("suspended\n")
    before = fake.calls()
    found = results()
    assert all(failure_of(value).reason is Reason.STALE for value in found.values())
    asked = {call for call, count in fake.calls().items() if count != before.get(call)}
    assert not {call for call in asked if "handles" not in call and "bdf" not in call}


def test_a_library_that_lost_its_state(
    fake: FakeAmdSmi, backend: AmdBackend, results: Read
) -> None:
    fake.set("first", {"error.amdsmi_get_power_info": 32}).write()
    assert failure_of(results("power_watts")[FIRST, "power_watts"]).code == 32
    fake.set("first", {"error.amdsmi_get_power_info": None}).write()
    before = fake.calls()["initialised"]
    assert results("power_watts")[FIRST, "power_watts"] == 300
    assert fake.calls()["initialised"] == before + 1


def test_polling_does_not_initialise_again(
    fake: FakeAmdSmi, backend: AmdBackend, results: Read
) -> None:
    results()
    before = fake.calls()["initialised"]
    for _ in range(20):
        results("power_watts")
    assert fake.calls()["initialised"] == before
    assert fake.users == 1


def test_a_call_that_hangs_holds_up_one_card(
    fake: FakeAmdSmi, tree: Tree, backend: AmdBackend, results: Read
) -> None:
    tree.card(SECOND)
    fake.device("second", SECOND).write()
    results()
    fake.set("first", {"hang.amdsmi_get_power_info": 1}).write()
    devices = backend.devices()
    hung = threading.Thread(
        target=lambda: list(backend.read(devices[:1], ["power_watts"])), daemon=True
    )
    hung.start()
    _until(lambda: fake.calls().get("amdsmi_get_power_info first", 0) > 1)
    (reading,) = backend.read(devices[1:], ["power_watts"])
    assert reading.samples[0].value == 300
    backend.close()  # does not shut the library down under the call
    assert hung.is_alive()
    assert fake.users == 1
    with pytest.raises(BackendError, match="not open"):
        list(backend.read(devices, ["power_watts"]))
    fake.set("first", {"hang.amdsmi_get_power_info": None}).write()
    hung.join(10)
    _until(lambda: fake.users == 0)


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_a_library_that_fails_in_this_process_alone(
    fake: FakeAmdSmi, backend: AmdBackend, results: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(amdsmi: object) -> None:
        raise OSError("only here")

    monkeypatch.setattr("accelscale_amd.binding.initialise", refuse)
    assert results("utilization_percent")[FIRST, "utilization_percent"] == 1  # from the tree
    assert fake.users == 0


def test_one_card_without_an_address_hides_no_other(
    fake: FakeAmdSmi, tree: Tree, backend: AmdBackend, results: Read
) -> None:
    tree.card(SECOND, gpu_busy_percent=77)
    fake.device("second", SECOND, gfx_activity=5).write()
    assert results("utilization_percent")[SECOND, "utilization_percent"] == 5
    fake.set("second", {"error.amdsmi_get_gpu_device_bdf": 7}).write()
    backend.close()
    # The trial's verdict stands; in this process the address of one card cannot be had.
    found = results("utilization_percent")
    assert found[FIRST, "utilization_percent"] == 37
    assert found[SECOND, "utilization_percent"] == 77
