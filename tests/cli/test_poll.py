"""``accelscale poll`` as a real process against a scaler on a loopback port."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cli.scripted import ScriptedScaler
from cli.workbench import Workbench


def polled(workbench: Workbench, address: str, *arguments: str) -> tuple[int, Any]:
    result = workbench.run("poll", address, "--json", *arguments)
    assert result.stderr == ""
    (line,) = result.stdout.splitlines()
    return result.returncode, json.loads(line)


def test_it_asks_in_the_order_of_keda(workbench: Workbench, scaler: ScriptedScaler) -> None:
    arguments = ["-m", "metric=utilization_percent", "-m", "threshold=70", "--name", "llm"]
    status, document = polled(workbench, scaler.address, *arguments, "--namespace", "prod")
    assert status == 0
    assert document == {
        "spec": [{"name": "accelscale-utilization", "target": 70.0}],
        "values": [{"name": "accelscale-utilization", "value": 132.5}],
        "active": True,
    }
    assert scaler.calls == ["GetMetricSpec", "GetMetrics accelscale-utilization", "IsActive"]
    for reference in scaler.references:
        assert (reference.name, reference.namespace) == ("llm", "prod")
        assert dict(reference.scalerMetadata) == {
            "metric": "utilization_percent",
            "threshold": "70",
        }


def test_each_metric_is_asked_for_by_itself(workbench: Workbench, scaler: ScriptedScaler) -> None:
    scaler.specs = [("one", 1, 0.0), ("two", 2, 0.0)]
    status, document = polled(workbench, scaler.address)
    assert status == 0
    assert scaler.calls == [
        "GetMetricSpec",
        "GetMetrics one",
        "IsActive",
        "GetMetrics two",
        "IsActive",
    ]
    assert [spec["target"] for spec in document["spec"]] == [1.0, 2.0]


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ([("x", 5, 4.25)], 4.25),
        ([("x", 5, 0.0)], 5.0),
        ([("x", 0, 0.0)], 0.0),
        ([("x", 5, -1.0)], 5.0),
        ([("x", 5, float("nan"))], 5.0),
        ([("x", 1, 0.5), ("y", 2, 0.0)], 2.5),
    ],
)
def test_numbers_are_read_as_keda_reads_them(
    workbench: Workbench,
    scaler: ScriptedScaler,
    values: list[tuple[str, int, float]],
    number: float,
) -> None:
    scaler.values = values
    status, document = polled(workbench, scaler.address)
    assert status == 0
    assert document["values"] == [{"name": "accelscale-utilization", "value": number}]


def test_infinity_is_no_number(workbench: Workbench, scaler: ScriptedScaler) -> None:
    scaler.values = [("x", 1, float("inf"))]
    status, document = polled(workbench, scaler.address)
    assert status == 1
    assert document["error"]["code"] == "OUT_OF_RANGE"


@pytest.mark.parametrize("call", ["GetMetricSpec", "GetMetrics accelscale-utilization", "IsActive"])
def test_an_error_of_any_call_is_the_outcome(
    workbench: Workbench, scaler: ScriptedScaler, call: str
) -> None:
    scaler.errors[call] = (grpc.StatusCode.UNAVAILABLE, "GPU-aaaa: lost,\n 3 s old")
    status, document = polled(workbench, scaler.address)
    assert status == 1
    assert document == {"error": {"code": "UNAVAILABLE", "message": "GPU-aaaa: lost, 3 s old"}}
    text = workbench.run("poll", scaler.address)
    assert (text.returncode, text.stdout) == (1, "")
    name = call.partition(" ")[0]
    assert text.stderr == f"accelscale: {name}: UNAVAILABLE: GPU-aaaa: lost, 3 s old\n"


def test_no_spec_and_no_value_are_errors(workbench: Workbench, scaler: ScriptedScaler) -> None:
    scaler.values = []
    assert polled(workbench, scaler.address)[1]["error"]["message"] == (
        "no value of accelscale-utilization"
    )
    scaler.specs = []
    assert polled(workbench, scaler.address)[1]["error"]["message"] == (
        "the scaler gave no metric spec"
    )


def test_text_ends_with_what_an_hpa_would_ask_for(
    workbench: Workbench, scaler: ScriptedScaler
) -> None:
    result = workbench.run("poll", scaler.address, "--replicas", "1")
    assert result.stdout.splitlines() == [
        "metric    accelscale-utilization",
        "target    70 (AverageValue)",
        "value     132.5",
        "active    yes",
        "replicas  2 (an HPA that sees 1 replica)",
    ]
    scaler.values, scaler.active = [("x", 0, 0.0)], False
    lines = workbench.run("poll", scaler.address, "--replicas", "4").stdout.splitlines()
    assert lines[2:] == ["value     0", "active    no", "replicas  0 (an HPA that sees 4 replicas)"]


def test_metric_type_value_is_passed_on(workbench: Workbench, scaler: ScriptedScaler) -> None:
    scaler.values = [("x", 95, 95.0)]
    arguments = ["--metric-type", "value", "--replicas", "8", "--ready", "4"]
    result = workbench.run("poll", scaler.address, *arguments)
    assert result.stdout.splitlines()[1] == "target    70 (Value)"
    assert result.stdout.splitlines()[-1] == "replicas  6 (an HPA that sees 8 replicas, 4 Ready)"
    assert dict(scaler.references[0].scalerMetadata) == {"metricType": "Value"}
    scaler.references.clear()
    workbench.run("poll", scaler.address, "--metric-type", "Value", "-m", "metricType=AverageValue")
    assert dict(scaler.references[0].scalerMetadata) == {"metricType": "AverageValue"}
    result = workbench.run("poll", scaler.address, "-m", "metricType=Value")
    assert result.stdout.splitlines()[1] == "target    70 (Value)"


def test_metadata_values_may_hold_anything(workbench: Workbench, scaler: ScriptedScaler) -> None:
    polled(workbench, scaler.address, "-m", "podSelector=app=llm,tier in (a)", "-m", "window=")
    assert dict(scaler.references[0].scalerMetadata) == {
        "podSelector": "app=llm,tier in (a)",
        "window": "",
    }


def test_a_port_without_a_server_is_unavailable(workbench: Workbench) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        status, document = polled(workbench, address)
        assert status == 1
        assert document["error"]["code"] == "UNAVAILABLE"
        assert "refused" in document["error"]["message"].lower()


@pytest.mark.parametrize("push", [[], ["--push"]])
def test_a_server_that_never_speaks_is_unavailable(workbench: Workbench, push: list[str]) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        status, document = polled(workbench, address, "--timeout", "0.5", *push)
    assert status == 1
    assert document == {
        "error": {
            "code": "UNAVAILABLE",
            "message": f"no connection to {address} within 0.5 s",
        }
    }


def test_a_slow_answer_is_not_called_unreachable(
    workbench: Workbench, scaler: ScriptedScaler
) -> None:
    scaler.delay_seconds = 20.0
    status, document = polled(workbench, scaler.address, "--timeout", "0.7")
    assert status == 1
    assert document["error"]["code"] == "DEADLINE_EXCEEDED"
    assert document["error"]["message"] == f"no answer from {scaler.address} within 0.7 s"


def test_a_server_of_another_kind_is_unimplemented(workbench: Workbench) -> None:
    from concurrent.futures import ThreadPoolExecutor

    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        status, document = polled(workbench, f"127.0.0.1:{port}")
    finally:
        server.stop(None).wait()
    assert (status, document["error"]["code"]) == (1, "UNIMPLEMENTED")


def test_a_proxy_takes_over_nothing(workbench: Workbench, scaler: ScriptedScaler) -> None:
    proxy = "http://127.0.0.1:1"
    result = workbench.run(
        "poll", scaler.address, "--json", http_proxy=proxy, https_proxy=proxy, no_proxy=""
    )
    assert result.returncode == 0, result.stdout


def test_push_prints_every_event(workbench: Workbench, scaler: ScriptedScaler) -> None:
    scaler.events = [False, True, False]
    result = workbench.run("poll", scaler.address, "--push", "--json")
    assert result.returncode == 0
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["active"] for event in events] == [False, True, False]
    assert all(event["seconds"] >= 0 for event in events)
    assert result.stderr == "the server ended the stream\n"
    assert scaler.calls == ["StreamIsActive"]
    text = workbench.run("poll", scaler.address, "--push", "--count", "2").stdout.splitlines()
    assert [line.split(" s  ")[1] for line in text] == ["not active", "active"]


def test_push_ends_after_the_seconds(workbench: Workbench, scaler: ScriptedScaler) -> None:
    scaler.events, scaler.ends_stream = [True], False
    result = workbench.run("poll", scaler.address, "--push", "--seconds", "0.5", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 1


def test_push_reports_a_broken_stream(workbench: Workbench, scaler: ScriptedScaler) -> None:
    scaler.errors["StreamIsActive"] = (grpc.StatusCode.INVALID_ARGUMENT, "threshold: is required")
    status, document = polled(workbench, scaler.address, "--push")
    assert status == 1
    assert document == {"error": {"code": "INVALID_ARGUMENT", "message": "threshold: is required"}}


def test_push_ends_quietly_by_an_interrupt(workbench: Workbench, scaler: ScriptedScaler) -> None:
    scaler.events, scaler.ends_stream = [True], False
    process = subprocess.Popen(
        workbench.command("poll", scaler.address, "--push"),
        env=workbench.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "active" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")


# TLS


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, another one, and a certificate of the first for localhost."""
    folder = tmp_path_factory.mktemp("pem")
    authority = _certificate(folder, "ca", None)
    _certificate(folder, "other", None)
    _certificate(folder, "leaf", authority)
    return folder


