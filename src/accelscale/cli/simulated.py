"""From the options of ``accelscale simulate`` to its parts, and from its outcome to the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from accelscale.cli.options import print_json, say
from accelscale.cli.results import (
    Targets,
    candidates_from,
    progress,
    say_figures,
    say_list,
    say_table,
)

if TYPE_CHECKING:
    from accelscale.lab.policy import Document
    from accelscale.lab.simulate.arrivals import Arrivals
    from accelscale.lab.simulate.compare import Outcome
    from accelscale.lab.simulate.fleet import Silence
    from accelscale.lab.simulate.run import Conditions
    from accelscale.lab.simulate.server_model import ServerModel
    from accelscale.lab.simulate.signals import Signal
    from accelscale.lab.sweep import Candidate


class Case:
    """What all policies of one call share, and how their outcomes are shown."""

    def __init__(
        self,
        arrivals: Arrivals,
        model: ServerModel,
        conditions: Conditions,
        signals: Mapping[str, Signal],
        objective: float,
        fit_sentences: Sequence[str],
    ) -> None:
        self._arrivals = arrivals
        self._model = model
        self._conditions = conditions
        self._signals = signals
        self._objective = objective
        self._fit_sentences = fit_sentences

    def show_one(self, candidate: Candidate, targets: Targets, recording: Path | None) -> None:
        """One policy: figures, remarks, picture."""
        from accelscale.lab.simulate import report
        from accelscale.lab.simulate.compare import tried
        from accelscale.lab.simulate.pictures import picture_of

        outcome = tried(
            self._arrivals,
            candidate,
            self._model,
            self._conditions,
            self._signals,
            self._objective,
        )
        simulation = outcome.simulation
        assert simulation is not None
        if recording is not None:
            _write_recording(recording, outcome)
        figures = report.labelled(outcome.summary, self._objective)
        assumed = [*outcome.assumptions, *self._fit_sentences]
        policy = simulation.policy
        title, subtitle = f"{policy.namespace}/{policy.name}", self._subtitle()
        if targets.as_json:
            record = report.simulation_record(simulation, outcome.summary, outcome.warnings)
            print_json({**record, "assumptions": assumed})
        else:
            say(f"{title} on {subtitle}")
            say_figures(figures)
            say_list("warnings", outcome.warnings)
            say_list("assumed", assumed)
        if not targets.wants_picture:
            return
        picture = picture_of(simulation)
        targets.draw(picture)
        if targets.html is not None:
            from accelscale.lab.page import Page, render

            page = Page(title, subtitle, figures, outcome.warnings, assumed, picture)
            targets.html.write_text(render(page), encoding="utf-8")

    def show_many(self, candidates: Sequence[Candidate], targets: Targets) -> None:
        """Several policies: a ranking, remarks, a picture of the best."""
        from accelscale.lab.report import shared_assumptions, shared_warnings
        from accelscale.lab.simulate import report
        from accelscale.lab.simulate.compare import compare
        from accelscale.lab.simulate.pictures import comparison_of

        outcomes = compare(
            self._arrivals,
            candidates,
            self._model,
            self._conditions,
            self._signals,
            objective=self._objective,
            keeps_simulations=targets.wants_picture,
            on_progress=progress(len(candidates)),
        )
        ranked = report.ranking(outcomes)
        ranking = (
            f"Ranking: policies with at most 5 % of first tokens after {self._objective:g} s, by"
            " device hours; then the others, by the share of late ones."
        )
        assumed = [
            ranking,
            *shared_assumptions(outcomes),
            *self._fit_sentences,
        ]
        found = shared_warnings(outcomes)
        title, subtitle = f"{len(outcomes)} policies", self._subtitle()
        if targets.as_json:
            print_json(
                report.comparison_record(
                    self._arrivals, self._model, self._conditions, outcomes, assumed
                )
            )
        else:
            say(f"{title} on {subtitle}")
            say_table(*ranked)
            say_list("warnings", found)
            say_list("assumed", assumed)
        picture = comparison_of(outcomes)
        targets.draw(picture)
        if targets.html is not None:
            from accelscale.lab.page import Page, render

            page = Page(title, subtitle, [], found, assumed, picture, ranked)
            targets.html.write_text(render(page), encoding="utf-8")

    def _subtitle(self) -> str:
        from accelscale.lab.simulate.report import subtitle

        return subtitle(self._arrivals, self._model)


def candidates_with_signals(
    first: Path,
    others: Sequence[Path],
    sweeps: Sequence[str],
    chosen: Mapping[str, str],
    signals: dict[str, Signal],
) -> list[Candidate]:
    """The policies, with the numbers that their other triggers read gathered in ``signals``."""
    from accelscale.lab.simulate.signals import with_signals

    def prepared(document: Document) -> Document:
        changed, found = with_signals(document, chosen)
        signals.update(found)
        return changed

    return candidates_from(first, others, sweeps, prepared)


def arrivals_of(
    trace: Path | None,
    repair: bool,
    load: float,
    seed: int,
    made_up: tuple[str, float, Sequence[str], str, float],
) -> Arrivals:
    """The requests of the trace, or made-up ones: rate, its period, bursts, tokens, duration."""
    from accelscale.lab.simulate.arrivals import multiplied, read_arrivals
    from accelscale.lab.simulate.synthetic import (
        parse_burst,
        parse_lengths,
        parse_rate,
        synthetic,
    )

    if trace is not None:
        return multiplied(read_arrivals(trace, repair=repair), load, seed=seed)
    rate, period, bursts, tokens, duration = made_up
    arrivals = synthetic(
        parse_rate(rate, period),
        seconds=duration,
        bursts=tuple(parse_burst(text) for text in bursts),
        lengths=parse_lengths(tokens),
        seed=seed,
    )
    return multiplied(arrivals, load, seed=seed)


def model_of(
    name: str, settings: Mapping[str, str], recordings: Sequence[Path]
) -> tuple[ServerModel, list[str]]:
    """The model of a server, and sentences about what a recording told of it."""
    from accelscale.lab.simulate.server_model import setup, with_figures

    model, sentences = setup(name), []
    if recordings:
        from accelscale.lab.loading import load
        from accelscale.lab.simulate.fitting import fitted

        fit = fitted(model, load(recordings))
        model = fit.model
        sentences = [f"Fitted: {text}." for text in fit.found]
        sentences += [f"Not fitted: {text}." for text in fit.lacking]
    return with_figures(model, settings), sentences


def silence_of(text: str) -> Silence:
    """``20m..25m``, or ``20m..25m:2`` for the two oldest replicas."""
    from accelscale import values
    from accelscale.lab.simulate.fleet import Silence

    span, _, count = text.partition(":")
    start, _, end = span.partition("..")
    try:
        begin, until = (values.duration(part, values.LONGEST_STAY) for part in (start, end))
        replicas = int(count) if count else None
    except ValueError:
        begin = until = 0.0
        replicas = None
    if not begin < until:
        raise typer.BadParameter(
            f"{text!r} must be FROM..TO or FROM..TO:REPLICAS, such as 20m..25m:2",
            param_hint="--silent",
        )
    return Silence(begin, until, replicas)


def pairs_of(texts: Sequence[str], option: str) -> dict[str, str]:
    """``KEY=VALUE``, each once."""
    pairs = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip() or not value.strip():
            raise typer.BadParameter(f"{text!r} must be KEY=VALUE", param_hint=option)
        pairs[key.strip()] = value.strip()
    return pairs


def _write_recording(path: Path, outcome: Outcome) -> None:
    from accelscale.lab.simulate.series import recorded

    assert outcome.simulation is not None
    found = recorded(outcome.simulation)
    if path.suffix == ".jsonl":
        from accelscale.lab.jsonlines import write_jsonlines

        with path.open("w", encoding="utf-8") as file:
            write_jsonlines(found, file)
    elif path.suffix == ".parquet":
        from accelscale.lab.parquet import write_parquet

        write_parquet(found, path)
    else:
        raise typer.BadParameter("must end in .parquet or .jsonl", param_hint="--recording")
