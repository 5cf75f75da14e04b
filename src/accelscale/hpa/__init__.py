"""A faithful model of the Kubernetes HPA (autoscaling/v2, external metrics) and of KEDA's loop.

Pure: no input or output, no clock, no state of its own. A step takes the time, what the controller
remembers and what it finds, and gives back what it does and what it remembers then. All chance (the
phases of sync and poll, how long pods take, restarts) and both versions are parameters.

* `desired_replicas`: what one external metric asks for.
* `sync`: one sync of an HPA. `poll`, `query`, `push`: KEDA's side. `run`: both, interleaved.
* `jobs_to_start`: one poll of a ScaledJob.

The model follows the sources of Kubernetes (development branch of 2026) and of KEDA (2.20.2 and
before, as `KedaVersion` tells); each module names the functions that it restates. What it leaves
out: conflicting writes to the scale, quotas and scheduling, polls and syncs that take time, the
language of scalingModifiers' formulas, and failover between triggers.
"""

from accelscale.hpa.activation import Action, Decision, decide
from accelscale.hpa.autoscaler import (
    ExternalMetric,
    HpaSpec,
    HpaState,
    MetricError,
    MetricStatus,
    Scale,
    Sync,
    sync,
)
from accelscale.hpa.behavior import Behavior, Policy, PolicyType, ScalingRules, SelectPolicy
from accelscale.hpa.fallback import Fallback, FallbackBehavior
from accelscale.hpa.keda import KedaState, Poll, ScalerAnswer, hpa_spec, poll, push, query
from accelscale.hpa.loop import Timing, Turn, run
from accelscale.hpa.replicas import desired_replicas
from accelscale.hpa.scaledjob import (
    Calculation,
    Demand,
    JobDecision,
    Queue,
    ScaledJob,
    Strategy,
    demand,
    jobs_to_start,
    queue_of,
)
from accelscale.hpa.scaledobject import KedaTrigger, Pause, ScaledObject, ScalingModifiers
from accelscale.hpa.tolerance import Tolerance, ToleranceForm
from accelscale.hpa.versions import Controller, KedaVersion

__all__ = [
    "Action",
    "Behavior",
    "Calculation",
    "Controller",
    "Decision",
    "Demand",
    "ExternalMetric",
    "Fallback",
    "FallbackBehavior",
    "HpaSpec",
    "HpaState",
    "JobDecision",
    "KedaState",
    "KedaTrigger",
    "KedaVersion",
    "MetricError",
    "MetricStatus",
    "Pause",
    "Policy",
    "PolicyType",
    "Poll",
    "Queue",
    "Scale",
    "ScaledJob",
    "ScaledObject",
    "ScalerAnswer",
    "ScalingModifiers",
    "ScalingRules",
    "SelectPolicy",
    "Strategy",
    "Sync",
    "Timing",
    "Tolerance",
    "ToleranceForm",
    "Turn",
    "decide",
    "demand",
    "desired_replicas",
    "hpa_spec",
    "jobs_to_start",
    "poll",
    "push",
    "query",
    "queue_of",
    "run",
    "sync",
]