@pytest.fixture
def tls_scaler(pem: Path) -> Iterator[ScriptedScaler]:
    """A scaler that asks for a client certificate."""
    credentials = grpc.ssl_server_credentials(
        [((pem / "leaf.key").read_bytes(), (pem / "leaf.pem").read_bytes())],
        root_certificates=(pem / "ca.pem").read_bytes(),
        require_client_auth=True,
    )
    with ScriptedScaler(credentials) as server:
        yield server


def test_mutual_tls(workbench: Workbench, tls_scaler: ScriptedScaler, pem: Path) -> None:
    certificate = ["--cert", str(pem / "leaf.pem"), "--key", str(pem / "leaf.key")]
    trusted = ["--ca", str(pem / "ca.pem")]
    status, document = polled(workbench, tls_scaler.address, *trusted, *certificate)
    assert status == 0, document
    for arguments in ([], trusted, ["--ca", str(pem / "other.pem"), *certificate]):
        status, document = polled(workbench, tls_scaler.address, *arguments)
        assert (status, document["error"]["code"]) == (1, "UNAVAILABLE")
    assert "CERTIFICATE_VERIFY_FAILED" in document["error"]["message"]


def test_unreadable_certificates_are_named(workbench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    arguments = ["--ca", str(tmp_path / "empty.pem")]
    pair = ["--cert", str(tmp_path / "no.pem"), "--key", str(tmp_path / "no.key")]
    result = workbench.run("poll", "localhost:1", *arguments, *pair)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert f"--ca='{tmp_path}/empty.pem': holds no PEM" in line
    assert f"--cert='{tmp_path}/no.pem': cannot be read: No such file" in line
    assert "--key=" in line


def _certificate(
    folder: Path, name: str, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(issuer is None, None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key if issuer is None else issuer[1], hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, key
