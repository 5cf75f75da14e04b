"""What the API server and KEDA's admission refuse about an object before any trigger is read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

from accelscale.errors import ConfigurationError, Fault
from accelscale.hpa import Behavior, Policy, PolicyType, ScaledObject, ScalingRules
from accelscale.hpa.scaledjob import ScaledJob
from accelscale.lab.check.documents import Mapping, Node, Scalar, Sequence
from accelscale.lab.check.findings import Hit, Path, Rule, Severity, spelt
from accelscale.lab.check.manifests import API_VERSION, BEHAVIOR, MODIFIERS, Manifest, mappings
from accelscale.lab.check.scalars import Kind, kind_of, whole
from accelscale.lab.check.schema import KEDA, Shape, shape_of

LARGEST_COUNT = 2**31 - 1
LONGEST_NAME = 63
"""Of a ScaledObject and of its HPA: both become the value of a label."""

MISSING_FIELD = Rule(
    "AS103",
    "missing-field",
    Severity.ERROR,
    "The API server or KEDA refuses the object without this field.",
    "Write the field.",
)
WRONG_TYPE = Rule(
    "AS104",
    "wrong-type",
    Severity.ERROR,
    "The API server compares every field with the type that KEDA declares, and refuses the object."
    " Quotes make text of a number, and a number without quotes is no text.",
    "Write a value of the right type.",
)
OUT_OF_RANGE = Rule(
    "AS105",
    "out-of-range",
    Severity.ERROR,
    "KEDA's admission or the HPA refuses the value, or nothing works with it.",
    "Write a value that is allowed.",
)
MISSPELT_FIELD = Rule(
    "AS106",
    "misspelt-field",
    Severity.ERROR,
    "Kubernetes drops fields that it does not know, or refuses the object where it validates"
    " strictly. What was meant is not in force.",
    "Write the name of the field as KEDA spells it.",
)
UNKNOWN_FIELD = Rule(
    "AS107",
    "unknown-field",
    Severity.WARNING,
    "Kubernetes drops fields that it does not know, or refuses the object where it validates"
    f" strictly. The fields compared with are those of {KEDA}; a later KEDA may have more.",
    "Remove the field, or move it to where it belongs; the indentation may be wrong.",
)
KEY_TWICE = Rule(
    "AS108",
    "key-twice",
    Severity.ERROR,
    "Of two equal keys the last one counts for kubectl, and other tools refuse the file. Whoever"
    " reads or changes the first one is misled.",
    "Remove one of them.",
)
SCALING_MODIFIERS = Rule(
    "AS113",
    "scaling-modifiers",
    Severity.ERROR,
    "KEDA's admission refuses scalingModifiers without a formula and a target, and a formula knows"
    " triggers by their name alone.",
    "Write formula and target, and give each trigger that the formula uses a name.",
)
OLD_API_VERSION = Rule(
    "AS114",
    "api-version",
    Severity.ERROR,
    "KEDA 2 reads objects of keda.sh/v1alpha1 alone; others are left as they are, without a word.",
    f"Write apiVersion: {API_VERSION}.",
)
RULES = (
    MISSING_FIELD,
    WRONG_TYPE,
    OUT_OF_RANGE,
    MISSPELT_FIELD,
    UNKNOWN_FIELD,
    KEY_TWICE,
    SCALING_MODIFIERS,
    OLD_API_VERSION,
)


def structure(manifest: Manifest) -> Iterator[tuple[Rule, Hit]]:
    """Everything about the object's fields that is refused or dropped."""
    yield from _compared(shape_of(manifest.kind), manifest.root, ())
    yield from _keys_twice(manifest)
    yield from _names(manifest)
    version = manifest.root.text("apiVersion")
    if version and version != API_VERSION:
        hit = Hit(f"apiVersion {version} is not KEDA 2's {API_VERSION}", ("apiVersion",))
        yield OLD_API_VERSION, hit
    triggers = manifest.at(("spec", "triggers"))
    if isinstance(triggers, Sequence) and not triggers.items:
        yield MISSING_FIELD, Hit("spec.triggers is empty", ("spec", "triggers"))
    if not manifest.is_job:
        yield from _modifiers(manifest)
    for fault, path in _ranges(manifest):
        value = f" {fault.value}" if fault.value is not None else ""
        yield OUT_OF_RANGE, Hit(f"{spelt(path)}{value}: {fault.problem}", path)


