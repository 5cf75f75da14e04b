"""The Intel backend as the collector uses it, from files alone and with Level Zero."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelscale import Reason, open_monitor
from accelscale.errors import BackendError
from accelscale.model import Failure, Sample
from accelscale.plugins import load_plugins
from accelscale.testing import BackendConformance
from accelscale_intel import IntelBackend, trial
from drivers.levelzero.state import FakeLevelZero, growing
from intel import devices
from intel.devices import GIB, device
from intel.trees import Tree, full_xe_card, i915_client, xe_client

A, B = "0000:03:00.0", "0000:04:00.0"


class TestFilesAlone(BackendConformance):
    vendor_modules = ("pyzes", "subprocess")

    @pytest.fixture(autouse=True)
    def _machine(self, tree: Tree) -> None:
        self.tree = tree
        tree.host_processes()
        tree.rights(0)
        full_xe_card(tree, 0, A)
        full_xe_card(tree, 1, B)
        tree.client(4711, 5, "/dev/dri/renderD128", xe_client(7, A, clock=1000, ccs=500))

    def make_backend(self) -> IntelBackend:
        return IntelBackend(self.tree.root)

    def break_device(self, backend: IntelBackend, device_id: str) -> None:  # type: ignore[override]
        self.tree.remove_card({A: 0, B: 1}[device_id])


class TestWithLevelZero(BackendConformance):
    vendor_modules = ("pyzes", "subprocess")

    @pytest.fixture(autouse=True)
    def _machine(self, tree: Tree, fake_levelzero: FakeLevelZero) -> None:
        self.tree, self.fake = tree, fake_levelzero
        tree.rights(0)
        tree.card(0, A)
        tree.card(1, B)
        fake_levelzero.write(device(A), device(B))

    def make_backend(self) -> IntelBackend:
        return IntelBackend(self.tree.root)

    def break_device(self, backend: IntelBackend, device_id: str) -> None:  # type: ignore[override]
        other = B if device_id == A else A
        broken = device(device_id, error={"memories": devices.LOST, "engines": devices.LOST})
        self.fake.write(*sorted((broken, device(other)), key=lambda one: str(one["address"])))


@pytest.fixture
def backend(tree: Tree) -> Iterator[IntelBackend]:
    """Not opened; what is behind it is for the test to write."""
    intel = IntelBackend(tree.root)
    yield intel
    intel.close()


def read(backend: IntelBackend, *metrics: str, card: str = A) -> dict[str, float | Failure]:
    listed = [one for one in backend.devices() if one.id == card]
    (reading,) = backend.read(listed, metrics or tuple(backend.metrics))
    outcomes: dict[str, float | Failure] = {one.metric: one.value for one in reading.samples}
    outcomes.update({one.metric: one for one in reading.failures})
    return outcomes


def absent(backend: IntelBackend, metric: str, card: str = A) -> Failure:
    outcome = read(backend, metric, card=card)[metric]
    assert isinstance(outcome, Failure), outcome
    return outcome


def number(backend: IntelBackend, metric: str, card: str = A) -> float:
    outcome = read(backend, metric, card=card)[metric]
    assert isinstance(outcome, float), outcome
    return outcome


# Without the hardware.


def test_a_machine_without_an_intel_gpu_says_so_and_tries_nothing(
    tree: Tree, backend: IntelBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.card(0, "0000:0c:00.0", driver="ast")
    monkeypatch.setattr(trial, "verdict", None)  # asking for one would fail
    probe = backend.probe()
    assert not probe.viable
    assert "i915 or xe" in probe.reason
    with pytest.raises(BackendError, match="i915 or xe") as caught:
        backend.open()
    assert caught.value.reason is Reason.NOT_SUPPORTED
    assert [attempt.ok for attempt in backend.diagnose()] == [False, False]


def test_it_is_an_installed_plugin() -> None:
    registered = load_plugins().backends["intel"]
    assert registered.distribution == "accelscale-intel"
    assert registered.backend is IntelBackend


def test_what_is_not_open_cannot_be_read(backend: IntelBackend) -> None:
    with pytest.raises(BackendError, match="not open"):
        backend.devices()
    with pytest.raises(BackendError, match="not open"):
        list(backend.read([], []))


# Devices.


def test_ids_are_the_same_from_both_sources(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    tree.card(1, A, pci_id="8086:E20B")
    tree.card(0, "0000:00:02.0", "i915", "8086:4680")
    fake_levelzero.write(device(A), device("0000:00:02.0", name="Intel(R) UHD Graphics 770"))
    backend.open()
    with_it = backend.devices()
    backend.close()
    fake_levelzero.write(init=0x78000001)
    trial.forget_verdicts()
    without = IntelBackend(tree.root)
    without.open()
    listed = without.devices()
    without.close()
    assert [one.id for one in with_it] == [one.id for one in listed] == ["0000:00:02.0", A]
    assert [one.name for one in with_it] == [
        "Intel(R) UHD Graphics 770",
        "Intel(R) Arc(TM) B580 Graphics",
    ]
    assert [one.name for one in listed] == ["Intel GPU 8086:4680", "Intel GPU 8086:e20b"]
    assert with_it[1].attributes["uuid"] == "86" * 16
    assert [one.attributes["drm_card"] for one in with_it] == ["0", "1"]
    assert [one.attributes["driver"] for one in listed] == ["i915", "xe"]


def test_the_ids_of_the_device_plugin_lead_to_cards(tree: Tree, backend: IntelBackend) -> None:
    tree.card(0, "0000:0c:00.0", driver="ast")
    tree.card(1, A)
    tree.card(12, B)
    backend.open()
    listed = backend.devices()
    first, second = listed
    for allocated, expected in {
        "card1-0": first,
        "card1-17": first,
        "card12-0": second,
        A: first,
        "card0-0": None,
        "card1": None,
        "card1-": None,
        "card1-0-0": None,
        "card-1-0": None,
        "card1-\N{ARABIC-INDIC DIGIT ONE}": None,
        "all": None,
        "renderD129": None,
    }.items():
        assert backend.device_of(allocated, listed) is expected, allocated


def test_a_number_that_a_lost_card_left_behind_means_the_new_one(
    tree: Tree, backend: IntelBackend
) -> None:
    tree.card(1, A)
    backend.open()
    backend.devices()
    tree.remove_card(1)
    tree.card(1, B)
    old, new = backend.devices()
    assert (old.id, old.problem) == (A, Reason.LOST)
    assert backend.device_of("card1-0", (old, new)) is new


@pytest.mark.parametrize(
    ("resource", "owned"),
    [
        ("gpu.intel.com/i915", True),
        ("gpu.intel.com/xe", True),
        ("gpu.intel.com/monitoring", False),
        ("gpu.intel.com/i915_monitoring", False),
        ("gpu.intel.com/xe_monitoring", False),
        ("gpu.intel.com/i915.shared", False),
        ("GPU.intel.com/i915", False),
        ("nvidia.com/gpu", False),
        ("fpga.intel.com/af-1", False),
    ],
)
def test_only_the_resources_that_stand_for_a_card_are_its_own(resource: str, owned: bool) -> None:
    assert IntelBackend().owns_resource(resource) is owned


def test_a_virtual_function_is_a_part_of_its_card(tree: Tree, backend: IntelBackend) -> None:
    tree.card(0, A)
    folder = tree.card(1, "0000:03:00.1")
    tree.write(f"{folder}/physfn/uevent", f"DRIVER=xe\nPCI_SLOT_NAME={A}")
    backend.open()
    assert [one.parent for one in backend.devices()] == [None, A]


def test_a_card_that_vanishes_is_lost_and_comes_back(tree: Tree, backend: IntelBackend) -> None:
    full_xe_card(tree, 0, A)
    full_xe_card(tree, 1, B)
    backend.open()
    before = backend.devices()
    tree.remove_card(1)
    lost, whole = backend.read(before[::-1], ["temperature_celsius"])
    assert [failure.reason for failure in lost.failures] == [Reason.LOST]
    assert [sample.value for sample in whole.samples] == [47.0]
    assert [one.problem for one in backend.devices()] == [None, Reason.LOST]
    full_xe_card(tree, 1, B)
    assert number(backend, "power_limit_watts", B) == 190.0
    assert [one.problem for one in backend.devices()] == [None, None]


def test_a_card_that_came_back_is_read_without_level_zero(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    """Level Zero lists devices once, and answers "lost" of the old one for ever."""
    full_xe_card(tree, 0, A)
    fake_levelzero.write(device(A))
    backend.open()
    assert number(backend, "temperature_celsius") == 48.25
    tree.remove_card(0)
    assert absent(backend, "temperature_celsius").reason is Reason.LOST
    full_xe_card(tree, 0, A)
    fake_levelzero.write(device(A, error=devices.LOST))
    assert number(backend, "temperature_celsius") == 47.0
    assert "restart this process" in absent(backend, "memory_total_bytes").detail
    assert backend.devices()[0].problem is None


# Utilisation.


def test_utilisation_from_the_clients_of_a_machine_that_is_seen_whole(
    tree: Tree, backend: IntelBackend
) -> None:
    tree.host_processes()
    tree.card(0, A)
    tree.card(1, B, "i915")
    tree.client(10, 3, "/dev/dri/renderD128", xe_client(1, A, clock=1_000_000, ccs=100))
    tree.client(11, 3, "/dev/dri/renderD129", i915_client(2, B, render=100))
    backend.open()
    assert absent(backend, "utilization_percent").reason is Reason.NO_PROGRESS
    assert absent(backend, "utilization_percent", B).reason is Reason.NO_PROGRESS
    tree.client(10, 3, "/dev/dri/renderD128", xe_client(1, A, clock=2_000_000, ccs=650_100))
    assert number(backend, "utilization_percent") == pytest.approx(65.0)
    assert number(backend, "utilization_percent", B) == 0.0
    tree.client(10, 3, "/dev/dri/renderD128", xe_client(1, A, clock=3_000_000, ccs=650_100))
    assert number(backend, "utilization_percent") == 0.0


def test_a_hidden_process_makes_utilisation_absent_and_names_the_capability(
    tree: Tree, backend: IntelBackend
) -> None:
    tree.host_processes()
    tree.card(0, A)
    tree.client(10, 3, "/dev/dri/renderD128", xe_client(1, A, clock=1_000_000, ccs=100))
    backend.open()
    absent(backend, "utilization_percent")
    tree.client(10, 3, "/dev/dri/renderD128", xe_client(1, A, clock=2_000_000, ccs=50_100))
    tree.write("proc/4712/fd", "no folder: it cannot be listed")
    for metric in ("utilization_percent", "memory_used_bytes", "process_count"):
        failure = absent(backend, metric)
        assert failure.reason is Reason.PERMISSION
        assert "CAP_SYS_PTRACE" in failure.detail
    (tree.root / "proc/4712/fd").unlink()
    assert absent(backend, "utilization_percent").reason is Reason.NO_PROGRESS  # a gap: anew


def test_without_any_privilege_what_is_missing_names_what_it_needs(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    """Memory works for a normal user, engines are refused, sensors read 0.0."""
    tree.card(0, A)
    tree.rights(1000, 0)
    sensors = [{"type": devices.SENSOR_GPU, "celsius": 0.0}]
    refused = {"engines": devices.PERMISSION}
    fake_levelzero.write(device(A, temperatures=sensors, error=refused))
    backend.open()
    outcomes = read(backend)
    assert outcomes["memory_used_bytes"] == 2 * GIB
    assert outcomes["memory_total_bytes"] == 12 * GIB
    utilization, temperature = outcomes["utilization_percent"], outcomes["temperature_celsius"]
    assert isinstance(utilization, Failure)
    assert utilization.reason is Reason.PERMISSION
    assert "CAP_PERFMON" in utilization.detail
    assert "CAP_SYS_PTRACE" in utilization.detail
    assert isinstance(temperature, Failure)
    assert temperature.reason is Reason.PERMISSION
    assert "CAP_DAC_READ_SEARCH" in temperature.detail
    assert isinstance(outcomes["energy_joules_total"], float)


def test_engines_that_level_zero_refuses_are_counted_by_the_clients(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    tree.host_processes()
    tree.card(0, A)
    fake_levelzero.write(device(A, error={"engines": devices.PERMISSION}))
    tree.client(10, 3, "/dev/dri/renderD128", xe_client(1, A, clock=1_000_000, ccs=100))
    backend.open()
    assert absent(backend, "utilization_percent").reason is Reason.NO_PROGRESS
    tree.client(10, 3, "/dev/dri/renderD128", xe_client(1, A, clock=2_000_000, ccs=300_100))
    assert number(backend, "utilization_percent") == pytest.approx(30.0)


def test_the_work_of_virtual_functions_is_not_that_of_the_card(
    tree: Tree, backend: IntelBackend
) -> None:
    tree.host_processes()
    folder = tree.card(0, A)
    tree.write(f"{folder}/sriov_numvfs", 2)
    backend.open()
    for metric in ("utilization_percent", "memory_used_bytes"):
        failure = absent(backend, metric)
        assert failure.reason is Reason.NOT_SUPPORTED
        assert "virtual functions" in failure.detail


# Sleep.


def test_a_sleeping_card_is_not_touched_and_is_idle(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    tree.host_processes()
    full_xe_card(tree, 0, A)
    tree.client(10, 3, "/dev/dri/renderD128", xe_client(1, A, clock=1_000_000, ccs=100))
    fake_levelzero.write(device(A))
    backend.open()
    backend.devices()
    power = "sys/class/drm/card0/device/power"
    tree.write(f"{power}/runtime_status", "suspended")
    # Whatever would wake it up cannot even be read now.
    fake_levelzero.write(device(A, error=devices.LOST))
    (tree.root / "proc/10/fdinfo/3").unlink()
    (tree.root / "proc/10/fdinfo/3").mkdir()
    (tree.root / "sys/class/drm/card0/device/hwmon/hwmon3/temp2_input").unlink()
    assert absent(backend, "utilization_percent").reason is Reason.NO_PROGRESS
    outcomes = read(backend)
    assert outcomes.pop("utilization_percent") == 0.0
    reasons = {one.reason for one in outcomes.values() if isinstance(one, Failure)}
    assert reasons == {Reason.STALE}
    assert not [one for one in outcomes.values() if isinstance(one, float)]
    tree.write(f"{power}/runtime_active_time", 2000)
    assert absent(backend, "utilization_percent").reason is Reason.NO_PROGRESS
    assert backend.devices()[0].problem is None


def test_a_card_that_woke_up_is_measured_anew(tree: Tree, backend: IntelBackend) -> None:
    tree.host_processes()
    tree.card(0, A)
    tree.client(10, 3, "/dev/dri/renderD128", xe_client(1, A, clock=1_000_000, ccs=100))
    backend.open()
    absent(backend, "utilization_percent")
    power = "sys/class/drm/card0/device/power"
    tree.write(f"{power}/runtime_status", "suspended")
    absent(backend, "utilization_percent")
    tree.write(f"{power}/runtime_status", "active")
    tree.client(10, 3, "/dev/dri/renderD128", xe_client(1, A, clock=9_000_000, ccs=200))
    assert absent(backend, "utilization_percent").reason is Reason.NO_PROGRESS


# The other metrics.


def test_an_integrated_card_has_no_memory_and_not_0_bytes(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    tree.host_processes()
    tree.card(0, "0000:00:02.0", "i915")
    fake_levelzero.write(device("0000:00:02.0", memories=[]))
    backend.open()
    for metric in ("memory_used_bytes", "memory_total_bytes"):
        failure = absent(backend, metric, "0000:00:02.0")
        assert failure.reason is Reason.NOT_SUPPORTED
    assert absent(backend, "memory_used_bytes", "0000:00:02.0").permanent


def test_energy_is_read_from_the_kernel_first(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    full_xe_card(tree, 0, A)
    fake_levelzero.write(device(A))
    backend.open()
    assert number(backend, "energy_joules_total") == 5000.0
    tree.monitor(0, energy1_input="N/A")
    assert absent(backend, "energy_joules_total").reason is Reason.ERROR  # and no other counter
    tree.monitor(0, energy1_input=5_001_000_000)
    assert number(backend, "energy_joules_total") == 5001.0


def test_a_power_reading_is_never_made_from_energy(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    full_xe_card(tree, 0, A)
    fake_levelzero.write(device(A))
    backend.open()
    for _ in range(2):
        failure = absent(backend, "power_watts")
        assert (failure.reason, failure.permanent) == (Reason.NOT_SUPPORTED, True)


def test_processes_that_hold_a_card_are_counted_this_one_apart(
    tree: Tree, backend: IntelBackend
) -> None:
    tree.host_processes()
    tree.card(0, A)
    for process in (10, 11, os.getpid()):
        tree.client(process, 3, "/dev/dri/renderD128", xe_client(process, A, clock=1, ccs=1))
    tree.client(11, 4, "/dev/dri/card0", xe_client(99, A, clock=1, ccs=1))
    backend.open()
    assert number(backend, "process_count") == 2.0
    assert number(backend, "memory_used_bytes") == 4 * (2 << 20)


def test_a_value_out_of_range_is_no_sample(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    tree.card(0, A)
    fake_levelzero.write(device(A, temperatures=[{"type": 1, "celsius": 3.7e12}]))
    backend.open()
    assert absent(backend, "temperature_celsius").reason is Reason.OUT_OF_RANGE


def test_a_card_that_level_zero_lost_is_lost_until_it_answers(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    tree.card(0, A)
    fake_levelzero.write(device(A))
    backend.open()
    assert number(backend, "memory_used_bytes") == 2 * GIB
    fake_levelzero.write(device(A, error={"memories": devices.RESET}))
    failure = absent(backend, "memory_used_bytes")
    assert (failure.reason, failure.code) == (Reason.RESET_REQUIRED, devices.RESET)
    (listed,) = backend.devices()
    assert listed.problem is Reason.RESET_REQUIRED
    assert "ERROR_DEVICE_REQUIRES_RESET" in listed.problem_detail
    fake_levelzero.write(device(A))
    assert number(backend, "memory_used_bytes") == 2 * GIB
    assert backend.devices()[0].problem is None


def test_a_card_that_level_zero_does_not_list_is_read_from_files(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    full_xe_card(tree, 0, A)
    fake_levelzero.write(device(B))
    backend.open()
    assert number(backend, "temperature_celsius") == 47.0
    failure = absent(backend, "memory_total_bytes")
    assert failure.reason is Reason.NOT_SUPPORTED
    assert "device files" in failure.detail


def test_level_zero_that_crashes_leaves_the_files(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    full_xe_card(tree, 0, A)
    fake_levelzero.write(device(A), init={"crash": 1})
    backend.open()
    assert number(backend, "temperature_celsius") == 47.0
    assert "status -6" in absent(backend, "memory_total_bytes").detail
    probe = backend.probe()
    assert probe.viable
    assert "without Level Zero" in probe.reason
    assert [attempt.ok for attempt in probe.attempts] == [True, False]


def test_level_zero_that_works_later_is_taken_for_what_is_missing(
    tree: Tree,
    backend: IntelBackend,
    fake_levelzero: FakeLevelZero,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when the agent starts before the device files are there."""
    full_xe_card(tree, 0, A)
    fake_levelzero.write(device(A), init=0x78000001)
    backend.open()
    assert number(backend, "temperature_celsius") == 47.0
    assert not absent(backend, "memory_total_bytes").permanent
    fake_levelzero.write(device(A))
    monkeypatch.setattr(trial, "RETRY_SECONDS", 0.0)
    assert number(backend, "memory_total_bytes") == 12 * GIB
    assert number(backend, "temperature_celsius") == 47.0  # stays with where it came from


