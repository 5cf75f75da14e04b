from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import accelscale
from accelscale.errors import BackendError, ConfigurationError, NoDataError, NotFoundError
from accelscale.model import Reason
from accelscale.plugins import load_plugins
from accelscale.testing import FakeBackend

UTILIZATION = "utilization_percent"


def two_devices() -> FakeBackend:
    return FakeBackend({"a": {UTILIZATION: 30.0}, "b": {UTILIZATION: 50.0}})


def trigger(**keys: str) -> accelscale.Trigger:
    metadata = {"metric": UTILIZATION, "threshold": "70", "windowStatistic": "last", **keys}
    return accelscale.parse_trigger(metadata, scopes=("node",))


def test_a_monitor_answers_from_memory() -> None:
    backend = two_devices()
    with accelscale.open_monitor([backend], interval=0.05) as monitor:
        assert monitor.wait(10.0)
        snapshot = monitor.snapshot()
        assert [device.id for device in snapshot.devices] == ["a", "b"]
        assert snapshot.value("a", UTILIZATION) == 30.0
        evaluation = monitor.evaluate(trigger())
        assert (evaluation.metric_value(), evaluation.is_active()) == (80.0, True)
        assert monitor.evaluate(trigger(devices="b")).metric_value() == 50.0
    assert not backend.is_open
    assert not [t for t in threading.enumerate() if t.name.startswith("accelscale-")]


def test_an_error_of_the_selection_ends_in_the_evaluation() -> None:
    with accelscale.open_monitor([two_devices()], interval=0.05) as monitor:
        assert monitor.wait(10.0)
        with pytest.raises(NotFoundError, match="no device GPU-x"):
            monitor.evaluate(trigger(devices="GPU-x")).metric_value()


def test_before_the_first_reading_there_is_no_data() -> None:
    backend = two_devices()
    backend.hang()
    with accelscale.open_monitor([backend], interval=0.05, deadline=0.2) as monitor:
        with pytest.raises(NoDataError, match="no accelerator found"):
            monitor.evaluate(trigger()).is_active()
        backend.unhang()
        assert monitor.wait(10.0)


def test_rates_are_there_after_two_passes() -> None:
    backend = FakeBackend({"a": {"energy_joules_total": lambda now: 300.0 * now}})
    with accelscale.open_monitor([backend], interval=0.05) as monitor:
        assert monitor.wait(10.0, passes=2)
        watts = monitor.snapshot().value("a", "energy_rate_watts")
        assert watts == pytest.approx(300.0)


def test_a_backend_that_fails_does_not_keep_waiting() -> None:
    backend = two_devices()
    backend.break_open(accelscale.BackendError("no driver", reason=Reason.ERROR))
    with accelscale.open_monitor([backend], interval=0.05) as monitor:
        assert monitor.wait(30.0) is False
        assert monitor.states()[0].reason == "no driver"


def test_backends_are_chosen_by_name_and_never_the_host_by_itself() -> None:
    registry = load_plugins(disabled=["*"], extra=[FakeBackend, OnRequest])
    with accelscale.open_monitor(registry=registry) as monitor:
        assert {backend.name for backend in monitor.backends} == {"nvidia", "fake"}
    with accelscale.open_monitor(["on-request"], registry=registry) as monitor:
        assert [backend.name for backend in monitor.backends] == ["on-request"]
    with pytest.raises(NotFoundError, match="nvidai"):
        accelscale.open_monitor(["nvidai"], registry=registry)


def test_a_backend_that_cannot_be_made_leaves_the_others_alone() -> None:
    class Broken(FakeBackend):
        name = "broken"

        def __init__(self) -> None:
            raise ValueError("oops")

    registry = load_plugins(disabled=["*"], extra=[FakeBackend, Broken])
    with accelscale.open_monitor(registry=registry) as monitor:
        assert {backend.name for backend in monitor.backends} == {"nvidia", "fake"}
    with pytest.raises(BackendError, match="broken"):
        accelscale.open_monitor(["broken"], registry=registry)


class OnRequest(FakeBackend):
    name = "on-request"
    on_request_only = True


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"interval": 0.0}, "interval"),
        ({"interval": float("nan")}, "interval"),
        ({"interval": 1e9}, "interval"),
        ({"deadline": -1.0}, "deadline"),
        ({"backends": []}, "backends"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        accelscale.open_monitor(**{"backends": [two_devices()], **options})  # type: ignore[arg-type]
    assert [fault.key for fault in caught.value.faults] == [key]


def test_every_public_name_is_there_and_importing_the_package_loads_nothing() -> None:
    assert all(getattr(accelscale, name) is not None for name in accelscale.__all__)
    assert set(accelscale.__all__) == set(dir(accelscale))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        accelscale.nonsense  # noqa: B018
    code = "import accelscale, sys; print([m for m in sys.modules if 'attr' in m or 'pynvml' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
