"""How a trigger came to its answer, in words: one line for a log. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from accelscale.engine import MOST_NAMED

if TYPE_CHECKING:
    from accelscale.engine import Evaluation, ReplicaFigure

FILLS = {
    "none": "",
    "zero": "what is silent counts 0",
    "threshold": "what is silent counts the threshold",
    "no change": "counting what is silent turns the direction round, so nothing is to change",
}
"""Each `Evaluation.fill` in words."""


def headline(evaluation: Evaluation) -> str:
    """Who reports, how the silent ones were counted, and who they are, in one line."""
    figures = evaluation.replicas
    reporting = sum(1 for figure in figures if figure.value is not None)
    silent = [text for figure in figures for text in silences(figure)]
    shown = "; ".join(silent[:MOST_NAMED])
    more = f"; and {len(silent) - MOST_NAMED} more" if len(silent) > MOST_NAMED else ""
    parts = (f"{reporting} of {len(figures)} report", FILLS[evaluation.fill], shown + more)
    return ": ".join(part for part in parts if part)


def silences(figure: ReplicaFigure) -> Iterator[str]:
    """What a replica lacks, and why."""
    replica = figure.replica
    if replica.problem:
        yield f"{replica.name}: {replica.problem}"
    elif not replica.was_ready:
        yield f"{replica.name}: still starting"
    for device in figure.devices:
        if device.failure is not None and replica.was_ready:
            detail = f" ({device.failure.detail})" if device.failure.detail else ""
            yield f"{replica.name}: {device.device_id} is {device.failure.reason}{detail}"
