"""From inputs to objects: what is there to check, and what could not be read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from attrs import Factory, define

from accelscale.lab.check.documents import Mapping, Node, Place, Scalar, Unreadable, documents
from accelscale.lab.check.findings import Finding, Rule, Severity
from accelscale.lab.check.inputs import Source
from accelscale.lab.check.manifests import Manifest, is_keda, nodes, objects
from accelscale.lab.check.triggers import is_own
from accelscale.lab.check.workloads import (
    Autoscaler,
    Workload,
    read_autoscaler,
    read_workload,
)

UNREADABLE = Rule(
    "AS001",
    "unreadable",
    Severity.ERROR,
    "Nothing was checked in it.",
    "Name a file with YAML in UTF-8, a folder of such files, or - for standard input.",
)
NOT_YAML = Rule(
    "AS002",
    "not-yaml",
    Severity.ERROR,
    "This document was not checked; the others of the file were.",
    "Correct the YAML.",
)
TEMPLATE = Rule(
    "AS003",
    "template",
    Severity.ERROR,
    "A Helm template is no manifest yet: what it becomes depends on the values.",
    "Render it first: helm template RELEASE CHART | accelscale check -",
)
EXCESSIVE = Rule(
    "AS004",
    "excessive",
    Severity.ERROR,
    "Bounds on nesting, size and merges keep a check quick, whatever the file holds.",
    "Split the file.",
)
RULES = (UNREADABLE, NOT_YAML, TEMPLATE, EXCESSIVE)

MOST_UNREADABLE = 100
"""Documents of one file; whoever has more of them has another problem."""

_WANTED = re.compile(r"Scaled(?:Object|Job)|HorizontalPodAutoscaler|containers")
_ACTION = re.compile(
    r"\{\{-?\s*(?:/\*|[.$(]|(?:if|else|end|range|with|define|template|include|block|tpl|toYaml"
    r"|quote|squote|default|required|printf|not|eq|and|or|int|lower|trunc|nindent)\b)"
)
_CONTROL = re.compile(
    r"\s*\{\{-?\s*(?:/\*|(?:if|else|end|range|with|define|include|template)\b|\$\w+\s*:?=)"
)
CONTROL_REACH = 50
"""Lines from the fault within which a line of control says that this is a template."""


@define
class Inputs:
    """Everything that was read, in the order of the inputs."""

    files: int = 0
    manifests: list[Manifest] = Factory(list)
    workloads: list[Workload] = Factory(list)
    autoscalers: list[Autoscaler] = Factory(list)
    unusable: list[Finding] = Factory(list)


def read(sources: Iterable[Source]) -> Inputs:
    """Read all inputs. A bad one is noted, and the others are read."""
    inputs = Inputs()
    for source in sources:
        inputs.files += 1
        if source.problem is not None:
            if source.counts:
                place = Place(source.line, source.column, source.line, source.column)
                message = f"{source.name} {source.problem}" if source.text else source.problem
                inputs.unusable.append(_finding(UNREADABLE, message, source, place))
            continue
        _read(source, inputs)
    return inputs


def _read(source: Source, inputs: Inputs) -> None:
    roots: list[Node] = []
    unreadable: list[Finding] = []
    lines: list[str] = []
    for document in documents(source.text, _WANTED):
        if isinstance(document, Unreadable):
            lines = lines or source.text.splitlines()
            unreadable.append(_told(document, source, lines))
            if len(unreadable) == MOST_UNREADABLE:
                message = f"{MOST_UNREADABLE} documents cannot be read, and the rest was not tried"
                unreadable.append(_finding(EXCESSIVE, message, source, unreadable[-1].place))
                break
        else:
            roots.append(document)
    templates = [each for each in unreadable if each.rule is TEMPLATE]
    if source.counts:
        inputs.unusable.extend(templates[:1] or unreadable)
    for node in objects(roots):
        if not is_keda(node):
            _note(node, source, inputs)
            continue
        place = _action_in(node)
        if place is None:
            inputs.manifests.append(Manifest(node, source.name))
        elif not templates:
            line = source.text.splitlines()[place.line - 1]
            start = line.find("{{", max(place.column - 2, 0))
            action = _whole_action(line, start) if start >= 0 else "a key that is no text"
            message = f"{node.text('kind')} holds {action}"
            inputs.unusable.append(_finding(TEMPLATE, message, source, place))
            return


def _note(node: Mapping, source: Source, inputs: Inputs) -> None:
    autoscaler = read_autoscaler(node, source.name)
    if autoscaler is not None:
        inputs.autoscalers.append(autoscaler)
        return
    workload = read_workload(node, source.name)
    if workload is not None:
        inputs.workloads.append(workload)


def _told(document: Unreadable, source: Source, lines: Sequence[str]) -> Finding:
    place = Place(document.line, document.column, document.line, document.column + 1)
    if document.excessive:
        return _finding(EXCESSIVE, document.problem, source, place)
    action = _action_near(lines, document.line)
    if action is not None:
        text, line, column = action
        place = Place(line, column, line, column + len(text))
        message = f"it holds {text} and is no YAML (line {document.line}: {document.problem})"
        return _finding(TEMPLATE, message, source, place)
    return _finding(NOT_YAML, document.problem, source, place)


def _action_near(lines: Sequence[str], line: int) -> tuple[str, int, int] | None:
    """A template's action that may be why the text is no YAML: near that line, or one of control.

    The text of a rendered ConfigMap may hold actions too, of alerts for example; they do no harm.
    """
    for number in (line, line - 1, line + 1):
        if 0 < number <= len(lines):
            match = _ACTION.search(lines[number - 1])
            if match is not None:
                return _whole_action(lines[number - 1], match.start()), number, match.start() + 1
    above = range(max(line - CONTROL_REACH, 0), min(line + CONTROL_REACH, len(lines)))
    for index in above:
        match = _CONTROL.match(lines[index])
        if match is not None:
            start = lines[index].index("{{")
            return _whole_action(lines[index], start), index + 1, start + 1
    return None


def _whole_action(line: str, start: int) -> str:
    end = line.find("}}", start)
    return line[start : end + 2] if end >= 0 else line[start : start + 40]


def _action_in(node: Mapping) -> Place | None:
    """Where an action stands in the object. Queries of other scalers and annotations may hold some.

    To YAML ``key: {{ .Values.x }}`` is a mapping with a mapping as its key.
    """
    spec = node.mapping("spec")
    spared: list[Node] = [
        node.mapping("metadata").mapping("annotations"),
        spec.mapping("jobTargetRef"),
        *(
            trigger.mapping("metadata")
            for trigger in spec.items("triggers")
            if isinstance(trigger, Mapping) and not is_own(trigger)
        ),
    ]
    places = []
    for one in nodes(node, spared):
        if isinstance(one, Scalar) and _ACTION.search(one.text):
            places.append(one.place)
        elif isinstance(one, Mapping):
            places.extend(key.place for key in one.odd)
    return min(places, default=None)


def _finding(rule: Rule, message: str, source: Source, place: Place) -> Finding:
    return Finding(rule, message, source.name, place, fix=rule.fix)
