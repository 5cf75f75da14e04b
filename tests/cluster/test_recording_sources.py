"""Recording what agents and scalers tell."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from accelscale.errors import AccelscaleError, NoDataError
from accelscale.lab.loading import load
from accelscale.lab.recorder import Recorder
from accelscale.lab.recording import Recording
from accelscale.lab.sinks import open_sink
from accelscale.lab.sources import Observed, Wanted
from accelscale.model import Reason
from accelscale.testing import FakeBackend
from accelscale_server import recording_sources
from accelscale_server._proto.accelscale.v1 import introspection_pb2 as pb
from accelscale_server._proto.accelscale.v1 import introspection_pb2_grpc as rpc
from cluster.kubelet_stand_in import pod

UTILIZATION = "utilization_percent"
CARD = "fake.example/card"


def recorded(
    opened: Any, address: str, path: Path, enough: Callable[[int, Observed], bool]
) -> Recording:
    """What a source tells until it is enough; it must end soon after that."""
    stop = threading.Event()
    with (
        opened(address, Wanted(0.1, (UTILIZATION,)), stop) as source,
        Recorder(open_sink(path), metrics=(UTILIZATION,)) as recorder,
    ):
        for number, observed in enumerate(source):
            recorder.take(observed)
            if enough(number, observed):
                stop.set()
    return load([path])


async def test_an_agents_readings_are_recorded_with_their_times_and_pods(
    start_agent, kubelet_stand_in, tmp_path: Path
) -> None:
    kubelet_stand_in.pods = (pod("web-0", (CARD, ["a"])),)
    kubelet_stand_in.start()
    fake = FakeBackend({"a": {UTILIZATION: 60.0}, "b": {UTILIZATION: 20.0}})
    agent = await start_agent(fake)

    def enough(number: int, observed: Observed) -> bool:
        if number == 10:
            fake.lose("b", detail="fell off the bus")
        failure = observed.snapshot.failures.get(("node-a/b", UTILIZATION))
        lost = failure is not None and failure.reason is Reason.LOST
        return number > 10 and lost and bool(observed.holders)

    address = str(agent.server.address)
    found = await asyncio.to_thread(
        recorded, recording_sources.agents, address, tmp_path / "trace.parquet", enough
    )
    assert {device.id for device in found.devices} == {"node-a/a", "node-a/b"}
    column = found.columns["node-a/a", UTILIZATION]
    assert set(column.values.tolist()) == {60.0}
    assert len(column) >= 5
    assert found.interval == 0.05
    (absence,) = found.absences["node-a/b", UTILIZATION]
    assert (absence.reason, absence.detail) == (Reason.LOST, "fell off the bus")
    assert {(h.device_id, h.namespace, h.pod) for h in found.holders} == {
        ("node-a/a", "shop", "web-0")
    }


async def test_an_agent_that_falls_silent_leaves_a_gap_with_a_reason(
    start_agent, tmp_path: Path
) -> None:
    agent = await start_agent(FakeBackend({"a": {UTILIZATION: 60.0}}))
    loop = asyncio.get_running_loop()

    def enough(number: int, observed: Observed) -> bool:
        if number == 5:
            asyncio.run_coroutine_threadsafe(agent.server.stop(0.1), loop)
        failure = observed.snapshot.failures.get(("node-a/a", UTILIZATION))
        return number > 5 and failure is not None and failure.reason is Reason.STALE

    found = await asyncio.to_thread(
        recorded,
        recording_sources.agents,
        str(agent.server.address),
        tmp_path / "trace.jsonl",
        enough,
    )
    (absence,) = found.absences["node-a/a", UTILIZATION]
    assert absence.reason is Reason.STALE


def test_where_no_agent_is_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_sources, "PATIENCE", 0.5)
    stop = threading.Event()
    with (
        recording_sources.agents("127.0.0.1:1", Wanted(1.0), stop) as source,
        pytest.raises(NoDataError, match=r"no agent was heard: 127\.0\.0\.1:1: "),
    ):
        next(source)


class Scaler(rpc.IntrospectionServicer):
    """A scaler that knows one device, with a value that grows at every other call."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails = False

    def Fleet(self, request: pb.FleetRequest, context: grpc.ServicerContext) -> pb.FleetResponse:  # noqa: N802
        assert list(request.metrics) == [UTILIZATION]
        if self.fails:
            context.abort(grpc.StatusCode.UNAVAILABLE, "no leader")
        self.calls += 1
        device = pb.FleetDevice(id="a", name="A", vendor="fake", pods=["shop/web-0"])
        device.values[UTILIZATION] = float(self.calls // 2)
        lost = pb.FleetDevice(id="b", name="B", vendor="fake")
        lost.reasons[UTILIZATION] = "lost"
        age = 0.001 if self.calls % 2 == 0 else 0.099
        node = pb.Node(name="n", address="x", state="connected", age_seconds=age)
        node.devices.extend([device, lost])
        return pb.FleetResponse(nodes=[node])


@contextmanager
def listening(servicer: Scaler) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    rpc.add_IntrospectionServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_the_fleet_of_a_scaler_is_recorded_once_a_reading(tmp_path: Path) -> None:
    servicer = Scaler()
    with listening(servicer) as address:
        found = recorded(
            recording_sources.scaler,
            address,
            tmp_path / "trace.parquet",
            lambda number, _: number == 9,
        )
    values = found.columns["n/a", UTILIZATION].values.tolist()
    assert values == sorted(set(values))
    assert found.absences["n/b", UTILIZATION][0].reason is Reason.LOST
    assert found.holders[0].pod == "web-0"


def test_a_scaler_that_is_away_for_a_while_leaves_a_gap() -> None:
    servicer, stop = Scaler(), threading.Event()
    with listening(servicer) as address:
        with recording_sources.scaler(address, Wanted(0.05, (UTILIZATION,)), stop) as source:
            next(source)
            servicer.fails = True
            threading.Timer(0.3, lambda: setattr(servicer, "fails", False)).start()
            next(source)
        servicer.fails = True
        with (
            recording_sources.scaler(address, Wanted(0.05, (UTILIZATION,)), stop) as source,
            pytest.raises(AccelscaleError, match="UNAVAILABLE: no leader"),
        ):
            next(source)
