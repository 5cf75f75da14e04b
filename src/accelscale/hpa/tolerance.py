"""The band round the target inside which the HPA leaves the replica count alone.

Two forms of the test exist, and they disagree at the very edge. Since per-direction tolerances came
(Kubernetes 1.33, ``Tolerances.isWithin`` in ``replica_calculator.go``) the ratio is compared with
``1 - down`` and ``1 + up``, both inclusive. Before that, ``|1 - ratio| <= tolerance`` was tested:
at a ratio of exactly 1.1 the difference is 0.10000000000000009 in doubles, so 77 against 70 scaled.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

DEFAULT_TOLERANCE = 0.1
"""Both directions, unless ``--horizontal-pod-autoscaler-tolerance`` says otherwise."""


class ToleranceForm(StrEnum):
    """Which of the two tests a Kubernetes version makes."""

    BAND = "band"
    """``1 - down <= ratio <= 1 + up``: Kubernetes 1.33 and later."""

    DISTANCE = "distance"
    """``|1 - ratio| <= tolerance``, one number for both directions: Kubernetes 1.32 and earlier."""


@frozen
class Tolerance:
    """How far the ratio of value to target may be from 1 without a change, as fractions.

    `ToleranceForm.DISTANCE` knows one number; there ``down`` applies below 1 and ``up`` above it,
    which is the same as long as both are equal.
    """

    up: float = DEFAULT_TOLERANCE
    down: float = DEFAULT_TOLERANCE
    form: ToleranceForm = ToleranceForm.BAND

    def holds(self, ratio: float) -> bool:
        """Whether this ratio asks for no change; never so for NaN or infinity."""
        if self.form is ToleranceForm.DISTANCE:
            return abs(1.0 - ratio) <= (self.up if ratio > 1.0 else self.down)
        return 1.0 - self.down <= ratio <= 1.0 + self.up