def _compared(shape: Shape, node: Node, path: Path) -> Iterator[tuple[Rule, Hit]]:
    kind = kind_of(node)
    if not _fits(kind, shape.kind, node):
        yield WRONG_TYPE, Hit(*_wrong_type(kind, shape.kind, node, path))
    elif isinstance(node, Mapping):
        if shape.fields:
            yield from _fields(shape, node, path)
    elif isinstance(node, Scalar):
        yield from _value(shape, node, path)
    elif shape.item is not None:
        for index, item in enumerate(node.items):
            yield from _compared(shape.item, item, (*path, index))


def _fits(kind: Kind, wanted: Kind, node: Node) -> bool:
    if wanted is Kind.INTEGER:
        return whole(node) is not None
    if wanted is Kind.FLOAT:  # a Kubernetes quantity, which may be text as well
        return kind in {Kind.INTEGER, Kind.FLOAT, Kind.TEXT}
    return kind is wanted


_UNQUOTED = re.compile(r"-?[0-9]+|true|false")


def _wrong_type(kind: Kind, wanted: Kind, node: Node, path: Path) -> tuple[str, Path, str | None]:
    message = f"{spelt(path)} must be {wanted}, and is {kind}"
    fix = None
    if isinstance(node, Scalar) and wanted is Kind.TEXT:
        fix = f'Put it in quotes: "{node.text}".'
    elif isinstance(node, Scalar) and _UNQUOTED.fullmatch(node.text):
        fix = f"Write it without quotes: {node.text}"
    return message, path, fix


def _fields(shape: Shape, node: Mapping, path: Path) -> Iterator[tuple[Rule, Hit]]:
    for name in shape.required:
        if node.get(name) is None:
            where = f" in {spelt(path)}" if path else ""
            yield MISSING_FIELD, Hit(f"{name} is missing{where}", path)
    for name, entry in node.entries.items():
        inner = shape.fields.get(name)
        if inner is None:
            yield _unknown(name, shape, (*path, name))
        elif node.get(name) is not None:
            yield from _compared(inner, entry.value, (*path, name))


def misspelt(manifest: Manifest) -> frozenset[str]:
    """The fields of the spec that were meant and spelt otherwise."""
    known = shape_of(manifest.kind).fields["spec"].fields
    strange = (name for name in manifest.spec.entries if name not in known)
    return frozenset(near for name in strange if (near := _nearest(name, known)) is not None)


def _nearest(name: str, names: Iterable[str]) -> str | None:
    by_lower = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[near[0]] if near else None


def _unknown(name: str, shape: Shape, path: Path) -> tuple[Rule, Hit]:
    nearest = _nearest(name, shape.fields)
    message = f"{spelt(path)} is no field of {KEDA}"
    if nearest is not None:
        return MISSPELT_FIELD, Hit(f"{message} (did you mean {nearest}?)", path)
    return UNKNOWN_FIELD, Hit(message, path)


def _value(shape: Shape, node: Scalar, path: Path) -> Iterator[tuple[Rule, Hit]]:
    if shape.choices and node.text not in shape.choices:
        allowed = ", ".join(shape.choices)
        yield OUT_OF_RANGE, Hit(f"{spelt(path)} {node.text}: must be one of {allowed}", path)
    number = whole(node) if shape.kind is Kind.INTEGER else None
    if number is not None and not -LARGEST_COUNT - 1 <= number <= LARGEST_COUNT:
        yield OUT_OF_RANGE, Hit(f"{spelt(path)} does not fit in 32 bits", path)
    elif number is not None and shape.minimum is not None and number < shape.minimum:
        problem = f"must be {shape.minimum} or more"
        yield OUT_OF_RANGE, Hit(f"{spelt(path)} {number}: {problem}", path)


def _keys_twice(manifest: Manifest) -> Iterator[tuple[Rule, Hit]]:
    for path, mapping in mappings(manifest.root):
        for first in mapping.repeated:
            line = first.place.line
            message = f"{first.text} stands here and in line {line}; this one counts"
            yield KEY_TWICE, Hit(message, (*path, first.text))


