from __future__ import annotations

import re

import pytest

from accelscale.lab.check.documents import Mapping, Node, documents
from accelscale.lab.check.scalars import Kind, flag, kind_of, whole


def value(text: str) -> Node:
    (node,) = documents(f"key: {text}\n", re.compile(""))
    assert isinstance(node, Mapping)
    return node.entries["key"].value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("70", Kind.INTEGER),
        ("-5", Kind.INTEGER),
        ("1_000", Kind.INTEGER),
        ("0x1F", Kind.INTEGER),
        ("0o17", Kind.INTEGER),
        ("017", Kind.INTEGER),
        ("0b11", Kind.INTEGER),
        ("0.5", Kind.FLOAT),
        (".5", Kind.FLOAT),
        ("5.", Kind.FLOAT),
        ("1e3", Kind.FLOAT),
        ("089", Kind.FLOAT),
        (".inf", Kind.FLOAT),
        ("-.Inf", Kind.FLOAT),
        (".nan", Kind.FLOAT),
        ("true", Kind.BOOLEAN),
        ("Yes", Kind.BOOLEAN),
        ("OFF", Kind.BOOLEAN),
        ("y", Kind.BOOLEAN),
        ("", Kind.NULL),
        ("~", Kind.NULL),
        ("yEs", Kind.TEXT),
        ("15s", Kind.TEXT),
        ("64Gi", Kind.TEXT),
        ("1:30", Kind.TEXT),
        ("2026-01-01", Kind.TEXT),
        ('"70"', Kind.TEXT),
        ("'true'", Kind.TEXT),
        ("!!str 70", Kind.TEXT),
        ('!!int "70"', Kind.INTEGER),
        ("!!bool on", Kind.BOOLEAN),
        ("!!float 1", Kind.FLOAT),
        ("!secret 70", Kind.TEXT),
        ("[1]", Kind.SEQUENCE),
        ("{a: 1}", Kind.MAPPING),
    ],
)
def test_values_have_the_type_that_kubectl_gives_them(text: str, kind: Kind) -> None:
    assert kind_of(value(text)) is kind


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("70", 70),
        ("-5", -5),
        ("1_000", 1000),
        ("0x1F", 31),
        ("017", 15),
        ("0o17", 15),
        ("5.0", 5),
        ("1e3", 1000),
        ("5.5", None),
        (".inf", None),
        (".nan", None),
        ('"5"', None),
        ("[5]", None),
        ("9" * 50, None),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole(value(text)) == number
    assert whole(None) is None


def test_flags() -> None:
    assert flag(value("true"))
    assert flag(value("On"))
    assert not flag(value('"true"'))
    assert not flag(value("no"))
    assert not flag(value("[]"))
    assert not flag(None)
