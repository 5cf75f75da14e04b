"""Readings of cards and partitions from the files of amdgpu, without any library.

Not among them is ``pcie_bw``, whose every read takes a second. Units: hwmon has microwatts,
thousandths of a degree and hertz; memory is in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from accelscale.model import Reason
from accelscale_amd.cards import Card, Partition
from accelscale_amd.files import UnreadableError, read_bytes, read_integer, read_text, text_or_none
from accelscale_amd.memory_pool import MemoryPool, pool_of
from accelscale_amd.metrics_table import (
    PARTITIONS,
    Table,
    parse_gpu_metrics,
    parse_xcp_metrics,
)
from accelscale_amd.topology import processes_on

JOULES_PER_COUNT = 2.0**-16
"""One count of the energy accumulator: 15.259 microjoules, as the kernel's headers say of the cards
in `_energy_unit_is_known`."""

_TWO_DIES = frozenset({"0x7408", "0x740c"})  # MI250 and MI250X: power is that of the first die
_MI200 = _TWO_DIES | {"0x740f"}
_MI300 = ("0x74a", "0x74b", "0x75a", "0x75b")  # and MI350
_OF_PARTITIONS = frozenset({"utilization_percent", "amd_video_utilization_percent"})
_ABSENT_WIDTHS = frozenset({None, 0})


class CardFiles:
    """The files of one card in one pass; the binary table is read at most once."""

    def __init__(self, root: Path, card: Card) -> None:
        self._root = root
        self.card = card
        self._table: Table | UnreadableError | None = None
        self._hwmon: Path | None = None

    def read(self, metric: str, now: float) -> float:
        """A metric in its unit.

        Raises:
            UnreadableError: the card does not have it, or not now.
        """
        self.require_whole(metric)
        if metric.startswith("throttled_"):
            return self.card.throttled.seconds(metric, self.table(), now)
        return _CARD_READERS[metric](self)

    def require_whole(self, metric: str) -> None:
        """Refuse, of a split card, what its partitions have each for itself."""
        if metric in _OF_PARTITIONS and self.card.is_split:
            raise _belongs_to_partitions(self.card)

    def table(self) -> Table:
        """The card's ``gpu_metrics``. Raises UnreadableError."""
        if self._table is None:
            try:
                self._table = parse_gpu_metrics(read_bytes(self.card.folder / "gpu_metrics"))
            except UnreadableError as error:
                self._table = error
        if isinstance(self._table, UnreadableError):
            raise self._table
        return self._table

    def memory_pool(self) -> MemoryPool:
        """Which memory counts. Raises UnreadableError."""
        vram_total, gtt_total = (self._number(f"mem_info_{name}_total") for name in ("vram", "gtt"))
        return self.choose_pool(vram_total, gtt_total)

    def choose_pool(self, vram_total: int, gtt_total: int) -> MemoryPool:
        """As `memory_pool`, for sizes that are known already."""
        return pool_of(self._table_format(), self.card.folder / "hwmon", vram_total, gtt_total)

    def _table_format(self) -> int | None:
        try:
            return self.table().format
        except UnreadableError:
            return None

    def _number(self, name: str) -> int:
        return read_integer(self.card.folder / name)

    def _sensors(self) -> Path:
        if self._hwmon is None:
            self._hwmon = self.card.hwmon()
        return self._hwmon

    def _sensor(self, name: str) -> int:
        return read_integer(self._sensors() / name)

    def _utilization(self) -> float:
        return self._number("gpu_busy_percent")

    def _memory_bandwidth_utilization(self) -> float:
        return self._number("mem_busy_percent")

    def _memory_used(self) -> float:
        return self._number(f"mem_info_{self.memory_pool().name}_used")

    def _memory_total(self) -> float:
        return self.memory_pool().total_bytes

    def _temperature_stem(self, *labels: str) -> str:
        """The channel of the first of these labels that the card has."""
        hwmon = self._sensors()
        found = {
            text_or_none(path): path.name.removesuffix("_label")
            for path in sorted(hwmon.glob("temp*_label"))
        }
        for label in labels:
            if label in found:
                return found[label]
        detail = f"{hwmon} has no temperature labelled {' or '.join(labels)}"
        raise UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=bool(found))

    def _celsius(self, *labels: str) -> float:
        name = f"{self._temperature_stem(*labels)}_input"
        millidegrees = self._sensor(name)
        if millidegrees == 0:
            detail = f"{self._sensors() / name} shows exactly 0, which nothing measured"
            raise UnreadableError(Reason.OUT_OF_RANGE, detail)
        return millidegrees / 1000

    def _temperature(self) -> float:
        return self._celsius("junction", "edge")

    def _memory_temperature(self) -> float:
        return self._celsius("mem")

    def _slowdown_temperature(self) -> float:
        return self._sensor(f"{self._temperature_stem('junction', 'edge')}_crit") / 1000

    def _power(self) -> float:
        hwmon = self._sensors()
        lack = no_power(self.card, "power")
        for name in ("power1_average", "power1_input"):  # each generation fills one of them
            try:
                if microwatts := read_integer(hwmon / name):
                    return microwatts / 1e6
            except UnreadableError as error:
                if (hwmon / name).exists():
                    lack = error
        raise lack

    def _power_limit(self) -> float:
        microwatts = self._sensor("power1_cap")
        if microwatts == 0:
            raise no_power(self.card, "a power limit")
        return microwatts / 1e6

    def _energy(self) -> float:
        table = self.table()
        count = table.number("energy")
        if count is None or not _energy_unit_is_known(self.card, table):
            detail = (
                f"gpu_metrics {table.revision} of this card has no energy counter whose unit is"
                " known"
            )
            raise UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=True)
        if count == 0:
            raise no_power(self.card, "energy")
        return count * JOULES_PER_COUNT

    def _sm_clock(self) -> float:
        return self._sensor("freq1_input") / 1e6

    def _memory_clock(self) -> float:
        return self._sensor("freq2_input") / 1e6

    def _received(self) -> float:
        return self._link_bytes("xgmi_read")

    def _transmitted(self) -> float:
        return self._link_bytes("xgmi_write")

    def _link_bytes(self, name: str) -> float:
        """The sum over the XGMI links; each counts kilobytes, of 1024 as AMD counts memory."""
        table = self.table()
        kilobytes = table.known(name)
        idle = not any(table.known("xgmi_read")) and not any(table.known("xgmi_write"))
        if not kilobytes or (idle and table.number("xgmi_width") in _ABSENT_WIDTHS):
            detail = f"gpu_metrics {table.revision} shows no XGMI link of this card"
            raise UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=not kilobytes)
        return 1024 * sum(kilobytes)

    def _video(self) -> float:
        table = self.table()
        names = ("vcn", "mm", *(f"xcp{number}_vcn" for number in range(PARTITIONS)))
        return _mean(table, names, f"gpu_metrics {table.revision} shows no video engine")

    def _uncorrected_errors(self) -> float:
        path = self.card.folder / "ras/umc_err_count"
        words = read_text(path).replace(":", " ").split()
        counts = dict(zip(words[::2], words[1::2], strict=False))
        try:
            return int(counts["ue"])
        except (KeyError, ValueError) as error:
            detail = f"{path} holds {' '.join(words)[:40]!r}, no count of uncorrected errors"
            raise UnreadableError(Reason.ERROR, detail) from error

    def _processes(self) -> float:
        return _processes(self._root, *(node.gpu_id for node in self.card.nodes))


