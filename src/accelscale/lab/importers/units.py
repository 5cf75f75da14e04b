"""Numbers with units as monitoring tools print them, in the unit of the metrics table.

The first number of a column says what the column is in; one of another kind (watts among percent)
is a fault at its place, one of another size (MiB among GiB) is converted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_NUMBER = re.compile(r"([-+]?[0-9]+(?:[.,][0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*([^0-9].*)?")

UNITS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "%": ("percent", 1.0),
        "percent": ("percent", 1.0),
        "ratio": ("percent", 100.0),
        "W": ("watts", 1.0),
        "mW": ("watts", 1e-3),
        "uW": ("watts", 1e-6),
        "kW": ("watts", 1e3),
        "watt": ("watts", 1.0),
        "C": ("celsius", 1.0),
        "°C": ("celsius", 1.0),
        "Hz": ("megahertz", 1e-6),
        "MHz": ("megahertz", 1.0),
        "GHz": ("megahertz", 1e3),
        "J": ("joules", 1.0),
        "mJ": ("joules", 1e-3),
        "uJ": ("joules", 1e-6),
        "kJ": ("joules", 1e3),
        "MJ": ("joules", 1e6),
        "B": ("bytes", 1.0),
        "bytes": ("bytes", 1.0),
        "kB": ("bytes", 1e3),
        "MB": ("bytes", 1e6),
        "GB": ("bytes", 1e9),
        "KiB": ("bytes", 2.0**10),
        "MiB": ("bytes", 2.0**20),
        "GiB": ("bytes", 2.0**30),
        "TiB": ("bytes", 2.0**40),
        "errors": ("errors", 1.0),
        "": ("", 1.0),
    }
)
"""Each spelling with the unit of the metrics table that it stands for, and the factor."""


def parsed(text: str, unit: str, assumed: str) -> float:
    """The number in ``unit``; ``assumed`` is the spelling that holds where the text has none.

    Raises:
        ValueError: it is no number, or of another kind.
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no number")
    spelling = (match[2] or "").strip() or assumed
    known = UNITS.get(spelling)
    if known is None:
        raise ValueError(f"{text!r} has a unit that is not known here")
    kind, factor = known
    if kind != unit:
        raise ValueError(f"{text!r} is in {spelling or 'no unit'}, where {unit} stand elsewhere")
    return float(match[1].replace(",", ".")) * factor