def test_many_readings_open_nothing_more(
    tree: Tree, backend: IntelBackend, fake_levelzero: FakeLevelZero
) -> None:
    tree.host_processes()
    full_xe_card(tree, 0, A)
    fake_levelzero.write(device(A))
    backend.open()
    listed = backend.devices()
    list(backend.read(listed, tuple(backend.metrics)))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(200):
        list(backend.read(listed, tuple(backend.metrics)))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_library_derives_power_from_energy_and_survives_a_glitch(
    tree: Tree, fake_levelzero: FakeLevelZero
) -> None:
    """The whole way: backend, collector, rates."""
    tree.card(0, A)
    powers = [{"domain": devices.POWER_CARD, "energy": growing(22 * 10**12, 90e6)}]
    fake_levelzero.write(device(A, powers=powers))
    with open_monitor([IntelBackend(tree.root)], interval=0.1) as monitor:
        watts = _watts(monitor, 3)
        glitch = [{"domain": devices.POWER_CARD, "energy": 200_000_000}]
        fake_levelzero.write(device(A, powers=glitch))
        assert monitor.wait(5.0, 1)
        time.sleep(0.15)
        fake_levelzero.write(device(A, powers=powers))
        watts += _watts(monitor, 3)
        assert monitor.snapshot().device(A) is not None
    assert watts
    assert all(45 < value < 180 for value in watts), (
        watts
    )  # 90 W; the clock of a busy machine slips


def _watts(monitor, count: int) -> list[float]:  # type: ignore[no-untyped-def]
    values: dict[float, float] = {}
    deadline = time.monotonic() + 10
    while len(values) < count and time.monotonic() < deadline:
        sample: Sample | None = monitor.snapshot().samples.get((A, "energy_rate_watts"))
        if sample is not None:
            values[sample.time] = sample.value
        time.sleep(0.02)
    return list(values.values())
