"""The binary tables of amdgpu: ``gpu_metrics`` of a card, ``xcp_metrics`` of a partition.

Each begins with its size and two revision numbers, and each revision has another layout. The
layouts are those of the kernel's ``kgd_pp_interface.h``. A revision that is not listed here, or one
whose size differs from what was published, is not read at all: the content revision 6 exists in two
layouts, and what lies at an offset of one is something else in the other.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from attrs import frozen

from accelscale.model import Reason
from accelscale_amd.files import UnreadableError

Values = tuple[int | None, ...]

PARTITIONS = 8
"""Of how many partitions a card's table speaks; what the card lacks has all bits set."""

_HEADER = struct.Struct("<HBB")
_SENTINELS = {code: 2 ** (8 * struct.calcsize(code)) - 1 for code in "BHIQ"}


@frozen
class Table:
    """The fields of one table by name; a value that the card lacks (all bits set) is None.

    ``format`` 1 is a discrete card, 2 and 3 are APUs.
    """

    format: int
    content: int
    fields: Mapping[str, Values]

    @property
    def revision(self) -> str:
        """As AMD writes it: ``1.6``."""
        return f"{self.format}.{self.content}"

    def known(self, name: str) -> tuple[int, ...]:
        """The values of a field that the card has; none where the revision lacks the field."""
        return tuple(value for value in self.fields.get(name, ()) if value is not None)

    def number(self, name: str) -> int | None:
        """The value of a field, or None."""
        return next(iter(self.known(name)), None)


@frozen
class _Layout:
    """The order of a table's fields, in the alignment of C.

    Each field is written ``name:code`` or ``name:<count><code>`` with a code of `struct`; ``-``
    names what is not used, and ``-:0Q`` aligns as C aligns a structure inside another.
    """

    structure: struct.Struct
    fields: tuple[tuple[str, slice, int], ...]

    @classmethod
    def of(cls, text: str) -> _Layout:
        """The layout that the text spells; the header stands before it."""
        fields: list[tuple[str, slice, int]] = []
        formats, position = "@HBB", 3
        for item in text.split():
            name, _, code = item.partition(":")
            count = int(code[:-1] or 1)
            formats += f"{count}{code[-1]}"
            if name != "-":
                fields.append((name, slice(position, position + count), _SENTINELS[code[-1]]))
            position += count
        return cls(struct.Struct(f"{formats}0Q"), tuple(fields))

    def read(self, data: bytes) -> dict[str, Values]:
        numbers = self.structure.unpack_from(data)
        return {name: _known(numbers[place], absent) for name, place, absent in self.fields}


def _known(numbers: tuple[int, ...], absent: int) -> Values:
    return tuple(None if number == absent else number for number in numbers)


_OLD = "-:10H energy:Q -:Q -:14H -:I -:4H -:2I -:4H"
_LINK = "-:2H xgmi_width:H -:H -:2I -:5Q"
_CLOCKS = "gfxclk:8H -:4H -:4H -:4H -:H"
_RESIDENCY = (
    "accumulation:I prochot_residency:I ppt_residency:I socket_residency:I vr_residency:I"
    " hbm_residency:I"
)
_XGMI = "xgmi_read:8Q xgmi_write:8Q"
_XCP = {
    6: "-:0Q {0}gfx_busy:8I -:32H {0}vcn:4H -:8Q",
    7: "-:0Q {0}gfx_busy:8I -:32H {0}vcn:4H -:16Q",
    8: "-:0Q {0}gfx_busy:8I -:40H {0}vcn:4H -:40Q",
}


def _with_partitions(revision: int) -> str:
    bandwidth = "" if revision == 6 else "-:Q"
    status = "" if revision == 6 else "-:8H -:H"
    partitions = " ".join(_XCP[revision].format(f"xcp{n}_") for n in range(PARTITIONS))
    return (
        f"-:6H {bandwidth} energy:Q -:Q {_RESIDENCY} -:I {_LINK} -:2I {_XGMI} {status} -:Q"
        f" {_CLOCKS} -:H {partitions} -:I"
    )


_LAYOUTS: Mapping[tuple[int, int], _Layout] = MappingProxyType(
    {
        revision: _Layout.of(text)
        for revision, text in {
            (1, 0): "-:Q -:8H mm:H -:H energy:I -:14H -:I -:H -:2B",
            (1, 1): _OLD.replace("-:10H", "-:8H mm:H -:H", 1),
            (1, 2): _OLD.replace("-:10H", "-:8H mm:H -:H", 1) + " -:Q",
            (1, 3): _OLD.replace("-:10H", "-:8H mm:H -:H", 1) + " -:Q -:4H -:Q",
            (1, 4): f"-:6H vcn:4H energy:Q -:Q -:2I {_LINK} {_XGMI} -:Q {_CLOCKS} -:H",
            (1, 5): (f"-:6H vcn:4H -:32H energy:Q -:Q -:2I {_LINK} -:2I {_XGMI} -:Q {_CLOCKS} -:H"),
            (1, 6): _with_partitions(6),
            (1, 7): _with_partitions(7),
            (1, 8): _with_partitions(8),
            (3, 0): (
                "-:20H vcn:H -:8H -:16H -:4H -:Q -:I -:H -:4I -:16H -:3H -:8H -:16H -:2H -:7I -:I"
            ),
        }.items()
    }
)