class PartitionFiles:
    """The files of one partition in one pass.

    Its own ``xcp_metrics``, or with an older driver its part of the card's ``gpu_metrics``. What
    amdsmi says of a partition behind the first is 0 or nothing, and what it says of the first is
    of the whole card, so it is not asked.
    """

    def __init__(self, root: Path, card: Card, partition: Partition) -> None:
        self._root = root
        self._card = CardFiles(root, card)
        self._partition = partition
        self._own: tuple[Table, str] | UnreadableError | None = None

    def read(self, metric: str, now: float) -> float:
        """A metric in its unit. Raises UnreadableError."""
        if metric not in _PARTITION_READERS:
            detail = f"it is that of the whole card, so {self._card.card.id} has it"
            raise UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=True)
        return _PARTITION_READERS[metric](self)

    def _table(self) -> tuple[Table, str]:
        """The table that speaks of this partition, and how the names of its fields begin."""
        if self._own is None:
            try:
                self._own = self._read_table()
            except UnreadableError as error:
                self._own = error
        if isinstance(self._own, UnreadableError):
            raise self._own
        return self._own

    def _read_table(self) -> tuple[Table, str]:
        folder = self._partition.folder
        if folder is not None and (path := folder / "xcp/xcp_metrics").exists():
            return parse_xcp_metrics(read_bytes(path)), ""
        return self._card.table(), f"xcp{self._partition.number}_"

    def _mean(self, name: str, what: str) -> float:
        table, prefix = self._table()
        title = "gpu" if prefix else "xcp"
        lack = f"{title}_metrics {table.revision} does not show {what} of this partition"
        return _mean(table, [prefix + name], lack)

    def _utilization(self) -> float:
        return self._mean("gfx_busy", "the load")

    def _video(self) -> float:
        return self._mean("vcn", "a video engine")

    def _sm_clock(self) -> float:
        return self._mean("gfxclk", "the clock")

    def _processes(self) -> float:
        return _processes(self._root, self._partition.node.gpu_id)


