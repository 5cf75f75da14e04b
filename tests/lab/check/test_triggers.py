from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from accelscale.trigger import KEYS
from lab.check.texts import CLEAN, QUEUE, checked, deployment, ids, scaled_object, text, trigger

ELSEWHERE = {"scalerAddress": "gpu.example.svc:6000"}


def external(**metadata: Any) -> dict[str, Any]:
    return {"type": "external", "metadata": metadata}


@pytest.mark.parametrize(
    "metadata",
    [
        {"scalerAddress": "accelscale:6000"},
        {**ELSEWHERE, "metric": "utilization_percent", "strange": "x"},
        {**ELSEWHERE, "metric": "utilisation_percent", "threshold": "70"},
        {**ELSEWHERE, "metirc": "utilization_percent", "threshold": "70"},
        {**ELSEWHERE, "metric": "utilisation_percent", "treshold": "70"},
        {**ELSEWHERE, "profile": "vllm"},
        {**ELSEWHERE, "profile": "Trainig"},
    ],
)
def test_triggers_that_are_ours(metadata: Mapping[str, str]) -> None:
    report = checked(scaled_object(external(**metadata)))
    assert report.foreign == 0


@pytest.mark.parametrize(
    "other",
    [
        QUEUE,
        {"type": "metrics-api", "metadata": {"metric": "utilization_percent"}},
        external(scalerAddress="http-add-on:9090", hosts="a.example"),
        external(**ELSEWHERE, metric="x", query="y"),
        external(**ELSEWHERE, profile="vllm-inference", targetValue="80"),
        external(**ELSEWHERE, profile="training", targetGpuUtilization="80"),
        external(**ELSEWHERE, profile="vllm-inference"),
        external(**ELSEWHERE, metricType="gpu_utilization", targetValue="80"),
        external(**ELSEWHERE),
    ],
)
def test_triggers_of_others_are_none_of_ours(other: Mapping[str, Any]) -> None:
    report = checked(scaled_object(other, maxReplicaCount=None))
    assert (ids(report), report.foreign) == ([], 1)


CASES: list[tuple[str, Mapping[str, Any], str, str]] = [
    ("AS101", trigger(threshold="80%"), "metadata.threshold", "threshold='80%': must be a plain"),
    ("AS101", trigger(threshold=None), "metadata", "threshold: is required"),
    ("AS101", trigger(gpuIndex="0"), "metadata.gpuIndex", "did you mean devices?"),
    ("AS101", trigger(metric="gpu_utilization"), "metadata.metric", "utilization_percent?"),
    ("AS101", trigger(threshold="120"), "metadata.threshold", "the most that utilization"),
    ("AS101", trigger(podSelector="a=b", scope="node"), "metadata.podSelector", "scope workload"),
    ("AS102", trigger(threshold=70), "metadata.threshold", "is a whole number and must be text"),
    ("AS102", trigger(activationThreshold=5.5), "metadata.activationThreshold", "is a number"),
    ("AS102", trigger(enableTLS=True), "metadata.enableTLS", "is true or false"),
    ("AS102", trigger(caCert=["x"]), "metadata.caCert", "is a list"),
    ("AS109", trigger(fields={"type": "External"}), "type", "type External is none of"),
    ("AS109", trigger(fields={"type": "external-pull"}), "type", "external, external-push"),
    ("AS110", trigger(scalerAddress=None), "metadata.scalerAddress", "is missing"),
    ("AS110", trigger(scalerAddress="http://accelscale:6000"), "metadata.scalerAddress", "URL"),
    ("AS112", trigger(fields={"metricType": "Utilization"}), "metricType", "on an external"),
    ("AS115", trigger(threshold=None, thresholdFromEnv="T"), "metadata.thresholdFromEnv", "T"),
    ("AS117", trigger(scalerAddress="accelscale.svc"), "metadata.scalerAddress", "has no port"),
]


