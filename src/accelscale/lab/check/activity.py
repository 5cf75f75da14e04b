"""Traps about being active: waking, sleeping, and signals that never change."""

from __future__ import annotations

from collections.abc import Iterator

from accelscale.doubts import DoubtKind
from accelscale.lab.check.findings import Hit, Rule, Severity
from accelscale.lab.check.number import parser_doubts
from accelscale.lab.check.subject import Subject, Trap
from accelscale.lab.check.workloads import FREES_MEMORY, HOLDS_MEMORY

RESOURCE_TYPES = ("cpu", "memory")
"""KEDA's triggers that only the HPA evaluates: they never wake anything."""

FORCED = "autoscaling.keda.sh/force-activation"

MEMORY = frozenset({"memory_used_bytes", "memory_used_percent"})
NEVER_ZERO = frozenset(
    {
        "temperature_celsius",
        "memory_temperature_celsius",
        "slowdown_temperature_celsius",
        "thermal_headroom_celsius",
        "power_watts",
        "power_used_percent",
        "power_limit_watts",
        "energy_rate_watts",
        "memory_total_bytes",
    }
)
"""Metrics that are above 0 on hardware at rest."""


def _no_wake_from_zero(subject: Subject) -> Iterator[Hit]:
    manifest, bounds = subject.manifest, subject.bounds
    if manifest.is_job or not bounds.reach_zero or manifest.annotation(FORCED) == "true":
        return
    if subject.misspelt & {"minReplicaCount", "idleReplicaCount"}:
        return
    if any(other.text("type") not in RESOURCE_TYPES for other in subject.others):
        return
    # A trigger that could not be read may be about devices that exist without the pods.
    if any(own.trigger is None or own.trigger.scope != "workload" for own in subject.triggers):
        return
    if bounds.idle == 0:
        zero = "idleReplicaCount"
    elif manifest.at(("spec", "minReplicaCount")) is None:
        zero = "minReplicaCount, which is not written,"
    else:
        zero = "minReplicaCount"
    message = f"{zero} is 0, and no trigger has a signal while no pod runs"
    key = "idleReplicaCount" if bounds.idle == 0 else "minReplicaCount"
    yield Hit(message, ("spec", key))


def _memory_never_released(subject: Subject) -> Iterator[Hit]:
    for own, trigger, metric in subject.parsed:
        if metric.name not in MEMORY:
            continue
        target = subject.manifest.spec.mapping("scaleTargetRef").text("name")
        words = [subject.manifest.name, target, trigger.container or "", trigger.profile or ""]
        if subject.workload is not None:
            words.append(subject.workload.words)
        text = " ".join(words)
        engine = HOLDS_MEMORY.search(text)
        if engine is None and FREES_MEMORY.search(text):
            continue
        who = f"{engine[0]} keeps" if engine else "most servers and frameworks keep"
        message = f"{metric.name} as a sign of load: {who} device memory until the process ends"
        yield Hit(message, own.key("metric"))


def _always_active(subject: Subject) -> Iterator[Hit]:
    if not subject.bounds.reach_zero or subject.composite or subject.manifest.is_job:
        return
    for own, trigger, metric in subject.parsed:
        if metric.name in NEVER_ZERO and trigger.activation_threshold == 0:
            message = (
                f"{metric.name} is above activationThreshold 0 on hardware at rest too: the"
                " workload never counts as idle"
            )
            yield Hit(message, own.key("activationThreshold"))


TRAPS = (
    Trap(
        Rule(
            "AS301",
            "activation-above-threshold",
            Severity.WARNING,
            "Between the two values the HPA wants more replicas while KEDA counts the workload as"
            " inactive, and ends it after the cooldown.",
            "Set activationThreshold well below threshold: just above what an idle device shows.",
        ),
        parser_doubts(DoubtKind.ACTIVATION_ABOVE_THRESHOLD),
    ),
    Trap(
        Rule(
            "AS302",
            "no-wake-from-zero",
            Severity.ERROR,
            "With no pod there is no device whose load could be seen, so the value stays 0 and the"
            " workload never comes back. KEDA's cpu and memory triggers do not wake it either.",
            "Add a trigger that sees work waiting (a queue, requests, http-add-on), or set"
            " minReplicaCount: 1.",
        ),
        _no_wake_from_zero,
    ),
    Trap(
        Rule(
            "AS303",
            "memory-never-released",
            Severity.WARNING,
            "vLLM, SGLang, TGI and others reserve device memory at start, and frameworks keep what"
            " they once had. Memory in use then never falls: the workload neither scales in nor"
            " counts as idle. It is a sign of load for servers that unload models, as Ollama does.",
            "Use metric: utilization_percent, or a profile such as vllm.",
        ),
        _memory_never_released,
    ),
    Trap(
        Rule(
            "AS304",
            "always-active",
            Severity.WARNING,
            "A card at rest draws power and has a temperature. The workload is active when the"
            " value is strictly above activationThreshold, so it never scales to zero.",
            "Set activationThreshold above what an idle device shows (see `accelscale top`).",
        ),
        _always_active,
    ),
)
