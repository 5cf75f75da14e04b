"""``accelscale check``: what is wrong with ScaledObjects, and what will go wrong with them."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from accelscale.cli.options import AsJson, positive_seconds, print_json, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from accelscale.lab.check import Finding, Report
    from accelscale.metrics import Metric


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="YAML files, folders of them, or - for standard input."
        ),
    ],
    as_json: AsJson = False,
    as_sarif: Annotated[
        bool, typer.Option("--sarif", help="Print SARIF 2.1.0, for code hosts.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Leave out findings with this id; repeatable."),
    ] = None,
    load_time: Annotated[
        float | None,
        typer.Option(
            parser=positive_seconds,
            metavar="SECONDS",
            help="Time that a new replica needs before it works. [default: 60]",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            parser=positive_seconds,
            metavar="SECONDS",
            help="Time between two readings of the devices, as the agent has it.",
        ),
    ] = 1.0,
) -> None:
    """Find faults and traps in ScaledObjects and ScaledJobs."""
    if as_json and as_sarif:
        raise typer.BadParameter("print one document only: --json or --sarif")
    _need_yaml()
    from accelscale.lab.check import RULES, Conditions, sources
    from accelscale.lab.check import check as checked

    unknown = sorted(set(ignore or ()) - set(RULES))
    if unknown:
        raise typer.BadParameter(f"--ignore: no finding has the id {', '.join(unknown)}")
    conditions = Conditions(load_time, interval, _metrics_of_plugins)
    stdin = sys.stdin.buffer if sys.stdin is not None else io.BytesIO()  # it may be closed
    report = checked(sources(files, stdin), conditions).without(ignore or ())
    if as_json:
        print_json(report.record())
    elif as_sarif:
        from accelscale.lab.check.sarif import sarif

        print_json(sarif(report, RULES))
    else:
        for line in _lines(report):
            say(line)
    raise typer.Exit(report.status(strict=strict))


def _need_yaml() -> None:
    try:
        import yaml  # noqa: F401
    except ModuleNotFoundError as error:
        from accelscale.errors import UnsupportedError

        raise UnsupportedError(
            "`accelscale check` needs the extra `lab` (no module yaml):"
            " python -m pip install 'accelscale[lab]'"
        ) from error


def _metrics_of_plugins() -> Mapping[str, Metric]:
    from accelscale.plugins import load_plugins

    return load_plugins().extra_metrics()


def _lines(report: Report) -> Iterator[str]:
    explained: set[str] = set()
    for finding in (*report.unusable, *report.findings):
        yield _printable(_headline(finding))
        if finding.rule.id not in explained:  # the same words twice help nobody
            explained.add(finding.rule.id)
            yield f"    why: {finding.rule.explanation}"
        yield _printable(f"    fix: {finding.fix}")
    yield _summary(report)


def _headline(finding: Finding) -> str:
    place = f"{finding.file}:{finding.place.line}:{finding.place.column}"
    subject = f" ({finding.subject})" if finding.subject else ""
    return f"{place}: {finding.severity} {finding.rule.id} {finding.message}{subject}"


def _printable(text: str) -> str:
    """One line, and nothing in it that a terminal obeys: parts of it come from the file."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _summary(report: Report) -> str:
    from accelscale.lab.check import Severity

    looked_at = report.objects - report.foreign
    parts = [f"{_counted(looked_at, 'object')} checked in {_counted(report.files, 'file')}"]
    if report.foreign:
        parts.append(f"{report.foreign} without a trigger of accelscale left alone")
    counts = [_counted(n, str(each)) for each in Severity if (n := report.count(each))]
    parts.append(", ".join(counts) or "nothing found")
    if report.unusable:
        parts.append(f"{_counted(len(report.unusable), 'input')} not usable")
    return "; ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
