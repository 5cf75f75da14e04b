# ruff: noqa: N802 - gRPC gives the calls their names
"""The least that a grpc.aio server can do for the same request: what ours is compared with."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import grpc

from accelscale_server._proto import externalscaler_pb2 as pb
from accelscale_server._proto import externalscaler_pb2_grpc as rpc

METRIC = pb.MetricValue(
    metricName="accelscale-utilization-percent", metricValue=100, metricValueFloat=100.0
)


class Echo(rpc.ExternalScalerServicer):
    """Answers a constant."""

    async def GetMetrics(self, request: Any, context: Any) -> pb.GetMetricsResponse:
        """One value."""
        return pb.GetMetricsResponse(metricValues=[METRIC])


async def serve(address: str) -> None:
    """Answer until told to end."""
    server = grpc.aio.server()
    rpc.add_ExternalScalerServicer_to_server(Echo(), server)
    server.add_insecure_port(address)
    await server.start()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.stop(1)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