_PARTITION_1_0 = _Layout.of(f"{_CLOCKS} -:H gfx_busy:8I -:40H vcn:4H -:40Q")


def parse_gpu_metrics(data: bytes) -> Table:
    """The table of a card.

    Raises:
        UnreadableError: it is cut short, or of a revision that is not known.
    """
    size, table_format, content = _header(data, "gpu_metrics")
    revision = (table_format, content)
    if revision == (1, 9):
        return Table(1, 9, MappingProxyType(dict(_attributes(data, "gpu_metrics"))))
    if table_format == 2:
        return Table(2, content, MappingProxyType({}))  # APUs: nothing in it that hwmon lacks
    layout = _LAYOUTS.get(revision)
    if layout is None or size != layout.structure.size:
        raise _unknown(f"gpu_metrics {table_format}.{content}", size)
    if len(data) < size:
        raise _cut_short("gpu_metrics", data, size)
    return Table(table_format, content, MappingProxyType(layout.read(data)))


def parse_xcp_metrics(data: bytes) -> Table:
    """The table of a partition; its revisions are counted apart from those of cards.

    Raises:
        UnreadableError: as `parse_gpu_metrics`.
    """
    size, table_format, content = _header(data, "xcp_metrics")
    if (table_format, content) == (1, 1):
        return Table(1, 1, MappingProxyType(dict(_attributes(data, "xcp_metrics"))))
    if (table_format, content) != (1, 0) or size != _PARTITION_1_0.structure.size:
        raise _unknown(f"xcp_metrics {table_format}.{content}", size)
    if len(data) < size:
        raise _cut_short("xcp_metrics", data, size)
    return Table(1, 0, MappingProxyType(_PARTITION_1_0.read(data)))


# Since gpu_metrics 1.9 a table is a list of attributes, each of which says what it is: unit in bits
# 24 to 31, type in 20 to 23, id in 10 to 19, number of values in 0 to 9. The values follow, packed.
_TYPES = "BbHhIiQq"
_UNIT_NONE, _UNIT_MEGAHERTZ, _UNIT_KILOBYTES, _UNIT_PERCENT = 0, 1, 9, 10
_ATTRIBUTES: Mapping[int, tuple[str, int]] = MappingProxyType(
    {
        7: ("energy", _UNIT_NONE),
        9: ("accumulation", _UNIT_NONE),
        10: ("prochot_residency", _UNIT_NONE),
        11: ("ppt_residency", _UNIT_NONE),
        12: ("socket_residency", _UNIT_NONE),
        13: ("vr_residency", _UNIT_NONE),
        14: ("hbm_residency", _UNIT_NONE),
        18: ("xgmi_width", _UNIT_NONE),
        29: ("xgmi_read", _UNIT_KILOBYTES),
        30: ("xgmi_write", _UNIT_KILOBYTES),
        33: ("gfxclk", _UNIT_MEGAHERTZ),
        40: ("gfx_busy", _UNIT_PERCENT),
        42: ("vcn", _UNIT_PERCENT),
    }
)


def _attributes(data: bytes, title: str) -> Iterator[tuple[str, Values]]:
    try:
        (count,) = struct.unpack_from("<i", data, _HEADER.size)
        position = _HEADER.size + 4
        for _ in range(count):
            (encoding,) = struct.unpack_from("<Q", data, position)
            code = _TYPES[encoding >> 20 & 0xF]
            numbers = struct.unpack_from(f"<{encoding & 0x3FF}{code}", data, position + 8)
            position += 8 + struct.calcsize(f"<{encoding & 0x3FF}{code}")
            name, unit = _ATTRIBUTES.get(encoding >> 10 & 0x3FF, ("", -1))
            if name and unit == encoding >> 24 & 0xFF and code in _SENTINELS:
                yield name, _known(numbers, _SENTINELS[code])
    except (struct.error, IndexError) as error:
        raise UnreadableError(
            Reason.ERROR, f"{title} ends within an attribute, or has one of an unknown type"
        ) from error


def _header(data: bytes, title: str) -> tuple[int, int, int]:
    if len(data) < _HEADER.size:
        raise _cut_short(title, data, _HEADER.size)
    size, table_format, content = _HEADER.unpack_from(data)
    return size, table_format, content


def _cut_short(title: str, data: bytes, size: int) -> UnreadableError:
    return UnreadableError(Reason.ERROR, f"{title} holds {len(data)} of {size} bytes")


def _unknown(title: str, size: int) -> UnreadableError:
    detail = f"{title} of {size} bytes has no layout that is known, so nothing of it is read"
    return UnreadableError(Reason.NOT_SUPPORTED, detail, permanent=True)
