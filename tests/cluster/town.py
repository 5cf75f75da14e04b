"""A cluster of real processes: agents and scalers, over stand-ins of kubelets and API server.

A proxy stands before every agent; when it stops, packets are neither forwarded nor refused, as on a
node that is cut off from the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from accelscale.hpa import desired_replicas
from accelscale.trigger import MetricType
from accelscale_server.client import CallError, Request, ScalerClient
from cluster.kubelet_stand_in import KubeletStandIn
from cluster.kubelet_stand_in import pod as listed_pod
from cluster.stage import NAMESPACE
from cluster.waiting import until
from kubernetes.api_server import ApiServerStandIn
from kubernetes.objects import external, pod, scalable, scaled_object

PLUGIN = Path(__file__).parent / "plugin"
DEVICES = 6
CARD = "fleet.example/card"
INTERVAL = "0.2"
METADATA = {
    "metric": "utilization_percent",
    "threshold": "70",
    "window": "1s",
    "maxAge": "2s",
}


class Process:
    """A process of ours, and the lines that it wrote."""

    def __init__(self, log: Path, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ACCELSCALE_")}
        search = os.pathsep.join([str(PLUGIN), *sys.path])
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "accelscale", *arguments],
                env={**inherited, "PYTHONPATH": search, **environ},
                stdout=output,
                stderr=output,
            )

    async def line(self, pattern: str, seconds: float = 20.0) -> re.Match[str]:
        """The first match in what it wrote, waited for."""
        found: list[re.Match[str]] = []

        def written() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            match = re.search(pattern, self.log.read_text())
            if match is not None:
                found.append(match)
            return match is not None

        await until(written, seconds, f"{pattern!r} in {self.log.name}")
        return found[0]

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send a signal, and wait for the end."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Proxy:
    """Forwards connections, until it is told to `cut`; then nothing passes, and nothing ends."""

    def __init__(self) -> None:
        self.target = 0
        self.address = ""
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Drop everything from now on."""
        self._flowing.clear()

    def heal(self) -> None:
        """Forward again, what waits included."""
        self._flowing.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._flowing.wait()
            there = await asyncio.open_connection("127.0.0.1", self.target)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, there[1]))
                group.create_task(self._forward(there[0], writer))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()


@define
class Machine:
    """A node: its devices, its kubelet, the proxy before its agent, and the agent."""

    name: str
    folder: Path
    kubelet: KubeletStandIn
    proxy: Proxy
    environ: Mapping[str, str]
    agent: Process | None = None
    loads: dict[str, float] = field(factory=dict)
    held: dict[str, tuple[str, ...]] = field(factory=dict)

    def load(self, value: float) -> None:
        """Let every device be as busy as this."""
        self.loads = {f"card-{n}": value for n in range(DEVICES)}
        table = {device: {"utilization_percent": load} for device, load in self.loads.items()}
        new = self.devices_file.with_suffix(".new")
        new.write_text(json.dumps(table))
        new.replace(self.devices_file)

    @property
    def devices_file(self) -> Path:
        """What the plugin reads."""
        return self.folder / f"{self.name}.json"

    async def start(self) -> None:
        """Start the agent, on a port of its own."""
        arguments = ("agent", "--backend", "fleet", "--node-name", self.name)
        arguments += ("--listen", "127.0.0.1:0", "--metrics-listen", "off")
        arguments += ("--interval", INTERVAL, "--pod-resources-interval", "0.2")
        arguments += ("--pod-resources-socket", str(self.kubelet.socket))
        log = self.folder / f"{self.name}-{time.monotonic_ns()}.log"
        environ = {"FLEET_DEVICES": str(self.devices_file), **self.environ}
        self.agent = Process(log, arguments, environ)
        listening = await self.agent.line(r"listening .*address=\S+:(\d+)")
        self.proxy.target = int(listening[1])

    def list(self) -> None:
        """Let the kubelet say who holds what."""
        self.kubelet.pods = tuple(
            listed_pod(name, (CARD, devices), namespace=NAMESPACE, container="server")
            for name, devices in self.held.items()
        )


