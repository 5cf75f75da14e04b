"""One server, one client, one poll: run it in an environment to see whether its versions fit.

``python roundtrip.py [HOST:PORT]`` imports everything that the server needs, polls as KEDA does,
and prints the versions and the address. Needs no test library and no device.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from accelscale import open_monitor
from accelscale.testing import FakeBackend
from accelscale_server import logs
from accelscale_server._proto import externalscaler_pb2 as pb
from accelscale_server._proto.externalscaler_pb2_grpc import ExternalScalerStub
from accelscale_server.addresses import parse_address
from accelscale_server.config import ServeConfig
from accelscale_server.serve import running_server


async def poll(address: str) -> None:
    """GetMetricSpec, GetMetrics, IsActive, a stream, and health."""
    metadata = {"metric": "utilization_percent", "threshold": "70", "windowStatistic": "last"}
    ref = pb.ScaledObjectRef(name="web", namespace="shop", scalerMetadata=metadata)
    async with grpc.aio.insecure_channel(address) as channel:
        scaler = ExternalScalerStub(channel)
        (spec,) = (await scaler.GetMetricSpec(ref, timeout=5)).metricSpecs
        request = pb.GetMetricsRequest(scaledObjectRef=ref, metricName=spec.metricName)
        (value,) = (await scaler.GetMetrics(request, timeout=5)).metricValues
        active = (await scaler.IsActive(ref, timeout=5)).result
        stream = scaler.StreamIsActive(ref)
        pushed = (await asyncio.wait_for(stream.read(), 5)).result
        stream.cancel()
        health = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(), timeout=5)
    found = (spec.targetSizeFloat, value.metricValueFloat, value.metricValue, active, pushed)
    if found != (70.0, 63.5, 64, True, True):
        raise SystemExit(f"wrong answers: {found}")
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise SystemExit("not healthy")


async def main(listen: str) -> str:
    """Serve a fake device at this address and poll it; gives the address that was bound."""
    fake = FakeBackend({"fake-0": {"utilization_percent": 63.5}})
    local = parse_address("127.0.0.1:0")
    config = ServeConfig(listen=parse_address(listen), metrics_listen=local, grace=1.0)
    with open_monitor([fake], interval=0.05) as monitor:
        if not monitor.wait(10.0):
            raise SystemExit("no reading")
        async with running_server(config, monitor) as address:
            await poll(str(parse_address(address).reachable))
    return address


if __name__ == "__main__":
    logs.configure("text", "warning")
    bound = asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:0"))
    versions = " ".join(
        f"{name}=={version(name)}" for name in ("grpcio", "protobuf", "python-json-logger")
    )
    sys.stdout.write(f"round trip ok at {bound} with {versions}\n")
