"""Shares, differences and rates of imported columns, as `accelscale.derive` makes them live.

Between two samples of a counter there is a rate only where the counter did not go back and the two
lie close enough together; elsewhere there is none.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from attrs import evolve

from accelscale.lab.recording import Column, Floats, Recording
from accelscale.metrics import METRICS, Derivation, Metric, max_age

_DERIVED = {
    name: row
    for name, row in METRICS.items()
    if row.derivation in {Derivation.PERCENT_OF, Derivation.DIFFERENCE, Derivation.RATE}
}


def sources_of(metrics: Iterable[str]) -> frozenset[str]:
    """The metrics, and those that they can be derived from."""
    wanted = frozenset(metrics)
    return wanted.union(*(METRICS[name].sources for name in wanted if name in METRICS))


def with_derived(recording: Recording, metrics: frozenset[str] | None) -> Recording:
    """The recording with the columns that follow from others, and without those not wanted."""
    columns = dict(recording.columns)
    for metric in _DERIVED.values():
        for device in recording.devices:
            key = (device.id, metric.name)
            if key not in columns and (metrics is None or metric.name in metrics):
                found = _derived(recording, device.id, metric)
                if found is not None and len(found):
                    columns[key] = found
    kept = {key: c for key, c in columns.items() if metrics is None or key[1] in metrics}
    return evolve(
        recording,
        columns=kept,
        absences={
            key: found
            for key, found in recording.absences.items()
            if metrics is None or key[1] in metrics
        },
        units={**recording.units, **{m: METRICS[m].unit for _, m in kept if m in METRICS}},
    )


def _derived(recording: Recording, device_id: str, metric: Metric) -> Column | None:
    sources = [recording.columns.get((device_id, source)) for source in metric.sources]
    first = sources[0]
    if first is None or any(source is None or not len(source) for source in sources):
        return None
    limit = max_age(recording.interval_of(metric.sources[0]))
    if metric.derivation is Derivation.RATE:
        return _rate(first, metric, limit)
    second = sources[1]
    assert second is not None
    at = np.searchsorted(second.times, first.times, side="right") - 1
    fresh = (at >= 0) & (first.times - second.times[at] <= limit)
    other: Floats = second.values[at]
    if metric.derivation is Derivation.DIFFERENCE:
        values = first.values - other
    else:
        fresh &= other > 0
        values = 100 * np.divide(first.values, other, out=np.zeros(len(first)), where=other > 0)
    return _within(metric, first.times[fresh], values[fresh])


def _rate(counter: Column, metric: Metric, limit: float) -> Column:
    elapsed, change = np.diff(counter.times), np.diff(counter.values)
    stuck = METRICS[metric.sources[0]].always_advances & (change == 0)
    good = (change >= 0) & (elapsed <= limit) & ~stuck
    return _within(metric, counter.times[1:][good], (change / elapsed)[good])


def _within(metric: Metric, times: Floats, values: Floats) -> Column:
    fits = (values >= metric.minimum) & (values <= metric.maximum)
    return Column(times[fits], values[fits])
