"""A small cluster on the loopback interface: API server, agents, and scalers that KEDA asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import grpc
from attrs import frozen
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from accelscale.hpa import desired_replicas
from accelscale.trigger import MetricType
from accelscale_server._proto.accelscale.v1 import introspection_pb2
from accelscale_server._proto.accelscale.v1.introspection_pb2_grpc import IntrospectionStub
from accelscale_server.addresses import Address
from accelscale_server.client import Answers, CallError, Request, ScalerClient
from accelscale_server.config import ScalerConfig
from accelscale_server.scaler import scaler_server
from accelscale_server.server import Server
from accelscale_server.whereabouts import Listed
from cluster.agent_stand_in import AgentStandIn
from cluster.waiting import until
from kubernetes.api_server import ApiServerStandIn
from kubernetes.objects import external, pod, scalable, scaled_object

NAMESPACE = "shop"
METADATA = {"metric": "utilization_percent", "threshold": "70"}


@frozen
class Scaler:
    """A scaler, asked as KEDA asks: on one channel, spec, value, activity."""

    address: str
    server: Server | None = None

    async def poll(
        self, name: str, namespace: str = NAMESPACE, metric_type: str | None = None, **keys: str
    ) -> Answers:
        """All answers of one poll; raises CallError."""
        metadata = {"scalerAddress": self.address, **METADATA, **keys}
        type_ = MetricType(metric_type or MetricType.AVERAGE_VALUE)
        async with ScalerClient(self.address, None, 10.0) as client:
            return await client.poll(Request(name, namespace, metadata, type_))

    async def value(self, name: str, namespace: str = NAMESPACE, **keys: str) -> float:
        """The value, as the HPA gets it."""
        return (await self.poll(name, namespace, **keys)).values[0].number

    async def refusal(self, name: str, namespace: str = NAMESPACE, **keys: str) -> CallError:
        """The error of a poll that must fail."""
        try:
            answers = await self.poll(name, namespace, **keys)
        except CallError as error:
            return error
        raise AssertionError(f"answered {answers}")

    async def becomes(self, expected: float, name: str, seconds: float = 10.0, **keys: str) -> None:
        """Wait until the value is this."""
        seen: list[object] = []

        async def settled() -> bool:
            try:
                seen.append(round(await self.value(name, **keys), 3))
            except CallError as error:
                seen.append(str(error))
            return seen[-1] == round(expected, 3)

        try:
            await until(settled, seconds)
        except AssertionError:
            last = list(dict.fromkeys(map(str, seen)))[-5:]
            raise AssertionError(f"{name} never became {expected}: {last}") from None

    async def becomes_refused(self, name: str, code: str, seconds: float = 10.0) -> None:
        """Wait until a poll fails with this status."""

        async def refused() -> bool:
            try:
                await self.poll(name)
            except CallError as error:
                return error.code == code and str(error).startswith("GetMetrics")
            return False

        await until(refused, seconds, f"{name} refused with {code}")

    async def explain(
        self, name: str, namespace: str = NAMESPACE
    ) -> introspection_pb2.ExplainResponse:
        """What the scaler says about its answer."""
        options = [("grpc.enable_http_proxy", 0)]
        async with grpc.aio.insecure_channel(self.address, options=options) as channel:
            request = introspection_pb2.ExplainRequest(namespace=namespace, name=name)
            return await IntrospectionStub(channel).Explain(request, timeout=5)


class Stage:
    """What there is; `close` ends all of it."""

    def __init__(self, api: ApiServerStandIn) -> None:
        self.api = api
        self.agents: dict[str, AgentStandIn] = {}
        self._stack = AsyncExitStack()

    async def close(self) -> None:
        """Stop everything that was started here."""
        await self._stack.aclose()

    async def node(self, name: str, values: Mapping[str, float] | None = None) -> AgentStandIn:
        """A node whose agent tells these devices."""
        agent = AgentStandIn(name, values)
        self.agents[name] = await agent.start()
        self._stack.push_async_callback(agent.stop)
        return agent

    def workload(
        self,
        name: str,
        namespace: str = NAMESPACE,
        *,
        metric_type: str | None = None,
        replicas: int = 1,
        **keys: str,
    ) -> None:
        """A Deployment and its ScaledObject."""
        self.api.put("deployments", scalable(name, namespace, replicas=replicas))
        trigger = external(metric_type, **METADATA, **keys)
        del trigger["metadata"]["profile"]
        written = scaled_object(name, namespace, triggers=(trigger,), maxReplicaCount=100)
        self.api.put("scaledobjects", written)

    def pod(
        self,
        name: str,
        node: str | None,
        devices: Iterable[str] = (),
        *,
        app: str | None = None,
        namespace: str = NAMESPACE,
        **state: Any,
    ) -> None:
        """A pod of the workload ``app``, in Kubernetes and in the list of the node's kubelet."""
        labels = {"app": app or name.rpartition("-")[0]}
        self.api.put("pods", pod(name, namespace, labels=labels, node=node, **state))
        agent = self.agents.get(node or "")
        if agent is not None and devices:
            agent.pods[f"{namespace}/{name}"] = tuple(devices)
            agent.renew()

    def fleet(
        self,
        name: str,
        loads: Mapping[str, Iterable[float]],
        namespace: str = NAMESPACE,
        **state: Any,
    ) -> int:
        """A pod with a device of its own for each load, on the nodes; how many that is."""
        number = 0
        for node, values in loads.items():
            agent = self.agents[node]
            for value in values:
                device = f"{name}-{number}"
                agent.values[device] = value
                self.pod(f"{name}-{number}", node, [device], namespace=namespace, **state)
                number += 1
        return number

    async def scaler(self, **options: Any) -> Scaler:
        """A replica of the scaler that knows all agents there are."""
        config = ScalerConfig(
            **{
                "listen": Address("127.0.0.1", 0),
                "metrics_listen": None,
                "agents": Listed(tuple(agent.address for agent in self.agents.values())),
                "kubeconfig": self.api.kubeconfig(),
                "grace": 1.0,
                **options,
            }
        )
        server = scaler_server(config)
        await server.start()
        self._stack.push_async_callback(server.stop, 1.0)
        await until(lambda: self._serves(str(server.address)))
        return Scaler(str(server.address), server)

    async def _serves(self, address: str) -> bool:
        """Whether calls would be sent there."""
        options = [("grpc.enable_http_proxy", 0)]
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            answer = await HealthStub(channel).Check(HealthCheckRequest(), timeout=5)
            return bool(answer.status == HealthCheckResponse.SERVING)


def replicas_asked(
    value: float, threshold: float, current: int, metric_type: str = "AverageValue", **options: Any
) -> int:
    """What an HPA makes of the value."""
    return desired_replicas(value, threshold, metric_type=metric_type, current=current, **options)
