"""``accelscale simulate``: what a policy makes of an inference fleet under a stream of requests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accelscale.cli.options import AsJson, positive_seconds, seconds
from accelscale.cli.results import Targets
from accelscale.cli.simulated import (
    Case,
    arrivals_of,
    candidates_with_signals,
    model_of,
    pairs_of,
    silence_of,
)

if TYPE_CHECKING:
    from accelscale.lab.simulate.signals import Signal


def simulate(
    trace: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TRACE]",
            help="Requests: a CSV with TIMESTAMP, ContextTokens and GeneratedTokens, such as the"
            " Azure LLM inference traces. Without it they are made up: see --rate.",
            show_default=False,
        ),
    ] = None,
    scaledobject: Annotated[
        Path | None,
        typer.Option(
            "--scaledobject",
            "-f",
            metavar="FILE",
            help="The manifest of a ScaledObject, - for standard input.",
            show_default=False,
        ),
    ] = None,
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
            help="Try values of a setting: threshold=50..90:5, queue.threshold=2,5,10; several"
            " make a grid.",
            show_default=False,
        ),
    ] = None,
    signal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRIGGER=NAME",
            help="What a trigger of another scaler reads, by its name or number:"
            " requests_waiting, requests_in_flight, server_requests_waiting or"
            " server_requests_running. KEDA's prometheus triggers on metrics of vLLM, SGLang and"
            " TGI need none.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        str,
        typer.Option(
            metavar="RATE",
            help="Made-up requests a second: 4, or a swing such as 1..6 within --period.",
        ),
    ] = "4",
    period: Annotated[
        float,
        typer.Option(metavar="SECONDS", parser=positive_seconds, help="Length of such a swing."),
    ] = 3600.0,
    burst: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EVERY:LENGTH:FACTOR",
            help="Made-up bursts: 10m:45s:4 is four times the rate for 45 s every 10 minutes.",
            show_default=False,
        ),
    ] = None,
    tokens: Annotated[
        str,
        typer.Option(metavar="PROMPT:ANSWER", help="Mean tokens of made-up requests."),
    ] = "1024:256",
    duration: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", parser=positive_seconds, help="How long made-up requests come."
        ),
    ] = 3600.0,
    seed: Annotated[int, typer.Option(help="Seed of all chance.")] = 1,
    load: Annotated[
        float,
        typer.Option(min=0.001, help="So many times the requests of the trace."),
    ] = 1.0,
    server: Annotated[
        str,
        typer.Option(metavar="SETUP", help="The model of a server: llama-70b or llama-8b."),
    ] = "llama-70b",
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIGURE=VALUE",
            help="A figure of that model, such as load_seconds=4m or max_requests=64.",
            show_default=False,
        ),
    ] = None,
    fit: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RECORDING",
            help="Take power, memory, saturation and load time from a recording.",
            show_default=False,
        ),
    ] = None,
    readiness_delay: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            parser=seconds,
            help="When a new replica is Ready. [default: once it has loaded]",
            show_default=False,
        ),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", parser=seconds, help="What a removed replica has to finish its work."
        ),
    ] = 30.0,
    replicas: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Replicas at the start. [default: minReplicaCount, at least 1]",
            show_default=False,
        ),
    ] = None,
    silent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FROM..TO[:REPLICAS]",
            help="Agents that tell nothing for a while: 20m..25m, or 20m..25m:2 for the two oldest"
            " replicas.",
            show_default=False,
        ),
    ] = None,
    objective: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            parser=positive_seconds,
            help="A first token after this is late; at most 5 % may be.",
        ),
    ] = 2.0,
    poll_phase: Annotated[
        float, typer.Option(metavar="SECONDS", parser=seconds, help="Time of KEDA's first poll.")
    ] = 0.0,
    sync_phase: Annotated[
        float, typer.Option(metavar="SECONDS", parser=seconds, help="Time of the HPA's first sync.")
    ] = 0.0,
    interval: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", parser=positive_seconds, help="Between two samples of a device."
        ),
    ] = 1.0,
    scrape_interval: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            parser=positive_seconds,
            help="Between two readings of external numbers.",
        ),
    ] = 15.0,
    kubernetes_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Such as 1.33.", show_default=False)
    ] = None,
    keda_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Such as 2.18.", show_default=False)
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page with charts to zoom.", show_default=False),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a picture.", show_default=False)
    ] = None,
    recording: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what the agents would have recorded, as .parquet or .jsonl, for `replay`.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        bool | None,
        typer.Option("--plot/--no-plot", help="Draw in the terminal. [default: if it is one]"),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Leave broken rows of the trace out.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Simulate an LLM fleet that a ScaledObject scales."""
    from accelscale.lab.extra import need_lab

    need_lab("simulate")
    from accelscale.hpa import Controller, KedaVersion
    from accelscale.lab.simulate.run import Conditions

    if scaledobject is None:
        raise typer.BadParameter("is needed: whose policy?", param_hint="--scaledobject")
    chosen = pairs_of(signal or [], "--signal")
    signals: dict[str, Signal] = {}
    candidates = candidates_with_signals(scaledobject, compare or [], sweep or [], chosen, signals)
    if recording is not None and len(candidates) > 1:
        raise typer.BadParameter("is for one policy", param_hint="--recording")
    arrivals = arrivals_of(trace, repair, load, seed, (rate, period, burst or [], tokens, duration))
    model, fit_sentences = model_of(server, pairs_of(set_ or [], "--set"), fit or [])
    conditions = Conditions(
        replicas=replicas,
        readiness_delay=readiness_delay,
        grace=grace,
        poll_phase=poll_phase,
        sync_phase=sync_phase,
        controller=(
            Controller()
            if kubernetes_version is None
            else Controller.for_kubernetes(kubernetes_version)
        ),
        keda=KedaVersion() if keda_version is None else KedaVersion.parse(keda_version),
        interval=interval,
        scrape_interval=scrape_interval,
        silences=tuple(silence_of(text) for text in silent or ()),
    )
    shows = sys.stdout.isatty() and not as_json if plot is None else plot and not as_json
    case = Case(arrivals, model, conditions, signals, objective, fit_sentences)
    targets = Targets(html, png, shows, as_json)
    if len(candidates) == 1:
        case.show_one(candidates[0], targets, recording)
    else:
        case.show_many(candidates, targets)
