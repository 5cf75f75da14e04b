"""Which cards and partitions there are, by which ids, and what of them belongs to whom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from accelscale.errors import BackendError
from accelscale.model import Reason
from accelscale_amd import AmdBackend
from amd import tables
from amd.conftest import FIRST, SECOND, Results, failure_of
from amd.trees import TABLE, Tree

Read = Callable[..., Results]

OF_PARTITIONS = {"utilization_percent", "amd_video_utilization_percent"}


def ids(backend: AmdBackend) -> list[str]:
    return [device.id for device in backend.devices()]


def test_the_id_is_the_one_that_rocminfo_shows(tree: Tree, backend: AmdBackend) -> None:
    tree.card(SECOND, unique_id="00a1b2c3d4e5f607")
    tree.card(FIRST, unique_id="bd2a3a1c0f000001")
    backend.open()
    assert ids(backend) == ["GPU-bd2a3a1c0f000001", "GPU-00a1b2c3d4e5f607"]
    first = backend.devices()[0]
    assert (first.pci_address, first.name) == (FIRST, "AMD Instinct MI300X OAM")


@pytest.mark.parametrize("unique_id", ["0000000000000000", "", None, "ffffffffffffffff"])
def test_cards_that_share_no_id_go_by_their_addresses(
    tree: Tree, backend: AmdBackend, results: Read, unique_id: str | None
) -> None:
    tree.card("0000:05:00.0", unique_id=unique_id, gpu_busy_percent=90)
    tree.card("0000:06:00.0", unique_id=unique_id, gpu_busy_percent=10)
    found = results("utilization_percent")
    assert found == {
        ("0000:05:00.0", "utilization_percent"): 90,
        ("0000:06:00.0", "utilization_percent"): 10,
    }


def test_two_cards_with_one_id_go_by_their_addresses(tree: Tree, backend: AmdBackend) -> None:
    tree.card(FIRST, unique_id="bd2a3a1c0f000001")
    tree.card(SECOND, unique_id="bd2a3a1c0f000001")
    backend.open()
    assert ids(backend) == [FIRST, SECOND]


def test_the_name_of_a_card_without_a_product_name(tree: Tree, backend: AmdBackend) -> None:
    names = tree.root / "usr/share/libdrm/amdgpu.ids"
    names.parent.mkdir(parents=True)
    names.write_text("# List of names\n1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n74A1,\t00,\tX\n")
    tree.card(FIRST, product_name=None, device="0x744c", revision="0xc8")
    tree.card(SECOND, product_name=None, device="0x7fff")
    backend.open()
    assert [device.name for device in backend.devices()] == [
        "AMD Radeon RX 7900 XTX",
        "AMD GPU 7fff",
    ]


def test_an_address_from_the_words_of_the_kernel(tree: Tree, backend: AmdBackend) -> None:
    """Where the folder of a device is not named by its address."""
    tree.card(FIRST)
    folder = tree.root / "sys/class/drm/card7/device"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text("0x1002\n")
    (folder / "uevent").write_text(f"DRIVER=amdgpu\nPCI_SLOT_NAME={SECOND}\n")
    backend.open()
    assert ids(backend) == [FIRST, SECOND]


def test_cards_of_others_are_not_ours(tree: Tree, backend: AmdBackend) -> None:
    tree.card(FIRST)
    tree.card("0000:41:00.0", vendor="0x10de")
    radeon = tree.card("0000:42:00.0")
    (radeon.folder / "driver").unlink()
    (tree.root / "sys/bus/pci/drivers/radeon").mkdir()
    (radeon.folder / "driver").symlink_to(tree.root / "sys/bus/pci/drivers/radeon")
    backend.open()
    assert ids(backend) == [FIRST]


def test_a_lost_card_stays_listed(tree: Tree, backend: AmdBackend, results: Read) -> None:
    first = tree.card(FIRST)
    tree.card(SECOND)
    assert results("utilization_percent")[FIRST, "utilization_percent"] == 50
    first.vanish()
    found = results()
    lost, other = backend.devices()
    assert (lost.id, lost.problem) == (FIRST, Reason.LOST)
    assert FIRST in lost.problem_detail
    assert other.problem is None
    for metric in backend.metrics:
        assert failure_of(found[FIRST, metric]).reason is Reason.LOST
    assert found[SECOND, "utilization_percent"] == 50
    first.come_back()
    assert results("utilization_percent")[FIRST, "utilization_percent"] == 50
    assert all(device.problem is None for device in backend.devices())


def test_another_card_in_the_slot_takes_the_place(tree: Tree, backend: AmdBackend) -> None:
    card = tree.card(FIRST, unique_id="bd2a3a1c0f000001")
    backend.open()
    card.write("unique_id", "bd2a3a1c0f000002")
    assert ids(backend) == ["GPU-bd2a3a1c0f000002"]


def test_an_id_that_cannot_be_read_for_a_moment_changes_nothing(
    tree: Tree, backend: AmdBackend
) -> None:
    card = tree.card(FIRST, unique_id="bd2a3a1c0f000001")
    backend.open()
    card.write("unique_id", None)  # as while the card is being reset
    assert ids(backend) == ["GPU-bd2a3a1c0f000001"]


@pytest.mark.parametrize("status", ["suspended", "suspending"])
def test_a_card_that_sleeps_is_not_woken(
    tree: Tree,
    backend: AmdBackend,
    results: Read,
    monkeypatch: pytest.MonkeyPatch,
    status: str,
) -> None:
    card = tree.card(FIRST)
    tree.card(SECOND)
    assert results("utilization_percent")[FIRST, "utilization_percent"] == 50
    card.write("power/runtime_status", status)
    asleep = {str(card.folder / name) for name in _WAKING} | {str(card.folder / card.hwmon)}
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        assert str(path) not in asleep, f"{path} was read"
        assert str(path.parent) not in asleep, f"{path} was read"
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    found = results()
    for metric in backend.metrics:
        failure = failure_of(found[FIRST, metric])
        assert failure.reason is Reason.STALE
        assert "asleep" in failure.detail
        assert not failure.permanent
    assert found[SECOND, "utilization_percent"] == 50


_WAKING = (
    "gpu_busy_percent",
    "mem_busy_percent",
    "mem_info_vram_used",
    "mem_info_vram_total",
    "mem_info_gtt_total",
    "gpu_metrics",
    "current_compute_partition",
    "current_memory_partition",
    "ras/umc_err_count",
)


class TestPartitions:
    """A card that is split: the card and each partition are devices."""

    @pytest.fixture
    def split(self, tree: Tree) -> Tree:
        stats = [
            {"gfx_busy_inst": [80, 80], "vcn_busy": [10]},
            {"gfx_busy_inst": [20, 20], "vcn_busy": [0]},
        ]
        card = tree.card(FIRST, unique_id="bd2a3a1c0f000001")
        card.table(**{**TABLE, "xcp_stats": stats})
        tree.split(card, "DPX", 2)
        tree.card(SECOND, unique_id="bd2a3a1c0f000002")
        return tree

    @pytest.mark.parametrize(("shift", "numbered"), [(28, True), (0, True), (28, False)])
    def test_each_is_a_device(
        self, tree: Tree, backend: AmdBackend, shift: int, numbered: bool
    ) -> None:
        """However the driver numbers them: in the location's upper bits, its lowest, or not."""
        card = tree.card(FIRST, unique_id="bd2a3a1c0f000001")
        tree.split(card, "CPX", 4, shift=shift, numbered=numbered)
        backend.open()
        devices = backend.devices()
        parent = "GPU-bd2a3a1c0f000001"
        assert [device.id for device in devices] == [
            parent,
            *(f"{parent}/xcp{number}" for number in range(4)),
        ]
        assert [device.parent for device in devices] == [None, *[parent] * 4]
        assert {device.pci_address for device in devices} == {FIRST}
        assert devices[2].attributes["kubelet_id"] == "amdgpu_xcp_0"
        assert devices[0].attributes["compute_partition"] == "CPX"

    def test_each_has_its_own_load(self, split: Tree, results: Read) -> None:
        found = results("utilization_percent", "amd_video_utilization_percent")
        card = "GPU-bd2a3a1c0f000001"
        assert found[f"{card}/xcp0", "utilization_percent"] == 80
        assert found[f"{card}/xcp1", "utilization_percent"] == 20
        assert found[f"{card}/xcp0", "amd_video_utilization_percent"] == 10
        for metric in OF_PARTITIONS:
            failure = failure_of(found[card, metric])
            assert failure.reason is Reason.NOT_SUPPORTED
            assert "DPX" in failure.detail
        assert found["GPU-bd2a3a1c0f000002", "utilization_percent"] == 50

    def test_what_the_card_has_once_is_reported_once(
        self, split: Tree, results: Read, backend: AmdBackend
    ) -> None:
        found = results()
        card = "GPU-bd2a3a1c0f000001"
        own = {*OF_PARTITIONS, "sm_clock_megahertz", "process_count"}
        for metric in backend.metrics.keys() - own:
            assert not hasattr(found[card, metric], "reason"), metric
            for number in range(2):
                failure = failure_of(found[f"{card}/xcp{number}", metric])
                assert failure.reason is Reason.NOT_SUPPORTED
                assert failure.permanent
                assert card in failure.detail

    def test_a_table_of_its_own_comes_first(self, split: Tree, results: Read) -> None:
        (folder,) = (split.root / "sys/devices/platform").glob("amdgpu_xcp_*")
        (folder / "xcp").mkdir()
        own = tables.xcp_metrics(gfx_busy_inst=[30, 40], current_gfxclk=[2000, 2100])
        (folder / "xcp/xcp_metrics").write_bytes(own)
        found = results("utilization_percent", "sm_clock_megahertz")
        device = "GPU-bd2a3a1c0f000001/xcp1"
        assert found[device, "utilization_percent"] == 35
        assert found[device, "sm_clock_megahertz"] == 2050

    def test_units_that_are_absent_do_not_count(
        self, tree: Tree, backend: AmdBackend, results: Read
    ) -> None:
        card = tree.card(FIRST)
        card.table(xcp_stats=[{"gfx_busy_inst": [60], "vcn_busy": [0]}, {}])
        tree.split(card, "DPX", 2)
        found = results("utilization_percent", "amd_video_utilization_percent")
        assert found[f"{FIRST}/xcp0", "utilization_percent"] == 60
        assert found[f"{FIRST}/xcp0", "amd_video_utilization_percent"] == 0
        failure = failure_of(found[f"{FIRST}/xcp1", "utilization_percent"])
        assert failure.reason is Reason.NOT_SUPPORTED
        assert not failure.permanent

    def test_a_driver_that_never_tells_them_apart(self, tree: Tree, results: Read) -> None:
        card = tree.card(FIRST)
        card.table((1, 5))
        tree.split(card, "DPX", 2)
        found = results("utilization_percent")
        assert failure_of(found[f"{FIRST}/xcp1", "utilization_percent"]).permanent

    def test_splitting_anew_is_followed(self, split: Tree, backend: AmdBackend) -> None:
        backend.open()
        assert len(backend.devices()) == 4
        card = split.card("0000:c3:00.0")
        split.split(card, "QPX", 4)
        assert len(backend.devices()) == 9
        split.join(card)
        assert len([d for d in backend.devices() if d.pci_address == "0000:c3:00.0"]) == 1

    def test_partitions_that_are_hidden(self, tree: Tree, results: Read) -> None:
        """In a container without the other devices, the compute driver shows one node or none."""
        tree.card(FIRST, current_compute_partition="CPX")
        failure = failure_of(results("utilization_percent")[FIRST, "utilization_percent"])
        assert failure.reason is Reason.PERMISSION
        assert "renderD" in failure.detail

    def test_processes_of_each(self, split: Tree, results: Read) -> None:
        nodes = (split.root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id")
        first, second, other = sorted(int(path.read_text()) for path in nodes)
        split.process(1, queues=[first])
        split.process(2, queues=[first, second])
        split.process(3, vram={other: 1})
        found = results("process_count")
        card = "GPU-bd2a3a1c0f000001"
        assert found[f"{card}/xcp0", "process_count"] == 2
        assert found[f"{card}/xcp1", "process_count"] == 1
        assert found[card, "process_count"] == 2
        assert found["GPU-bd2a3a1c0f000002", "process_count"] == 1


def test_no_card_at_all(tree: Tree, backend: AmdBackend) -> None:
    with pytest.raises(BackendError) as caught:
        backend.open()
    assert caught.value.reason is Reason.NOT_SUPPORTED
    assert "no AMD GPU" in str(caught.value)
    probe = backend.probe()
    assert not probe.viable
    assert "no AMD GPU" in probe.reason
    assert probe.attempts


@pytest.mark.parametrize(
    ("driver", "words"), [(False, "is not loaded"), (True, "does not have it")]
)
def test_a_card_whose_driver_comes_later(
    tree: Tree, backend: AmdBackend, driver: bool, words: str
) -> None:
    folder = tree.root / f"sys/bus/pci/devices/{FIRST}"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text("0x1002\n")
    (folder / "class").write_text("0x120000\n")
    if driver:
        (tree.root / "sys/bus/pci/drivers/amdgpu").mkdir(parents=True)
    with pytest.raises(BackendError, match=words):
        backend.open()
    assert FIRST in backend.probe().reason
    for name in ("vendor", "class"):
        (folder / name).unlink()
    folder.rmdir()
    tree.card(FIRST)
    backend.open()
    assert ids(backend) == [FIRST]
