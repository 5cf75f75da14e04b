"""The TPU backend against a metric service on loopback."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc
import pytest

from accelscale.errors import BackendError
from accelscale.model import Failure, Reason, Sample
from accelscale.testing import BackendConformance
from accelscale_tpu import TpuBackend
from accelscale_tpu.service import messages
from drivers.libtpu.server import BANDWIDTH, DUTY, USED, entry, response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from accelscale.backend import Backend
    from drivers.libtpu.server import FakeLibtpu
    from tpu.conftest import PciTree

FIRST, SECOND = "0000:00:05.0", "0000:00:04.0"  # in the order of their device files


@pytest.fixture
def two_chips(tree: PciTree) -> PciTree:
    tree.add(SECOND, "0x006f", group=10)
    tree.add(FIRST, "0x006f", group=9)
    tree.add("0000:00:06.0", "0x0042", group=3)  # Google's network card
    return tree


class TestTpu(BackendConformance):
    vendor_modules = ("grpc", "google")

    @pytest.fixture(autouse=True)
    def _machine(self, two_chips: PciTree, libtpu: FakeLibtpu) -> None:
        self.tree, self.libtpu = two_chips, libtpu

    def make_backend(self) -> TpuBackend:
        return TpuBackend(self.tree.root, address=self.libtpu.address)

    def break_device(self, backend: Backend, device_id: str) -> None:
        assert device_id == FIRST
        self.libtpu.say(DUTY, {0: 1e9, 1: 12.5})


@contextmanager
def opened(tree: PciTree, libtpu: FakeLibtpu) -> Iterator[TpuBackend]:
    backend = TpuBackend(tree.root, address=libtpu.address)
    backend.open()
    try:
        yield backend
    finally:
        backend.close()


def values(backend: TpuBackend, metric: str) -> list[float]:
    readings = list(backend.read(backend.devices(), [metric]))
    return [sample.value for reading in readings for sample in reading.samples]


def failure(backend: TpuBackend, metric: str = "utilization_percent") -> Failure:
    """The failure that all chips have in common."""
    failures = [
        failure
        for reading in backend.read(backend.devices(), [metric])
        for failure in reading.failures
    ]
    assert len(failures) == len(backend.devices()) > 0
    assert len({(one.reason, one.detail) for one in failures}) == 1
    return failures[0]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_figures_go_to_the_chips_in_order(two_chips: PciTree, libtpu: FakeLibtpu) -> None:
    with opened(two_chips, libtpu) as backend:
        first, second = backend.devices()
        assert [first.id, second.id] == [FIRST, SECOND]
        assert (first.name, first.vendor) == ("TPU v6e", "google")
        assert first.attributes["device_file"] == "/dev/vfio/9"
        assert values(backend, "utilization_percent") == [100.0, 12.5]
        assert values(backend, "memory_used_bytes") == [5.0 * 2**30, 2.0**30]
        assert values(backend, "memory_total_bytes") == [32.0 * 2**30] * 2
        assert values(backend, "memory_bandwidth_utilization_percent") == [40.0, 0.0]


def test_one_call_per_metric_and_reading(two_chips: PciTree, libtpu: FakeLibtpu) -> None:
    with opened(two_chips, libtpu) as backend:
        devices = backend.devices()
        list(backend.read(devices, ["utilization_percent", "memory_used_bytes"]))
        assert libtpu.calls == {DUTY: 1, USED: 1}


def test_ids_that_count_over_a_slice_are_taken_in_order(
    two_chips: PciTree, libtpu: FakeLibtpu
) -> None:
    libtpu.say(DUTY, {13: 20.0, 12: 10.0})
    with opened(two_chips, libtpu) as backend:
        assert values(backend, "utilization_percent") == [10.0, 20.0]


@pytest.mark.parametrize(
    "told", [{}, {0: 50.0}, {0: 1.0, 1: 2.0, 2: 3.0}, dict.fromkeys(range(4), 1.0)]
)
def test_figures_of_some_chips_or_others_go_to_none(
    two_chips: PciTree, libtpu: FakeLibtpu, told: dict[int, float]
) -> None:
    """A workload on one of two chips: which one it is, its ids do not tell."""
    libtpu.say(DUTY, told)
    with opened(two_chips, libtpu) as backend:
        assert failure(backend).reason is Reason.ERROR
        assert f"of {len(told)} devices" in failure(backend).detail


def test_two_cores_are_one_chip(tree: PciTree, libtpu: FakeLibtpu) -> None:
    for slot in ("0000:00:04", "0000:00:05"):
        for function in (0, 1):
            tree.add(f"{slot}.{function}", "0x0076", group=int(slot[-1]) * 2 + function)
    libtpu.say(USED, {0: 1, 1: 2, 2: 4, 3: 8})
    libtpu.say(BANDWIDTH, {0: 10.0, 1: 30.0, 2: 0.0, 3: 5.0})
    with opened(tree, libtpu) as backend:
        assert [device.name for device in backend.devices()] == ["TPU7x", "TPU7x"]
        assert values(backend, "memory_used_bytes") == [3.0, 12.0]
        assert values(backend, "memory_bandwidth_utilization_percent") == [30.0, 5.0]
        assert values(backend, "utilization_percent") == [100.0, 12.5]  # told per chip


def test_without_a_workload_a_chip_is_unknown_and_not_idle(
    two_chips: PciTree, libtpu: FakeLibtpu
) -> None:
    with opened(two_chips, libtpu) as backend:
        assert values(backend, "utilization_percent") == [100.0, 12.5]
        libtpu.stop()
        assert failure(backend).reason is Reason.ERROR
        assert "no workload serves metrics" in failure(backend).detail
        assert [device.problem for device in backend.devices()] == [None, None]
        libtpu.start()  # the next workload
        wait_until(lambda: values(backend, "utilization_percent") == [100.0, 12.5])


def test_a_service_that_hangs_is_bounded(
    two_chips: PciTree, libtpu: FakeLibtpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accelscale_tpu.backend._TIMEOUT", 0.3)
    with opened(two_chips, libtpu) as backend:
        libtpu.hold.clear()
        for reading in backend.read(backend.devices(), tuple(backend.metrics)):
            assert {one.reason for one in reading.failures} == {Reason.TIMEOUT}
        libtpu.hold.set()
        wait_until(lambda: len(values(backend, "utilization_percent")) == 2)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.NOT_FOUND, Reason.NOT_SUPPORTED),
        (grpc.StatusCode.UNIMPLEMENTED, Reason.NOT_SUPPORTED),
        (grpc.StatusCode.PERMISSION_DENIED, Reason.PERMISSION),
        (grpc.StatusCode.INTERNAL, Reason.ERROR),
    ],
)
def test_errors_of_the_service(
    two_chips: PciTree, libtpu: FakeLibtpu, code: grpc.StatusCode, reason: Reason
) -> None:
    libtpu.reply(DUTY, code)
    with opened(two_chips, libtpu) as backend:
        assert failure(backend).reason is reason
        assert values(backend, "memory_used_bytes") == [5.0 * 2**30, 2.0**30]


@pytest.mark.parametrize(
    "reply",
    [
        response(entry(0, None), entry(1, 5.0)),  # an empty gauge would read as 0
        response(entry(None, 3.0), entry(1, 5.0)),
        response(entry(0, 3.0), entry(0, 5.0)),
        b"",
        b"\xff\xff not a message",
    ],
)
def test_answers_without_numbers_are_no_numbers(
    two_chips: PciTree, libtpu: FakeLibtpu, reply: bytes
) -> None:
    libtpu.reply(DUTY, reply)
    with opened(two_chips, libtpu) as backend:
        assert failure(backend).reason is Reason.ERROR


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 250.0])
def test_absurd_values_are_out_of_range(
    two_chips: PciTree, libtpu: FakeLibtpu, value: float
) -> None:
    libtpu.say(DUTY, {0: value, 1: value})
    with opened(two_chips, libtpu) as backend:
        assert failure(backend).reason is Reason.OUT_OF_RANGE


def test_a_proxy_in_the_environment_is_not_asked(
    two_chips: PciTree, libtpu: FakeLibtpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:1")
    for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with opened(two_chips, libtpu) as backend:
        assert values(backend, "utilization_percent") == [100.0, 12.5]


def test_the_messages_are_those_of_googles_reader() -> None:
    """A response as written by the generated code of tpu-info 0.14.2, time stamps included."""
    recorded = (
        "0a9d010a287470752e72756e74696d652e74656e736f72636f72652e647574796379636c652e70657263656e"
        "74120a44757479206379636c651a240a0f0a096465766963652d69641202180812060880e2cfaa061a090900"
        "000000000059401a240a0f0a096465766963652d69641202180912060880e2cfaa061a090900000000000000"
        "001a190a0f0a096465766963652d69641202180c1a06108080808040"
    )
    parsed = messages()["MetricResponse"].FromString(bytes.fromhex(recorded))
    found = [
        (one.attribute.value.int_attr, one.gauge.WhichOneof("value"), one.gauge.as_double)
        for one in parsed.metric.metrics
    ]
    assert found == [(8, "as_double", 100.0), (9, "as_double", 0.0), (12, "as_int", 0.0)]
    assert parsed.metric.metrics[2].gauge.as_int == 2**34
    assert parsed.metric.name == DUTY


def test_chips_are_told_from_googles_other_devices(tree: PciTree, libtpu: FakeLibtpu) -> None:
    tree.add("0000:00:01.0", "0x0042")
    tree.add("0000:00:02.0", "0x0027", subsystem="0x0001")
    tree.add("0000:00:03.0", "0x006f", vendor="0x1d0f")
    backend = TpuBackend(tree.root, address=libtpu.address)
    assert not backend.probe().viable
    with pytest.raises(BackendError, match="no TPU") as caught:
        backend.open()
    assert caught.value.reason is Reason.NOT_SUPPORTED
    tree.add("0000:00:04.0", "0x0027", subsystem="0x004f", accel=1)
    tree.add("0000:00:05.0", "0x005e", accel=0)
    with opened(tree, libtpu) as found:
        assert [(one.id, one.name) for one in found.devices()] == [
            ("0000:00:05.0", "TPU v4"),
            ("0000:00:04.0", "TPU v3"),
        ]


def test_a_machine_without_chips_does_not_load_grpc(tree: PciTree) -> None:
    program = (
        "import sys; from pathlib import Path; from accelscale_tpu import TpuBackend\n"
        "print(TpuBackend(Path(sys.argv[1])).probe().viable, 'grpc' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tree.root)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "False False\n"


def test_names_in_a_cluster(two_chips: PciTree, libtpu: FakeLibtpu) -> None:
    with opened(two_chips, libtpu) as backend:
        devices = backend.devices()
        assert backend.device_of("00:05.0", devices) == devices[0]
        assert backend.device_of("0", devices) is None
        assert backend.owns_resource("google.com/tpu")
        assert not backend.owns_resource("cloud-tpus.google.com/v3")


def test_a_sample_is_dated_by_the_reading(two_chips: PciTree, libtpu: FakeLibtpu) -> None:
    with opened(two_chips, libtpu) as backend:
        started = time.monotonic()
        (reading, _) = backend.read(backend.devices(), ["utilization_percent"])
        (sample,) = reading.samples
        assert isinstance(sample, Sample)
        assert started <= sample.time <= time.monotonic()
