"""Traps about bounds, failures and who else has a hand in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from accelscale.lab.check.findings import Hit, Rule, Severity, spelt
from accelscale.lab.check.neighbours import target_of
from accelscale.lab.check.subject import Subject, Trap
from accelscale.trigger import MetricType


def _no_maximum(subject: Subject) -> Iterator[Hit]:
    key = "maxReplicaCount"
    if subject.manifest.at(("spec", key)) is None and key not in subject.misspelt:
        replicas = "jobs at a time" if subject.manifest.is_job else "replicas"
        yield Hit(f"maxReplicaCount is not written, so up to 100 {replicas} start", ("spec",))


def _fallback_to_zero(subject: Subject) -> Iterator[Hit]:
    if subject.manifest.whole("spec", "fallback", "replicas") == 0:
        message = "fallback.replicas is 0: a scaler or driver that fails ends the workload"
        yield Hit(message, ("spec", "fallback", "replicas"))


def _second_autoscaler(subject: Subject) -> Iterator[Hit]:
    manifest = subject.manifest
    kind, name = target_of(manifest)
    if manifest.is_job or not name:
        return
    path = ("spec", "scaleTargetRef", "name")
    if subject.sibling is not None:
        yield Hit(f"{kind} {name} is scaled by {subject.sibling.title} too", path)
    transfer = manifest.annotation("scaledobject.keda.sh/transfer-hpa-ownership")
    if subject.autoscaler is not None and transfer != "true":
        yield Hit(f"{kind} {name} is scaled by the HPA {subject.autoscaler.name} too", path)


def _replicas_in_workload(subject: Subject) -> Iterator[Hit]:
    workload = subject.workload
    if workload is None or not workload.sets_replicas or subject.manifest.is_job:
        return
    message = (
        f"{workload.kind} {workload.name} sets spec.replicas (line {workload.line} of"
        f" {workload.file})"
    )
    yield Hit(message, ("spec", "scaleTargetRef", "name"))


def _no_device(subject: Subject) -> Iterator[Hit]:
    workload = subject.workload
    if workload is None or workload.holds_devices or subject.manifest.is_job:
        return
    for own, trigger, _ in subject.parsed:
        if trigger.scope == "workload":
            message = f"no container of {workload.kind} {workload.name} asks for a device"
            yield Hit(message, own.path)
            return


def _unknown_container(subject: Subject) -> Iterator[Hit]:
    workload = subject.workload
    if workload is None:
        return
    names = [container.name for container in workload.containers]
    for own, trigger, _ in subject.parsed:
        if trigger.container is not None and trigger.container not in names:
            message = (
                f"container {trigger.container} is none of {workload.kind} {workload.name}"
                f" ({', '.join(names)})"
            )
            yield Hit(message, own.key("container"))


def _selects_nothing(subject: Subject) -> Iterator[Hit]:
    workload = subject.workload
    for own, trigger, _ in subject.parsed:
        selector = trigger.pod_selector
        if workload is None or selector is None or selector.matches(workload.labels):
            continue
        message = f"podSelector {selector} matches no pod of {workload.kind} {workload.name}"
        yield Hit(message, own.key("podSelector"))


def _trigger_name_twice(subject: Subject) -> Iterator[Hit]:
    triggers = list(subject.manifest.triggers())
    names = Counter(trigger.text("name") for _, trigger in triggers)
    first: dict[str, int] = {}
    for index, trigger in triggers:
        name = trigger.text("name")
        if name and names[name] > 1 and first.setdefault(name, index) != index:
            path = ("spec", "triggers", index, "name")
            other = spelt(path[:2]) + f"[{first[name]}]"
            yield Hit(f"name {name} is taken by {other}", path)


def _value_in_job(subject: Subject) -> Iterator[Hit]:
    for own, trigger, _ in subject.parsed:
        if subject.manifest.is_job and trigger.metric_type is MetricType.VALUE:
            message = "metricType Value in a ScaledJob: KEDA takes the threshold as 0"
            yield Hit(message, (*own.path, "metricType"))


def _level_in_job(subject: Subject) -> Iterator[Hit]:
    for own, _, metric in subject.parsed:
        if subject.manifest.is_job:
            yield Hit(f"{metric.name} is a level and no queue of jobs", own.key("metric"))


def _push_in_job(subject: Subject) -> Iterator[Hit]:
    for own in subject.triggers:
        if subject.manifest.is_job and own.node.text("type") == "external-push":
            yield Hit("external-push in a ScaledJob", (*own.path, "type"))


TRAPS = (
    Trap(
        Rule(
            "AS501",
            "no-maximum",
            Severity.WARNING,
            "KEDA allows 100 replicas where nothing is written. Accelerators are few and dear, and"
            " a mistake in a threshold then takes all of them.",
            "Write maxReplicaCount: as many as there are devices to spare.",
        ),
        _no_maximum,
    ),
    Trap(
        Rule(
            "AS502",
            "fallback-to-zero",
            Severity.ERROR,
            "With a fallback of 0 replicas KEDA no longer holds a workload whose triggers fail: it"
            " may scale to zero at once, and the fallback itself asks for nothing. A fault then"
            " looks like an idle fleet.",
            "Remove fallback (KEDA holds the replicas on errors), or write how many replicas"
            " should serve blindly.",
        ),
        _fallback_to_zero,
    ),
    Trap(
        Rule(
            "AS503",
            "second-autoscaler",
            Severity.ERROR,
            "Two autoscalers on one workload undo each other's work; KEDA's admission refuses the"
            " second one.",
            "Keep one of them, with all triggers in it.",
        ),
        _second_autoscaler,
    ),
    Trap(
        Rule(
            "AS504",
            "replicas-in-workload",
            Severity.WARNING,
            "Each time that the workload is applied, its replicas jump to that number, whatever"
            " KEDA and the HPA made of it, and pods that work are ended.",
            "Remove spec.replicas from the workload.",
        ),
        _replicas_in_workload,
    ),
    Trap(
        Rule(
            "AS505",
            "no-device",
            Severity.WARNING,
            "A replica whose pods hold no accelerator has no reading; the scaler answers an error"
            " that names the pod.",
            "Ask for a device in the container's resources (nvidia.com/gpu: 1), or use scope node.",
        ),
        _no_device,
    ),
    Trap(
        Rule(
            "AS506",
            "unknown-container",
            Severity.ERROR,
            "Only devices of this container count, and there is no such container, so there is no"
            " reading.",
            "Name a container of the workload, or remove the key.",
        ),
        _unknown_container,
    ),
    Trap(
        Rule(
            "AS507",
            "selects-nothing",
            Severity.ERROR,
            "Only pods with these labels count, and the workload's pods do not have them, so there"
            " is no reading.",
            "Write labels of the pod template, or remove the key.",
        ),
        _selects_nothing,
    ),
    Trap(
        Rule(
            "AS508",
            "trigger-name-twice",
            Severity.ERROR,
            "KEDA's admission refuses an object with two triggers of one name.",
            "Give each trigger a name of its own, or none.",
        ),
        _trigger_name_twice,
    ),
    Trap(
        Rule(
            "AS601",
            "value-in-job",
            Severity.ERROR,
            "For a ScaledJob KEDA divides a queue's length by the target of AverageValue. Under"
            " Value there is none, and no job is ever started.",
            "Remove metricType.",
        ),
        _value_in_job,
    ),
    Trap(
        Rule(
            "AS602",
            "level-in-job",
            Severity.WARNING,
            "A ScaledJob starts queue length / threshold jobs. What a device shows is no number of"
            " waiting jobs, and while no job runs there is no device to look at.",
            "Use a trigger that counts waiting work, or a ScaledObject.",
        ),
        _level_in_job,
    ),
    Trap(
        Rule(
            "AS603",
            "push-in-job",
            Severity.WARNING,
            "KEDA does not listen to external-push for ScaledJobs; it polls.",
            "Write type: external.",
        ),
        _push_in_job,
    ),
)
