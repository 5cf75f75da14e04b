"""The shape of KEDA's objects: which fields there are, and what each may hold.

Fields are those of KEDA 2.20 (``apis/keda/v1alpha1``) and of ``autoscaling/v2`` for the behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from accelscale.hpa import FallbackBehavior, PolicyType, SelectPolicy
from accelscale.lab.check.scalars import Kind
from accelscale.trigger import MetricType

KEDA = "KEDA 2.20"
UTILIZATION = "Utilization"


@frozen
class Shape:
    """What may stand at one place: ``fields`` of an object, ``item`` of a list.

    An object without fields may hold anything: it is no matter of KEDA, or looked at elsewhere.
    """

    kind: Kind
    fields: Mapping[str, Shape] = field(factory=dict)
    required: tuple[str, ...] = ()
    item: Shape | None = None
    choices: tuple[str, ...] = ()
    minimum: int | None = None


TEXT = Shape(Kind.TEXT)
WHOLE = Shape(Kind.INTEGER)
COUNT = Shape(Kind.INTEGER, minimum=0)
FLAG = Shape(Kind.BOOLEAN)
ANYTHING = Shape(Kind.MAPPING)


def _object(*required: str, **fields: Shape) -> Shape:
    return Shape(Kind.MAPPING, fields, required)


def _list(item: Shape) -> Shape:
    return Shape(Kind.SEQUENCE, item=item)


def _choice(*choices: str) -> Shape:
    return Shape(Kind.TEXT, choices=choices)


_TRIGGER = _object(
    "type",
    "metadata",
    type=TEXT,
    name=TEXT,
    metadata=ANYTHING,  # the metadata of our own triggers is looked at with them
    metricType=_choice(*MetricType, UTILIZATION),
    useCachedMetrics=FLAG,
    authenticationRef=_object("name", name=TEXT, kind=TEXT),
)
_RULES = _object(
    stabilizationWindowSeconds=WHOLE,
    selectPolicy=_choice(*SelectPolicy),
    tolerance=Shape(Kind.FLOAT),
    policies=_list(
        _object(
            "type",
            "value",
            "periodSeconds",
            type=_choice(*PolicyType),
            value=WHOLE,
            periodSeconds=WHOLE,
        )
    ),
)
_SCALED_OBJECT = _object(
    "scaleTargetRef",
    "triggers",
    scaleTargetRef=_object(
        "name", name=TEXT, apiVersion=TEXT, kind=TEXT, envSourceContainerName=TEXT
    ),
    pollingInterval=WHOLE,
    initialCooldownPeriod=COUNT,
    cooldownPeriod=COUNT,
    idleReplicaCount=WHOLE,
    minReplicaCount=WHOLE,
    maxReplicaCount=WHOLE,
    triggers=_list(_TRIGGER),
    fallback=_object(
        "failureThreshold",
        "replicas",
        failureThreshold=COUNT,
        replicas=COUNT,
        behavior=_choice(*FallbackBehavior),
    ),
    advanced=_object(
        restoreToOriginalReplicaCount=FLAG,
        horizontalPodAutoscalerConfig=_object(
            name=TEXT, behavior=_object(scaleUp=_RULES, scaleDown=_RULES)
        ),
        scalingModifiers=_object(
            formula=TEXT,
            target=TEXT,
            activationTarget=TEXT,
            metricType=_choice(*MetricType),
        ),
    ),
)
_SCALED_JOB = _object(
    "jobTargetRef",
    "triggers",
    jobTargetRef=ANYTHING,
    pollingInterval=WHOLE,
    successfulJobsHistoryLimit=COUNT,
    failedJobsHistoryLimit=COUNT,
    rolloutStrategy=TEXT,
    rollout=_object(strategy=TEXT, propagationPolicy=TEXT),
    envSourceContainerName=TEXT,
    minReplicaCount=WHOLE,
    maxReplicaCount=WHOLE,
    scalingStrategy=_object(
        strategy=TEXT,
        customScalingQueueLengthDeduction=WHOLE,
        customScalingRunningJobPercentage=TEXT,
        pendingPodConditions=_list(TEXT),
        multipleScalersCalculation=TEXT,
    ),
    triggers=_list(_TRIGGER),
)

SPECS: Mapping[str, Shape] = {"ScaledObject": _SCALED_OBJECT, "ScaledJob": _SCALED_JOB}
"""The spec of each kind."""


def shape_of(kind: str) -> Shape:
    """The shape of a whole object of the kind."""
    return _object(
        "apiVersion",
        "metadata",
        "spec",
        apiVersion=TEXT,
        kind=TEXT,
        metadata=ANYTHING,
        spec=SPECS[kind],
        status=ANYTHING,
    )
