"""The tests that every backend must pass, for its author to inherit.

::

    from accelscale.testing import BackendConformance

    class TestMyBackend(BackendConformance):
        vendor_modules = ("vendor_binding",)

        def make_backend(self):
            return MyBackend()

Run by pytest. Each test checks one promise of `accelscale.backend.Backend`, on the real hardware
or on whatever the author puts in its place.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from attrs import evolve

from accelscale.backend import Backend, Probe
from accelscale.backend_rules import class_faults
from accelscale.errors import BackendError
from accelscale.metrics import METRICS, Kind, Metric
from accelscale.model import Device, Reading, Sample, normal_pci_address
from accelscale.testing.fresh_import import import_faults
from accelscale.testing.reading_rules import reading_faults

T = TypeVar("T")

ODD_STRINGS = (
    "",
    " ",
    "0",
    "-1",
    "/",
    "::",
    "::0",
    "a::b::c",
    "MIG-",
    "MIG-/0/0",
    "GPU-00000000-0000-0000-0000-000000000000",
    "0000:00:00.0",
    "vendor.example/",
    "nvidia.com/gpu.shared",
    "no\x00good",
    "\udcff",
    "\N{PLAYING CARD ACE OF SPADES}",
    "x" * 10_000,
)


class BackendConformance:
    """One test per promise; a subclass whose name starts with ``Test`` runs them.

    ``vendor_modules`` are the modules that the backend's module must not import by itself.
    ``limit_seconds`` bounds each call to the backend. ``hardware_optional`` skips the tests that
    need a device where there is none; without it they fail, so that a machine without the
    hardware does not pass for a success.
    """

    vendor_modules: ClassVar[tuple[str, ...]] = ()
    limit_seconds: ClassVar[float] = 10.0
    hardware_optional: ClassVar[bool] = False

    def make_backend(self) -> Backend:
        """A new backend, not opened. Called several times in a test; all see the same devices."""
        raise NotImplementedError("define make_backend() in your test class")

    def break_device(self, backend: Backend, device_id: str) -> None:
        """Make that device fail, whichever way the hardware or its stand-in can.

        Without it, the test of a failing device is skipped.
        """
        pytest.skip("this test class defines no break_device()")

    # What the class says of itself.

    def test_class_data_keep_the_rules(self) -> None:
        faults = list(class_faults(type(self.make_backend())))
        assert not faults, "; ".join(faults)

    def test_import_touches_nothing(self) -> None:
        faults = import_faults(type(self.make_backend()), self.vendor_modules)
        assert not faults, "importing the module of the backend: " + "; ".join(faults)

    # Probe, open, close.

    def test_probe_gives_a_reason_and_leaves_nothing_open(self) -> None:
        first = self.make_backend()
        self._probed(first)  # what the first one in a process leaves is the library's own
        self._within("close", first.close)
        backend = self.make_backend()
        before = _open_files(), _threads()
        probe = self._probed(backend)
        left_files, left_threads = _open_files() - before[0], _threads() - before[1]
        assert probe.reason.strip(), "probe gave no reason"
        assert not left_files, f"probe left open: {', '.join(sorted(left_files))}"
        assert not left_threads, f"probe left running: {', '.join(sorted(left_threads))}"

    def test_open_agrees_with_probe(self) -> None:
        backend = self.make_backend()
        probe = self._probed(backend)
        refusal: BackendError | None = None
        try:
            self._within("open", backend.open)
        except BackendError as error:
            refusal = error
        finally:
            self._within("close", backend.close)
        if refusal is None:
            assert probe.viable, f"probe said {probe.reason!r}, but open succeeded"
            return
        assert str(refusal).strip(), "open raised a BackendError that says nothing"
        assert refusal.reason is not None, f"open raised a BackendError without reason: {refusal}"
        assert not probe.viable, f"probe said {probe.reason!r}, but open raised: {refusal}"

    def test_opening_twice_is_harmless(self) -> None:
        with self._opened() as backend:
            once = self._listed(backend)
            self._within("open", backend.open)
            assert self._listed(backend) == once, "opening twice changed the devices"
            self._checked_read(backend, once, backend.metrics)

    @pytest.mark.parametrize("let_go", ["close", "release"])
    def test_letting_go_twice_or_unopened_is_harmless(self, let_go: str) -> None:
        unopened = self.make_backend()
        self._within(let_go, getattr(unopened, let_go))
        self._within(let_go, getattr(unopened, let_go))
        with self._opened() as backend:
            self._within(let_go, getattr(backend, let_go))
            self._within(let_go, getattr(backend, let_go))

    @pytest.mark.parametrize("let_go", ["close", "release"])
    def test_it_opens_again_with_the_same_devices(self, let_go: str) -> None:
        with self._opened() as backend:
            before = [device.id for device in self._listed(backend)]
            self._within(let_go, getattr(backend, let_go))
            self._within("open", backend.open)
            devices = self._listed(backend)
            assert [device.id for device in devices] == before, "ids changed by closing and opening"
            self._checked_read(backend, devices, backend.metrics)

    def test_diagnose_describes_and_never_raises(self) -> None:
        backend = self.make_backend()
        attempts = self._within("diagnose", lambda: list(backend.diagnose()))
        assert attempts, "diagnose tried nothing"
        for attempt in attempts:
            assert attempt.call.strip(), f"an attempt does not say what was called: {attempt}"
            assert attempt.result.strip(), f"an attempt does not say what came of it: {attempt}"
            assert attempt.seconds >= 0, f"an attempt took negative time: {attempt}"

    # Devices.

    def test_ids_are_unique_stable_and_no_index(self) -> None:
        with self._opened() as backend:
            devices = self._listed(backend)
            ids = [device.id for device in devices]
            assert len(set(ids)) == len(ids), f"an id occurs twice: {ids}"
            for device in devices:
                assert device.id.strip() == device.id != "", f"not a usable id: {device.id!r}"
                assert not device.id.isdecimal(), f"an index is no id: {device.id!r}"
            again = [device.id for device in self._listed(backend)]
            assert again == ids, f"ids or their order changed: {ids} then {again}"
        other = self.make_backend()
        try:
            self._within("open", other.open)
            again = [device.id for device in self._listed(other)]
        finally:
            self._within("close", other.close)
        assert again == ids, f"another instance gives other ids: {ids} then {again}"

    def test_devices_say_whose_they_are(self) -> None:
        with self._opened() as backend:
            for device in self._listed(backend):
                assert device.backend == backend.name, f"backend of {device.id}: {device.backend!r}"
                assert device.vendor == backend.vendor, f"vendor of {device.id}: {device.vendor!r}"
                assert device.name.strip(), f"{device.id} has no name"
                assert device.parent != device.id, f"{device.id} is its own parent"
                address = device.pci_address
                normal = address is None or address == normal_pci_address(address)
                assert normal, f"{device.id}: use normal_pci_address for {address!r}"
                told = device.problem is None or device.problem_detail.strip()
                assert told, f"{device.id} has a problem without problem_detail"

    # Readings.

    def test_every_metric_ends_as_one_sample_or_failure(self) -> None:
        with self._opened() as backend:
            devices = self._listed(backend)
            self._checked_read(backend, devices, backend.metrics)
            self._checked_read(backend, devices[::-1], backend.metrics)
            self._checked_read(backend, devices[-1:], backend.metrics)
            self._checked_read(backend, devices, ())
            self._checked_read(backend, (), backend.metrics)
            for metric in backend.metrics:
                self._checked_read(backend, devices, (metric,))

    def test_a_metric_it_does_not_list_is_a_failure(self) -> None:
        with self._opened() as backend:
            unlisted = [
                row.name
                for row in METRICS.values()
                if row.derivation is None and row.name not in backend.metrics
            ]
            if not unlisted:
                pytest.skip("this backend lists every metric")
            asked = (*backend.metrics, unlisted[0])
            for reading in self._checked_read(backend, self._listed(backend), asked):
                sampled = unlisted[0] in {sample.metric for sample in reading.samples}
                assert not sampled, f"{unlisted[0]} is given, but not listed in metrics"

    def test_reading_again_works_and_counters_do_not_go_back(self) -> None:
        with self._opened() as backend:
            devices = self._listed(backend)
            known = _table(backend)
            newest: dict[tuple[str, str], Sample] = {}
            for _ in range(4):
                for reading in self._checked_read(backend, devices, backend.metrics):
                    for sample in reading.samples:
                        key = (sample.device_id, sample.metric)
                        before = newest.get(key, sample)
                        newest[key] = sample
                        counter = known[sample.metric].kind is Kind.COUNTER
                        assert not counter or sample.value >= before.value, (
                            f"counter {sample.metric} of {sample.device_id} went back from"
                            f" {before.value:g} to {sample.value:g}"
                        )

    def test_a_read_may_be_abandoned(self) -> None:
        with self._opened() as backend:
            devices = self._listed(backend)
            self._within("read", lambda: next(iter(backend.read(devices, tuple(backend.metrics)))))
            self._checked_read(backend, devices, backend.metrics)

    def test_a_device_that_is_gone_spoils_no_other(self) -> None:
        """A card may vanish between the listing and the read."""
        with self._opened() as backend:
            devices = self._listed(backend)
            gone = evolve(devices[0], id="no-such-device", pci_address=None, attributes={})
            readings = self._checked_read(backend, (gone, *devices), backend.metrics)
            given = [sample.metric for sample in readings[0].samples]
            assert not given, f"a device that does not exist has {', '.join(given)}"

    def test_a_failing_device_spoils_no_other(self) -> None:
        with self._opened() as backend:
            devices = self._listed(backend)
            before = _sampled(self._checked_read(backend, devices, backend.metrics))
            broken = devices[0].id
            self.break_device(backend, broken)
            after = _sampled(self._checked_read(backend, devices, backend.metrics))
            assert before[broken] - after[broken], f"{broken} was broken, and all can still be read"
            for device in devices[1:]:
                lost = before[device.id] - after[device.id]
                assert not lost, f"{broken} failed, and {device.id} lost {', '.join(sorted(lost))}"
            self._within("devices", backend.devices)

    def test_devices_are_read_side_by_side_where_that_is_promised(self) -> None:
        with self._opened() as backend:
            devices = self._listed(backend)
            if not backend.isolates_devices:
                pytest.skip("this backend does not say that it isolates devices")
            if len(devices) < 2:
                pytest.skip("there is one device")
            faults: list[BaseException] = []

            def read_over_and_over(device: Device) -> None:
                try:
                    for _ in range(20):
                        self._checked_read(backend, (device,), backend.metrics)
                except BaseException as error:  # noqa: BLE001 - shown by the thread that waits
                    faults.append(error)

            threads = [
                threading.Thread(target=read_over_and_over, args=(device,), daemon=True)
                for device in devices[:2]
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(self.limit_seconds)
                assert not thread.is_alive(), "reading two devices side by side does not end"
            if faults:
                raise faults[0]

    # Names in a cluster.

    def test_odd_names_are_answered(self) -> None:
        with self._opened() as backend:
            devices = self._listed(backend)
            for text in (*ODD_STRINGS, *(f"{device.id}::0" for device in devices)):
                owned = backend.owns_resource(text)
                assert isinstance(owned, bool), f"owns_resource({text[:40]!r}) gave {owned!r}"
                for listed in (devices, ()):
                    device = backend.device_of(text, listed)
                    assert device is None or device in listed, (
                        f"device_of({text[:40]!r}) gave a device that is not listed: {device}"
                    )

    # What the tests stand on.

    @contextmanager
    def _opened(self) -> Iterator[Backend]:
        """A backend that is open and has a device."""
        backend = self.make_backend()
        try:
            try:
                self._within("open", backend.open)
            except BackendError as error:
                self._without_hardware(f"cannot be opened here: {error}")
            if not self._within("devices", backend.devices):
                self._without_hardware("has no device here")
            yield backend
        finally:
            self._within("close", backend.close)

    def _without_hardware(self, text: str) -> None:
        if self.hardware_optional:
            pytest.skip(f"the backend {text}")
        pytest.fail(f"the backend {text}; hardware_optional = True would skip this test")

    def _within(self, call: str, function: Callable[[], T]) -> T:
        """The result of a call to the backend, which must end within the limit."""
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(function())
            except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
                errors.append(error)

        thread = threading.Thread(target=run, name="conformance", daemon=True)
        thread.start()
        thread.join(self.limit_seconds)
        if errors:
            raise errors[0]
        assert results, f"{call} did not return within {self.limit_seconds:g} s"
        return results[0]

    def _probed(self, backend: Backend) -> Probe:
        try:
            return self._within("probe", backend.probe)
        except Exception as error:
            raise AssertionError(f"probe raised {type(error).__name__}: {error}") from error

    def _listed(self, backend: Backend) -> tuple[Device, ...]:
        return tuple(self._within("devices", backend.devices))

    def _checked_read(
        self, backend: Backend, devices: Sequence[Device], metrics: Collection[str]
    ) -> list[Reading]:
        """Read, and check all that every reading promises."""
        started = time.monotonic()
        readings = self._within("read", lambda: list(backend.read(devices, tuple(metrics))))
        ended = time.monotonic()
        order = [reading.device_id for reading in readings]
        wanted = [device.id for device in devices]
        assert order == wanted, f"readings of {order} for the devices {wanted}"
        table = _table(backend)
        for reading in readings:
            faults = list(reading_faults(reading, metrics, table, since=started, until=ended))
            assert not faults, "; ".join(faults)
        return readings


def _table(backend: Backend) -> dict[str, Metric]:
    return {**METRICS, **{row.name: row for row in backend.extra_metrics}}


def _sampled(readings: Sequence[Reading]) -> dict[str, set[str]]:
    return {
        reading.device_id: {sample.metric for sample in reading.samples} for reading in readings
    }


def _open_files() -> Counter[str]:
    """What the open descriptors of this process point to, where the system shows it."""
    found: Counter[str] = Counter()
    folder = Path("/proc/self/fd")
    if folder.is_dir():
        for descriptor in folder.iterdir():
            try:
                found[str(descriptor.readlink())] += 1
            except OSError:
                continue  # the one by which the folder itself was read
    return found


def _threads() -> Counter[str]:
    return Counter(thread.name for thread in threading.enumerate())
