"""YAML as nodes that know where they stand in the file, whatever the file does.

The nodes are built from the parser's events, one document at a time, so that nothing is ever
expanded or recursed into: an alias is the same node again, a merge (``<<``) adds entries, and
nesting, nodes and merged entries are bounded. Keys that are written twice are kept for a finding;
the last one counts, as in Kubernetes. One bad document does not hide the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import yaml
from attrs import define, field, frozen

DEEPEST = 200
"""Levels of nesting; no Kubernetes object comes near."""

MOST_NODES = 1_000_000
MOST_MERGED = 200_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SEPARATOR = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_CONTENT = re.compile(r"^[ \t]*[^ \t\r\n#%]", re.MULTILINE)
_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # YAML 1.1, section 5.1
)


class Place(NamedTuple):
    """From where to where in the file; lines and columns (characters) count from 1."""

    line: int
    column: int
    end_line: int
    end_column: int


@frozen
class Unreadable:
    """A document that cannot be read: no YAML, or ``excessive``, more of it than is read."""

    problem: str
    line: int
    column: int
    excessive: bool = False


@define(eq=False)
class Scalar:
    """A text. ``plain`` says that it stands there without quotes, ``tag`` is an explicit one."""

    text: str
    plain: bool
    tag: str | None
    place: Place


@define(eq=False)
class Entry:
    """One key with its value."""

    key: Scalar
    value: Node


@define(eq=False)
class Mapping:
    """Keys and values. ``repeated`` are keys that a later one replaced, ``odd`` keys no text."""

    place: Place
    entries: dict[str, Entry] = field(factory=dict)
    repeated: list[Scalar] = field(factory=list)
    odd: list[Node] = field(factory=list)
    merges: list[Node] = field(factory=list)

    def get(self, key: str) -> Node | None:
        """The value of the key, or None where it is not written or has no value."""
        entry = self.entries.get(key)
        return None if entry is None or is_null(entry.value) else entry.value

    def text(self, key: str) -> str:
        """The text of the key's value; nothing where there is none."""
        node = self.get(key)
        return node.text if isinstance(node, Scalar) else ""

    def mapping(self, key: str) -> Mapping:
        """The mapping under the key; an empty one where there is none."""
        node = self.get(key)
        return node if isinstance(node, Mapping) else Mapping(self.place)

    def items(self, key: str) -> list[Node]:
        """The items of the sequence under the key; none where there is no sequence."""
        node = self.get(key)
        return node.items if isinstance(node, Sequence) else []


@define(eq=False)
class Sequence:
    """Items in order."""

    place: Place
    items: list[Node] = field(factory=list)


Node = Scalar | Mapping | Sequence

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


def is_null(node: Node) -> bool:
    """Whether the node stands for no value."""
    if not isinstance(node, Scalar):
        return False
    if node.tag is not None:
        return node.tag == "tag:yaml.org,2002:null"
    return node.plain and node.text in _NULLS


def documents(text: str, wanted: re.Pattern[str]) -> Iterator[Node | Unreadable]:
    """The documents of a stream that hold what is wanted, and every one that cannot be read.

    Those without are read too, but no nodes are built for them. Empty documents are left out.
    """
    for part, line in _parts(text.replace("\n\ufeff", "\n").removeprefix("\ufeff")):
        strange = _UNPRINTABLE.search(part)
        if strange is not None:
            yield _strange(part, strange, line)
            continue
        try:
            if wanted.search(part):
                yield from _built(part, line)
            else:
                for _ in yaml.parse(part, _LOADER):
                    pass
        except _NoYamlError as error:
            yield error.found
        except yaml.YAMLError as error:
            yield _unreadable(error, line)


def _parts(text: str) -> Iterator[tuple[str, int]]:
    """The text of each document with the number of lines before it.

    A line that starts with ``---`` ends a document wherever it stands, in a block of text too.
    Comments and directives before it belong to the document after it.
    """
    starts = [0]
    for match in _SEPARATOR.finditer(text):
        if _CONTENT.search(text, starts[-1], match.start()):
            starts.append(match.start())
    line = 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield text[start:end], line
        line += text.count("\n", start, end)


def _strange(part: str, match: re.Match[str], line: int) -> Unreadable:
    before = part[: match.start()]
    return Unreadable(
        f"the character U+{ord(match[0]):04X} is not allowed in YAML",
        line + before.count("\n") + 1,
        len(before) - before.rfind("\n"),
    )


