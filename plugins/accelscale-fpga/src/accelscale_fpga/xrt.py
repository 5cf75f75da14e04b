"""What the JSON reports of XRT's tool say about a card.

Every number in them is text, ``N/A`` may stand in its place, ``error_msg`` may stand beside a 0
that means nothing, and ``is_present`` is the text ``true`` or ``false``: 0 with ``false`` is a
sensor that is not fitted (Xilinx/XRT#6240, core/common/sensor.cpp). What is not established as a
number is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from attrs import field, frozen

from accelscale.model import Reason, normal_pci_address
from accelscale_fpga.files import Absent, UnreadableError
from accelscale_fpga.sensors import names_chip, names_memory

T = TypeVar("T")

REPORTS = ("electrical", "thermal", "memory", "dynamic-regions")
"""The reports about one card that are asked for."""

_DECIMAL = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?")
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")
_BANKS = re.compile(r"MEM_(?:DDR|HBM)")  # not on-chip memory, streams or memory of the host
_IDLE, _START = "IDLE", "START"


@frozen
class Presence:
    """A card in the list of cards: None where the tool does not say whether it is ready."""

    ready: bool | None
    shell: str


@frozen
class ComputeUnit:
    """A kernel on the card: how often it was started, and whether it runs; None is unknown."""

    name: str
    starts: int
    running: bool | None


@frozen
class CardReport:
    """What one run said about one card; ``time`` is monotonic, taken before the run.

    ``values`` holds a number, in the unit of the metrics table, or why there is none.
    """

    time: float
    values: Mapping[str, float | Absent] = field(hash=False)
    units: tuple[ComputeUnit, ...] | Absent
    design: str
    hangs: bool


def parse(text: str) -> dict[str, Any]:
    """The document that a run wrote.

    Raises:
        UnreadableError: it is no JSON object.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(Reason.ERROR, f"the report is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise UnreadableError(Reason.ERROR, "the report is no JSON object")
    return document


def presences(document: Mapping[str, Any]) -> dict[str, Presence]:
    """The cards of report ``host``, by PCI address.

    Raises:
        UnreadableError: there is no list of cards.
    """
    devices = _at(document, "system", "host", "devices")
    if devices is None or devices == "":  # an empty list is written as an empty text
        devices = []
    if not isinstance(devices, list):
        raise UnreadableError(Reason.ERROR, "the report has no list of cards")
    found = {}
    for device in devices:
        address = _at(device, "bdf")
        if isinstance(address, str):
            shell = _at(device, "vbnv")
            found[normal_pci_address(address)] = Presence(
                truth(_at(device, "is_ready")), shell if isinstance(shell, str) else ""
            )
    return found


def card_report(document: Mapping[str, Any], address: str, time: float) -> CardReport:
    """The reports about one card.

    Raises:
        UnreadableError: they are about no card, or another one.
    """
    devices = _at(document, "devices")
    device = devices[0] if isinstance(devices, list) and len(devices) == 1 else None
    named = _at(device, "device_id")
    if not isinstance(named, str) or normal_pci_address(named) != address:
        raise UnreadableError(Reason.ERROR, f"the report is not about {address}, but {named!r}")
    regions = _at(device, "dynamic_regions")
    region = regions[0] if isinstance(regions, list) and regions else None
    design = _at(region, "xclbin_uuid")
    return CardReport(
        time=time,
        values={metric: _attempt(read, device) for metric, read in _READERS.items()},
        units=_attempt(_compute_units, region),
        design=design if isinstance(design, str) else "",
        hangs=_at(device, "device_status") == "HANG",
    )


def truth(value: object) -> bool | None:
    """Yes or no, written as JSON or as text; None for all else."""
    if isinstance(value, bool):
        return value
    return {"true": True, "yes": True, "false": False, "no": False}.get(str(value).strip().lower())


def number(value: object, what: str) -> float:
    """A number, written as JSON or as decimal text.

    Raises:
        UnreadableError: it is neither; ``what`` says whose value it is.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    text = value.strip() if isinstance(value, str) else ""
    if _DECIMAL.fullmatch(text):
        return float(text)
    raise UnreadableError(Reason.ERROR, f"XRT says {value!r} as {what}")


def _attempt(read: Callable[[Any], T], part: object) -> T | Absent:
    try:
        return read(part)
    except UnreadableError as error:
        return error.absent


def _at(value: object, *keys: str) -> Any:
    """What lies at the end of these keys, or None."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _refuse_error(part: object, what: str) -> None:
    if not isinstance(part, dict):
        raise UnreadableError(Reason.ERROR, f"XRT gave no report on the {what}")
    if part.get("error_msg"):
        raise UnreadableError(Reason.ERROR, f"XRT on the {what}: {str(part['error_msg'])[:200]}")


def _hottest(card: object, is_wanted: Callable[[str], bool]) -> float:
    thermals = _at(card, "thermals")
    if not isinstance(thermals, list):
        raise UnreadableError(Reason.ERROR, "XRT gave no report on temperatures")
    values, absent = [], ""
    for sensor in thermals:
        label = str(_at(sensor, "description") or _at(sensor, "location_id") or "")
        if not is_wanted(label):
            continue
        _refuse_error(sensor, label)
        value = number(_at(sensor, "temp_C"), f"the temperature of {label}")
        present = truth(_at(sensor, "is_present"))
        if present is False or value == 0:
            absent = label
        else:
            values.append(value)
    if values:
        return max(values)
    detail = f"XRT says that the sensor {absent} is not present" if absent else "no such sensor"
    raise UnreadableError(Reason.NOT_SUPPORTED, detail)


def _watts(card: object) -> float:
    electrical = _at(card, "electrical")
    _refuse_error(electrical, "power")
    watts = number(_at(electrical, "power_consumption_watts"), "the power")
    if watts == 0:
        raise UnreadableError(Reason.OUT_OF_RANGE, "XRT says exactly 0 W, which is no measurement")
    return watts


def _used_bytes(card: object) -> float:
    groups = _at(card, "mem_topology", "board", "memory", "memory_groups")
    return _sum_of_banks(card, "memory_groups" if groups else "memories", _allocated_bytes)


def _sum_of_banks(card: object, kind: str, read: Callable[[object], float]) -> float:
    """Sum over the banks of DDR and HBM memory that the loaded design can use, each once."""
    _refuse_error(_at(card, "mem_topology"), "memory")
    banks = _at(card, "mem_topology", "board", "memory", kind)
    usable = {_at(bank, "base_address"): bank for bank in banks or [] if _is_usable(bank)}
    if not usable:
        detail = "no design that uses the card's memory is loaded"
        raise UnreadableError(Reason.NOT_SUPPORTED, detail)
    return sum(read(bank) for bank in usable.values())


def _is_usable(bank: object) -> bool:
    kind = _at(bank, "type")
    of_host = str(_at(bank, "tag")).upper().startswith("HOST")
    is_bank = isinstance(kind, str) and _BANKS.match(kind) is not None
    return is_bank and not of_host and truth(_at(bank, "enabled")) is True


def _range_bytes(bank: object) -> float:
    text = _at(bank, "range_bytes")
    if isinstance(text, str) and _HEXADECIMAL.fullmatch(text):
        return float(int(text, 16))
    return number(text, "the size of a memory bank")


def _allocated_bytes(bank: object) -> float:
    value = _at(bank, "extended_info", "usage", "allocated_bytes")
    return number(value, "the allocated bytes of a memory bank")


def _compute_units(region: object) -> tuple[ComputeUnit, ...]:
    _refuse_error(region, "compute units")
    units = _at(region, "compute_units")
    if not isinstance(units, list):  # an empty list is written as an empty text
        return ()
    return tuple(_read_units(units))


def _read_units(units: Iterable[object]) -> Iterator[ComputeUnit]:
    for unit in units:
        name = str(_at(unit, "name"))
        bits = _at(unit, "status", "bits_set")
        running: bool | None = None
        if isinstance(bits, list):
            running = False if _IDLE in bits else (True if _START in bits else None)
        starts = number(_at(unit, "usage"), f"the starts of compute unit {name}")
        yield ComputeUnit(name, int(starts), running)


_READERS: Mapping[str, Callable[[Any], float]] = {
    "temperature_celsius": lambda card: _hottest(card, names_chip),
    "memory_temperature_celsius": lambda card: _hottest(card, names_memory),
    "power_watts": _watts,
    "memory_total_bytes": lambda card: _sum_of_banks(card, "memories", _range_bytes),
    "memory_used_bytes": _used_bytes,
}
