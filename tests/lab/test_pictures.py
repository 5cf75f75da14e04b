"""Pictures of a replay: what is in them, and that each way to draw shows it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from accelscale.lab import report
from accelscale.lab.page import Page, render
from accelscale.lab.pictures import Picture, Role, averaged, comparison_of, picture_of, thinned
from accelscale.lab.png import write_png
from accelscale.lab.recording import Absence, Column
from accelscale.lab.remarks import assumptions, warnings
from accelscale.lab.replay import Conditions, Replay, Replayer
from accelscale.lab.summary import summarize
from accelscale.lab.sweep import compare, grid, parse_sweep
from accelscale.lab.terminal import lines_of
from accelscale.model import Reason
from lab.browser import document, needs_chromium, screenshot
from lab.toys import manifest, policy, recording, replayed, wave

METRIC = "utilization_percent"


@pytest.fixture(scope="module")
def replay() -> Replay:
    """Two hours of four devices, all of them lost for a quarter of an hour."""
    gone = [Absence(f"GPU-{n}", METRIC, 3000.0, 3900.0, Reason.LOST) for n in range(4)]
    found = recording({METRIC: [wave(10.0, 95.0, 3600.0)] * 4}, seconds=7200.0, absences=gone)
    columns = {}
    for key, c in found.columns.items():
        kept = (c.times < 3000) | (c.times >= 3900)
        columns[key] = Column(c.times[kept], c.values[kept])
    return replayed(evolve(found, columns=columns), policy(), load_time=120.0)


def page_of(replay: Replay, **changes: object) -> str:
    summary = summarize(replay)
    page = Page(
        title="toys/web",
        subtitle=report.subtitle(replay.recording),
        figures=report.labelled(summary),
        warnings=warnings(replay, summary),
        assumptions=assumptions(replay),
        picture=picture_of(replay),
    )
    return render(evolve(page, **changes))  # type: ignore[arg-type]


def test_a_picture_shows_load_replicas_and_work(replay: Replay) -> None:
    picture = picture_of(replay)
    titles = [panel.title for panel in picture.panels]
    assert titles == [f"{METRIC} per replica", "Replicas", f"Work ({METRIC})"]
    load, limit = picture.panels[0].lines
    assert limit.values == (70.0, 70.0)
    known = [value for value in load.values if value is not None]
    assert len(known) < len(load.values)
    assert max(known) > 70.0
    wanted = picture.panels[1].lines[0]
    assert list(zip(wanted.times, wanted.values, strict=True))[:-1] == replay.changes()
    # The last samples before the loss count until their age limit; unknown begins at a turn.
    ((start, end),) = picture.unknown
    assert (start, end) == (3000.0, 3900.0)


def test_closed_loop_shows_what_waits_too() -> None:
    found = recording({METRIC: [100.0] * 4}, seconds=900.0)
    picture = picture_of(replayed(found, policy(), closed_loop=True, replicas=2))
    roles = [[line.role for line in panel.lines] for panel in picture.panels]
    assert roles[2] == [Role.ARRIVING, Role.SERVED, Role.LIMIT]
    assert roles[3] == [Role.QUEUE]


@given(
    st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(math.nan)), min_size=1, max_size=300),
    st.integers(10, 60),
)
def test_thinning_loses_no_peak_and_bridges_no_gap(values: list[float], most: int) -> None:
    found = np.array(values)
    line = thinned("x", Role.LOAD, np.arange(float(len(found))), found, most)
    known = [value for value in line.values if value is not None]
    real = [value for value in values if not math.isnan(value)]
    assert known == ([] if not real else known)
    if real:
        assert max(known) == max(real)
        assert min(known) == min(real)
    assert (None in line.values) is any(math.isnan(value) for value in values)
    assert len(line.values) <= max(len(found), 1) if len(found) <= most else 1.5 * most + 3
    mean = averaged("x", Role.ARRIVING, np.arange(float(len(found))), found, most)
    assert all(a < b for a, b in zip(mean.times, mean.times[1:], strict=False))


def test_the_png_is_a_picture_with_ink_in_every_panel(replay: Replay, tmp_path: Path) -> None:
    path = tmp_path / "replay.png"
    write_png(picture_of(replay), path)
    pixels = matplotlib.image.imread(path)
    height, width = pixels.shape[:2]
    assert width > 1000
    for third in range(3):
        part = pixels[third * height // 3 : (third + 1) * height // 3, :, :3]
        assert (part.min(axis=2) < 0.9).mean() > 0.005


def test_the_terminal_plot_fits_and_shows_the_threshold_and_the_gap(replay: Replay) -> None:
    for width in (40, 80, 200):
        lines = list(lines_of(picture_of(replay), width))
        drawn = [line for line in lines if "┤" in line or "┼" in line]
        assert max(len(line) for line in drawn) <= width
        text = "\n".join(lines)
        assert "threshold 70 as ┄" in text
        assert "┄" in "".join(drawn)
        assert "█" in text
        assert "·" in text
    assert len(drawn) == 3 * 9


def test_short_and_empty_pictures_are_drawn_as_well(tmp_path: Path) -> None:
    found = recording({METRIC: [50.0]}, seconds=20.0)
    picture = picture_of(replayed(found, policy()))
    write_png(picture, tmp_path / "short.png")
    assert any("█" in line for line in lines_of(picture, 80))
    empty = evolve(picture, panels=())
    assert list(lines_of(empty, 80)) == []


def test_the_page_needs_nothing_but_itself(replay: Replay) -> None:
    text = page_of(replay)
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"""(src|href)\s*=\s*["']""", own)
    assert "https://" not in own
    data = json.loads(re.search(r'type="application/json">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert [chart["unit"] for chart in data] == ["percent", "replicas", "busy devices"]


def test_texts_of_others_are_no_markup(replay: Replay) -> None:
    evil = "<script>alert(1)</script>"
    text = page_of(replay, title=evil, warnings=[evil], figures=[(evil, evil)], subtitle=evil)
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 5
    picture = picture_of(replay)
    panel = evolve(picture.panels[0], title="</script><b>")
    assert "</script><b>" not in page_of(replay, picture=evolve(picture, panels=(panel,)))


@needs_chromium
def test_the_page_opens_in_a_browser_and_shows_every_series(replay: Replay, tmp_path: Path) -> None:
    page = tmp_path / "replay.html"
    page.write_text(page_of(replay), encoding="utf-8")
    opened = document(tmp_path / "profile", page)
    assert 'data-drawn="3"' in opened
    for name in ("per replica", "threshold", "wanted", "past loading", "recorded", "room"):
        assert re.search(rf'class="legendtext"[^>]*>{name}<', opened), name
    # Each line is a path of many pieces, and the grey stretch without an answer is there.
    paths = re.findall(r'<path class="js-line"[^>]*\bd="([^"]*)"', opened)
    assert len(paths) >= 6
    assert max(len(re.findall("[LHV]", path)) for path in paths) > 30
    assert opened.count("shape-group") >= 3 or 'class="shapelayer"' in opened
    assert "toys/web" in opened
    assert "What was assumed" in opened


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 500])
def test_the_page_is_drawn_at_both_widths_and_in_both_colours(
    replay: Replay, tmp_path: Path, scheme: str, width: int
) -> None:
    page, target = tmp_path / "replay.html", tmp_path / "shot.png"
    page.write_text(page_of(replay), encoding="utf-8")
    dark = ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]
    options = [f"--window-size={width},1800", *(dark if scheme == "dark" else [])]
    screenshot(tmp_path / "profile", page, target, *options)
    pixels = matplotlib.image.imread(target)[:, :, :3]
    brightness = float(np.median(pixels))
    assert brightness < 0.3 if scheme == "dark" else brightness > 0.7
    # Something coloured is drawn on the left and on the right half: the charts fill the width.
    colour = pixels.max(axis=2) - pixels.min(axis=2) > 0.25
    assert colour[:, : width // 2].any()
    assert colour[:, width // 2 :].any()


def test_a_comparison_shows_the_cheapest_side_by_side(tmp_path: Path) -> None:
    replayer = Replayer(recording({METRIC: [wave(10.0, 95.0, 1800.0)] * 4}, seconds=3600.0))
    candidates = grid("", manifest(), [parse_sweep("threshold=50..90:5")])
    outcomes = compare(replayer, candidates, Conditions(), keeps_replays=True)
    picture = comparison_of(outcomes)
    assert isinstance(picture, Picture)
    names = [line.name for line in picture.panels[0].lines]
    assert names == [one.candidate.name for one in outcomes[:6]]
    write_png(picture, tmp_path / "compare.png")
    page = Page("9 policies", "toy", [], [], [], picture, report.ranking(outcomes))
    text = render(page)
    assert text.count("<tr>") == 10
    assert comparison_of([evolve(one, replay=None) for one in outcomes]) is None