@pytest.mark.parametrize(
    ("rule", "own", "path", "words"),
    CASES,
    ids=[f"{rule}-{index}" for index, (rule, *_) in enumerate(CASES)],
)
def test_faults_of_a_trigger_are_told_where_they_stand(
    rule: str, own: Mapping[str, Any], path: str, words: str
) -> None:
    found = checked(scaled_object(own)).findings
    assert [(each.rule.id, each.path) for each in found] == [(rule, f"spec.triggers[0].{path}")]
    assert words in found[0].message


def test_all_faults_of_a_trigger_are_told_at_once() -> None:
    report = checked(scaled_object(trigger(threshold="80%", window="fast", tresholds="5")))
    assert ids(report) == ["AS101"] * 3
    keys = {each.path.rpartition(".")[2] for each in report.findings}
    assert keys == {"threshold", "tresholds", "window"}
    assert len({each.place.line for each in report.findings}) == 3


def test_a_number_without_quotes_is_still_read() -> None:
    report = checked(scaled_object(trigger(threshold=95)))
    assert ids(report) == ["AS102", "AS203"]
    assert report.findings[0].fix == 'Put it in quotes: threshold: "95".'


def test_a_key_without_a_value_counts_as_not_written() -> None:
    report = checked(text(CLEAN).replace("'10m'", "").replace("10m", ""))
    assert ids(report) == ["AS116"]
    assert "idleAfter has no value" in report.findings[0].message


def test_a_missing_metadata_is_a_missing_field() -> None:
    own = {"type": "external", "metricType": "Value"}
    report = checked(scaled_object(trigger(), own))
    assert ids(report) == ["AS103"]
    assert report.findings[0].path == "spec.triggers[1]"
    assert ids(checked(scaled_object({"type": "external"}))) == ["AS103"]
    empty = checked(scaled_object({"type": "external", "metadata": {}}))
    assert sorted(ids(empty)) == ["AS101", "AS101", "AS110"]


@pytest.mark.parametrize(
    "address",
    ["accelscale:6000", "dns:///accelscale.svc:6000", "[::1]:6000", "unix:///run/accelscale"],
)
def test_addresses_that_grpc_takes(address: str) -> None:
    assert ids(checked(scaled_object(trigger(scalerAddress=address)))) == []


def test_a_value_from_the_environment_of_the_workload_is_read() -> None:
    own = trigger(threshold=None, thresholdFromEnv="LIMIT")
    literal = deployment(container={"env": [{"name": "LIMIT", "value": "95"}]})
    report = checked(scaled_object(own), literal)
    assert ids(report) == ["AS203"]
    assert report.findings[0].path.endswith("thresholdFromEnv")
    secret = {"name": "LIMIT", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}
    report = checked(scaled_object(own), deployment(container={"env": [secret]}))
    assert ids(report) == ["AS115"]


def test_what_a_profile_brought_is_told_at_the_profile() -> None:
    own = trigger(
        metric=None, threshold="3", activationThreshold=None, idleAfter=None, profile="vllm"
    )
    (finding,) = checked(scaled_object(own)).findings
    assert (finding.rule.id, finding.path) == ("AS301", "spec.triggers[0].metadata.profile")


VALUES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8),
    st.integers(-100, 1000),
    st.booleans(),
    st.none(),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(), max_size=2),
)


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.sampled_from([*KEYS, "scalerAddress", "x", "thresholdFromEnv"]), VALUES),
    st.dictionaries(
        st.sampled_from(
            ["minReplicaCount", "maxReplicaCount", "idleReplicaCount", "fallback", "advanced", "x"]
        ),
        VALUES,
    ),
    st.sampled_from(["ScaledObject", "ScaledJob"]),
)
def test_any_manifest_gives_findings_within_the_file(
    metadata: dict[str, Any], spec: dict[str, Any], kind: str
) -> None:
    own = {"type": "external", "metadata": {**metadata, "scalerAddress": "accelscale:6000"}}
    document = {**CLEAN, "kind": kind, "spec": {**CLEAN["spec"], **spec, "triggers": [own]}}
    content = yaml.safe_dump(document, allow_unicode=True)
    report = checked(content)
    assert report.objects + len(report.unusable) == 1
    lines = content.split("\n")
    for finding in report.findings:
        assert 1 <= finding.place.column <= len(lines[finding.place.line - 1])
        assert finding.message
