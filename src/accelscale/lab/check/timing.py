"""Traps about time: windows, ages, cooldowns, and how long a model takes to load."""

from __future__ import annotations

from collections.abc import Iterator

from accelscale.lab.check.findings import Hit, Rule, Severity
from accelscale.lab.check.manifests import BEHAVIOR
from accelscale.lab.check.subject import Subject, Trap
from accelscale.metrics import TIER_SECONDS, Tier

SLOW = frozenset({"process_count"})
"""Metrics that every backend reads on the slow tier."""

COOLDOWN = 300
DOWNSCALE_STABILIZATION = 300
POLLING_INTERVAL = 30
"""Seconds, as KEDA and the HPA take them where nothing is written."""


def _interval(subject: Subject, metric: str) -> float:
    interval = subject.conditions.interval
    return max(interval, TIER_SECONDS[Tier.SLOW]) if metric in SLOW else interval


def _window_shorter_than_interval(subject: Subject) -> Iterator[Hit]:
    for own, trigger, metric in subject.parsed:
        interval = _interval(subject, metric.name)
        spans = {"window": trigger.window, "idleAfter": trigger.idle_after or interval}
        if trigger.window_statistic == "last":
            del spans["window"]
        for key, seconds in spans.items():
            if seconds < interval:
                message = (
                    f"{key} {seconds:g} s is shorter than the {interval:g} s between two readings"
                    f" of {metric.name}"
                )
                yield Hit(message, own.key(key))


def _max_age_shorter_than_interval(subject: Subject) -> Iterator[Hit]:
    for own, trigger, metric in subject.parsed:
        interval = _interval(subject, metric.name)
        if trigger.max_age is not None and trigger.max_age < interval:
            message = (
                f"maxAge {trigger.max_age:g} s is shorter than the {interval:g} s between two"
                f" readings of {metric.name}: most of the time no sample counts"
            )
            yield Hit(message, own.key("maxAge"))


def _cooldown_shorter_than_load_time(subject: Subject) -> Iterator[Hit]:
    manifest = subject.manifest
    if manifest.is_job or not subject.bounds.reach_zero or "minReplicaCount" in subject.misspelt:
        return
    written = manifest.whole("spec", "cooldownPeriod")
    cooldown = COOLDOWN if written is None else written
    load_time, origin = subject.load_time
    if cooldown < load_time:
        message = (
            f"cooldownPeriod {cooldown} s is shorter than the {load_time:g} s that a replica takes"
            f" to load ({origin})"
        )
        yield Hit(message, ("spec", "cooldownPeriod"))


def _stabilization_shorter_than_load_time(subject: Subject) -> Iterator[Hit]:
    manifest, bounds = subject.manifest, subject.bounds
    down = (*BEHAVIOR, "scaleDown")
    selected = manifest.at((*down, "selectPolicy"))
    if manifest.is_job or bounds.most <= max(bounds.least, 1):
        return
    if selected is not None and getattr(selected, "text", "") == "Disabled":
        return
    written = manifest.whole(*down, "stabilizationWindowSeconds")
    window = DOWNSCALE_STABILIZATION if written is None else written
    load_time, origin = subject.load_time
    if window < load_time:
        message = (
            f"the HPA looks back {window} s before it removes a replica, and one takes"
            f" {load_time:g} s to load ({origin})"
        )
        yield Hit(message, (*down, "stabilizationWindowSeconds"))


def _slow_cache(subject: Subject) -> Iterator[Hit]:
    if subject.manifest.is_job:
        return
    written = subject.manifest.whole("spec", "pollingInterval")
    polling = POLLING_INTERVAL if written is None else written
    for own in subject.triggers:
        if polling > POLLING_INTERVAL and subject.manifest.flag(*own.path, "useCachedMetrics"):
            message = (
                f"useCachedMetrics with pollingInterval {polling} s: the HPA acts on values that"
                f" are up to {polling + 15} s old"
            )
            yield Hit(message, (*own.path, "useCachedMetrics"))


TRAPS = (
    Trap(
        Rule(
            "AS401",
            "window-shorter-than-interval",
            Severity.WARNING,
            "Such a window holds one sample or none, so nothing is smoothed and nothing is"
            " remembered.",
            "Make it several times the interval at which devices are read (--interval of the agent"
            " and of this check).",
        ),
        _window_shorter_than_interval,
    ),
    Trap(
        Rule(
            "AS402",
            "max-age-shorter-than-interval",
            Severity.ERROR,
            "A sample is too old before the next one is there, so the scaler has no data most of"
            " the time and KEDA holds the workload as it is.",
            "Remove maxAge: three intervals are the default.",
        ),
        _max_age_shorter_than_interval,
    ),
    Trap(
        Rule(
            "AS403",
            "cooldown-shorter-than-load-time",
            Severity.WARNING,
            "A replica that loads shows no load. If what woke it falls silent meanwhile, KEDA ends"
            " it before it has served anything, and the next request starts from nothing.",
            "Set cooldownPeriod well above the time that a model takes to load.",
        ),
        _cooldown_shorter_than_load_time,
    ),
    Trap(
        Rule(
            "AS404",
            "stabilization-shorter-than-load-time",
            Severity.NOTE,
            "While new replicas load, the load per replica has not fallen yet or falls for a moment"
            " only. An HPA that forgets sooner removes replicas that have not helped, and pays for"
            " loading again.",
            "Set scaleDown.stabilizationWindowSeconds above the load time.",
        ),
        _stabilization_shorter_than_load_time,
    ),
    Trap(
        Rule(
            "AS405",
            "slow-cache",
            Severity.WARNING,
            "With useCachedMetrics the HPA gets the value of KEDA's last poll, every 15 s the same"
            " one until the next poll. accelscale answers from memory, so there is nothing to"
            " spare.",
            "Remove useCachedMetrics, or poll every 30 s at least.",
        ),
        _slow_cache,
    ),
)
