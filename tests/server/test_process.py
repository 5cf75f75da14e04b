"""``accelscale serve`` as a process: starting, refusing to start, and stopping."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from accelscale_server._proto import externalscaler_pb2 as pb
from accelscale_server._proto.externalscaler_pb2_grpc import ExternalScalerStub
from accelscale_server.addresses import has_ipv6
from server.certificates import authority, signed

METADATA = {"metric": "utilization_percent", "threshold": "70", "windowStatistic": "last"}
REF = pb.ScaledObjectRef(name="web", namespace="shop", scalerMetadata=METADATA)
FAKE = ("--backend", "fake", "--listen", "127.0.0.1:0", "--interval", "0.1")

Serve = Callable[..., "ServeProcess"]  # noqa: F821 - of conftest


async def value_at(address: str) -> float:
    """What GetMetrics answers, once there are readings."""
    request = pb.GetMetricsRequest(scaledObjectRef=REF, metricName="accelscale-utilization-percent")
    async with grpc.aio.insecure_channel(address) as channel, asyncio.timeout(10):
        while True:
            try:
                answer = await ExternalScalerStub(channel).GetMetrics(request, timeout=5)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.05)
            else:
                return float(answer.metricValues[0].metricValueFloat)


async def test_it_serves_what_a_plugin_reads_until_it_is_told_to_stop(serve_process: Serve) -> None:
    serving = serve_process(*FAKE)
    assert await value_at(serving.address()) == 70.0
    serving.signal()
    status, log = await asyncio.to_thread(serving.end)
    assert status == 0
    assert log.index("stopping") < log.index("stopped")
    assert "Traceback" not in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_both_signals_stop_it(serve_process: Serve, number: int) -> None:
    serving = serve_process(*FAKE)
    serving.address()
    serving.signal(number)
    assert serving.end()[0] == 0


async def never() -> AsyncIterator[bytes]:
    """A request that is never sent."""
    await asyncio.Event().wait()
    yield b""


def slow_call(channel: grpc.aio.Channel):
    """A call in progress that does not end: its client has begun and sends nothing."""
    return channel.stream_unary("/externalscaler.ExternalScaler/IsActive")(never())


async def test_streams_open_and_a_call_in_progress_do_not_keep_it(serve_process: Serve) -> None:
    serving = serve_process(*FAKE, "--grace", "1")
    address = serving.address()
    await value_at(address)
    async with grpc.aio.insecure_channel(address) as channel:
        scaler = ExternalScalerStub(channel)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        streams = [scaler.StreamIsActive(REF) for _ in range(5)]
        for stream in (watch, *streams):
            assert await asyncio.wait_for(stream.read(), 10) is not grpc.aio.EOF
        slow = slow_call(channel)
        await slow.wait_for_connection()
        serving.signal()
        said = await asyncio.wait_for(watch.read(), 10)
        assert said.status == health_pb2.HealthCheckResponse.NOT_SERVING
        for stream in (watch, *streams):
            assert await asyncio.wait_for(stream.read(), 10) is grpc.aio.EOF
            assert await stream.code() is grpc.StatusCode.OK
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(slow, 10)
        assert caught.value.code() in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.CANCELLED,
        )
        assert (await asyncio.to_thread(serving.end))[0] == 0


async def test_a_second_signal_stops_it_at_once(serve_process: Serve) -> None:
    serving = serve_process(*FAKE, "--grace", "300")
    address = serving.address()
    async with grpc.aio.insecure_channel(address) as channel:
        slow = slow_call(channel)
        await slow.wait_for_connection()
        await asyncio.sleep(0.2)
        serving.signal()
        await asyncio.to_thread(serving.wait_for, "stopping")
        assert serving.process.poll() is None
        serving.signal()
        assert (await asyncio.to_thread(serving.end, 30.0))[0] == 0
        slow.cancel()


def test_a_second_server_on_the_port_is_refused(serve_process: Serve) -> None:
    first = serve_process(*FAKE)
    address = first.address()
    second = serve_process("--backend", "fake", "--listen", address)
    status, log = second.end()
    assert status == 1
    assert log == (
        f"accelscale: cannot listen on {address}: address in use: stop the other process or"
        " choose another port\n"
    )
    assert first.process.poll() is None


def test_metrics_on_a_taken_port(serve_process: Serve) -> None:
    first = serve_process(*FAKE)
    address = first.address()
    second = serve_process(*FAKE, "--metrics-listen", address)
    status, log = second.end()
    assert status == 1
    assert log.splitlines()[-1].startswith(f"accelscale: cannot listen on {address}: address in")


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (["--interval", "soon"], {}, "--interval='soon': must be seconds"),
        (["--config", "/nowhere/config.toml"], {}, "'/nowhere/config.toml': cannot be read"),
        ([], {"ACCELSCALE_LOG_FORMAT": "xml"}, "ACCELSCALE_LOG_FORMAT='xml': must be one of"),
        (["--backend", "fak"], {}, "fak"),
        (["--listen", "192.0.2.1:6000"], {}, "no interface of this machine has that address"),
        (["--tls-key", "/nowhere/tls.key"], {}, "--tls-cert: is required with --tls-key"),
        (
            ["--tls-cert", "/nowhere/tls.crt", "--tls-key", "/nowhere/tls.key"],
            {},
            "--tls-key='/nowhere/tls.key': cannot be read: No such file",
        ),
    ],
)
def test_what_cannot_start_says_so_in_one_line(
    serve_process: Serve, arguments: list[str], environ: dict[str, str], message: str
) -> None:
    status, log = serve_process(*arguments, environ=environ).end()
    assert status == 1
    assert message in log
    assert log.startswith("accelscale: ")
    assert log.count("\n") == 1


def test_an_empty_key_file_never_means_plaintext(serve_process: Serve, tmp_path: Path) -> None:
    cert, key = signed("server", authority("ours")).write(tmp_path)
    key.write_bytes(b"")
    status, log = serve_process(*FAKE, "--tls-cert", str(cert), "--tls-key", str(key)).end()
    assert status == 1
    assert log == f"accelscale: configuration: --tls-key='{key}': is empty\n"


async def test_failed_handshakes_are_told_apart_in_the_log(
    serve_process: Serve, tmp_path: Path
) -> None:
    """To the client they all look like UNAVAILABLE, so the log has to."""
    ours, theirs = authority("ours"), authority("theirs")
    cert, key = signed("server", ours).write(tmp_path)
    ca = tmp_path / "ca.crt"
    ca.write_bytes(ours.cert_pem)
    serving = serve_process(
        *FAKE, "--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(ca)
    )
    address = serving.address()
    client = signed("client", theirs)
    for channel in (
        grpc.aio.insecure_channel(address),
        grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(ours.cert_pem)),
        grpc.aio.secure_channel(
            address,
            grpc.ssl_channel_credentials(ours.cert_pem, client.key_pem, client.cert_pem),
        ),
    ):
        async with channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await ExternalScalerStub(channel).GetMetricSpec(REF, timeout=5)
    serving.signal()
    status, log = await asyncio.to_thread(serving.end)
    assert status == 0
    for reason in (
        "WRONG_VERSION_NUMBER",
        "PEER_DID_NOT_RETURN_A_CERTIFICATE",
        "CERTIFICATE_VERIFY_FAILED",
    ):
        assert reason in log


async def test_options_from_environment_and_file(serve_process: Serve, tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('listen = "127.0.0.1:0"\nlog-format = "json"\nlog-level = "error"\n')
    environ = {"ACCELSCALE_BACKEND": "fake", "ACCELSCALE_CONFIG": str(file)}
    serving = serve_process(environ=environ)
    line = json.loads(serving.wait_for("listening").string)
    assert await value_at(line["address"]) == 70.0
    serving.signal()
    status, log = await asyncio.to_thread(serving.end)
    assert status == 0
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert events == ["listening", "stopping", "stopped"]


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_every_interface_means_both_families(serve_process: Serve) -> None:
    serving = serve_process(*FAKE, "--listen", "[::]:0")
    address = serving.address()
    port = address.rpartition(":")[2]
    assert address == f"[::]:{port}"
    assert await value_at(f"[::1]:{port}") == 70.0
    assert await value_at(f"127.0.0.1:{port}") == 70.0


def test_every_interface_means_ipv4_where_ipv6_is_off() -> None:
    unshare = shutil.which("unshare")
    setup = "ip link set lo up && sysctl -qw net.ipv6.conf.all.disable_ipv6=1"
    probe = [unshare or "false", "--net", "--map-root-user", "sh", "-c", setup]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets us make no network namespace")
    script = Path(__file__).parent / "roundtrip.py"
    command = f"{setup} && exec {sys.executable} {script} '[::]:0'"
    done = subprocess.run(
        [*probe[:-1], command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("round trip ok at 0.0.0.0:")
