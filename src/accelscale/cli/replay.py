"""``accelscale replay``: what KEDA and the HPA would have made of a recording."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accelscale.cli.options import AsJson, print_json, say, seconds
from accelscale.cli.results import (
    Targets,
    candidates_from,
    progress,
    say_figures,
    say_list,
    say_table,
)

if TYPE_CHECKING:
    from accelscale.lab.replay import Conditions, Replayer
    from accelscale.lab.sweep import Candidate

ENERGY_METRICS = frozenset({"utilization_percent", "power_watts"})
"""Recorded metrics that a summary uses beside those of the triggers."""


def replay(
    trace: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE...",
            help="Recordings, or files that `record --import` knows; several are joined.",
            show_default=False,
        ),
    ],
    scaledobject: Annotated[
        Path,
        typer.Option(
            "--scaledobject",
            "-f",
            metavar="FILE",
            help="The manifest of a ScaledObject, - for standard input.",
            show_default=False,
        ),
    ],
    compare: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Another manifest beside it; may be repeated.", show_default=False
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="Try values of a setting: threshold=50..90:5, window=15s,1m,"
            " cooldownPeriod=60..600:60; several make a grid.",
            show_default=False,
        ),
    ] = None,
    closed_loop: Annotated[
        bool,
        typer.Option("--closed-loop", help="Let the modelled replicas do the recorded work."),
    ] = False,
    load_time: Annotated[
        float,
        typer.Option(metavar="SECONDS", parser=seconds, help="What a new replica needs to load."),
    ] = 60.0,
    readiness_delay: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            parser=seconds,
            help="When a new replica is Ready. [default: once it has loaded]",
            show_default=False,
        ),
    ] = None,
    wake: Annotated[
        bool,
        typer.Option(
            "--wake", help="In closed loop, let work that waits lift the workload from 0."
        ),
    ] = False,
    replicas: Annotated[
        int | None,
        typer.Option(
            min=0, help="Replicas at the start. [default: as recorded]", show_default=False
        ),
    ] = None,
    devices_per_replica: Annotated[
        int, typer.Option(min=1, help="Devices of a replica where no pod is known.")
    ] = 1,
    pods: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Only recorded pods of this name, as vllm-* or NAMESPACE/vllm-*.",
            show_default=False,
        ),
    ] = None,
    poll_phase: Annotated[
        float, typer.Option(metavar="SECONDS", parser=seconds, help="Time of KEDA's first poll.")
    ] = 0.0,
    sync_phase: Annotated[
        float, typer.Option(metavar="SECONDS", parser=seconds, help="Time of the HPA's first sync.")
    ] = 0.0,
    kubernetes_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Such as 1.33.", show_default=False)
    ] = None,
    keda_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Such as 2.18.", show_default=False)
    ] = None,
    missed_hour_cost: Annotated[
        float,
        typer.Option(
            min=0.0, help="Device hours that an hour of missed work is worth in a comparison."
        ),
    ] = 10.0,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with charts to zoom.", show_default=False),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture.", show_default=False)
    ] = None,
    plot: Annotated[
        bool | None,
        typer.Option("--plot/--no-plot", help="Draw in the terminal. [default: if it is one]"),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Leave broken rows of a recording out.")
    ] = False,
    metric_of: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC", help="What imported series without a name hold.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a recording against a ScaledObject."""
    from accelscale.lab.extra import need_lab

    need_lab("replay")
    from accelscale.hpa import Controller, KedaVersion
    from accelscale.lab.loading import load
    from accelscale.lab.replay import Conditions, Replayer

    candidates = candidates_from(scaledobject, compare or [], sweep or [])
    recording = load(trace, metrics=_wanted(candidates), repair=repair, metric=metric_of)
    conditions = Conditions(
        closed_loop=closed_loop,
        replicas=replicas,
        load_time=load_time,
        readiness_delay=readiness_delay,
        poll_phase=poll_phase,
        sync_phase=sync_phase,
        controller=(
            Controller()
            if kubernetes_version is None
            else Controller.for_kubernetes(kubernetes_version)
        ),
        keda=KedaVersion() if keda_version is None else KedaVersion.parse(keda_version),
        devices_per_replica=devices_per_replica,
        pods=pods,
        wakes=wake,
    )
    shows = sys.stdout.isatty() and not as_json if plot is None else plot and not as_json
    targets = Targets(html, png, shows, as_json)
    replayer = Replayer(recording)
    if len(candidates) == 1:
        _show_one(replayer, candidates[0], conditions, targets)
    else:
        _show_many(replayer, candidates, conditions, targets, missed_hour_cost)


def _wanted(candidates: Sequence[Candidate]) -> frozenset[str]:
    from accelscale.lab.policy import wanted_metrics

    return ENERGY_METRICS.union(*(wanted_metrics(one.document) for one in candidates))


def _show_one(
    replayer: Replayer, candidate: Candidate, conditions: Conditions, targets: Targets
) -> None:
    from accelscale.lab import report
    from accelscale.lab.pictures import picture_of
    from accelscale.lab.policy import read_policy
    from accelscale.lab.remarks import assumptions, warnings
    from accelscale.lab.summary import summarize

    recording = replayer.recording
    policy = read_policy(candidate.document, metrics=recording.metrics_table())
    outcome = replayer.replay(policy, conditions)
    summary = summarize(outcome)
    found, assumed = warnings(outcome, summary), assumptions(outcome)
    figures = report.labelled(summary)
    title = f"{policy.namespace}/{policy.name}"
    if targets.as_json:
        print_json(report.replay_record(outcome, summary, found))
    else:
        say(f"{title} on {report.subtitle(recording)}")
        say_figures(figures)
        say_list("warnings", found)
        say_list("assumed", assumed)
    if not targets.wants_picture:
        return
    picture = picture_of(outcome)
    targets.draw(picture)
    if targets.html is not None:
        from accelscale.lab.page import Page

        subtitle = report.subtitle(recording)
        targets.write(Page(title, subtitle, figures, found, assumed, picture))


def _show_many(
    replayer: Replayer,
    candidates: Sequence[Candidate],
    conditions: Conditions,
    targets: Targets,
    missed_hour_cost: float,
) -> None:
    from accelscale.lab import report
    from accelscale.lab.pictures import comparison_of
    from accelscale.lab.sweep import compare

    outcomes = compare(
        replayer,
        candidates,
        conditions,
        missed_hour_cost=missed_hour_cost,
        keeps_replays=targets.wants_picture,
        on_progress=progress(len(candidates)),
    )
    ranked = report.ranking(outcomes)
    cost = (
        f"Cost: device hours, and {missed_hour_cost:g} more for each device hour of work that was"
        " not served when it came."
    )
    assumed = [cost, *report.shared_assumptions(outcomes)]
    found = report.shared_warnings(outcomes)
    if targets.as_json:
        print_json(report.comparison_record(replayer.recording, conditions, outcomes, assumed))
    else:
        say(f"{len(outcomes)} policies on {report.subtitle(replayer.recording)}")
        say_table(*ranked)
        say_list("warnings", found)
        say_list("assumed", assumed)
    picture = comparison_of(outcomes)
    targets.draw(picture)
    if targets.html is not None:
        from accelscale.lab.page import Page

        title, subtitle = f"{len(outcomes)} policies", report.subtitle(replayer.recording)
        targets.write(Page(title, subtitle, [], found, assumed, picture, ranked))
