from __future__ import annotations

import json
from pathlib import Path

import pytest

from accelscale.lab.check import Report, Source, check
from lab.check.texts import CLEAN, QUEUE, changed, checked, deployment, ids, scaled_object, text

TEMPLATE = """\
{{- if .Values.keda.enabled }}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ include "chart.fullname" . }}
spec:
  scaleTargetRef:
    name: server
{{- end }}
"""
UNQUOTED = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: server
spec:
  maxReplicaCount: {{ .Values.most }}
"""
ALERT = """\
kind: ConfigMap
data:
  alert: |
    summary: "{{ $labels.pod }} is {{ .Value }}"
    {{ define "title" }}x{{ end }}
"""


def places(report: Report) -> list[tuple[str, int, int]]:
    found = (*report.unusable, *report.findings)
    return [(each.rule.id, each.place.line, each.place.column) for each in found]


def folder(path: Path, files: dict[str, str]) -> Report:
    import io

    from accelscale.lab.check import sources

    for name, content in files.items():
        (path / name).write_text(content)
    return check(sources([str(path)], io.BytesIO()))


def test_a_list_is_looked_into() -> None:
    items = [scaled_object(maxReplicaCount=None), deployment()]
    report = checked({"apiVersion": "v1", "kind": "List", "items": items})
    assert ids(report) == ["AS501"]
    report = checked({"kind": "ScaledObjectList", "items": [scaled_object(maxReplicaCount=None)]})
    assert ids(report) == ["AS501"]


def test_a_list_that_holds_itself_ends() -> None:
    report = checked(
        "kind: List\nitems: &all\n- &self {kind: List, items: *all}\n- *self\n- containers\n"
    )
    assert (ids(report), report.objects) == ([], 0)


def test_json_is_yaml() -> None:
    report = checked(json.dumps(scaled_object(maxReplicaCount=None), indent=2))
    assert places(report) == [("AS501", 7, 3)]


def test_windows_line_ends_and_a_mark_of_byte_order() -> None:
    plain = text(scaled_object(fallback={"failureThreshold": 3, "replicas": 0}))
    wanted = places(checked(plain))
    report = check([Source("a.yaml", "\ufeff" + plain.replace("\n", "\r\n"))])
    assert places(report) == wanted != []


def test_anchors_and_merges_are_followed() -> None:
    report = checked(
        """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: server}
x-common: &common
  scalerAddress: accelscale:6000
  metric: utilization_percent
  threshold: "95"
spec:
  scaleTargetRef: {name: server}
  minReplicaCount: 1
  maxReplicaCount: 4
  triggers:
    - type: external
      metadata:
        <<: *common
        idleAfter: 5m
"""
    )
    assert places(report) == [("AS107", 4, 1), ("AS203", 7, 3)]


def test_objects_of_other_groups_are_not_kedas() -> None:
    other = {**scaled_object(maxReplicaCount=None), "apiVersion": "example.org/v1"}
    assert checked(other).objects == 0


def test_an_object_with_triggers_of_others_alone_is_left_alone() -> None:
    report = checked(changed(CLEAN, {"spec": {"triggers": [QUEUE], "maxReplicaCount": "x"}}))
    assert (ids(report), report.objects, report.foreign) == ([], 1, 1)


@pytest.mark.parametrize("content", [TEMPLATE, UNQUOTED, TEMPLATE.replace("\n", "\r\n")])
def test_a_template_is_refused_with_what_to_do(content: str) -> None:
    report = checked(content)
    (finding,) = report.unusable
    assert finding.rule.id == "AS003"
    assert "helm template" in finding.fix
    assert report.status() == 2
    line = content.splitlines()[finding.place.line - 1]
    assert "{{" in line[max(finding.place.column - 2, 0) :]
    assert "{{" in finding.message


def test_a_quoted_action_in_our_part_is_a_template() -> None:
    own = text(CLEAN).replace("'70'", '"{{ .Values.threshold }}"')
    assert "{{" in own
    (finding,) = checked(own).unusable
    assert (finding.rule.id, finding.place.column) == ("AS003", 18)
    assert "{{ .Values.threshold }}" in finding.message


def test_braces_of_others_are_no_template() -> None:
    loki = {"type": "loki", "metadata": {"query": '{a="b"} | line_format "{{.msg}}"'}}
    annotated = {"metadata": {"annotations": {"note": "{{ .Values.x }}"}}}
    own = changed(scaled_object(*CLEAN["spec"]["triggers"], loki), annotated)
    assert ids(checked(ALERT, own)) == []


def test_a_syntax_error_beside_braces_of_others_is_a_syntax_error() -> None:
    alert = ALERT.replace('    {{ define "title" }}x{{ end }}\n', "")
    report = checked(alert, "---\na: b: c\n", CLEAN)
    assert places(report) == [("AS002", 6, 5)]
    assert report.objects == 1


def test_the_good_documents_of_a_bad_file_are_checked() -> None:
    report = checked(scaled_object(maxReplicaCount=None), "---\na: [\n", CLEAN)
    assert ids(report) == ["AS002", "AS501"]
    assert report.status() == 2


def test_what_is_out_of_bounds_is_told_as_such() -> None:
    report = checked("---\n" + "[" * 5000, CLEAN)
    assert ids(report) == ["AS004"]


def test_in_a_folder_templates_of_others_are_passed_over(tmp_path: Path) -> None:
    report = folder(
        tmp_path,
        {
            "service.yaml": "{{- if .Values.x }}\nkind: Service\n{{- end }}\n",
            "broken.yaml": "a: [",
            "good.yaml": text(CLEAN),
        },
    )
    assert (ids(report), report.files, report.objects) == ([], 3, 1)
    report = folder(tmp_path, {"scaled.yaml": TEMPLATE})
    assert ids(report) == ["AS003"]


def test_a_workload_in_a_file_beside_is_found(tmp_path: Path) -> None:
    report = folder(tmp_path, {"a.yaml": text(CLEAN), "b.yaml": text(deployment(replicas=2))})
    assert ids(report) == ["AS504"]
    report = folder(tmp_path, {"c.yaml": text(deployment(replicas=2))})
    assert ids(report) == []  # two of one name: which one is meant is not known


def test_findings_come_by_file_and_line() -> None:
    late = text(scaled_object(maxReplicaCount=None))
    many = scaled_object(maxReplicaCount=None, fallback={"failureThreshold": 1, "replicas": 0})
    report = check([Source("z.yaml", text(many)), Source("a.yaml", late)])
    assert [(each.file, each.rule.id) for each in report.findings] == [
        ("z.yaml", "AS501"),
        ("z.yaml", "AS502"),
        ("a.yaml", "AS501"),
    ]


def test_thousands_of_objects_in_one_file_are_looked_at_each() -> None:
    one = text(scaled_object(maxReplicaCount=None))
    many = "".join(one.replace("name: server", f"name: server-{n}") + "---\n" for n in range(2000))
    report = check([Source("many.yaml", many)])
    assert (report.objects, len(report.findings)) == (2000, 2000)
    assert report.findings[-1].place.line > 30_000


def test_a_file_of_bad_documents_is_given_up() -> None:
    report = check([Source("a.yaml", "a: [\n---\n" * 5000)])
    assert [each.rule.id for each in report.unusable] == ["AS002"] * 100 + ["AS004"]
