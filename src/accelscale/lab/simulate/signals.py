"""External numbers: what a trigger of another scaler would read of the servers and the router.

A ScaledObject scales on a queue through a trigger such as KEDA's ``prometheus`` with a query over
the servers' own metrics. Queries of the plain form ``sum(vllm:num_requests_waiting{...})`` are
understood: an aggregation over one metric of the servers, or over the sum of several. For any other
trigger the user says which number it stands for. A number is as old as the last scrape.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import evolve, frozen

from accelscale.errors import ConfigurationError, Fault, NotFoundError
from accelscale.lab.policy import EXTERNAL_TYPES, Document
from accelscale.lab.simulate.fleet import Gauges
from accelscale.metrics import METRICS, Metric


@frozen
class Signal:
    """A number of the fleet.

    ``of_servers`` is set where only serving replicas give it. With none of them Prometheus has
    nothing to tell, which KEDA takes for 0, or for an error where ``empty_is_error``
    (``ignoreNullValues: "false"``).
    """

    name: str
    unit: str
    help: str
    read: Callable[[Gauges], float]
    of_servers: bool = False
    empty_is_error: bool = False

    def value(self, gauges: Gauges) -> float | None:
        """The number at the last scrape, None where there was none and that is an error."""
        if self.of_servers and not gauges.running:
            return None if self.empty_is_error else 0.0
        return float(self.read(gauges))


_WAITING, _RUNNING, _CACHE = "waiting", "running", "cache"

_SERVER_METRICS: Mapping[str, str] = MappingProxyType(
    {
        "vllm:num_requests_waiting": _WAITING,
        "vllm:num_requests_running": _RUNNING,
        "vllm:kv_cache_usage_perc": _CACHE,
        "vllm:gpu_cache_usage_perc": _CACHE,
        "sglang:num_queue_reqs": _WAITING,
        "sglang:num_running_reqs": _RUNNING,
        "sglang:token_usage": _CACHE,
        "tgi_queue_size": _WAITING,
        "tgi_batch_current_size": _RUNNING,
    }
)
"""Metrics of well-known servers, by what they mean here. The cache is a fraction of 1 in all."""

_READ: Mapping[str, Callable[[Gauges], Sequence[float]]] = MappingProxyType(
    {
        _WAITING: lambda gauges: gauges.waiting,
        _RUNNING: lambda gauges: gauges.running,
        _CACHE: lambda gauges: gauges.cache_used,
    }
)

_OVER: Mapping[str, Callable[[Sequence[float]], float]] = MappingProxyType(
    {
        "sum": sum,
        "avg": lambda values: sum(values) / len(values),
        "max": max,
        "min": min,
    }
)

SIGNALS: Mapping[str, Signal] = MappingProxyType(
    {
        signal.name: signal
        for signal in (
            Signal(
                "requests_waiting",
                "requests",
                "Requests that wait, at the router and on the replicas: what a queue or a gateway"
                " in front of the servers shows.",
                lambda gauges: gauges.at_router + sum(gauges.waiting),
            ),
            Signal(
                "requests_in_flight",
                "requests",
                "Requests that have come and are not done: what a gateway counts as open.",
                lambda gauges: gauges.at_router + sum(gauges.waiting) + sum(gauges.running),
            ),
            Signal(
                "server_requests_waiting",
                "requests",
                "Requests that wait on the replicas, as the servers themselves show it.",
                lambda gauges: sum(gauges.waiting),
                of_servers=True,
            ),
            Signal(
                "server_requests_running",
                "requests",
                "Requests in work, as the servers themselves show it.",
                lambda gauges: sum(gauges.running),
                of_servers=True,
            ),
        )
    }
)
"""What ``--signal`` can name."""

_METRIC = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_TERM = rf"{_METRIC}(?:\{{[^}}]*\}})?"
_QUERY = re.compile(
    rf"\s*(sum|avg|max|min)\s*\(\s*({_TERM}(?:\s*\+\s*{_TERM})*)\s*\)\s*", re.IGNORECASE
)


def signal_of_query(query: str) -> Signal | None:
    """The number that a query of Prometheus asks for, or None where it is not understood."""
    match = _QUERY.fullmatch(query)
    if match is None:
        return None
    over = match[1].lower()
    bare = re.sub(r"\{[^}]*\}", "", match[2])
    kinds = [_SERVER_METRICS.get(term.strip()) for term in bare.split("+")]
    known = [kind for kind in kinds if kind is not None]
    if len(known) < len(kinds):
        return None
    combine = _OVER[over]
    names = [term.strip() for term in bare.split("+")]

    def read(gauges: Gauges) -> float:
        of_each = [_READ[kind](gauges) for kind in known]
        return combine([sum(numbers) for numbers in zip(*of_each, strict=True)])

    return Signal(
        f"{over}({' + '.join(names)})",
        "fraction" if _CACHE in known else "requests",
        f"As Prometheus gives {query}.",
        read,
        of_servers=True,
    )


def with_signals(
    document: Document, chosen: Mapping[str, str]
) -> tuple[Document, dict[str, Signal]]:
    """The manifest with triggers of other scalers as triggers on signals, and these by name.

    ``chosen`` says for names (or numbers) of triggers which of `SIGNALS` they stand for. Triggers
    that are not understood stay as they are.

    Raises:
        NotFoundError: a name of ``chosen`` is no trigger, or its signal is none.
        ConfigurationError: a signal is chosen for a trigger of accelscale.
    """
    result: dict[str, Any] = copy.deepcopy(dict(document))
    triggers = (result.get("spec") or {}).get("triggers") or []
    signals: dict[str, Signal] = {}
    used: set[str] = set()
    for index, trigger in enumerate(triggers):
        if not isinstance(trigger, dict):
            continue
        keys = {str(index), str(trigger.get("name", ""))} & set(chosen)
        used |= keys
        metadata = trigger.get("metadata") or {}
        if trigger.get("type") in EXTERNAL_TYPES and {"metric", "profile"} & set(metadata):
            if keys:
                problem = "is a trigger of accelscale, which reads its own metric"
                raise ConfigurationError([Fault(keys.pop(), None, problem)], subject="signals")
            continue
        signal = _signal(chosen[keys.pop()]) if keys else _understood(trigger, metadata)
        if signal is not None:
            signals[signal.name] = signal
            triggers[index] = _as_ours(trigger, metadata, signal)
    unknown = sorted(set(chosen) - used)
    if unknown:
        names = [str(t.get("name") or i) for i, t in enumerate(triggers) if isinstance(t, dict)]
        raise NotFoundError(f"no trigger {unknown[0]}; the triggers are {', '.join(names)}")
    return result, signals


def metrics_with(signals: Mapping[str, Signal]) -> Mapping[str, Metric]:
    """The metrics table with a row for each signal, so that the parser of triggers takes them."""
    rows = {
        name: Metric(name, signal.unit, signal.help, aggregation="sum")
        for name, signal in signals.items()
    }
    return {**METRICS, **rows}


def _understood(trigger: Mapping[str, Any], metadata: Mapping[str, Any]) -> Signal | None:
    if trigger.get("type") != "prometheus":
        return None
    signal = signal_of_query(str(metadata.get("query", "")))
    if signal is None or str(metadata.get("ignoreNullValues", "true")).lower() != "false":
        return signal
    return evolve(signal, empty_is_error=True)


def _as_ours(
    trigger: Mapping[str, Any], metadata: Mapping[str, Any], signal: Signal
) -> dict[str, Any]:
    keys = {
        "metric": signal.name,
        "metricName": re.sub(r"[^a-z0-9]+", "-", signal.name.lower()).strip("-")[:60],
    }
    keys |= {key: metadata[key] for key in ("threshold", "activationThreshold") if key in metadata}
    return {**trigger, "type": "external", "metadata": keys}


def _signal(name: str) -> Signal:
    found = SIGNALS.get(name)
    if found is None:
        raise NotFoundError(f"no signal {name}; known are {', '.join(SIGNALS)}")
    return found
