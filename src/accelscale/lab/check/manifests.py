"""ScaledObjects and ScaledJobs among the documents of a stream, and where each part stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from attrs import frozen

from accelscale.lab.check.documents import Mapping, Node, Place, Scalar, Sequence
from accelscale.lab.check.findings import Path
from accelscale.lab.check.scalars import flag, whole

SCALED_OBJECT = "ScaledObject"
SCALED_JOB = "ScaledJob"
KINDS = (SCALED_OBJECT, SCALED_JOB)
API_VERSION = "keda.sh/v1alpha1"
GROUPS = ("keda.sh", "keda.k8s.io")  # the second one was KEDA 1's

EXTERNAL_TYPES = ("external", "external-push")

BEHAVIOR: Path = ("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior")
MODIFIERS: Path = ("spec", "advanced", "scalingModifiers")


@frozen(eq=False)
class Manifest:
    """One ScaledObject or ScaledJob as it was written."""

    root: Mapping
    file: str

    @property
    def kind(self) -> str:
        """ScaledObject or ScaledJob."""
        return self.root.text("kind")

    @property
    def is_job(self) -> bool:
        """Whether it is a ScaledJob."""
        return self.kind == SCALED_JOB

    @property
    def name(self) -> str:
        """Its name; nothing where it has none."""
        return self.root.mapping("metadata").text("name")

    @property
    def namespace(self) -> str:
        """Its namespace; nothing where whoever applies it decides."""
        return self.root.mapping("metadata").text("namespace")

    @property
    def title(self) -> str:
        """How a finding names it."""
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name or '(without a name)'}"

    @property
    def spec(self) -> Mapping:
        """Its spec."""
        return self.root.mapping("spec")

    def annotation(self, key: str) -> str:
        """The text of an annotation; nothing where there is none."""
        return self.root.mapping("metadata").mapping("annotations").text(key)

    def triggers(self) -> Iterator[tuple[int, Mapping]]:
        """The triggers that are mappings, with their index."""
        for index, item in enumerate(self.spec.items("triggers")):
            if isinstance(item, Mapping):
                yield index, item

    def at(self, path: Path) -> Node | None:
        """The value at a path, or None."""
        node: Node | None = self.root
        for part in path:
            if isinstance(part, int):
                items = node.items if isinstance(node, Sequence) else []
                node = items[part] if part < len(items) else None
            else:
                node = node.get(part) if isinstance(node, Mapping) else None
        return node

    def whole(self, *path: str | int) -> int | None:
        """The whole number at a path, or None. Quotes round it are told elsewhere."""
        node = self.at(path)
        if isinstance(node, Scalar) and re.fullmatch(r"-?[0-9]{1,10}", node.text):
            return int(node.text)
        return whole(node)

    def flag(self, *path: str | int) -> bool:
        """Whether there is a true at the path."""
        return flag(self.at(path))

    def place(self, path: Path) -> Place:
        """Where the path stands: its last key, or the first thing of it that is written."""
        node: Node = self.root
        place = _start_of(self.root)
        for part in path:
            if isinstance(part, int):
                if not isinstance(node, Sequence) or part >= len(node.items):
                    break
                node = node.items[part]
                place = _start_of(node)
            else:
                entry = node.entries.get(part) if isinstance(node, Mapping) else None
                if entry is None:
                    break
                place, node = entry.key.place, entry.value
        return place


def _start_of(node: Node) -> Place:
    """A mapping is pointed at by its first key: its own extent may be many pages."""
    if isinstance(node, Mapping) and node.entries:
        return next(iter(node.entries.values())).key.place
    return node.place


def objects(documents: Iterable[Node]) -> Iterator[Mapping]:
    """Every object of the documents, those inside a List included."""
    waiting, seen = list(documents), set[int]()
    while waiting:
        node = waiting.pop(0)
        if not isinstance(node, Mapping) or id(node) in seen:
            continue
        seen.add(id(node))
        if node.text("kind").endswith("List") and "items" in node.entries:
            waiting[:0] = node.items("items")
        else:
            yield node


def is_keda(node: Mapping) -> bool:
    """Whether KEDA would read this object: one of its kinds in its group, or without any."""
    if node.text("kind") not in KINDS:
        return False
    version = node.text("apiVersion")
    return not version or version.partition("/")[0] in GROUPS


def nodes(node: Node, left_out: Iterable[Node] = ()) -> Iterator[Node]:
    """The node and everything below it once, keys included, without what is left out."""
    seen = {id(each) for each in left_out}
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, Sequence):
            waiting.extend(one.items)
        elif isinstance(one, Mapping):
            for entry in one.entries.values():
                waiting.extend((entry.key, entry.value))


def mappings(node: Node) -> Iterator[tuple[Path, Mapping]]:
    """Every mapping below the node once, with the path to it."""
    seen = set[int]()
    waiting: list[tuple[Path, Node]] = [((), node)]
    while waiting:
        path, one = waiting.pop()
        if id(one) in seen or isinstance(one, Scalar):
            continue
        seen.add(id(one))
        if isinstance(one, Mapping):
            yield path, one
            waiting.extend(((*path, key), each.value) for key, each in one.entries.items())
        else:
            waiting.extend(((*path, index), each) for index, each in enumerate(one.items))


@frozen
class Bounds:
    """How many replicas an object allows, KEDA's defaults filled in."""

    least: int
    most: int
    idle: int | None = None

    @property
    def reach_zero(self) -> bool:
        """Whether an inactive workload ends at 0 replicas."""
        return self.least == 0 or self.idle == 0


def bounds(manifest: Manifest) -> Bounds:
    """The bounds of the manifest; what cannot be read counts as not written."""
    least = manifest.whole("spec", "minReplicaCount")
    most = manifest.whole("spec", "maxReplicaCount")
    return Bounds(
        0 if least is None else least,
        100 if most is None else most,
        manifest.whole("spec", "idleReplicaCount"),
    )
