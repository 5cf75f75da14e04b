"""Checks inputs: reads them, looks at each object, gathers the findings in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from accelscale.lab.check.findings import Finding, Hit, Report, Rule, spelt
from accelscale.lab.check.inputs import Source
from accelscale.lab.check.manifests import Manifest, bounds
from accelscale.lab.check.neighbours import Neighbours
from accelscale.lab.check.reading import Inputs, read
from accelscale.lab.check.structure import misspelt, structure
from accelscale.lab.check.subject import Conditions, Subject
from accelscale.lab.check.traps import TRAPS
from accelscale.lab.check.triggers import OwnTrigger, Reader, is_own
from accelscale.metrics import METRICS, Metric

LONGEST_MESSAGE = 400
"""Characters; what stands in a manifest may be longer than anyone reads."""


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
        self._conditions = conditions
        self.foreign = 0
        self._neighbours = Neighbours(inputs.manifests, inputs.workloads, inputs.autoscalers)

    def of(self, manifest: Manifest) -> Iterator[Finding]:
        triggers = list(manifest.triggers())
        own = [(index, node) for index, node in triggers if is_own(node)]
        if triggers and not own and all(node.mapping("metadata").entries for _, node in triggers):
            self.foreign += 1
            return
        for rule, hit in structure(manifest):
            yield _finding(manifest, rule, hit)
        workload = self._neighbours.workload(manifest)
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
            self._neighbours.autoscaler(manifest),
            self._neighbours.sibling(manifest),
            misspelt(manifest),
        )
        for trap in TRAPS if own else ():
            for hit in trap.find(subject):
                yield _finding(manifest, trap.rule, hit)

    def _metrics(self, name: str) -> Mapping[str, Metric]:
        more = self._conditions.more_metrics
        return METRICS if not name or name in METRICS or more is None else more()


def _finding(manifest: Manifest, rule: Rule, hit: Hit) -> Finding:
    message = hit.message
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[:LONGEST_MESSAGE]} ..."
    return Finding(
        rule,
        message,
        manifest.file,
        manifest.place(hit.path),
        manifest.title,
        spelt(hit.path),
        hit.fix or rule.fix,
    )
