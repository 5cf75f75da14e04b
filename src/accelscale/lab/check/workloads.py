"""The workload that an object scales, where it stands in the same files.

What is known of it is what its pod template says. Nothing is concluded from a workload that is not
there: it may be in the cluster already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from accelscale.lab.check.documents import Mapping as Node
from accelscale.lab.check.documents import Scalar, Sequence
from accelscale.lab.check.scalars import fraction

HOLDS_MEMORY = re.compile(
    r"vllm|sglang|text-generation-inference|(?<![a-z])tgi(?![a-z])|tensorrt-?llm|trt-?llm|lmdeploy"
    r"|(?<![a-z])jax(?![a-z])",
    re.IGNORECASE,
)
"""Servers that take device memory at start and keep it until they end."""

FREES_MEMORY = re.compile(r"ollama|llama-?swap", re.IGNORECASE)
"""Servers that unload a model which nobody asks for."""


@frozen
class Container:
    """What matters of a container. ``holds_device`` says that it asks for some device."""

    name: str
    words: str
    environment: Mapping[str, str] = field(factory=dict)
    holds_device: bool = False
    delay: float = 0.0
    """Seconds that its probes wait before they ask whether it has started."""


@frozen
class Workload:
    """A workload with a pod template. ``sets_replicas`` says that the manifest fixes a count."""

    kind: str
    name: str
    namespace: str
    file: str
    containers: tuple[Container, ...]
    labels: Mapping[str, str]
    claims_devices: bool = False
    sets_replicas: bool = False
    line: int = 0

    @property
    def holds_devices(self) -> bool:
        """Whether any container asks for a device, as a resource or by a claim."""
        return self.claims_devices or any(each.holds_device for each in self.containers)

    @property
    def delay(self) -> float:
        """Seconds before which no probe asks: its author expects it to take longer than that."""
        return max((each.delay for each in self.containers), default=0.0)

    @property
    def words(self) -> str:
        """Names, images and commands, to tell the engine by."""
        return " ".join([self.name, *(each.words for each in self.containers)])

    def environment(self, container: str) -> Mapping[str, str]:
        """The literal variables of the container, or of the first one where none is named."""
        for each in self.containers:
            if not container or each.name == container:
                return each.environment
        return {}


@frozen
class Autoscaler:
    """A HorizontalPodAutoscaler: its name, and the kind and name of its target."""

    name: str
    namespace: str
    file: str
    target: tuple[str, str]


def read_workload(node: Node, file: str) -> Workload | None:
    """The workload that this object is, or None if it has no pod template."""
    spec = node.mapping("spec")
    pods = [
        template
        for template in (
            spec.mapping("template"),
            spec.mapping("leaderWorkerTemplate").mapping("workerTemplate"),
            spec.mapping("leaderWorkerTemplate").mapping("leaderTemplate"),
            spec.mapping("jobTargetRef").mapping("template"),
        )
        if template.mapping("spec").items("containers")
    ]
    if not pods:
        return None
    metadata = node.mapping("metadata")
    replicas = spec.entries.get("replicas")
    return Workload(
        node.text("kind"),
        metadata.text("name"),
        metadata.text("namespace"),
        file,
        tuple(_container(each) for pod in pods for each in _containers(pod.mapping("spec"))),
        {key: text for pod in pods for key, text in _texts(_labels(pod)).items()},
        any(pod.mapping("spec").items("resourceClaims") for pod in pods),
        spec.get("replicas") is not None,
        replicas.key.place.line if replicas is not None else 0,
    )


def read_autoscaler(node: Node, file: str) -> Autoscaler | None:
    """The HPA that this object is, or None. One that KEDA itself made is none."""
    if node.text("kind") != "HorizontalPodAutoscaler":
        return None
    metadata, target = node.mapping("metadata"), node.mapping("spec").mapping("scaleTargetRef")
    owned = metadata.mapping("labels").text("app.kubernetes.io/managed-by") == "keda-operator"
    ignored = metadata.mapping("annotations").text("validations.keda.sh/hpa-ownership") == "false"
    if owned or ignored:
        return None
    return Autoscaler(
        metadata.text("name"),
        metadata.text("namespace"),
        file,
        (target.text("kind"), target.text("name")),
    )


def _labels(pod: Node) -> Node:
    return pod.mapping("metadata").mapping("labels")


def _texts(node: Node) -> dict[str, str]:
    return {key: node.text(key) for key in node.entries}


def _containers(pod: Node) -> Iterable[Node]:
    for key in ("containers", "initContainers"):
        for item in pod.items(key):
            if isinstance(item, Node):
                yield item


def _container(node: Node) -> Container:
    words = [node.text("name"), node.text("image")]
    for key in ("command", "args"):
        words += [item.text for item in node.items(key) if isinstance(item, Scalar)]
    resources = node.mapping("resources")
    asked = [key for part in ("limits", "requests") for key in resources.mapping(part).entries]
    probes = [node.mapping(f"{kind}Probe") for kind in ("startup", "readiness")]
    delays = [fraction(probe.get("initialDelaySeconds")) or 0.0 for probe in probes]
    return Container(
        node.text("name"),
        " ".join(words),
        _environment(node.items("env")),
        any("/" in key for key in asked) or isinstance(resources.get("claims"), Sequence),
        max(delays),
    )


def _environment(variables: Iterable[object]) -> dict[str, str]:
    return {
        variable.text("name"): variable.text("value")
        for variable in variables
        if isinstance(variable, Node) and isinstance(variable.get("value"), Scalar)
    }
