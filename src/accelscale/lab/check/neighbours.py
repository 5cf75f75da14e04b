"""What stands beside an object in the same files: its workload, and who else scales that.

Everything is found by kind, name, namespace and place, so that a file of thousands of objects takes
no longer for each of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePath

from accelscale.lab.check.manifests import Manifest
from accelscale.lab.check.workloads import Autoscaler, Workload, read_workload

DEFAULT_TARGET_KIND = "Deployment"

Key = tuple[tuple[str, str], str, str]
"""Kind and name of a workload, a namespace, and a file or a folder."""


def target_of(manifest: Manifest) -> tuple[str, str]:
    """Kind and name of what it scales."""
    reference = manifest.spec.mapping("scaleTargetRef")
    return reference.text("kind") or DEFAULT_TARGET_KIND, reference.text("name")


class Neighbours:
    """All workloads and autoscalers of the inputs.

    Another file may be for another cluster, so a second autoscaler counts in the same file alone. A
    workload may also stand in the same folder, if it is the only one of its name there.
    """

    def __init__(
        self,
        manifests: Iterable[Manifest],
        workloads: Iterable[Workload],
        autoscalers: Iterable[Autoscaler],
    ) -> None:
        self._workloads: defaultdict[Key, list[Workload]] = defaultdict(list)
        self._autoscalers: dict[Key, Autoscaler] = {}
        self._manifests: defaultdict[Key, dict[str, Manifest]] = defaultdict(dict)
        for workload in workloads:
            for place in _places(workload.file):
                found = self._workloads[(workload.kind, workload.name), workload.namespace, place]
                if len(found) < 2:  # two are as many as too many
                    found.append(workload)
        for autoscaler in autoscalers:
            key = (autoscaler.target, autoscaler.namespace, autoscaler.file)
            self._autoscalers.setdefault(key, autoscaler)
        for manifest in manifests:
            if not manifest.is_job:
                self._manifests[_key(manifest)].setdefault(manifest.name, manifest)

    def workload(self, manifest: Manifest) -> Workload | None:
        """What the object scales; a ScaledJob holds its own. None where it is not there."""
        if manifest.is_job:
            return read_workload(manifest.root, manifest.file)
        for place in _places(manifest.file):
            for namespace in dict.fromkeys((manifest.namespace, "")):
                found = self._workloads.get((target_of(manifest), namespace, place), [])
                if found:
                    return found[0] if len(found) == 1 else None
        return None

    def autoscaler(self, manifest: Manifest) -> Autoscaler | None:
        """An HPA on the same target, in the same file."""
        return self._autoscalers.get(_key(manifest))

    def sibling(self, manifest: Manifest) -> Manifest | None:
        """A ScaledObject of another name on the same target, in the same file."""
        others = self._manifests.get(_key(manifest), {})
        return next((other for name, other in others.items() if name != manifest.name), None)


def _key(manifest: Manifest) -> Key:
    return target_of(manifest), manifest.namespace, manifest.file


def _places(file: str) -> tuple[str, str]:
    """The file, and its folder; the two never have the same name."""
    return file, f"{PurePath(file).parent}/"
