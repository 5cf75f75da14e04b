from __future__ import annotations

import re

import pytest

from accelscale.lab.check import documents as module
from accelscale.lab.check.documents import (
    Mapping,
    Node,
    Place,
    Scalar,
    Sequence,
    Unreadable,
    documents,
    is_null,
)

EVERYTHING = re.compile("")


def read(text: str) -> list[Node | Unreadable]:
    return list(documents(text, EVERYTHING))


def root(text: str) -> Mapping:
    (node,) = read(text)
    assert isinstance(node, Mapping)
    return node


def fault(text: str) -> Unreadable:
    (found,) = [each for each in read(text) if isinstance(each, Unreadable)]
    return found


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_lines_and_columns_count_from_one(newline: str, mark: str) -> None:
    text = mark + newline.join(["a:", '  "é b": |', "    x", "  c: [1, 2]", "---", "d: 1", ""])
    first, second = read(text)
    assert isinstance(first, Mapping)
    assert isinstance(second, Mapping)
    inner = first.mapping("a")
    assert inner.entries["é b"].key.place == Place(2, 3, 2, 8)
    assert inner.text("é b") == "x\n"
    items = inner.items("c")
    assert [item.place.column for item in items] == [7, 10]
    assert second.entries["d"].key.place == Place(6, 1, 6, 2)


def test_a_mark_of_byte_order_between_joined_files_is_passed_over() -> None:
    _, second = read("a: 1\n---\n\ufeffb: 2\n")
    assert isinstance(second, Mapping)
    assert second.entries["b"].key.place == Place(3, 1, 3, 2)


def test_empty_documents_are_left_out() -> None:
    assert read("") == []
    assert read("---\n---\n# nothing\n---\nnull\n...\n") == []
    assert len(read("%YAML 1.1\n---\na: 1\n---\n---\n# c\nb: 1\n")) == 2


def test_a_separator_ends_a_document_in_a_block_of_text_too() -> None:
    first, second = read("a: |\n  x\n--- # next\nb: 1\n")
    assert isinstance(first, Mapping)
    assert first.text("a") == "x\n"
    assert isinstance(second, Mapping)
    assert second.entries["b"].key.place.line == 4


def test_of_repeated_keys_the_last_counts_and_the_others_are_kept() -> None:
    node = root("a: 1\nb: 2\na: 3\n")
    assert node.text("a") == "3"
    assert node.entries["a"].key.place.line == 3
    assert [key.place.line for key in node.repeated] == [1]


def test_an_alias_is_the_same_node_and_a_merge_adds_what_is_not_written() -> None:
    node = root(
        "base: &base {a: 1, b: 2}\n"
        "more: &more\n  <<: *base\n  b: 3\n  c: 4\n"
        "list: {<<: [*more, *base], c: 5}\n"
        "same: *base\n"
    )
    assert node.get("same") is node.get("base")
    more = node.mapping("more")
    assert (more.text("a"), more.text("b"), more.text("c")) == ("1", "3", "4")
    assert more.entries["a"].key.place.line == 1
    assert more.repeated == []
    merged = node.mapping("list")
    assert (merged.text("a"), merged.text("b"), merged.text("c")) == ("1", "3", "5")


def test_quoted_arrows_are_a_key_like_any_other() -> None:
    assert root('"<<": 1\n').text("<<") == "1"


def test_an_anchor_may_be_given_again() -> None:
    assert root("a: &x 1\nb: &x 2\nc: *x\n").text("c") == "2"


def test_keys_that_are_no_text_are_kept_apart() -> None:
    node = root("a: {{ x }}\n").mapping("a")
    assert node.entries == {}
    assert [type(key) for key in node.odd] == [Mapping]


@pytest.mark.parametrize("text", ["", "~", "null", "NULL", '!!null ""'])
def test_nothing_is_no_value(text: str) -> None:
    node = root(f"a: {text}\n")
    assert is_null(node.entries["a"].value)
    assert node.get("a") is None
    assert node.text("a") == ""


def test_what_is_asked_of_another_kind_is_nothing() -> None:
    node = root('a: [1]\nb: {c: 1}\nd: "null"\n')
    assert node.text("a") == ""
    assert node.items("b") == []
    assert node.mapping("a").entries == {}
    assert node.text("d") == "null"
    assert not is_null(Sequence(Place(1, 1, 1, 1)))


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: b: c\n", 1, 5, "mapping values are not allowed"),
        ("x: 1\n---\n\ta: 1\n", 3, 1, "cannot start any token"),
        ("a: *x\n", 1, 4, "no anchor &x"),
        ("a: 1\nb: \x07\n", 2, 4, "U+0007 is not allowed"),
        ("a: 1\n---\nb: '\x00'\n", 3, 5, "U+0000 is not allowed"),
        ("a: &a\n  <<: *a\n", 1, 4, "takes in the mapping that it stands in"),
        ("a:\n  <<: 3\n", 2, 7, "takes a mapping or a list of mappings"),
        ("a: [1, 2\n", 2, 1, "flow sequence"),
    ],
)
def test_what_is_no_yaml_says_where(text: str, line: int, column: int, words: str) -> None:
    found = fault(text)
    assert (found.line, found.column, found.excessive) == (line, column, False)
    assert words in found.problem


def test_one_bad_document_does_not_hide_the_others() -> None:
    kinds = [type(each) for each in read("a: 1\n---\nb: [\n---\nc: 1\n---\nd: \x01\n---\ne: 1\n")]
    assert kinds == [Mapping, Unreadable, Mapping, Unreadable, Mapping]


def test_documents_that_nobody_wants_are_read_and_not_built() -> None:
    found = list(documents("a: 1\n---\nb: wanted\n---\nc: [\n", re.compile("wanted")))
    assert [type(each) for each in found] == [Mapping, Unreadable]


def test_aliases_of_aliases_are_not_expanded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 60)]
    assert len(root("\n".join(lines)).entries) == 60


def test_a_list_may_hold_itself() -> None:
    node = root("a: &a [*a]\n")
    assert node.items("a") == [node.get("a")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "maximum nesting depth"),
        ("- " * 100_000 + "x", "nest"),
        ("[" * 300 + "]" * 300, "more than 200 levels deep"),
        (
            "a0: &a0 {k0: 1}\n"
            + "".join(f"a{n}: &a{n}\n  <<: *a{n - 1}\n  k{n}: 1\n" for n in range(1, 1500)),
            "merges add more than",
        ),
    ],
    ids=["flow", "block", "levels", "merges"],
)
def test_what_is_out_of_bounds_is_refused(text: str, words: str) -> None:
    found = fault(text)
    assert found.excessive
    assert words in found.problem


def test_a_document_of_very_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 100)
    found = fault("a:\n" + "- 1\n" * 200)
    assert (found.excessive, found.line) == (True, 99)
    assert "more than 100 values" in found.problem


def test_the_parser_in_python_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'a: &x {b: 1}\nc:\n- <<: *x\n  d: "e"\n---\nf: [\n'
    quick = read(text)
    monkeypatch.setattr(module, "_LOADER", module.yaml.SafeLoader)
    slow = read(text)
    assert [type(each) for each in quick] == [type(each) for each in slow]
    for nodes in (quick, slow):
        assert isinstance(nodes[0], Mapping)
        (item,) = nodes[0].items("c")
        assert isinstance(item, Mapping)
        assert item.entries["d"].key.place == Place(4, 3, 4, 4)
        value = item.entries["d"].value
        assert isinstance(value, Scalar)
        assert (value.text, value.plain) == ("e", False)
