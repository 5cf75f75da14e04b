"""Every trap and every rule, by id."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from accelscale.lab.check import activity, limits, number, reading, structure, timing, triggers
from accelscale.lab.check.findings import Rule
from accelscale.lab.check.subject import Trap

TRAPS: tuple[Trap, ...] = (*number.TRAPS, *activity.TRAPS, *timing.TRAPS, *limits.TRAPS)
"""What is legal and goes wrong; one function looks for each."""

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        rule.id: rule
        for rule in sorted(
            (
                *reading.RULES,
                *structure.RULES,
                *triggers.RULES,
                *(trap.rule for trap in TRAPS),
            ),
            key=lambda rule: rule.id,
        )
    }
)
"""Every rule, by id. An id is never given to another rule."""
