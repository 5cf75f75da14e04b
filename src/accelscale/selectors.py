"""Label selectors as Kubernetes writes them: ``app=web,tier in (gold,silver),!canary``. Pure.

The grammar and the meaning are those of ``k8s.io/apimachinery/pkg/labels``: requirements are
separated by commas and all must hold, and ``!=`` and ``notin`` also hold where there is no such
label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from attrs import field, frozen

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_KEY = re.compile(rf"(?:({_DOMAIN})/)?{_NAME}")
_VALUE = re.compile(rf"(?:{_NAME})?")
_LONGEST_DOMAIN = 253

_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_EQUALITY = re.compile(r"([^=!]*)(!=|==?)([^=!]*)")


@frozen
class Requirement:
    """What one label must be: one of ``values``, or just there where ``values`` is None.

    ``negated`` asks for the opposite.
    """

    key: str
    values: frozenset[str] | None = None
    negated: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels are as required."""
        value = labels.get(self.key)
        found = value is not None and (self.values is None or value in self.values)
        return found is not self.negated


@frozen
class Selector:
    """Requirements that must all hold; without any, everything is selected."""

    requirements: tuple[Requirement, ...]
    text: str = field(default="", eq=False)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether something with these labels is selected."""
        return all(requirement.holds(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return self.text


def parse_selector(text: str) -> Selector:
    """The selector that a text means.

    Raises:
        ValueError: with the part that is no requirement, and what is allowed.
    """
    parts = _parts(text) if text.strip() else ()
    return Selector(tuple(_requirement(part.strip()) for part in parts), text)


def _parts(text: str) -> Iterator[str]:
    """What stands between the commas, those within parentheses aside."""
    start, inside = 0, False
    for index, character in enumerate(text):
        if character in "()":
            inside = character == "("
        elif character == "," and not inside:
            yield text[start:index]
            start = index + 1
    yield text[start:]


def _requirement(part: str) -> Requirement:
    if match := _SET.fullmatch(part):
        values = frozenset(_value(value.strip()) for value in match[3].split(","))
        return Requirement(_key(match[1]), values, negated=match[2] == "notin")
    if match := _EQUALITY.fullmatch(part):
        values = frozenset({_value(match[3].strip())})
        return Requirement(_key(match[1].strip()), values, negated=match[2] == "!=")
    if part.startswith("!"):
        return Requirement(_key(part[1:].strip()), negated=True)
    return Requirement(_key(part))


def _key(text: str) -> str:
    match = _KEY.fullmatch(text)
    if match is None or len(match[1] or "") > _LONGEST_DOMAIN:
        raise ValueError(
            f"{text!r} is no label; a label selector is written app=web, app!=web,"
            " tier in (gold,silver), tier notin (bronze), canary or !canary, with commas between"
        )
    return text


def _value(text: str) -> str:
    if not _VALUE.fullmatch(text):
        raise ValueError(
            f"{text!r} is no value of a label: at most 63 letters, digits, '-', '_' and '.',"
            " with a letter or a digit at both ends"
        )
    return text
