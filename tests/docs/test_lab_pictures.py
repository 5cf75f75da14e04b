"""The pictures of the lab's pages show what their commands say today."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest

LAB = Path(__file__).parents[2] / "docs" / "lab"
SHOWN = re.compile(r"!\[[^\]]+\]\(pictures/(\w+)\.png\)")


def script() -> Any:
    spec = importlib.util.spec_from_file_location("lab_pictures", LAB / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PICTURES = script()


def test_every_picture_of_a_page_is_made_by_a_command_of_it() -> None:
    made = [command.picture for command in PICTURES.shown() if command.picture]
    pages = [page.read_text(encoding="utf-8") for page in sorted(LAB.glob("*.md"))]
    assert made == [name for page in pages for name in SHOWN.findall(page)]
    kept = {path.stem for path in (LAB / "pictures").iterdir()}
    assert kept == set(made)


@pytest.mark.parametrize("picture", sorted((LAB / "pictures").glob("*.png")), ids=lambda p: p.stem)
def test_pictures_are_small_and_of_one_width(picture: Path) -> None:
    assert picture.stat().st_size < 400_000
    assert matplotlib.image.imread(picture).shape[1] == 1320


def test_figures_are_those_of_the_commands(tmp_path: Path) -> None:
    folder = PICTURES.workplace(tmp_path)
    seen = []
    for name, new in PICTURES.figures(PICTURES.shown(), folder):
        old = json.loads((LAB / "pictures" / f"{name}.json").read_text(encoding="utf-8"))
        assert list(PICTURES.differences(old, new)) == [], f"run docs/lab/pictures.py: {name}"
        seen.append(name)
    assert len(seen) >= 4


def test_what_the_guide_says_in_words_is_so() -> None:
    """The claims of the page that are no table."""
    load = {
        name: json.loads((LAB / "pictures" / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("signals", "thresholds", "replay", "fault")
    }
    signals = {one["name"]: one for one in load["signals"]}
    assert signals["busy"]["at_maximum_share"] > 0.7
    assert signals["queue"]["replicas_least"] == 1
    assert signals["queue"]["scale_downs"] >= 5
    assert signals["both"]["late_share"] < signals["power"]["late_share"]
    assert signals["both"]["device_hours"] < signals["busy"]["device_hours"] / 2
    late = {one["name"]: one["late_share"] for one in load["thresholds"]}
    assert late["threshold=90"] > 0.05 > late["threshold=80"]
    hours = {one["name"]: one["device_hours"] for one in load["thresholds"]}
    assert hours["threshold=50"] > hours["threshold=70"] > hours["threshold=90"]
    cost = {
        one["name"]: one["device_hours"] + 10 * one["missed_device_hours"] for one in load["replay"]
    }
    assert cost["threshold=50"] > cost["threshold=80"] < cost["threshold=90"]
    changes = load["fault"]["changes"]
    before = [count for time, count in changes if time < 3300][-1]
    during = [count for time, count in changes if 3300 <= time < 3900]
    assert during == []
    assert next(count for time, count in changes if time >= 3900) == before + 3
