"""The value in an item of ``nvmlDeviceGetFieldValues``, which is a union of several types."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_UNION_MEMBERS: Mapping[int, tuple[str, int]] = MappingProxyType(
    {
        0: ("dVal", 64),
        1: ("uiVal", 32),
        2: ("ulVal", 64),
        3: ("ullVal", 64),
        4: ("sllVal", 64),
        5: ("siVal", 32),
        6: ("usVal", 16),
    }
)
"""Member of the union and its width, by ``nvmlValueType``."""


def value_of(item: Any) -> tuple[float, int] | None:
    """The raw value and its width in bits; None where its type is not known.

    The item must have succeeded. The members of the union other than that of its type hold garbage
    (icl-utk-edu/papi#564).
    """
    member, bits = _UNION_MEMBERS.get(item.valueType, (None, 0))
    return None if member is None else (getattr(item.value, member), bits)