def _unreadable(error: yaml.YAMLError, line: int) -> Unreadable:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    words = [getattr(error, "context", None), getattr(error, "problem", None)]
    problem = ", ".join(word for word in words if word) or str(error)
    excessive = "maximum nesting depth" in problem
    if mark is None:
        return Unreadable(problem, line + 1, 1, excessive)
    return Unreadable(problem, line + mark.line + 1, mark.column + 1, excessive)


class _NoYamlError(Exception):
    def __init__(self, problem: str, place: Place, *, excessive: bool = False) -> None:
        super().__init__(problem)
        self.found = Unreadable(problem, place.line, place.column, excessive)


def _built(part: str, line: int) -> Iterator[Node]:
    builder = _Builder(line)
    for event in yaml.parse(part, _LOADER):
        if isinstance(event, yaml.DocumentStartEvent):
            builder = _Builder(line)
        elif isinstance(event, yaml.DocumentEndEvent):
            if builder.root is not None and not is_null(builder.root):
                yield builder.root
        else:
            builder.take(event)


class _Builder:
    """Builds the nodes of one document that starts after so many lines."""

    def __init__(self, line: int) -> None:
        self.root: Node | None = None
        self._first = line + 1
        self._anchors: dict[str | None, Node] = {}
        self._open: list[Mapping | Sequence] = []
        self._keys: list[Node | None] = []  # in step with _open: the key that waits for its value
        self._nodes = 0
        self._merged = 0

    def take(self, event: yaml.Event) -> None:
        """Take in the next event of the document."""
        if isinstance(event, yaml.ScalarEvent):
            plain = not event.style and event.implicit[0]
            self._add(Scalar(event.value, plain, event.tag, self._place(event)), event.anchor)
        elif isinstance(event, yaml.MappingStartEvent):
            self._start(Mapping(self._place(event)), event.anchor)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._start(Sequence(self._place(event)), event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._end(self._place(event))
        elif isinstance(event, yaml.AliasEvent):
            node = self._anchors.get(event.anchor)
            if node is None:
                problem = f"there is no anchor &{event.anchor} for this alias"
                raise _NoYamlError(problem, self._place(event))
            self._hang(node)

    def _place(self, event: yaml.Event) -> Place:
        start, end = event.start_mark, event.end_mark
        assert start is not None
        assert end is not None
        first = self._first
        return Place(start.line + first, start.column + 1, end.line + first, end.column + 1)

    def _start(self, node: Mapping | Sequence, anchor: str | None) -> None:
        self._add(node, anchor)
        if len(self._open) >= DEEPEST:
            problem = f"it is nested more than {DEEPEST} levels deep"
            raise _NoYamlError(problem, node.place, excessive=True)
        self._open.append(node)
        self._keys.append(None)

    def _end(self, place: Place) -> None:
        node = self._open.pop()
        self._keys.pop()
        if isinstance(node, Mapping):
            for source in node.merges:
                self._merge(node, source, place)

    def _add(self, node: Node, anchor: str | None) -> None:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            problem = f"one document has more than {MOST_NODES} values"
            raise _NoYamlError(problem, node.place, excessive=True)
        if anchor is not None:
            self._anchors[anchor] = node
        self._hang(node)

    def _hang(self, node: Node) -> None:
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        if isinstance(parent, Sequence):
            parent.items.append(node)
            return
        key = self._keys[-1]
        if key is None:
            self._keys[-1] = node
            return
        self._keys[-1] = None
        if not isinstance(key, Scalar):
            parent.odd.append(key)
        elif key.plain and key.text == "<<":
            parent.merges.append(node)
        else:
            if key.text in parent.entries:
                parent.repeated.append(parent.entries[key.text].key)
            parent.entries[key.text] = Entry(key, node)

    def _merge(self, node: Mapping, source: Node, place: Place) -> None:
        for one in source.items if isinstance(source, Sequence) else [source]:
            if not isinstance(one, Mapping):
                raise _NoYamlError("<< takes a mapping or a list of mappings", one.place)
            if one is node or one in self._open:
                raise _NoYamlError("<< takes in the mapping that it stands in", node.place)
            self._merged += len(one.entries)
            if self._merged > MOST_MERGED:
                problem = f"merges add more than {MOST_MERGED} entries"
                raise _NoYamlError(problem, place, excessive=True)
            for key, entry in one.entries.items():
                node.entries.setdefault(key, entry)
