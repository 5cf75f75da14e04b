"""A fleet of agents that vanish, hang, are replaced, or live by another clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from accelscale.errors import NoDataError
from accelscale.model import Failure, Reason, Series, SeriesValue
from accelscale_server import agent_stream, node
from accelscale_server import fleet as fleet_module
from accelscale_server._proto.accelscale.v1 import agent_pb2 as pb
from accelscale_server.fleet import Fleet
from cluster.agent_stand_in import AgentStandIn
from cluster.waiting import until

UTILIZATION = "utilization_percent"
MEAN = Series(UTILIZATION, 15.0, "mean")
PEAK = Series(UTILIZATION, 600.0, "max")

Start = Callable[..., Any]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts agents, and a fleet that watches them."""
    async with AsyncExitStack() as stack:
        fleet = Fleet()
        running: list[asyncio.Task[None]] = []

        async def stop() -> None:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

        stack.push_async_callback(stop)

        async def start(*agents: AgentStandIn) -> Fleet:
            if not running:
                running.append(asyncio.create_task(fleet.run()))
            for agent in agents:
                await agent.start()
                stack.push_async_callback(agent.stop)
            fleet.set_addresses({*fleet.streams, *(agent.address for agent in agents)})
            return fleet

        yield start


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience of tenths of a second in place of seconds."""
    monkeypatch.setattr(agent_stream, "FIRST_WORD", 0.5)
    monkeypatch.setattr(agent_stream, "HEARTBEAT", 0.3)
    monkeypatch.setattr(agent_stream, "GRACE", 0.2)
    monkeypatch.setattr(agent_stream, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(agent_stream, "MOST_PAUSE", 0.2)


def look(fleet: Fleet, device: str, series: Series = MEAN) -> SeriesValue | Failure:
    """What the fleet has for a device, which it is thereby asked for."""
    fleet.want([series], [device.partition("/")[0]])
    return fleet.snapshot([device], [series]).series[device, series]


def value(fleet: Fleet, device: str, series: Series = MEAN) -> float | None:
    found = look(fleet, device, series)
    return found.value if isinstance(found, SeriesValue) else None


def age(fleet: Fleet, device: str) -> float:
    found = look(fleet, device)
    assert isinstance(found, SeriesValue)
    return time.monotonic() - found.time


async def test_devices_of_two_nodes_have_the_values_of_their_own(start: Start) -> None:
    # PCI addresses are the same on every node.
    left = AgentStandIn("a", {"0000:03:00.0": 90.0})
    right = AgentStandIn("b", {"0000:03:00.0": 10.0})
    fleet = await start(left, right)
    await until(lambda: value(fleet, "a/0000:03:00.0") == 90.0)
    await until(lambda: value(fleet, "b/0000:03:00.0") == 10.0)
    left.values["0000:03:00.0"] = 80.0
    await until(lambda: value(fleet, "a/0000:03:00.0") == 80.0)
    (device,) = fleet.snapshot(["b/0000:03:00.0"], [MEAN]).devices
    assert (device.id, device.node, device.vendor) == ("b/0000:03:00.0", "b", "toy")


async def test_a_series_has_no_value_until_the_agent_has_answered(start: Start) -> None:
    agent = AgentStandIn("a", {"x": 50.0})
    fleet = await start(agent)
    await until(lambda: "a" in fleet.nodes)
    found = look(fleet, "a/x")
    assert isinstance(found, Failure)
    assert (found.reason, found.detail) == (Reason.STALE, "no reading yet")
    await until(lambda: value(fleet, "a/x") == 50.0)


async def test_only_what_is_wanted_of_a_node_is_asked_of_its_agent(start: Start) -> None:
    left, right = AgentStandIn("a", {"x": 50.0}), AgentStandIn("b", {"x": 50.0})
    fleet = await start(left, right)
    await until(lambda: len(fleet.nodes) == 2)
    assert fleet.want([MEAN, PEAK], ["a"])
    assert not fleet.want([MEAN], ["a"])
    await until(lambda: left.asked == [(UTILIZATION, 15.0, "mean"), (UTILIZATION, 600.0, "max")])
    assert len(left.requests) == 1
    assert right.requests == []
    fleet.want([PEAK])
    await until(lambda: right.asked == [(UTILIZATION, 600.0, "max")])


async def test_what_is_wanted_of_all_nodes_is_wanted_of_new_ones_too(start: Start) -> None:
    fleet = await start(AgentStandIn("a", {"x": 50.0}))
    await until(lambda: "a" in fleet.nodes)
    fleet.want([MEAN])
    newcomer = AgentStandIn("b", {"y": 20.0})
    await start(newcomer)
    await until(lambda: value(fleet, "b/y") == 20.0)
    assert newcomer.asked == [(UTILIZATION, 15.0, "mean")]


async def test_what_nobody_asks_for_any_more_is_no_longer_sent(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "SWEEP", 0.05)
    agent = AgentStandIn("a", {"x": 50.0})
    fleet = await start(agent)
    await until(lambda: "a" in fleet.nodes)
    await asyncio.sleep(0.06)
    fleet.want([MEAN], ["a"], 0.1)
    await until(lambda: agent.asked == [(UTILIZATION, 15.0, "mean")])
    await until(lambda: agent.asked == [])


@pytest.mark.parametrize("clock", [-1e6, 0.0, 1e6])
async def test_clocks_need_not_agree(start: Start, clock: float) -> None:
    agent = AgentStandIn("a", {"x": 50.0}, clock=clock)
    agent.older["x"] = 3.0
    fleet = await start(agent)
    await until(lambda: value(fleet, "a/x") == 50.0)
    assert 2.9 < age(fleet, "a/x") < 4.0


async def test_what_was_long_under_way_is_old(start: Start) -> None:
    agent = AgentStandIn("a", {"x": 50.0})
    fleet = await start(agent)
    await until(lambda: value(fleet, "a/x") == 50.0)
    agent.delay = 0.7
    agent.values["x"] = 60.0
    await until(lambda: value(fleet, "a/x") == 60.0)
    assert age(fleet, "a/x") > 0.6


async def test_no_sample_is_younger_than_its_message(start: Start) -> None:
    agent = AgentStandIn("a", {"x": 50.0})
    agent.older["x"] = -3600.0
    fleet = await start(agent)
    await until(lambda: value(fleet, "a/x") == 50.0)
    agent.silent = True
    await asyncio.sleep(0.3)
    assert age(fleet, "a/x") > 0.2


async def test_flags_and_reasons_arrive(start: Start) -> None:
    agent = AgentStandIn("a", {"x": 50.0, "y": 60.0, "z": 70.0, "w": 80.0})
    agent.uncovered.add("x")
    agent.shared.add("x")
    agent.absent["y"] = pb.Absence(reason="not_supported", detail="never on a Toy", permanent=True)
    agent.absent["z"] = pb.Absence(reason="from the future", detail="new")
    agent.values["w"] = float("nan")
    fleet = await start(agent)
    await until(lambda: value(fleet, "a/x") == 50.0)
    found = look(fleet, "a/x")
    assert isinstance(found, SeriesValue)
    assert (found.covered, found.shared) == (False, True)
    ids = [f"a/{name}" for name in "yzw"]
    snapshot = fleet.snapshot(ids, [MEAN])
    reasons = [(f.reason, f.detail, f.permanent) for f in snapshot.failures.values()]
    assert reasons == [
        (Reason.NOT_SUPPORTED, "never on a Toy", True),
        (Reason.ERROR, "new", False),
        (Reason.ERROR, "the agent of a sent no number", False),
    ]
    assert [snapshot.series[device_id, MEAN] for device_id in ids] == list(
        snapshot.failures.values()
    )


async def test_a_vanished_agent_leaves_its_devices_silent_and_says_which_node(
    start: Start, hasty: None
) -> None:
    agent = AgentStandIn("node-a", {"x": 50.0}, {"shop/web-0": ["x"]})
    fleet = await start(agent)
    await until(lambda: value(fleet, "node-a/x") == 50.0)
    await agent.stop()
    await until(lambda: fleet.streams[agent.address].state == "gone")
    snapshot = fleet.snapshot(["node-a/x"], [MEAN])
    assert snapshot.series["node-a/x", MEAN].value == 50.0  # with its age, which ends it
    failure = snapshot.failure("node-a/x", UTILIZATION)
    assert failure is not None
    assert failure.detail.startswith("no word from the agent of node-a for 0 s: ")
    assert fleet.allocations("node-a", "shop", "web-0")
    with pytest.raises(NoDataError, match="no word from the agent of node-a"):
        fleet.allocations("node-a", "shop", "web-1")
    await agent.start()
    await until(lambda: fleet.streams[agent.address].state == "connected")
    agent.values["x"] = 70.0
    await until(lambda: value(fleet, "node-a/x") == 70.0)
    assert not fleet.snapshot(["node-a/x"], [MEAN]).failures


async def test_a_stream_that_falls_silent_is_given_up_and_opened_anew(
    start: Start, hasty: None
) -> None:
    agent = AgentStandIn("a", {"x": 50.0})
    agent.told_interval = 0.1
    fleet = await start(agent)
    await until(lambda: value(fleet, "a/x") == 50.0)
    agent.silent = True
    stream = fleet.streams[agent.address]
    await until(lambda: stream.state == "gone")
    assert stream.detail == "nothing was heard for 0.5 s"
    await until(lambda: stream.attempts > 2)
    agent.silent = False
    agent.values["x"] = 80.0
    await until(lambda: value(fleet, "a/x") == 80.0)
    await until(lambda: agent.streams == 1)


@pytest.mark.parametrize(
    ("code", "text", "said"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "64 streams", "RESOURCE_EXHAUSTED: 64 streams"),
        (grpc.StatusCode.UNIMPLEMENTED, "", "what listens there is no agent"),
        (grpc.StatusCode.PERMISSION_DENIED, "", "PERMISSION_DENIED"),
    ],
)
async def test_why_an_agent_cannot_be_watched_is_known(
    start: Start, code: grpc.StatusCode, text: str, said: str
) -> None:
    agent = AgentStandIn("a", {"x": 50.0})
    agent.refusal = (code, text)
    fleet = await start(agent)
    await until(lambda: fleet.unheard.get(agent.address) == said)


@pytest.mark.parametrize(
    ("name", "interval", "said"),
    [
        ("", 1.0, "calls the node ''"),
        ("a/b", 1.0, "calls the node 'a/b'"),
        ("a", 0.0, "reads every 0 s"),
        ("a", float("nan"), "reads every nan s"),
    ],
)
async def test_what_no_agent_says_is_not_believed(
    start: Start, name: str, interval: float, said: str
) -> None:
    agent = AgentStandIn(name, {"x": 50.0})
    agent.told_interval = interval
    fleet = await start(agent)
    await until(lambda: said in fleet.unheard.get(agent.address, ""))
    assert not fleet.nodes


async def test_two_agents_of_one_node_are_one_node_and_the_newer_one_speaks(
    start: Start, hasty: None
) -> None:
    old = AgentStandIn("a", {"x": 50.0}, {"shop/web-0": ["x"]})
    fleet = await start(old)
    await until(lambda: value(fleet, "a/x") == 50.0)
    new = AgentStandIn("a", {}, {})
    await start(new)
    await until(lambda: len(fleet.nodes["a"].reports) == 2)
    # It has not looked at its devices yet: the old one still answers.
    assert value(fleet, "a/x") == 50.0
    assert list(fleet.nodes["a"].devices) == ["a/x"]
    new.values, new.pods = {"x": 55.0}, {"shop/web-1": ["x"]}
    new.renew()
    await until(lambda: value(fleet, "a/x") == 55.0)
    assert len(fleet.nodes["a"].devices) == 1
    assert fleet.allocations("a", "shop", "web-1")
    await old.stop()
    await until(lambda: fleet.streams[old.address].state == "gone")
    assert value(fleet, "a/x") == 55.0
    assert fleet.nodes["a"].silence("a/x", time.monotonic()) is None
    assert fleet.nodes["a"].why_unknown(time.monotonic()) is None


async def test_a_node_may_have_an_agent_for_each_vendor(start: Start, hasty: None) -> None:
    green = AgentStandIn("a", {"x": 50.0}, {"shop/web-0": ["x"]})
    red = AgentStandIn("a", {"y": 20.0}, {"shop/web-0": ["y"], "shop/web-1": ["y"]}, vendor="red")
    fleet = await start(green, red)
    await until(lambda: value(fleet, "a/x") == 50.0 and value(fleet, "a/y") == 20.0)
    assert set(fleet.nodes["a"].devices) == {"a/x", "a/y"}
    held = fleet.allocations("a", "shop", "web-0")
    assert {allocation.device_id for allocation in held} == {"a/x", "a/y"}
    assert fleet.nodes["a"].holders() == {
        "a/x": ["shop/web-0"],
        "a/y": ["shop/web-0", "shop/web-1"],
    }
    await green.stop()
    await until(lambda: fleet.streams[green.address].state == "gone")
    # What only the one that is gone can tell is silent, and not forgotten; the rest goes on.
    snapshot = fleet.snapshot(["a/x", "a/y"], [MEAN])
    failure = snapshot.failure("a/x", UTILIZATION)
    assert failure is not None
    assert failure.detail.startswith("no word from the agent of a")
    assert snapshot.failure("a/y", UTILIZATION) is None
    held = fleet.allocations("a", "shop", "web-0")
    assert {allocation.device_id for allocation in held} == {"a/x", "a/y"}
    with pytest.raises(NoDataError, match="no word from the agent of a"):
        fleet.allocations("a", "shop", "web-2")


async def test_a_pod_of_the_same_name_holds_what_the_living_agent_says(
    start: Start, hasty: None
) -> None:
    devices = {"x": 50.0, "y": 20.0}
    old = AgentStandIn("a", devices, {"shop/web-0": ["x"]})
    fleet = await start(old)
    await until(lambda: "a" in fleet.nodes)
    await old.stop()
    await until(lambda: fleet.streams[old.address].state == "gone")
    await start(AgentStandIn("a", devices, {"shop/web-0": ["y"]}))
    await until(lambda: len(fleet.nodes["a"].reports) == 2)
    (held,) = fleet.allocations("a", "shop", "web-0")
    assert held.device_id == "a/y"


async def test_an_agent_at_two_addresses_is_one(start: Start, hasty: None) -> None:
    agent = AgentStandIn("a", {"x": 50.0}, {"shop/web-0": ["x"]})
    other = AgentStandIn("a", {"x": 50.0}, {"shop/web-0": ["x"]}, instance=agent.instance)
    fleet = await start(agent, other)
    await until(lambda: len(fleet.nodes["a"].reports if fleet.nodes else ()) == 2)
    await until(lambda: value(fleet, "a/x") == 50.0)
    assert len(fleet.nodes["a"].devices) == len(fleet.allocations("a", "shop", "web-0")) == 1
    for each in (agent, other):
        await each.stop()
        await until(lambda: fleet.streams[each.address].state == "gone")  # noqa: B023
        assert fleet.nodes["a"].live
        await each.start()
        await until(lambda: fleet.streams[each.address].state == "connected")  # noqa: B023
    assert len(fleet.nodes["a"].reports) == 2


async def test_an_agent_that_starts_again_and_again_fills_no_memory(
    start: Start, hasty: None
) -> None:
    agent = AgentStandIn("a", {"x": 50.0})
    fleet = await start(agent)
    await until(lambda: "a" in fleet.nodes)
    for number in range(20):
        agent.instance = f"again-{number}"
        agent.values = {}
        agent.renew()
        await until(lambda: fleet.nodes["a"].reports[0].inventory.instance == agent.instance)
        fleet.nodes["a"].reports[0].live = False
    assert len(fleet.nodes["a"].reports) <= node.MOST_REPORTS
    assert list(fleet.nodes["a"].devices) == ["a/x"]


async def test_an_agent_that_starts_anew_at_its_address_counts_once(
    start: Start, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "SWEEP", 0.05)
    monkeypatch.setattr(node, "FORGET_REPLACED", 0.3)
    agent = AgentStandIn("a", {"x": 50.0, "y": 10.0})
    fleet = await start(agent)
    await until(lambda: value(fleet, "a/x") == 50.0)
    await agent.stop()
    again = AgentStandIn("a", {"x": 60.0})
    again.address = agent.address
    await start(again)
    await until(lambda: value(fleet, "a/x") == 60.0)
    # A device that only the old one knew is silent for a while, and then forgotten.
    assert set(fleet.nodes["a"].devices) <= {"a/x", "a/y"}
    await until(lambda: list(fleet.nodes["a"].devices) == ["a/x"])
    assert len(fleet.nodes["a"].reports) == 1


async def test_a_node_is_forgotten_long_after_its_agent_went(
    start: Start, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "SWEEP", 0.05)
    monkeypatch.setattr(node, "FORGET_NODE", 0.5)
    agent = AgentStandIn("a", {"x": 50.0})
    fleet = await start(agent)
    await until(lambda: value(fleet, "a/x") == 50.0)
    fleet.set_addresses([])
    await asyncio.sleep(0.3)
    assert value(fleet, "a/x") == 50.0  # not named any more, yet alive
    await agent.stop()
    await until(lambda: not fleet.nodes and not fleet.streams)
    found = look(fleet, "a/x")
    assert isinstance(found, Failure)
    assert found.detail == "no agent of a was heard"
    with pytest.raises(NoDataError, match="no agent of a was heard"):
        fleet.allocations("a", "shop", "web-0")


async def test_an_address_that_is_named_again_is_kept(start: Start, hasty: None) -> None:
    agent = AgentStandIn("a", {"x": 50.0})
    fleet = await start(agent)
    await until(lambda: value(fleet, "a/x") == 50.0)
    fleet.set_addresses([])
    fleet.set_addresses([agent.address])
    await agent.stop()
    await until(lambda: fleet.streams[agent.address].state == "gone")
    await agent.start()
    await until(lambda: fleet.streams[agent.address].state == "connected")
    await agent.stop()
    fleet.set_addresses([])
    await until(lambda: fleet.streams[agent.address].state == "gone")
    await asyncio.sleep(0.1)
    await agent.start()
    fleet.set_addresses([agent.address])
    await until(lambda: fleet.streams[agent.address].state == "connected")


async def test_a_pod_that_the_kubelet_does_not_list_is_given_some_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "NOT_YET_LISTED", 0.3)
    agent = AgentStandIn("a", {"x": 50.0}, {"shop/web-0": ["x"]})
    fleet = await start(agent)
    await until(lambda: "a" in fleet.nodes)
    (held,) = fleet.allocations("a", "shop", "web-0")
    assert (held.device_id, held.node, held.container) == ("a/x", "a", "main")
    with pytest.raises(NoDataError, match="the kubelet of a does not list the pod yet"):
        fleet.allocations("a", "shop", "web-1")
    await asyncio.sleep(0.35)
    assert fleet.allocations("a", "shop", "web-1") == ()


async def test_why_allocations_are_not_known_is_told(start: Start) -> None:
    agent = AgentStandIn("a", {"x": 50.0})
    agent.problem = "kubelet.sock: permission denied"
    fleet = await start(agent)
    await until(lambda: "a" in fleet.nodes)
    with pytest.raises(NoDataError, match=r"a cannot tell .*: kubelet\.sock: permission denied"):
        fleet.allocations("a", "shop", "web-0")


async def test_a_device_that_the_agent_does_not_list_is_lost(start: Start) -> None:
    agent = AgentStandIn("a", {"x": 50.0})
    fleet = await start(agent)
    await until(lambda: value(fleet, "a/x") == 50.0)
    found = look(fleet, "a/y")
    assert isinstance(found, Failure)
    assert found.reason is Reason.LOST


async def test_who_subscribed_is_told_of_news(start: Start) -> None:
    fleet = await start(AgentStandIn("a", {"x": 50.0}))
    calls: list[int] = []
    unsubscribe = fleet.subscribe(lambda: calls.append(fleet.sequence))
    await until(lambda: len(calls) >= 5)
    assert calls == sorted(set(calls))
    unsubscribe()
    count = len(calls)
    await asyncio.sleep(0.1)
    assert len(calls) == count


async def test_the_age_limit_follows_the_slowest_node_that_is_looked_at(start: Start) -> None:
    fast, slow = AgentStandIn("a", {"x": 1.0}), AgentStandIn("b", {"x": 1.0})
    slow.told_interval = 10.0
    fleet = await start(fast, slow)
    await until(lambda: len(fleet.nodes) == 2)
    assert fleet.snapshot(["a/x"], [MEAN]).interval_of(UTILIZATION) == 1.0
    assert fleet.snapshot(["a/x", "b/x"], [MEAN]).interval_of(UTILIZATION) == 10.0
    assert fleet.snapshot([], [MEAN]).interval_of(UTILIZATION) == 1.0


async def test_nothing_is_left_behind(start: Start) -> None:
    agents = [AgentStandIn(f"n{n}", {"x": 50.0}) for n in range(5)]
    fleet = await start(*agents)
    await until(lambda: len(fleet.nodes) == 5)
    await fleet.close()
    await until(lambda: sum(agent.streams for agent in agents) == 0)
