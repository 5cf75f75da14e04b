"""What a check found: rules that say why and what to do, findings that say where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from accelscale.lab.check.documents import Place

Path = tuple[str | int, ...]
"""Where in an object: keys and the indices of lists."""


class Severity(StrEnum):
    """How bad it is. ``error`` is refused or certain to go wrong, ``note`` is for information."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@frozen
class Rule:
    """One kind of finding: its lasting id, its name, why it matters and what to do about it."""

    id: str
    name: str
    severity: Severity
    explanation: str
    fix: str


@frozen
class Hit:
    """What a rule found in an object: a sentence, and the path of what it is about."""

    message: str
    path: Path = ()
    fix: str | None = None
    """What to do in this very case, where the rule's own words are too general."""


@frozen
class Finding:
    """One finding at one place. ``subject`` names the object, as ``ScaledObject default/vllm``."""

    rule: Rule
    message: str
    file: str
    place: Place
    subject: str = ""
    path: str = ""
    fix: str = ""

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.rule.severity

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "id": self.rule.id,
            "name": self.rule.name,
            "severity": str(self.severity),
            "file": self.file,
            "line": self.place.line,
            "column": self.place.column,
            "end_line": self.place.end_line,
            "end_column": self.place.end_column,
            "subject": self.subject or None,
            "path": self.path or None,
            "message": self.message,
            "explanation": self.rule.explanation,
            "fix": self.fix,
        }


@frozen
class Report:
    """All that was found in all inputs, and how much was looked at.

    ``unusable`` are inputs that could not be read, or not to their end. ``foreign`` counts objects
    without a trigger of accelscale, which are left alone.
    """

    findings: tuple[Finding, ...]
    files: int
    objects: int
    foreign: int = 0
    unusable: tuple[Finding, ...] = field(default=())

    def count(self, severity: Severity) -> int:
        """How many findings of that severity there are."""
        return sum(finding.severity is severity for finding in self.findings)

    def status(self, *, strict: bool = False) -> int:
        """The exit status: 0 clean, 1 findings that count, 2 input that could not be used."""
        if self.unusable:
            return 2
        counted = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
        return int(any(finding.severity in counted for finding in self.findings))

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "findings": [finding.record() for finding in self.findings],
            "unusable": [finding.record() for finding in self.unusable],
            "summary": {
                "files": self.files,
                "objects": self.objects,
                "without_accelscale": self.foreign,
                **{f"{severity}s": self.count(severity) for severity in Severity},
                "unusable": len(self.unusable),
            },
        }

    def without(self, ids: Iterable[str]) -> Report:
        """The same without the findings of these rules."""
        left_out = frozenset(ids)
        kept = tuple(f for f in self.findings if f.rule.id not in left_out)
        return Report(kept, self.files, self.objects, self.foreign, self.unusable)


def spelt(path: Sequence[str | int]) -> str:
    """A path as people write it: ``spec.triggers[0].metadata.threshold``."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return "".join(parts).removeprefix(".")
