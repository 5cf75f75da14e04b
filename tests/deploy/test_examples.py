from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from accelscale.cli import main
from accelscale.hpa.scaledjob import ScaledJob, demand, jobs_to_start, queue_of
from accelscale.trigger import MetricType, parse_trigger
from deploy.manifests import EXAMPLES, scaler_objects, the

WHOLE = {"type": "integer", "minimum": 0}
TEXT = {"type": "string", "minLength": 1}


def record(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def many(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


# The fields of KEDA's resources, as its documentation of version 2.21 lists them.
TRIGGERS = many(
    record(
        ("type", "metadata"),
        type=TEXT,
        name=TEXT,
        metricType={"enum": ["AverageValue", "Value", "Utilization"]},
        useCachedMetrics={"type": "boolean"},
        metadata={"type": "object", "additionalProperties": TEXT},
        authenticationRef=record(("name",), name=TEXT, kind=TEXT),
    )
)
RULES = record(
    stabilizationWindowSeconds={**WHOLE, "maximum": 3600},
    selectPolicy={"enum": ["Max", "Min", "Disabled"]},
    policies=many(
        record(
            ("type", "value", "periodSeconds"),
            type={"enum": ["Pods", "Percent"]},
            value={**WHOLE, "minimum": 1},
            periodSeconds={"type": "integer", "minimum": 1, "maximum": 1800},
        )
    ),
)
SCALED_OBJECT = record(
    ("scaleTargetRef", "triggers"),
    scaleTargetRef=record(
        ("name",), name=TEXT, kind=TEXT, apiVersion=TEXT, envSourceContainerName=TEXT
    ),
    pollingInterval=WHOLE,
    cooldownPeriod=WHOLE,
    initialCooldownPeriod=WHOLE,
    idleReplicaCount=WHOLE,
    minReplicaCount=WHOLE,
    maxReplicaCount=WHOLE,
    advanced=record(
        restoreToOriginalReplicaCount={"type": "boolean"},
        horizontalPodAutoscalerConfig=record(
            name=TEXT, behavior=record(scaleUp=RULES, scaleDown=RULES)
        ),
    ),
    triggers=TRIGGERS,
)
SCALED_JOB = record(
    ("jobTargetRef", "triggers"),
    jobTargetRef={"type": "object", "required": ["template"]},
    pollingInterval=WHOLE,
    minReplicaCount=WHOLE,
    maxReplicaCount=WHOLE,
    successfulJobsHistoryLimit=WHOLE,
    failedJobsHistoryLimit=WHOLE,
    scalingStrategy=record(
        strategy={"enum": ["default", "custom", "accurate", "eager"]},
        multipleScalersCalculation={"enum": ["max", "min", "avg", "sum"]},
    ),
    triggers=TRIGGERS,
)

by_name = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def the_object(path: Path) -> dict[str, Any]:
    (found,) = [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]
    return dict(found)


def ours(path: Path) -> list[dict[str, Any]]:
    triggers = the_object(path)["spec"]["triggers"]
    return [each for each in triggers if each["type"].startswith("external")]


def test_there_is_an_example_for_each_kind_of_workload() -> None:
    assert {path.stem for path in EXAMPLES} == {
        "batch",
        "external-push",
        "leaderworkerset",
        "ollama",
        "scaledjob",
        "training",
        "triton",
        "vllm",
    }


@by_name
def test_it_has_the_shape_that_keda_takes(path: Path) -> None:
    made = the_object(path)
    assert made["apiVersion"] == "keda.sh/v1alpha1"
    assert set(made["metadata"]) == {"name", "namespace"}
    schema = {"ScaledObject": SCALED_OBJECT, "ScaledJob": SCALED_JOB}[made["kind"]]
    jsonschema.Draft202012Validator(schema).validate(made["spec"])


@by_name
def test_its_triggers_are_accepted_without_a_warning(path: Path) -> None:
    triggers = ours(path)
    assert triggers
    for each in triggers:
        parsed = parse_trigger(each["metadata"])
        assert parsed.warnings == ()
        # The type is written out, and repeated for a scaler that may not read it.
        assert MetricType(each["metricType"]) is parsed.metric_type
        assert parsed.replica_aggregation == "auto"


@by_name
def test_it_names_the_service_that_the_manifests_make(path: Path) -> None:
    service = the(scaler_objects(), "Service", "accelscale")
    metadata, (port,) = service["metadata"], service["spec"]["ports"]
    address = f"{metadata['name']}.{metadata['namespace']}.svc:{port['port']}"
    assert {each["metadata"]["scalerAddress"] for each in ours(path)} == {address}


@by_name
def test_what_has_no_pods_is_woken_by_something_that_needs_none(path: Path) -> None:
    made = the_object(path)
    spec = made["spec"]
    if made["kind"] == "ScaledJob" or spec.get("minReplicaCount", 0) > 0:
        return
    others = [each for each in spec["triggers"] if not each["type"].startswith("external")]
    elsewhere = [each for each in ours(path) if each["metadata"].get("scope") == "node"]
    assert others or elsewhere


@by_name
def test_check_finds_nothing_to_remark(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ignored = ["--ignore", "AS602"] if path.stem == "scaledjob" else []  # its comment says why
    status = main(["check", "--strict", *ignored, str(path)])
    output = capsys.readouterr().out
    assert status == 0, output
    assert "1 object checked" in output


@pytest.mark.parametrize(
    ("items", "shares", "started"),
    [
        (20, [], 2),  # no Job runs: the trigger is not active, and the list decides
        (0, [95.0, 95.0, 95.0], 2),
        (0, [40.0, 40.0, 40.0], 0),
        (1000, [95.0, 95.0, 95.0], 17),
    ],
)
def test_the_jobs_of_the_example_are_those_of_its_comment(
    items: int, shares: list[float], started: int
) -> None:
    (path,) = [path for path in EXAMPLES if path.stem == "scaledjob"]
    spec = the_object(path)["spec"]
    listed, external = (each["metadata"] for each in spec["triggers"])
    most = spec["maxReplicaCount"]
    queues = [
        queue_of(
            [1000 * items], [1000 * int(listed["listLength"])], active=items > 0, max_replicas=most
        ),
        queue_of(
            [round(1000 * sum(shares))],
            [1000 * int(external["threshold"])],
            active=sum(shares) > 0,
            max_replicas=most,
        ),
    ]
    job = ScaledJob(max_replicas=most)
    decision = jobs_to_start(job, demand(job, queues), running=len(shares), pending=0)
    assert decision.start == started
