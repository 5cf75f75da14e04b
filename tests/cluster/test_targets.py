from __future__ import annotations

import msgspec
import pytest

from accelscale.trigger import MetricType
from accelscale_server.targets import (
    Scaled,
    ScaledWire,
    Target,
    scaled_job_record,
    scaled_object_record,
)
from kubernetes.objects import Object, external, scaled_job, scaled_object

AVERAGE, VALUE = MetricType.AVERAGE_VALUE, MetricType.VALUE


def record(value: Object) -> Scaled:
    return scaled_object_record(msgspec.json.decode(msgspec.json.encode(value), type=ScaledWire))


@pytest.mark.parametrize(
    ("reference", "group", "version", "kind"),
    [
        ({"name": "web"}, "apps", "v1", "Deployment"),
        ({"name": "web", "kind": "StatefulSet"}, "apps", "v1", "StatefulSet"),
        (
            {"name": "web", "kind": "Rollout", "apiVersion": "argoproj.io/v1alpha1"},
            "argoproj.io",
            "v1alpha1",
            "Rollout",
        ),
        ({"name": "web", "kind": "ReplicationController", "apiVersion": "v1"}, "", "v1", None),
        ({"name": "web", "kind": "", "apiVersion": ""}, "apps", "v1", "Deployment"),
    ],
)
def test_the_target_with_the_defaults_of_keda(
    reference: dict[str, str], group: str, version: str, kind: str | None
) -> None:
    target = record(scaled_object("web", target=reference)).target
    kind = kind or reference["kind"]
    assert target == Target("shop", group, version, kind, "web")
    assert target.group_version == (f"{group}/{version}" if group else version)
    assert str(target) == f"{kind} shop/web"


def test_the_bounds_with_the_defaults_of_keda() -> None:
    bare = record(scaled_object("web"))
    assert (bare.least, bare.most) == (0, 100)
    written = record(scaled_object("web", minReplicaCount=2, maxReplicaCount=8))
    assert (written.least, written.most) == (2, 8)


def test_a_scaled_job_has_no_target() -> None:
    wire = msgspec.json.decode(msgspec.json.encode(scaled_job("jobs")), type=ScaledWire)
    job = scaled_job_record(wire)
    assert (job.target, str(job), job.asks_outside) == (None, "ScaledJob shop/jobs", True)


def test_only_external_triggers_ask_outside() -> None:
    push = {**external(), "type": "external-push"}
    assert record(scaled_object("web", triggers=(push,))).asks_outside
    cron = {"type": "cron", "metadata": {"desiredReplicas": "3"}}
    assert not record(scaled_object("web", triggers=(cron,))).asks_outside
    assert not record(scaled_object("web", triggers=())).asks_outside


def sent(trigger: Object) -> dict[str, str]:
    return dict(trigger["metadata"])


def test_the_metric_type_of_the_trigger_with_the_same_metadata() -> None:
    one, other = external("Value", threshold="70"), external(threshold="80")
    scaled = record(scaled_object("web", triggers=(one, other)))
    assert scaled.metric_type(sent(one)) is VALUE
    assert scaled.metric_type(sent(other)) is AVERAGE


def test_what_keda_resolves_does_not_tell_triggers_apart() -> None:
    one = external("Value", thresholdFromEnv="THRESHOLD")
    other = external("AverageValue", metric="power_watts")
    scaled = record(scaled_object("web", triggers=(one, other)))
    assert scaled.metric_type({**sent(one), "thresholdFromEnv": "70"}) is VALUE
    without = {key: text for key, text in sent(one).items() if key != "thresholdFromEnv"}
    assert scaled.metric_type(without) is VALUE


def test_a_trigger_edited_a_moment_ago_keeps_its_type_where_all_have_the_same() -> None:
    scaled = record(
        scaled_object("web", triggers=(external("Value"), external("Value", threshold="60")))
    )
    assert scaled.metric_type({**sent(external()), "threshold": "75"}) is VALUE


def test_where_the_type_could_be_either_it_is_not_known() -> None:
    scaled = record(scaled_object("web", triggers=(external("Value"), external("AverageValue"))))
    assert scaled.metric_type(sent(external())) is None
    assert scaled.metric_type({"metric": "other"}) is None
    assert record(scaled_object("web", triggers=())).metric_type(sent(external())) is None


def test_a_type_that_external_triggers_cannot_have_is_none() -> None:
    scaled = record(scaled_object("web", triggers=(external("Utilization"),)))
    assert scaled.metric_type(sent(external())) is None


def test_triggers_that_are_answered_elsewhere_do_not_matter() -> None:
    cron = {"type": "cron", "metricType": "AverageValue", "metadata": sent(external())}
    scaled = record(scaled_object("web", triggers=(cron, external("Value"))))
    assert scaled.metric_type(sent(external())) is VALUE