def no_power(card: Card, what: str) -> UnreadableError:
    """Why a card shows no power: amdgpu shows 0, or no file, where there is no sensor.

    Of a card with two dies the second one also has no limit.
    """
    try:
        second_die = card.device_id in _TWO_DIES and read_integer(card.hwmon() / "power1_cap") == 0
    except UnreadableError:
        second_die = False
    if second_die:
        detail = f"the card has two dies, and amdgpu shows {what} on the first one only"
    else:
        detail = f"amdgpu shows none or 0, as it does where it has no sensor for {what}"
    return UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=second_die)


def _energy_unit_is_known(card: Card, table: Table) -> bool:
    """Whether the unit is published for this table (1.4 to 1.8), or for this card's firmware."""
    if table.format != 1:
        return False
    if table.content < 4:
        return card.device_id in _MI200
    return table.content < 9 or card.device_id.startswith(_MI300)


def _belongs_to_partitions(card: Card) -> UnreadableError:
    if card.partitions:
        detail = f"the card is split ({card.mode}): each of its partitions has its own"
        return UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=True)
    detail = (
        f"the card is split ({card.mode}), but its partitions are hidden from this process: it"
        " needs /sys/class/kfd, and access to /dev/dri/renderD* (in a container: privileged)"
    )
    return UnreadableError(Reason.PERMISSION, detail)


def _processes(root: Path, *gpu_ids: int | None) -> float:
    known = frozenset(gpu_id for gpu_id in gpu_ids if gpu_id)
    if not known:
        detail = "the compute driver (KFD) does not show this card, so not its processes either"
        raise UnreadableError(Reason.NOT_SUPPORTED, detail)
    return processes_on(root, known)


def _mean(table: Table, names: Sequence[str], lack: str) -> float:
    """The mean over the values that the card has, of engines or of compute units."""
    values = [value for name in names for value in table.known(name)]
    if not values:
        never = all(name not in table.fields for name in names)
        raise UnreadableError(Reason.NOT_SUPPORTED, lack, permanent=never)
    return sum(values) / len(values)


_CARD_READERS: Mapping[str, Callable[[CardFiles], float]] = MappingProxyType(
    {
        "utilization_percent": CardFiles._utilization,
        "memory_bandwidth_utilization_percent": CardFiles._memory_bandwidth_utilization,
        "memory_used_bytes": CardFiles._memory_used,
        "memory_total_bytes": CardFiles._memory_total,
        "temperature_celsius": CardFiles._temperature,
        "memory_temperature_celsius": CardFiles._memory_temperature,
        "slowdown_temperature_celsius": CardFiles._slowdown_temperature,
        "power_watts": CardFiles._power,
        "power_limit_watts": CardFiles._power_limit,
        "energy_joules_total": CardFiles._energy,
        "sm_clock_megahertz": CardFiles._sm_clock,
        "memory_clock_megahertz": CardFiles._memory_clock,
        "interconnect_receive_bytes_total": CardFiles._received,
        "interconnect_transmit_bytes_total": CardFiles._transmitted,
        "ecc_uncorrected_errors_total": CardFiles._uncorrected_errors,
        "process_count": CardFiles._processes,
        "amd_video_utilization_percent": CardFiles._video,
    }
)

_PARTITION_READERS: Mapping[str, Callable[[PartitionFiles], float]] = MappingProxyType(
    {
        "utilization_percent": PartitionFiles._utilization,
        "sm_clock_megahertz": PartitionFiles._sm_clock,
        "process_count": PartitionFiles._processes,
        "amd_video_utilization_percent": PartitionFiles._video,
    }
)
