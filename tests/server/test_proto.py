"""The contract on the wire, and the generated code beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from accelscale_server._proto import externalscaler_pb2 as pb

ROOT = Path(__file__).parents[2]

# KEDA's pkg/scalers/externalscaler/externalscaler.proto: number and type of every field.
FIELDS = {
    "ScaledObjectRef": {
        "name": (1, "string"),
        "namespace": (2, "string"),
        "scalerMetadata": (3, "ScalerMetadataEntry*"),
    },
    "IsActiveResponse": {"result": (1, "bool")},
    "GetMetricSpecResponse": {"metricSpecs": (1, "MetricSpec*")},
    "MetricSpec": {
        "metricName": (1, "string"),
        "targetSize": (2, "int64"),
        "targetSizeFloat": (3, "double"),
    },
    "GetMetricsRequest": {"scaledObjectRef": (1, "ScaledObjectRef"), "metricName": (2, "string")},
    "GetMetricsResponse": {"metricValues": (1, "MetricValue*")},
    "MetricValue": {
        "metricName": (1, "string"),
        "metricValue": (2, "int64"),
        "metricValueFloat": (3, "double"),
    },
}
METHODS = {
    "IsActive": ("ScaledObjectRef", "IsActiveResponse", False),
    "StreamIsActive": ("ScaledObjectRef", "IsActiveResponse", True),
    "GetMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse", False),
    "GetMetrics": ("GetMetricsRequest", "GetMetricsResponse", False),
    "StreamMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse", True),
}


def type_of(field) -> str:
    names = {
        field.TYPE_STRING: "string",
        field.TYPE_BOOL: "bool",
        field.TYPE_INT64: "int64",
        field.TYPE_DOUBLE: "double",
    }
    name = names.get(field.type) or field.message_type.name
    return f"{name}*" if field.is_repeated else name


def test_fields_are_those_of_keda() -> None:
    assert pb.DESCRIPTOR.package == "externalscaler"
    found = {
        name: {field.name: (field.number, type_of(field)) for field in message.fields}
        for name, message in pb.DESCRIPTOR.message_types_by_name.items()
    }
    assert found == FIELDS
    entry = pb.ScaledObjectRef.DESCRIPTOR.nested_types_by_name["ScalerMetadataEntry"]
    assert entry.GetOptions().map_entry


def test_methods_are_those_of_keda() -> None:
    service = pb.DESCRIPTOR.services_by_name["ExternalScaler"]
    assert service.full_name == "externalscaler.ExternalScaler"
    assert {
        method.name: (method.input_type.name, method.output_type.name, method.server_streaming)
        for method in service.methods
    } == METHODS
    assert not any(method.client_streaming for method in service.methods)


def test_bytes_are_those_of_keda() -> None:
    ref = pb.ScaledObjectRef(name="a", namespace="b", scalerMetadata={"k": "v"})
    assert ref.SerializeToString() == b"\x0a\x01a\x12\x01b\x1a\x06\x0a\x01k\x12\x01v"
    value = pb.MetricValue(metricName="m", metricValue=1, metricValueFloat=0.5)
    assert value.SerializeToString() == b"\x0a\x01m\x10\x01\x19" + b"\0\0\0\0\0\0\xe0\x3f"


def check(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "proto/generate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_generated_code_is_in_step() -> None:
    done = check(ROOT, "--check")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for folder in ("proto", "src/accelscale_server/_proto"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    return tmp_path


def test_what_is_out_of_step_is_named_and_repaired(copy: Path) -> None:
    proto = copy / "proto/externalscaler.proto"
    proto.write_text(proto.read_text().replace("bool result = 1;", "bool result = 2;"))
    stray = copy / "src/accelscale_server/_proto/stray_pb2.py"
    stray.write_text("")
    done = check(copy, "--check")
    assert done.returncode == 1
    named = [line.split(" is out of step")[0] for line in done.stderr.splitlines()]
    package = "src/accelscale_server/_proto"
    assert named == [f"{package}/externalscaler_pb2.py", f"{package}/stray_pb2.py"]
    assert stray.exists()
    assert check(copy).returncode == 0
    assert not stray.exists()
    assert check(copy, "--check").returncode == 0
