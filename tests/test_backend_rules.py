"""Which data of a backend class are refused."""

from __future__ import annotations

import pytest

from accelscale.backend_rules import class_faults
from accelscale.metrics import METRICS, Derivation, Tier
from accelscale.nvidia.backend import NvidiaBackend


def faults_with(metric: str) -> list[str]:
    class Altered(NvidiaBackend):
        metrics = {**NvidiaBackend.metrics, metric: Tier.FAST}  # noqa: RUF012 - read only

    return list(class_faults(Altered))


@pytest.mark.parametrize("metric", [row.name for row in METRICS.values() if row.derivation])
def test_of_what_is_derived_a_backend_may_give_rates_alone(metric: str) -> None:
    faults = faults_with(metric)
    if METRICS[metric].derivation is Derivation.RATE:
        assert faults == []
    else:
        (fault,) = faults
        assert f"{metric!r}, which accelscale derives" in fault
