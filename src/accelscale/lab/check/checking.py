"""Checks inputs: reads them, looks at each object, gathers the findings in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import TypeVar

from accelscale.lab.check.findings import Finding, Hit, Report, Rule, spelt
from accelscale.lab.check.inputs import Source
from accelscale.lab.check.limits import target_of
from accelscale.lab.check.manifests import Manifest, bounds
from accelscale.lab.check.reading import Inputs, read
from accelscale.lab.check.structure import misspelt, structure
from accelscale.lab.check.subject import Conditions, Subject
from accelscale.lab.check.traps import TRAPS
from accelscale.lab.check.triggers import OwnTrigger, Reader, is_own
from accelscale.lab.check.workloads import Autoscaler, Workload, read_workload
from accelscale.metrics import METRICS, Metric

Neighbour = TypeVar("Neighbour", Workload, Autoscaler, Manifest)


def check(sources: Iterable[Source], conditions: Conditions | None = None) -> Report:
    """Check every ScaledObject and ScaledJob of the inputs that has a trigger of accelscale.

    Objects with triggers of other scalers alone are left as they are. Findings come in the order
    of the inputs, and by line within each.
    """
    inputs = read(sources)
    checker = _Checker(inputs, conditions or Conditions())
    order = {manifest.file: index for index, manifest in reversed([*enumerate(inputs.manifests)])}
    findings = [finding for manifest in inputs.manifests for finding in checker.of(manifest)]
    findings.sort(key=lambda finding: (order[finding.file], finding.place, finding.rule.id))
    return Report(
        tuple(dict.fromkeys(findings)),
        inputs.files,
        len(inputs.manifests),
        checker.foreign,
        tuple(inputs.unusable),
    )


class _Checker:
    def __init__(self, inputs: Inputs, conditions: Conditions) -> None:
        self._inputs = inputs
        self._conditions = conditions
        self.foreign = 0

    def of(self, manifest: Manifest) -> Iterator[Finding]:
        triggers = list(manifest.triggers())
        own = [(index, node) for index, node in triggers if is_own(node)]
        if triggers and not own:
            self.foreign += 1
            return
        for rule, hit in structure(manifest):
            yield _finding(manifest, rule, hit)
        workload = self._workload(manifest)
        container = manifest.spec.mapping("scaleTargetRef").text("envSourceContainerName")
        environment = workload.environment(container) if workload is not None else None
        read_triggers: list[OwnTrigger] = []
        for index, node in own:
            reader = Reader(self._metrics(node.mapping("metadata").text("metric")), environment)
            read_triggers.append(reader.read(index, node))
            for rule, hit in reader.hits:
                yield _finding(manifest, rule, hit)
        subject = Subject(
            manifest,
            bounds(manifest),
            tuple(read_triggers),
            tuple(node for _, node in triggers if not is_own(node)),
            self._conditions,
            workload,
            tuple(self._beside(self._inputs.autoscalers, manifest)),
            tuple(self._beside(self._inputs.manifests, manifest)),
            misspelt(manifest),
        )
        for trap in TRAPS if own else ():
            for hit in trap.find(subject):
                yield _finding(manifest, trap.rule, hit)

    def _metrics(self, name: str) -> Mapping[str, Metric]:
        more = self._conditions.more_metrics
        return METRICS if not name or name in METRICS or more is None else more()

    def _workload(self, manifest: Manifest) -> Workload | None:
        """The one that it scales: of the same file, else the only one of the same folder."""
        if manifest.is_job:
            return read_workload(manifest.root, manifest.file)
        target = target_of(manifest)
        found = [
            workload
            for workload in _same_namespace(self._inputs.workloads, manifest)
            if (workload.kind, workload.name) == target
        ]
        near = [workload for workload in found if workload.file == manifest.file] or [
            workload
            for workload in found
            if PurePath(workload.file).parent == PurePath(manifest.file).parent
        ]
        return near[0] if len(near) == 1 else None

    def _beside(self, many: Iterable[Neighbour], manifest: Manifest) -> Iterator[Neighbour]:
        """Those of the same file: another file may be for another cluster."""
        for one in _same_namespace(many, manifest):
            if one is not manifest and one.file == manifest.file:
                yield one


def _same_namespace(many: Iterable[Neighbour], manifest: Manifest) -> Iterator[Neighbour]:
    """Those of the same namespace; one without any goes wherever the manifest goes."""
    for one in many:
        if not one.namespace or not manifest.namespace or one.namespace == manifest.namespace:
            yield one


def _finding(manifest: Manifest, rule: Rule, hit: Hit) -> Finding:
    return Finding(
        rule,
        hit.message,
        manifest.file,
        manifest.place(hit.path),
        manifest.title,
        spelt(hit.path),
        hit.fix or rule.fix,
    )
