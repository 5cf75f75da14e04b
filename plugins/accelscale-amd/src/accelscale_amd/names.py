"""What a card is called, from the table that comes with libdrm."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from accelscale_amd.files import text_or_none


def marketing_name(table: Path, device_id: str, revision: str) -> str | None:
    """The name of that PCI device id and revision (``0x74a1``, ``0x00``), or None."""
    wanted = tuple(text.lower().removeprefix("0x").lstrip("0") for text in (device_id, revision))
    return _rows(table).get(wanted)


@lru_cache(maxsize=4)
def _rows(table: Path) -> dict[tuple[str, ...], str]:
    rows = {}
    for line in (text_or_none(table) or "").splitlines():
        device, _, rest = line.partition(",")
        revision, _, name = rest.partition(",")
        if name and not line.startswith("#"):
            rows[tuple(text.strip().lower().lstrip("0") for text in (device, revision))] = (
                name.strip()
            )
    return rows
