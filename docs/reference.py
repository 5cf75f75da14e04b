"""Writes the tables of the reference pages from the code: ``docs/reference.py [--check]``.

A page holds a table between two comments that name it; the text around it is written by hand.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import attrs

import accelscale
from accelscale.cli import app
from accelscale.errors import Fault
from accelscale.hpa import desired_replicas
from accelscale.lab.check import RULES
from accelscale.lab.simulate.report import seconds
from accelscale.lab.simulate.server_model import FIGURES, SETUPS
from accelscale.lab.simulate.signals import SIGNALS
from accelscale.lab.wording import number, percent
from accelscale.metrics import METRICS, TIER_SECONDS, Metric
from accelscale.model import Reason
from accelscale.profiles import PROFILES
from accelscale.trigger import KEYS, MetricType
from accelscale_server.config import AgentConfig, ScalerConfig, ServeConfig, ServerConfig

DOCS = Path(__file__).parent
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    titles = list(header)
    lines = [titles, ["---"] * len(titles), *[list(row) for row in rows]]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def code(text: str) -> str:
    """Text set as code."""
    return f"`{text}`"


def metrics() -> str:
    """Every metric of the common table."""
    header = ("metric", "unit", "kind", "possible", "over devices", "meaning")
    return table(header, (_metric_row(metric) for metric in METRICS.values()))


def _metric_row(metric: Metric) -> tuple[str, ...]:
    upper = f"{metric.maximum:g}" if metric.maximum != float("inf") else ""
    meaning = metric.help
    if metric.derivation is not None:
        meaning += f" Computed from {' and '.join(map(code, metric.sources))}."
    return (
        code(metric.name),
        metric.unit,
        str(metric.kind),
        f"{metric.minimum:g} to {upper}" if upper else f"from {metric.minimum:g}",
        metric.aggregation,
        meaning,
    )


def keys() -> str:
    """Every key of a trigger."""
    rows = (
        (code(key), field.metadata["help"], field.metadata["shown"]) for key, field in KEYS.items()
    )
    return table(("key", "meaning", "default"), rows)


def profiles() -> str:
    """Every profile with the keys it sets."""
    rows = (
        (code(row.name), row.help, "<br>".join(code(f"{k}: {v}") for k, v in row.keys.items()))
        for row in PROFILES.values()
    )
    return table(("profile", "for", "sets"), rows)


REASONS = {
    Reason.NOT_SUPPORTED: "This hardware, or the mode it is in, does not have the reading.",
    Reason.PERMISSION: "The driver or the kernel refuses it to this process.",
    Reason.LOST: "The device has fallen off the bus, or is gone.",
    Reason.RESET_REQUIRED: "The driver wants the device to be reset before it is used again.",
    Reason.TIMEOUT: "The driver did not answer in time.",
    Reason.OUT_OF_RANGE: "The driver gave a number that cannot be.",
    Reason.COUNTER_RESET: "A counter went back, so this once it gives no rate.",
    Reason.NO_PROGRESS: "A counter has no second reading yet, or does not move.",
    Reason.STALE: "The newest sample is older than its age limit.",
    Reason.ERROR: "The driver failed in another way; the detail has its words.",
}


def reasons() -> str:
    """Every reason for a missing reading."""
    rows = (
        (code(reason), REASONS[reason], "until its age limit" if reason.passing else "no")
        for reason in Reason
    )
    return table(("reason", "meaning", "does the sample before it still count?"), rows)


def tiers() -> str:
    """How often readings are taken."""
    rows = (
        (code(tier), "every interval" if not seconds else f"every {seconds:g} s, or every interval")
        for tier, seconds in TIER_SECONDS.items()
    )
    return table(("tier", "read"), rows)


def api() -> str:
    """Every public name of the library with the first sentence about it."""
    rows = []
    for name in accelscale.__all__:
        thing = getattr(accelscale, name)
        home = accelscale._HOMES.get(name)
        where = f"accelscale.{home}" if home else "accelscale"
        rows.append((code(name), code(where), _first_sentence(thing)))
    return table(("name", "defined in", "is"), rows)


def _first_sentence(thing: object) -> str:
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return CONSTANTS.get(id(thing), "A constant.")
    text = inspect.getdoc(thing) or ""
    sentence = text.split("\n\n", maxsplit=1)[0].replace("\n", " ")
    return sentence.replace("``", "`").replace("|", "\\|")


CONSTANTS = {
    id(accelscale.METRICS): "The common table of metrics, by name.",
    id(accelscale.hookimpl): "Marks the hook of a plugin.",
    id(accelscale.__version__): "The version of the distribution.",
}


def options(kind: type[ServerConfig]) -> str:
    """Every option of a server."""
    rows = []
    for field in attrs.fields(kind):
        flag = "--" + field.name.replace("_", "-")
        rows.append((code(flag), field.metadata["help"], field.metadata["shown"]))
    return table(("option", "meaning", "default"), rows)


def commands() -> str:
    """Every command with its options."""
    group = app._command()
    return "\n".join(_command(name, group.commands[name]) for name in group.commands)


def _command(name: str, command: Any) -> str:
    usage = (
        " ".join(
            f"{{{parameter.metavar or parameter.name}}}"
            for parameter in command.params
            if parameter.param_type_name == "argument"
        )
        .replace("{{", "{")
        .replace("}}", "}")
    )
    rows = [
        (" ".join(map(code, parameter.opts)), parameter.help or "")
        for parameter in command.params
        if parameter.param_type_name == "option"
    ]
    title = f"## {name}\n\n{command.help}\n\n"
    if usage:
        title += f"Takes {code(usage.strip('{}'))}.\n\n"
    return title + table(("option", "meaning"), rows)


def findings() -> str:
    """Every finding of ``accelscale check``."""
    rows = (
        (rule.id, code(rule.name), str(rule.severity), rule.explanation, rule.fix)
        for rule in RULES.values()
    )
    header = ("id", "name", "severity", "why", "what to do")
    return table(header, ([cell.replace("|", "\\|") for cell in row] for row in rows))


SHAPES = (
    ("mean under AverageValue", MetricType.AVERAGE_VALUE, False),
    ("sum under AverageValue", MetricType.AVERAGE_VALUE, True),
    ("mean under Value", MetricType.VALUE, False),
    ("sum under Value", MetricType.VALUE, True),
)
"""What can be sent to an HPA under what type: in words, the type, whether it is a sum."""


def metric_shapes() -> str:
    """What each shape of a number asks for, threshold 70, by replicas and what each carries."""
    counts = (1, 2, 4, 8, 20)
    rows = []
    for carried in (20, 60, 80, 95):
        for name, kind, summed in SHAPES:
            cells = []
            for count in counts:
                value = carried * count if summed else carried
                cells.append(str(desired_replicas(value, 70, metric_type=kind, current=count)))
            rows.append((f"{carried} %", name, *cells))
    return table(("each carries", "what is sent", *(f"of {count}" for count in counts)), rows)


def loading_shapes() -> str:
    """The same with 8 replicas of which 4 work at 95 % and 4 still load."""
    cases = (
        ("sum under AverageValue; those that load add 0", 4 * 95.0, MetricType.AVERAGE_VALUE, 4),
        ("mean of the Ready under Value", 95.0, MetricType.VALUE, 4),
        ("mean of all under Value, those that load not Ready", 47.5, MetricType.VALUE, 4),
        ("mean of all under Value, the probe says Ready too early", 47.5, MetricType.VALUE, 8),
        ("mean under AverageValue", 95.0, MetricType.AVERAGE_VALUE, 4),
        (
            "what accelscale sends: those that load filled in, which would turn the direction",
            8 * 70.0,
            MetricType.AVERAGE_VALUE,
            4,
        ),
    )
    rows = [
        (name, f"{value:g}", str(desired_replicas(value, 70, metric_type=kind, current=8, ready=r)))
        for name, value, kind, r in cases
    ]
    return table(("what is sent", "number", "the HPA asks for"), rows)


def growth() -> str:
    """How many rounds of loading a full fleet takes to grow, by threshold."""
    rows = (
        (str(threshold), _rounds(threshold, 1, 32), _rounds(threshold, 8, 16))
        for threshold in (50, 60, 70, 75, 80, 85, 90, 91)
    )
    return table(("threshold", "from 1 to 32 or more", "from 8 to 16 or more"), rows)


def _rounds(threshold: int, replicas: int, wanted: int) -> str:
    for rounds in range(100):
        if replicas >= wanted:
            return str(rounds)
        replicas = desired_replicas(100 * replicas, threshold, current=replicas)
    return "never"


def server_figures() -> str:
    """Every figure of the model of a server, with those of the setups."""
    rows = (
        (
            code(name),
            field.metadata["unit"],
            field.metadata["help"],
            *(_figure(getattr(setup, name)) for setup in SETUPS.values()),
        )
        for name, field in FIGURES.items()
    )
    return table(("figure", "unit", "meaning", *map(code, SETUPS)), rows)


def _figure(value: float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value / 1e9:.1f}e9" if value >= 1e9 else f"{value:.10g}"


def signals() -> str:
    """Every number that a trigger of another scaler can stand for."""
    return table(("name", "is"), ((code(s.name), s.help) for s in SIGNALS.values()))


def ranking(picture: str) -> str:
    """The policies of a comparison of simulations that a page shows as a picture."""
    header = ("policy", "late", "first token p95", "answer p95", "device hours", "energy")
    rows = (
        (
            code(one["name"]),
            percent(one["late_share"]),
            seconds(one["first_token_p95"]),
            seconds(one["whole_answer_p95"]),
            number(one["device_hours"]),
            f"{number(one['energy_kilowatt_hours'])} kWh",
            str(round(one["replicas_started"])),
        )
        for one in _figures_of(picture)
    )
    return table((*header, "cold starts"), rows)


def replayed(picture: str) -> str:
    """The policies of a comparison of replays that a page shows as a picture."""
    rows = (
        (
            code(one["name"]),
            number(one["device_hours"]),
            percent(one["missed_share"]),
            percent(one["saturated_share"]),
            str(round(one["scale_ups"] + one["scale_downs"])),
            number(one["device_hours"] + 10 * one["missed_device_hours"]),
        )
        for one in _figures_of(picture)
    )
    header = ("policy", "device hours", "missed work", "time saturated", "scale events", "cost")
    return table(header, rows)


def _figures_of(picture: str) -> Any:
    return json.loads((DOCS / "lab" / "pictures" / f"{picture}.json").read_text(encoding="utf-8"))


TABLES: dict[str, Callable[[], str]] = {
    "metrics": metrics,
    "keys": keys,
    "profiles": profiles,
    "reasons": reasons,
    "tiers": tiers,
    "api": api,
    "options": partial(options, ServeConfig),
    "agent_options": partial(options, AgentConfig),
    "scaler_options": partial(options, ScalerConfig),
    "commands": commands,
    "metric_shapes": metric_shapes,
    "loading_shapes": loading_shapes,
    "growth": growth,
    "server_figures": server_figures,
    "signals": signals,
    "which_signal": partial(ranking, "signals"),
    "which_threshold": partial(ranking, "thresholds"),
    "replayed_thresholds": partial(replayed, "replay"),
    "findings": findings,
}


def rendered(text: str, page: str) -> str:
    """The page with its tables made anew."""

    def replace(match: re.Match[str]) -> str:
        name = match[2]
        if name not in TABLES:
            raise SystemExit(str(Fault(page, name, f"must be one of {', '.join(TABLES)}")))
        return match[1] + "\n" + TABLES[name]() + "\n" + match[3]

    return BLOCK.sub(replace, text)


def main() -> int:
    """Write the pages, or with ``--check`` say which differ from the code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail on a difference")
    check = parser.parse_args().check
    used, differing = set(), []
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        used.update(match[2] for match in BLOCK.finditer(text))
        new = rendered(text, path.name)
        if new != text:
            differing.append(path.relative_to(DOCS.parent))
            if not check:
                path.write_text(new, encoding="utf-8")
    unused = set(TABLES) - used
    if unused:
        sys.stderr.write(f"no page shows the table {', '.join(sorted(unused))}\n")
    for path in differing if check else ():
        sys.stderr.write(f"{path} differs from the code; run `make reference`\n")
    return 1 if unused or (check and differing) else 0


if __name__ == "__main__":
    sys.exit(main())
