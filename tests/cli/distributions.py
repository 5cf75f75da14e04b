"""Distributions written by hand: what pip would leave in a folder, without pip."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_distribution(
    folder: Path,
    name: str,
    entry_points: Mapping[str, Mapping[str, str]],
    modules: Mapping[str, str],
    version: str = "1.2",
) -> None:
    """Write the modules and the metadata with these entry points, by group, into the folder."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, points in entry_points.items():
        lines.append(f"[{group}]")
        lines += [f"{point} = {value}" for point, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
