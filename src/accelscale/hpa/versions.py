"""Which Kubernetes and which KEDA are modelled: what changed between versions, named once.

Both are free inputs of a replay: the same policy gives other replicas on another version. The
defaults are the newest that was read: Kubernetes 1.35 or later, and KEDA 2.20.2. Where a release
could not be read off its source, the property's docstring says that the version is inferred.
"""

from __future__ import annotations

import re
from typing import Self

from attrs import frozen

from accelscale.errors import ConfigurationError, Fault
from accelscale.hpa.tolerance import DEFAULT_TOLERANCE, ToleranceForm

_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?\+?")


@frozen
class Controller:
    """The horizontal pod autoscaler of one kube-controller-manager: its flags and feature gates.

    Durations are in seconds. ``configurable_tolerance`` is the gate HPAConfigurableTolerance,
    without which an HPA's own tolerances count for nothing. ``scale_to_zero`` is the gate
    HPAScaleToZero; with ``remembers_scaled_to_zero`` (development branch of 2026) the HPA leaves 0
    only if it went there itself, without it whenever its minimum is 0.
    """

    tolerance: float = DEFAULT_TOLERANCE
    tolerance_form: ToleranceForm = ToleranceForm.BAND
    configurable_tolerance: bool = True
    downscale_stabilization: float = 300.0
    sync_period: float = 15.0
    scale_to_zero: bool = False
    remembers_scaled_to_zero: bool = True

    @classmethod
    def for_kubernetes(cls, version: str) -> Self:
        """The defaults of that version, as ``1.33`` or ``v1.33.2``; use `attrs.evolve` for flags.

        Up to 1.32 the tolerance is tested in its older form (inferred from the gate's arrival in
        1.33); the gate for an HPA's own tolerances is on by default from 1.35.

        Raises:
            ConfigurationError: this is no version.
        """
        major, minor, _ = _parse(version, "Kubernetes version")
        form = ToleranceForm.BAND if (major, minor) >= (1, 33) else ToleranceForm.DISTANCE
        return cls(tolerance_form=form, configurable_tolerance=(major, minor) >= (1, 35))


@frozen(order=True)
class KedaVersion:
    """A release of KEDA, and what it does differently from its neighbours."""

    major: int = 2
    minor: int = 20
    patch: int = 2

    @classmethod
    def parse(cls, text: str) -> Self:
        """``2.18`` or ``v2.18.1``; a missing patch level is the first, 0.

        Raises:
            ConfigurationError: this is no version.
        """
        return cls(*_parse(text, "KEDA version"))

    @property
    def fallback_knows_behavior(self) -> bool:
        """``fallback.behavior`` exists; before, every fallback was ``static``."""
        return self >= KedaVersion(2, 17, 0)

    @property
    def fallback_serves_value(self) -> bool:
        """Fallback also for ``metricType: Value``, and without cutting the target's fraction."""
        return self >= KedaVersion(2, 18, 0)

    @property
    def fallback_when_polling(self) -> bool:
        """The operator's poll falls back too, so a fallback lifts a workload from 0 (#7244)."""
        return self >= KedaVersion(2, 19, 0)

    @property
    def refuses_empty_specs(self) -> bool:
        """No trigger with a metric: the HPA is left alone (#7777), not sent without metrics."""
        return self >= KedaVersion(2, 20, 0)

    @property
    def rounds_values(self) -> bool:
        """Values are written with ``%.3f`` (#7534), not cut to thousandths; release inferred."""
        return self >= KedaVersion(2, 20, 0)

    @property
    def negative_is_zero(self) -> bool:
        """A negative value becomes 0 (#7889), not a negative quantity."""
        return self >= KedaVersion(2, 20, 2)


def _parse(text: str, subject: str) -> tuple[int, int, int]:
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError([Fault("version", text, "must be such as 1.33")], subject=subject)
    return int(match[1]), int(match[2]), int(match[3] or 0)
