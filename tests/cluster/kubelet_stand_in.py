"""A kubelet's PodResources service on a unix socket, which misbehaves on demand."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from accelscale_server._proto.podresources.v1 import podresources_pb2 as pb
from accelscale_server._proto.podresources.v1 import podresources_pb2_grpc as rpc


def pod(
    name: str,
    *entries: tuple[str, Iterable[str]],
    namespace: str = "shop",
    container: str = "main",
    claims: Iterable[pb.DynamicResource] = (),
) -> pb.PodResources:
    """A pod with one container; entries are resource names with the ids that it holds."""
    devices = [pb.ContainerDevices(resource_name=r, device_ids=list(ids)) for r, ids in entries]
    resources = pb.ContainerResources(name=container, devices=devices, dynamic_resources=claims)
    return pb.PodResources(name=name, namespace=namespace, containers=[resources])


def claim(
    driver: str = "", pool: str = "", device: str = "", cdi: Iterable[str] = (), name: str = "gpu"
) -> pb.DynamicResource:
    """A dynamic resource claim of one device."""
    names = [pb.CDIDevice(name=each) for each in cdi]
    resource = pb.ClaimResource(
        cdi_devices=names, driver_name=driver, pool_name=pool, device_name=device
    )
    return pb.DynamicResource(claim_name=name, claim_namespace="shop", claim_resources=[resource])


def answer(*pods: pb.PodResources) -> pb.ListPodResourcesResponse:
    """The reply to a List."""
    return pb.ListPodResourcesResponse(pod_resources=pods)


class KubeletStandIn(rpc.PodResourcesListerServicer):
    """Answers with ``pods``, or as `refuse` and `hang` say. Every List is noted in ``calls``.

    Starting again removes the socket and makes another, as the kubelet does.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.pods: tuple[pb.PodResources, ...] = ()
        self.calls: list[float] = []
        self._refusal: tuple[grpc.StatusCode, str] | None = None
        self._gate = threading.Event()
        self._gate.set()
        self._servers: list[grpc.Server] = []

    def start(self) -> KubeletStandIn:
        """Listen on a socket that is made now."""
        self.socket.unlink(missing_ok=True)
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        server = grpc.server(futures.ThreadPoolExecutor(4))
        rpc.add_PodResourcesListerServicer_to_server(self, server)
        server.add_insecure_port(f"unix:{self.socket}")
        server.start()
        self._servers.append(server)
        return self

    def stop(self) -> None:
        """End every server that was started, and take the socket away."""
        self._gate.set()
        for server in self._servers:
            server.stop(0).wait(10)
        self._servers.clear()
        self.socket.unlink(missing_ok=True)

    def refuse(self, code: grpc.StatusCode = grpc.StatusCode.RESOURCE_EXHAUSTED) -> None:
        """Answer with this status; the default is what the kubelet's rate limit gives."""
        self._refusal = (code, "rejected by rate limit")

    def hang(self) -> None:
        """Take calls and answer none."""
        self._gate.clear()

    def behave(self) -> None:
        """End what `refuse` and `hang` began."""
        self._refusal = None
        self._gate.set()

    def List(self, request: Any, context: grpc.ServicerContext) -> pb.ListPodResourcesResponse:  # noqa: N802
        self.calls.append(time.monotonic())
        self._gate.wait()
        if self._refusal is not None:
            context.abort(*self._refusal)
        return answer(*self.pods)
