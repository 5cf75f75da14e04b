"""Kubelet stand-ins and agents on the loopback interface and on unix sockets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from attrs import frozen

from accelscale.monitor import Monitor, open_monitor
from accelscale.testing import FakeBackend
from accelscale_server._proto.accelscale.v1.agent_pb2_grpc import AgentStub
from accelscale_server.addresses import Address
from accelscale_server.agent import agent_server
from accelscale_server.config import AgentConfig
from accelscale_server.server import Server
from cluster.kubelet_stand_in import KubeletStandIn
from cluster.watch import Watch
from kubernetes.api_server import ApiServerStandIn


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder with a short path: that of a unix socket has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="accelscale-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def kubelet_stand_in(socket_folder: Path) -> Iterator[KubeletStandIn]:
    """A kubelet that was not started yet."""
    kubelet = KubeletStandIn(socket_folder / "pod-resources" / "kubelet.sock")
    yield kubelet
    kubelet.stop()


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServerStandIn]:
    """A Kubernetes API server without any objects."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ApiServerStandIn(tmp_path)
    server.start()
    yield server
    server.stop()


@frozen
class RunningAgent:
    """An agent in this process, its kubelet, and a client of it."""

    server: Server
    monitor: Monitor
    kubelet: KubeletStandIn
    stub: Any

    def watch(self) -> Watch:
        """A stream, as a scaler opens it."""
        return Watch(self.stub.Watch())


@pytest.fixture
async def start_agent(kubelet_stand_in: KubeletStandIn) -> AsyncIterator[Callable[..., Any]]:
    """Starts agents over fake backends and the kubelet; everything is stopped at the end."""
    async with AsyncExitStack() as stack:

        async def start(
            *fakes: FakeBackend, interval: float = 0.05, deadline: float = 2.0, **options: Any
        ) -> RunningAgent:
            monitor = stack.enter_context(open_monitor(fakes, interval=interval, deadline=deadline))
            for fake in fakes:
                stack.callback(fake.unhang)
            local = Address("127.0.0.1", 0)
            options = {
                "listen": local,
                "metrics_listen": local,
                "node_name": "node-a",
                "pod_resources_socket": kubelet_stand_in.socket,
                "pod_resources_interval": 0.1,
                **options,
            }
            server = agent_server(AgentConfig(**options), monitor)
            await server.start()
            stack.push_async_callback(server.stop, 1.0)
            own = [("grpc.use_local_subchannel_pool", 1)]
            channel = grpc.aio.insecure_channel(str(server.address), options=own)
            await stack.enter_async_context(channel)
            return RunningAgent(server, monitor, kubelet_stand_in, AgentStub(channel))

        yield start
