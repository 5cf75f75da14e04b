"""A replay as one HTML page that needs nothing else: figures, remarks, and charts to zoom into.

The charts are drawn by plotly.js, whose source is part of the page, so that it opens without a
network and still does in years. The page follows the reader's choice of light or dark.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from string import Template
from typing import Any

from attrs import frozen
from plotly.offline import get_plotlyjs

from accelscale.lab.pictures import Panel, Picture, Role
from accelscale.lab.report import Row

DASHES = {Role.LIMIT: "dash", Role.RECORDED: "dot"}


@frozen(eq=False)
class Page:
    """What a page holds: its heading, tables of (label, text), remarks, and the picture.

    ``ranking`` is a table with its titles, for a comparison.
    """

    title: str
    subtitle: str
    figures: Sequence[tuple[str, str]]
    warnings: Sequence[str]
    assumptions: Sequence[str]
    picture: Picture | None
    ranking: tuple[Sequence[str], Sequence[Row]] | None = None


def render(page: Page) -> str:
    """The page as text."""
    charts = [] if page.picture is None else _charts(page.picture)
    data = json.dumps(charts, allow_nan=False).replace("<", "\\u003c")
    return _PAGE.substitute(
        title=html.escape(page.title),
        subtitle=html.escape(page.subtitle),
        warnings=_warnings(page.warnings),
        figures=_figures(page.figures),
        ranking=_ranking(page.ranking),
        charts="".join(
            f"<h2>{html.escape(chart['title'])} <small>{html.escape(chart['unit'])}</small></h2>"
            f'<div class="chart{_height(chart)}" id="chart{number}"></div>'
            for number, chart in enumerate(charts)
        ),
        assumptions=_list(page.assumptions),
        data=data,
        plotly=get_plotlyjs(),
    )


def _height(chart: dict[str, Any]) -> str:
    """Room for a legend of many lines."""
    return " tall" if len(chart["traces"]) > 4 else ""


def _charts(picture: Picture) -> list[dict[str, Any]]:
    """Each panel as its traces; times are in milliseconds since 1970, as the axis wants them."""
    return [_chart(panel, picture) for panel in picture.panels]


def _chart(panel: Panel, picture: Picture) -> dict[str, Any]:
    traces = [
        {
            "name": line.name,
            "role": str(line.role),
            "dash": DASHES.get(line.role, "solid"),
            "shape": "hv" if line.steps else "linear",
            "x": [_milliseconds(picture, time) for time in line.times],
            "y": [None if value is None else float(f"{value:.6g}") for value in line.values],
        }
        for line in panel.lines
    ]
    return {
        "title": panel.title,
        "unit": panel.unit,
        "traces": traces,
        "range": [_milliseconds(picture, 0.0), _milliseconds(picture, picture.seconds)],
        "unknown": [
            [_milliseconds(picture, start), _milliseconds(picture, end)]
            for start, end in picture.unknown
        ],
    }


def _milliseconds(picture: Picture, time: float) -> int:
    return round(1000 * (picture.start + time))


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    return f'<section class="warnings"><h2>Warnings</h2>{_list(warnings)}</section>'


def _figures(figures: Sequence[tuple[str, str]]) -> str:
    if not figures:
        return ""
    cells = "".join(
        f"<div><dt>{html.escape(label)}</dt><dd>{html.escape(text)}</dd></div>"
        for label, text in figures
    )
    return f"<dl>{cells}</dl>"


def _ranking(ranking: tuple[Sequence[str], Sequence[Row]] | None) -> str:
    if ranking is None:
        return ""
    titles, rows = ranking
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _list(texts: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in texts) + "</ul>"


_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
:root { --ink: #1b1b1f; --soft: #5a5a66; --paper: #ffffff; --card: #f4f5f7; --line: #d9dbe0;
  --warn: #fff4e0; --warn-line: #c77700; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8ec; --soft: #a8a9b4; --paper: #16171b; --card: #202228; --line: #3a3d46;
    --warn: #33270f; --warn-line: #e0a030; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 76rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.4rem 0 0.3rem; overflow-wrap: anywhere; }
h2 small { color: var(--soft); font-weight: normal; }
.subtitle { color: var(--soft); margin: 0.2rem 0 1rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: 0.6rem;
  margin: 1rem 0; }
dl div { background: var(--card); border-radius: 6px; padding: 0.5rem 0.7rem; }
dt { color: var(--soft); font-size: 0.85rem; }
dd { margin: 0; font-size: 1.15rem; font-variant-numeric: tabular-nums; }
.warnings { background: var(--warn); border-left: 4px solid var(--warn-line);
  padding: 0.1rem 1rem 0.4rem; border-radius: 4px; }
.warnings h2 { margin-top: 0.6rem; }
ul { margin: 0.3rem 0; padding-left: 1.2rem; }
li { margin: 0.25rem 0; overflow-wrap: anywhere; }
.chart { width: 100%; height: 270px; overflow: hidden; }
.tall { height: 360px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.3rem 0.6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:nth-child(2), td:nth-child(2) { text-align: left; }
th { color: var(--soft); font-weight: 600; }
.hint { color: var(--soft); font-size: 0.85rem; }
</style>
</head>
<body>
<h1>$title</h1>
<p class="subtitle">$subtitle</p>
$warnings
$figures
$ranking
$charts
<p class="hint">Drag to zoom, double-click to see all again; all charts move together. Grey: the
scaler had no answer. Times are UTC.</p>
<h2>What was assumed</h2>
$assumptions
<script id="data" type="application/json">$data</script>
<script>$plotly</script>
<script>
"use strict";
const charts = JSON.parse(document.getElementById("data").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const palettes = {
  light: { load: "#1f6fb2", limit: "#b3261e", wanted: "#1f6fb2", serving: "#2e7d32",
    recorded: "#6b6b6b", arriving: "#6a4fb0", served: "#2e7d32", queue: "#b25a00",
    other: ["#1f6fb2", "#b25a00", "#2e7d32", "#6a4fb0", "#b3261e", "#6b6b6b"] },
  dark: { load: "#6db3f2", limit: "#ff8a80", wanted: "#6db3f2", serving: "#7ccf80",
    recorded: "#b0b0b8", arriving: "#b9a5f0", served: "#7ccf80", queue: "#f0b060",
    other: ["#6db3f2", "#f0b060", "#7ccf80", "#b9a5f0", "#ff8a80", "#b0b0b8"] },
};
function traces(chart) {
  const colours = palettes[dark.matches ? "dark" : "light"];
  return chart.traces.map((one, number) => ({
    type: "scatter", mode: "lines", name: one.name, x: one.x, y: one.y, connectgaps: false,
    line: { shape: one.shape, dash: one.dash, width: one.role === "serving" ? 0 : 1.6,
      color: one.role === "other" ? colours.other[number % 6] : colours[one.role] },
    fill: one.role === "serving" ? "tozeroy" : "none",
    fillcolor: colours[one.role] + "33",
    hovertemplate: "%{y:.4~g}<extra>" + one.name + "</extra>",
  }));
}
function layout(chart) {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  const grid = { gridcolor: value("--line"), zerolinecolor: value("--line") };
  return {
    margin: { l: 52, r: 14, t: 4, b: 42 }, autosize: true, hovermode: "x unified",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: value("--ink"), family: "system-ui, sans-serif", size: 13 },
    hoverlabel: { bgcolor: value("--card"), font: { color: value("--ink") } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, showlegend: true,
    xaxis: { type: "date", range: chart.range, ...grid },
    yaxis: { rangemode: "tozero", fixedrange: true, automargin: true, ...grid },
    shapes: chart.unknown.map(([from, to]) => ({
      type: "rect", xref: "x", yref: "paper", x0: from, x1: to, y0: 0, y1: 1,
      fillcolor: "rgba(128,128,128,0.25)", line: { width: 0 }, layer: "below" })),
  };
}
const nodes = charts.map((_, number) => document.getElementById("chart" + number));
const config = { responsive: true, displaylogo: false, displayModeBar: false };
const drawn = charts.map((chart, number) =>
  Plotly.newPlot(nodes[number], traces(chart), layout(chart), config));
let moving = false;
function follow(source, change) {
  if (moving) return;
  const from = change["xaxis.range[0]"], to = change["xaxis.range[1]"];
  const update = change["xaxis.autorange"] ? { "xaxis.range": charts[0].range.slice() }
    : from !== undefined ? { "xaxis.range": [from, to] } : null;
  if (update === null) return;
  moving = true;
  Promise.all(nodes.map((node) => Plotly.relayout(node, update))).then(() => { moving = false; });
}
nodes.forEach((node) => node.on("plotly_relayout", (change) => follow(node, change)));
dark.addEventListener("change", () => charts.forEach((chart, number) =>
  Plotly.react(nodes[number], traces(chart), layout(chart), config)));
Promise.all(drawn).then(() => { document.body.dataset.drawn = String(charts.length); });
</script>
</body>
</html>
""")
