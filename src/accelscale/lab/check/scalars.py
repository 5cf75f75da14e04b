"""What kubectl makes of a scalar: text, number, truth value or nothing.

kubectl and Helm turn YAML into JSON with YAML 1.1's rules as Go knows them: without quotes ``on``
and ``y`` are true and ``1_000`` is a number, but ``1:30`` is text.
"""

from __future__ import annotations

import re
from enum import StrEnum

from accelscale.lab.check.documents import Mapping, Node, Scalar, Sequence, is_null

_STANDARD = "tag:yaml.org,2002:"
_BOOLEAN = re.compile(r"y|yes|on|true|n|no|off|false", re.IGNORECASE)
_TRUE = frozenset({"y", "yes", "on", "true"})
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


class Kind(StrEnum):
    """The type of a value, as a sentence names it."""

    TEXT = "text"
    INTEGER = "a whole number"
    FLOAT = "a number"
    BOOLEAN = "true or false"
    NULL = "nothing"
    MAPPING = "a mapping"
    SEQUENCE = "a list"


def kind_of(node: Node) -> Kind:
    """The type that the value has in JSON."""
    if isinstance(node, Mapping):
        return Kind.MAPPING
    if isinstance(node, Sequence):
        return Kind.SEQUENCE
    if is_null(node):
        return Kind.NULL
    if node.tag is not None and node.tag.startswith(_STANDARD):
        named = node.tag.removeprefix(_STANDARD)
        return {"int": Kind.INTEGER, "float": Kind.FLOAT, "bool": Kind.BOOLEAN}.get(
            named, Kind.TEXT
        )
    if not node.plain:
        return Kind.TEXT
    if _is_boolean(node.text):
        return Kind.BOOLEAN
    if _INTEGER.fullmatch(node.text):
        return Kind.INTEGER
    return Kind.FLOAT if _FLOAT.fullmatch(node.text) else Kind.TEXT


def _is_boolean(text: str) -> bool:
    # yes, Yes and YES are; yEs is not.
    cased = text in {text.lower(), text.upper(), text.capitalize()}
    return cased and _BOOLEAN.fullmatch(text) is not None


def whole(node: Node | None) -> int | None:
    """The whole number that the value is, or None if it is none."""
    if not isinstance(node, Scalar):
        return None
    text = node.text.replace("_", "").lower()
    match kind_of(node):
        case Kind.INTEGER:
            sign, digits = (-1 if text.startswith("-") else 1), text.lstrip("+-")
            if len(digits) > 40:
                return None
            octal = re.fullmatch(r"0[0-7]+", digits) is not None
            return sign * int(digits, 8 if octal else 0)
        case Kind.FLOAT:
            number = fraction(node)
            return int(number) if number is not None and number.is_integer() else None
        case _:
            return None


def fraction(node: Node | None) -> float | None:
    """The number that the value is, or None if it is none, or no finite one."""
    if not isinstance(node, Scalar) or kind_of(node) not in {Kind.INTEGER, Kind.FLOAT}:
        return None
    try:
        number = float(node.text.replace("_", ""))
    except ValueError:  # hexadecimal, .inf and their like
        return None
    return number if abs(number) < float("inf") else None


def flag(node: Node | None) -> bool:
    """Whether the value is true."""
    if not isinstance(node, Scalar):
        return False
    return kind_of(node) is Kind.BOOLEAN and node.text.lower() in _TRUE
