"""The Gaudi backend: the real binding `pyhlml` on a library of our own making."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from accelscale.errors import BackendError
from accelscale.model import Failure, Reason, Sample
from accelscale.testing import BackendConformance
from accelscale_gaudi import GaudiBackend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from accelscale.backend import Backend
    from gaudi.conftest import Machine

pytest.importorskip("pyhlml", reason="the binding comes with accelscale-gaudi")

FIRST, SECOND = "0000:33:00.0", "0000:9a:00.0"


class TestGaudi(BackendConformance):
    vendor_modules = ("pyhlml",)

    @pytest.fixture(autouse=True)
    def _machine(self, machine: Machine) -> None:
        self.machine = machine
        machine.card(FIRST, "AM12345678")
        machine.card(SECOND, "AM87654321")

    def make_backend(self) -> GaudiBackend:
        return GaudiBackend(self.machine.root)

    def break_device(self, backend: Backend, device_id: str) -> None:
        self.machine.hlml.set(device_id, error=15)


@contextmanager
def opened(machine: Machine) -> Iterator[GaudiBackend]:
    backend = GaudiBackend(machine.root)
    backend.open()
    try:
        yield backend
    finally:
        backend.close()


def answers(backend: GaudiBackend, device_id: str) -> dict[str, Sample | Failure]:
    devices = [device for device in backend.devices() if device.id == device_id]
    (reading,) = backend.read(devices, tuple(backend.metrics))
    return {one.metric: one for one in (*reading.samples, *reading.failures)}


def reasons(found: dict[str, Sample | Failure]) -> dict[str, Reason]:
    return {name: one.reason for name, one in found.items() if isinstance(one, Failure)}


def test_readings_in_our_units(machine: Machine) -> None:
    machine.card(FIRST, "AM12345678")
    with opened(machine) as backend:
        found = answers(backend, FIRST)
        assert {name: one.value for name, one in found.items() if isinstance(one, Sample)} == {
            "utilization_percent": 37.0,
            "memory_used_bytes": 1_073_741_824.0,
            "memory_total_bytes": 103_079_215_104.0,
            "temperature_celsius": 41.0,
            "memory_temperature_celsius": 45.0,
            "slowdown_temperature_celsius": 98.0,
            "power_watts": 350.5,
            "energy_joules_total": 123_456.789,
            "ecc_uncorrected_errors_total": 0.0,
        }
        (device,) = backend.devices()
        assert (device.vendor, device.name, device.pci_address) == ("intel-gaudi", "HL-225", FIRST)
        assert device.attributes == {"serial": "AM12345678", "uuid": "uuid-AM12345678"}


@pytest.mark.parametrize(
    ("code", "reason", "permanent"),
    [
        (2, Reason.NOT_SUPPORTED, False),
        (3, Reason.NOT_SUPPORTED, True),
        (10, Reason.TIMEOUT, False),
        (15, Reason.LOST, False),
        (20, Reason.ERROR, False),
        (49, Reason.ERROR, False),
        (77, Reason.ERROR, False),
    ],
)
def test_errors_of_one_call(machine: Machine, code: int, reason: Reason, permanent: bool) -> None:
    machine.card(FIRST, "A")
    machine.hlml.set(FIRST, error__hlml_device_get_power_usage=code)
    with opened(machine) as backend:
        failure = answers(backend, FIRST)["power_watts"]
        assert isinstance(failure, Failure)
        assert (failure.reason, failure.code, failure.permanent) == (reason, code, permanent)
        assert len(reasons(answers(backend, FIRST))) == 1


def test_what_a_card_lacks_is_absent(machine: Machine) -> None:
    machine.card(FIRST, "A")
    machine.hlml.set(FIRST, utilization=None, temperature__3=None)
    with opened(machine) as backend:
        assert reasons(answers(backend, FIRST)) == {
            "utilization_percent": Reason.NOT_SUPPORTED,
            "memory_temperature_celsius": Reason.NOT_SUPPORTED,
        }


def test_zero_where_a_sensor_is_dead_and_absurd_values(machine: Machine) -> None:
    machine.card(FIRST, "A")
    machine.hlml.set(FIRST, power_mw=0, temperature__0=0, utilization=0xFFFFFFFF, ecc__1__0=-1)
    with opened(machine) as backend:
        assert reasons(answers(backend, FIRST)) == {
            "power_watts": Reason.OUT_OF_RANGE,
            "temperature_celsius": Reason.OUT_OF_RANGE,
            "utilization_percent": Reason.OUT_OF_RANGE,
            "ecc_uncorrected_errors_total": Reason.OUT_OF_RANGE,
        }
        machine.hlml.set(FIRST, utilization=0)
        idle = answers(backend, FIRST)["utilization_percent"]
        assert isinstance(idle, Sample)
        assert idle.value == 0.0


def test_a_lost_card_stays_listed_under_its_id_and_serial(machine: Machine) -> None:
    machine.card(FIRST, "A")
    machine.card(SECOND, "B")
    with opened(machine) as backend:
        before = backend.devices()
        machine.hlml.set(FIRST, error__hlml_device_get_handle_by_pci_bus_id=15)
        lost, healthy = backend.devices()
        assert (lost.id, lost.problem, lost.attributes["serial"]) == (FIRST, Reason.LOST, "A")
        assert healthy == before[1]
        assert set(reasons(answers(backend, FIRST)).values()) == {Reason.LOST}
        machine.hlml.set(FIRST, error__hlml_device_get_handle_by_pci_bus_id=None)
        assert backend.devices() == before
        assert reasons(answers(backend, FIRST)) == {}


def test_a_card_that_the_library_does_not_know_is_listed_with_its_problem(
    machine: Machine,
) -> None:
    machine.card(FIRST)
    machine.card(SECOND, "B")
    with opened(machine) as backend:
        unknown, _ = backend.devices()
        assert (unknown.id, unknown.problem) == (FIRST, Reason.LOST)


def test_a_driver_that_goes_away_is_a_backend_error(machine: Machine) -> None:
    machine.card(FIRST, "A")
    with opened(machine) as backend:
        devices = backend.devices()
        machine.hlml.set(FIRST, error=9)
        with pytest.raises(BackendError) as caught:
            list(backend.read(devices, ["power_watts"]))
        assert caught.value.code == 9


def refused(machine: Machine) -> BackendError:
    backend = GaudiBackend(machine.root)
    try:
        with pytest.raises(BackendError) as caught:
            backend.open()
        return caught.value
    finally:
        backend.close()


def test_a_library_that_does_not_initialise_says_why(machine: Machine) -> None:
    machine.card(FIRST, "A")
    machine.hlml.set(init=9)
    assert "DriverNotLoaded" in str(refused(machine))


def test_a_library_that_ends_the_process_ends_the_trial_only(machine: Machine) -> None:
    machine.card(FIRST, "A")
    machine.hlml.set(crash=1)
    assert "status -6" in str(refused(machine))


def test_a_failed_trial_is_not_repeated_at_every_try(machine: Machine) -> None:
    machine.card(FIRST, "A")
    machine.hlml.set(init=9)
    backend = GaudiBackend(machine.root)
    with pytest.raises(BackendError):
        backend.open()
    machine.hlml.set(init=0)
    with pytest.raises(BackendError, match="DriverNotLoaded"):
        backend.open()
    backend._verdict = None  # as after a minute
    backend.open()
    backend.close()


def test_a_library_that_hangs_holds_nobody_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.card(FIRST, "A")
    machine.hlml.set(hang=1)
    monkeypatch.setattr("accelscale_gaudi.backend._OPEN_WAITS", 0.1)
    backend = GaudiBackend(machine.root)
    try:
        with pytest.raises(BackendError, match="being tried") as caught:
            backend.open()
        assert caught.value.reason is Reason.TIMEOUT
        machine.hlml.set(hang=None)
        deadline = time.monotonic() + 10
        while True:  # the same trial goes on
            try:
                backend.open()
                break
            except BackendError:
                assert time.monotonic() < deadline
        assert len(backend.devices()) == 1
    finally:
        backend.close()


def test_closing_ends_a_trial_that_hangs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.card(FIRST, "A")
    machine.hlml.set(hang=1)
    monkeypatch.setattr("accelscale_gaudi.backend._OPEN_WAITS", 0.1)
    backend = GaudiBackend(machine.root)
    with pytest.raises(BackendError):
        backend.open()
    trial = backend._trial
    assert trial is not None
    backend.close()
    assert trial._process.returncode is not None


def test_nothing_is_printed_although_the_library_does(machine: Machine, hlml_library: Path) -> None:
    machine.card(FIRST, "A")
    machine.hlml.set(print="HLML INIT")
    program = (
        "import sys; from pathlib import Path; from accelscale_gaudi import GaudiBackend\n"
        "backend = GaudiBackend(Path(sys.argv[1])); backend.open()\n"
        "reading, = backend.read(backend.devices(), ['power_watts']); backend.close()\n"
        "print(reading.samples[0].value)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(machine.root)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "LD_PRELOAD": str(hlml_library)},
    )
    assert done.stdout == "350.5\n", done.stderr
    assert "HLML INIT" in done.stderr


def test_machines_without_cards_or_library_pay_nothing_and_say_why(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", start)
    assert "no Gaudi card" in str(refused(machine))
    assert not GaudiBackend(machine.root).probe().viable
    machine.card(FIRST, "A")
    (machine.root / "usr/lib/habanalabs/libhlml.so").unlink()
    assert "no HLML" in str(refused(machine))


def test_names_in_a_cluster(machine: Machine) -> None:
    machine.card(FIRST, "AM12345678")
    with opened(machine) as backend:
        devices = backend.devices()
        for allocated in ("AM12345678", "uuid-AM12345678", FIRST, "33:00.0"):
            assert backend.device_of(allocated, devices) == devices[0]
        for allocated in ("AM1", "0", "", "None"):
            assert backend.device_of(allocated, devices) is None
        assert backend.owns_resource("habana.ai/gaudi")
        assert not backend.owns_resource("habana.ai/goya")