def _names(manifest: Manifest) -> Iterator[tuple[Rule, Hit]]:
    metadata = manifest.root.get("metadata")
    if isinstance(metadata, Mapping) and not (manifest.name or metadata.text("generateName")):
        yield MISSING_FIELD, Hit("name is missing in metadata", ("metadata",))
    if manifest.is_job:
        return
    config = BEHAVIOR[:-1]
    node = manifest.at(config)
    own = node.text("name") if isinstance(node, Mapping) else ""
    hpa, path = (own, (*config, "name")) if own else (f"keda-hpa-{manifest.name}", _NAME)
    if len(hpa) > LONGEST_NAME:
        message = f"the HPA's name {hpa} has {len(hpa)} characters, and at most {LONGEST_NAME} do"
        yield OUT_OF_RANGE, Hit(message, path)
    elif len(manifest.name) > LONGEST_NAME:
        message = f"the name has {len(manifest.name)} characters, and at most {LONGEST_NAME} do"
        yield OUT_OF_RANGE, Hit(message, _NAME)


_NAME: Path = ("metadata", "name")


def _modifiers(manifest: Manifest) -> Iterator[tuple[Rule, Hit]]:
    node = manifest.at(MODIFIERS)
    if not isinstance(node, Mapping) or not node.entries:
        return
    for name in ("formula", "target"):
        if not node.text(name):
            yield SCALING_MODIFIERS, Hit(f"scalingModifiers has no {name}", MODIFIERS)
    try:
        usable = not node.text("target") or float(node.text("target")) > 0
    except ValueError:
        usable = False
    if not usable:
        message = f"scalingModifiers.target {node.text('target')}: must be a number above 0"
        yield SCALING_MODIFIERS, Hit(message, (*MODIFIERS, "target"))


def _ranges(manifest: Manifest) -> Iterator[tuple[Fault, Path]]:
    """What the model of KEDA and of the HPA refuses, in its own words."""
    spec = manifest.spec
    least, most = whole(spec.get("minReplicaCount")), whole(spec.get("maxReplicaCount"))
    idle, polling = whole(spec.get("idleReplicaCount")), whole(spec.get("pollingInterval"))
    if idle == 0 and least == 0:
        idle = None  # of no use, and admitted: a minimum written as 0 is compared as 1
    bounds = (least or 0, 100 if most is None else most)
    try:
        if manifest.is_job:
            ScaledJob(*bounds)
        else:
            polling_interval = 30.0 if polling is None else float(polling)
            ScaledObject((), *bounds, idle, polling_interval)
    except ConfigurationError as error:
        for fault in error.faults:
            yield fault, ("spec", fault.key)
    if not manifest.is_job:
        try:
            Behavior(_rules(manifest, "scaleUp"), _rules(manifest, "scaleDown"))
        except ConfigurationError as error:
            for fault in error.faults:
                yield fault, _path_of(fault.key)


def _rules(manifest: Manifest, direction: str) -> ScalingRules:
    at = (*BEHAVIOR, direction)
    return ScalingRules(
        tuple(_policies(manifest, (*at, "policies"))),
        None,
        manifest.whole(*at, "stabilizationWindowSeconds"),
        tolerance(manifest, direction),
    )


def _policies(manifest: Manifest, at: Path) -> Iterator[Policy]:
    node = manifest.at(at)
    for item in node.items if isinstance(node, Sequence) else ():
        one = item if isinstance(item, Mapping) else Mapping(item.place)
        value, period = whole(one.get("value")), whole(one.get("periodSeconds"))
        # What is missing or no number is told elsewhere; any allowed number keeps the index.
        yield Policy(
            PolicyType.PODS, 1 if value is None else value, 1 if period is None else period
        )


def tolerance(manifest: Manifest, direction: str) -> float | None:
    """The tolerance of one direction as a fraction, or None where there is none."""
    node = manifest.at((*BEHAVIOR, direction, "tolerance"))
    text = node.text if isinstance(node, Scalar) else ""
    match = re.fullmatch(r"(-?[0-9]{1,9}(?:\.[0-9]{0,9})?)(m?)", text)
    if match is None:
        return None
    return float(match[1]) / (1000 if match[2] else 1)


def _path_of(key: str) -> Path:
    parts: list[str | int] = []
    for name, index in re.findall(r"([A-Za-z]+)|\[([0-9]+)\]", key.removeprefix("behavior")):
        parts.append(name or int(index))
    return (*BEHAVIOR, *parts)