class Town:
    """Nodes, scalers, and a Deployment whose pods are spread over the nodes."""

    def __init__(
        self, api: ApiServerStandIn, folder: Path, sockets: Path, environ: Mapping[str, str]
    ) -> None:
        self.api = api
        self.machines: dict[str, Machine] = {}
        self.scalers: dict[str, Process] = {}
        self._folder = folder
        self._sockets = sockets
        self._environ = environ

    async def build(self, *names: str, load: float) -> None:
        """Nodes with these names, all equally busy."""
        for name in names:
            kubelet = KubeletStandIn(self._sockets / name / "kubelet.sock")
            kubelet.start()
            proxy = Proxy()
            await proxy.start()
            machine = Machine(name, self._folder, kubelet, proxy, self._environ)
            machine.load(load)
            self.machines[name] = machine
        await asyncio.gather(*(machine.start() for machine in self.machines.values()))

    def deploy(self, name: str, *nodes: str, pods: int, metric_type: str | None = None) -> None:
        """A Deployment with a ScaledObject; its pods take turns on the nodes, a card each."""
        trigger = external(metric_type, **METADATA)
        del trigger["metadata"]["profile"]
        self.api.put("deployments", scalable(name, replicas=pods))
        self.api.put("scaledobjects", scaled_object(name, triggers=(trigger,), maxReplicaCount=99))
        for number in range(pods):
            self.place(f"{name}-{number}", nodes[number % len(nodes)])

    def place(self, name: str, node: str, **state: Any) -> None:
        """A pod with a free card of the node."""
        machine = self.machines[node]
        taken = {device for devices in machine.held.values() for device in devices}
        machine.held[name] = (next(each for each in machine.loads if each not in taken),)
        machine.list()
        self.become(name, node, **state)

    def become(self, name: str, node: str, **state: Any) -> None:
        """The pod is in this state now; Ready, unless told otherwise."""
        labels = {"app": name.rpartition("-")[0]}
        self.api.put("pods", pod(name, labels=labels, node=node, **state))

    def remove(self, name: str, node: str) -> None:
        """The pod is gone."""
        machine = self.machines[node]
        del machine.held[name]
        machine.list()
        self.api.delete("pods", NAMESPACE, name)

    async def scale(self, name: str, port: int = 0) -> str:
        """Start a scaler; gives its address."""
        agents = ",".join(machine.proxy.address for machine in self.machines.values())
        arguments = ("scaler", "--agents", agents, "--kubeconfig", str(self.api.kubeconfig()))
        arguments += ("--listen", f"127.0.0.1:{port}", "--metrics-listen", "off", "--grace", "1")
        log = self._folder / f"{name}-{time.monotonic_ns()}.log"
        self.scalers[name] = scaler = Process(log, arguments, self._environ)
        listening = await scaler.line(r"listening .*address=(\S+)")
        return listening[1]

    async def close(self) -> None:
        """End everything."""
        machines = self.machines.values()
        ended = [*self.scalers.values(), *(m.agent for m in machines if m.agent is not None)]
        for machine in machines:
            machine.proxy.heal()
        await asyncio.gather(*(asyncio.to_thread(process.end) for process in ended))
        for machine in machines:
            await machine.proxy.stop()
            machine.kubelet.stop()


@frozen
class Seen:
    """One poll: when, of which scaler, and the answers, or the code of the error."""

    time: float
    address: str
    value: float | None
    active: bool | None
    error: str = ""

    def asked(self, current: int) -> int | None:
        """What an HPA asks for; None where it keeps what there is."""
        if self.value is None:
            return None
        return desired_replicas(self.value, float(METADATA["threshold"]), current=current)


class Keda:
    """Polls the scalers in turn, again and again, and remembers all that they said."""

    def __init__(self, name: str, addresses: Iterable[str]) -> None:
        self.seen: list[Seen] = []
        self._request = Request(name, NAMESPACE, METADATA, MetricType.AVERAGE_VALUE)
        self._addresses = list(addresses)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Keda:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def until_value(self, value: float, seconds: float = 20.0) -> None:
        """Wait until every scaler says this."""
        first = len(self.seen)

        def settled() -> bool:
            last = {each.address: each.value for each in self.seen[first:]}
            return all(last.get(address) == value for address in self._addresses)

        try:
            await until(settled, seconds)
        except AssertionError:
            raise AssertionError(f"never {value}; last: {self.seen[-4:]}") from None

    async def until_held(self, seconds: float = 20.0) -> None:
        """Wait until every scaler has noticed that something is missing: another value or none."""
        first, before = len(self.seen), self.seen[-1].value

        def noticed() -> bool:
            last = {each.address: each.value for each in self.seen[first:]}
            return all(last.get(address, before) != before for address in self._addresses)

        await until(noticed, seconds, "anything but the value of before")

    def since(self, moment: float) -> list[Seen]:
        """What was said after that."""
        return [each for each in self.seen if each.time >= moment]

    async def _run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = {
                address: await stack.enter_async_context(ScalerClient(address, None, 3.0))
                for address in self._addresses
            }
            while True:
                for address, client in clients.items():
                    try:
                        answers = await client.poll(self._request)
                    except CallError as error:
                        text = f"{error.code}: {error.message}"
                        said = Seen(time.monotonic(), address, None, None, text)
                    else:
                        value = round(answers.values[0].number, 6)
                        said = Seen(time.monotonic(), address, value, answers.active)
                    self.seen.append(said)
                await asyncio.sleep(0.03)
