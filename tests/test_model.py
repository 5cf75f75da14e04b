from __future__ import annotations

import pytest

from accelscale.metrics import METRICS, Derivation, Kind, max_age
from accelscale.model import Reason, normal_pci_address


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("000f:01:00.0", "000f:01:00.0"),
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("1B:00.0", "0000:1b:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        (" 0000:1b:00.0 ", "0000:1b:00.0"),
        ("GPU-AAAA", "gpu-aaaa"),
        ("", ""),
    ],
)
def test_a_pci_address_has_one_spelling(written: str, normal: str) -> None:
    assert normal_pci_address(written) == normal


def test_only_passing_reasons_let_the_sample_before_count() -> None:
    assert {reason for reason in Reason if reason.passing} == {
        Reason.TIMEOUT,
        Reason.COUNTER_RESET,
        Reason.NO_PROGRESS,
        Reason.STALE,
    }


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_each_row_of_the_table_is_whole(metric: object) -> None:
    from accelscale.metrics import Metric

    assert isinstance(metric, Metric)
    assert metric.minimum < metric.maximum
    assert metric.help.endswith(".")
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert bool(metric.sources) == (metric.derivation is not None)
    assert all(METRICS[source].derivation is None for source in metric.sources)
    unit = metric.unit.replace(" per ", "_per_")
    assert unit.rstrip("s") in metric.name or metric.name == "process_count"
    if metric.derivation is Derivation.RATE:
        assert METRICS[metric.sources[0]].kind is Kind.COUNTER


def test_a_sample_counts_three_intervals_and_at_least_five_seconds() -> None:
    assert (max_age(0.1), max_age(1.0), max_age(10.0)) == (5.0, 5.0, 30.0)
