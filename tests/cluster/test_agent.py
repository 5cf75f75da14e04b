"""The stream of an agent, watched as a scaler watches it."""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from pathlib import Path

import grpc
import pytest

from accelscale.model import Reason
from accelscale.testing import FakeBackend
from accelscale_server._proto.accelscale.v1 import agent_pb2 as pb
from accelscale_server._proto.accelscale.v1.agent_pb2_grpc import AgentStub
from accelscale_server.agent import node_name
from accelscale_server.config import AgentConfig, load
from accelscale_server.packing import COVERED, MOST_SERIES, SHARED
from cluster.kubelet_stand_in import claim, pod
from cluster.watch import Watch

UTILIZATION = "utilization_percent"
LAST = (1, UTILIZATION, 0.2, "last")
CARD = "fake.example/card"


def two_cards() -> FakeBackend:
    return FakeBackend({"a": {UTILIZATION: 60.0}, "b": {UTILIZATION: 20.0}})


def held(watch) -> list[tuple[str, str, str]]:
    return [(each.namespace, each.pod, each.device_id) for each in watch.inventory.allocations]


async def test_the_inventory_comes_first_and_once(start_agent, kubelet_stand_in) -> None:
    kubelet_stand_in.pods = (pod("web-0", (CARD, ["a"])),)
    kubelet_stand_in.start()
    agent = await start_agent(two_cards())
    watch = agent.watch()
    first = await watch.next()
    assert first.HasField("inventory")
    await watch.until(lambda w: len(w.inventory.devices) == 2 and held(w))
    inventory = watch.inventory
    assert (inventory.node, inventory.interval_seconds) == ("node-a", 0.05)
    assert inventory.instance
    assert [(d.id, d.name, d.vendor, d.backend) for d in inventory.devices] == [
        ("a", "Fake a", "fake", "fake"),
        ("b", "Fake b", "fake", "fake"),
    ]
    assert held(watch) == [("shop", "web-0", "a")]
    assert inventory.allocations_problem == ""
    for _ in range(5):
        message = await watch.next()
        assert not message.HasField("inventory")
        assert message.values.inventory == inventory.revision


async def test_values_come_on_every_pass_with_times_of_one_clock(start_agent) -> None:
    fake = two_cards()
    agent = await start_agent(fake)
    watch = agent.watch()
    await watch.ask(LAST, (7, UTILIZATION, 0.3, "mean"))
    await watch.until(lambda w: w.value(1, "a") == 60.0 and w.value(7, "b") == 20.0)
    fake.set("a", UTILIZATION, 90.0)
    await watch.until(lambda w: w.value(1, "a") == 90.0)
    before = watch.values.sent_at
    await watch.next()
    assert before < watch.values.sent_at <= time.monotonic()
    series = watch.series(1)
    ages = [watch.values.sent_at - sampled_at for sampled_at in series.sampled_at]
    assert all(0 <= age < 5 for age in ages)
    await watch.until(lambda w: list(w.series(1).flags) == [COVERED, COVERED])
    await watch.until(lambda w: w.value(7, "a") == 90.0)  # the window has passed


async def test_an_idle_verdict_needs_a_history_that_covers_the_window(start_agent) -> None:
    agent = await start_agent(two_cards())
    watch = agent.watch()
    await watch.ask((1, UTILIZATION, 3600.0, "max"), (2, UTILIZATION, 0.2, "max"))
    await watch.until(lambda w: w.series(2) and list(w.series(2).flags) == [COVERED, COVERED])
    assert list(watch.series(1).flags) == [0, 0]


async def test_a_request_replaces_the_list_of_the_one_before(start_agent) -> None:
    agent = await start_agent(two_cards())
    watch, other = agent.watch(), agent.watch()
    await other.ask((5, UTILIZATION, 15.0, "last"))
    await watch.ask(LAST)
    await watch.until(lambda w: w.value(1, "a") == 60.0)
    await watch.ask((2, UTILIZATION, 15.0, "max"))
    await watch.until(lambda w: w.value(2, "a") == 60.0)
    assert watch.series(1) is None
    await watch.ask()
    await watch.until(lambda w: not w.values.series)
    await other.until(lambda w: w.value(5, "a") == 60.0)
    assert other.series(2) is None


async def test_a_new_request_is_answered_at_once(start_agent) -> None:
    """With passes a minute apart, what is known already does not wait for the next one."""
    agent = await start_agent(two_cards(), interval=60.0)
    assert await asyncio.to_thread(agent.monitor.wait, 10.0)
    watch = agent.watch()
    await watch.next()
    for number in range(1, 4):
        await watch.ask((number, UTILIZATION, 15.0, "last"))
        await watch.until(lambda w, number=number: w.value(number, "b") == 20.0)


async def test_a_scaler_that_asks_no_more_still_hears(start_agent) -> None:
    fake = two_cards()
    agent = await start_agent(fake)
    watch = agent.watch()
    await watch.ask(LAST)
    await watch.call.done_writing()
    await watch.until(lambda w: w.value(1, "a") == 60.0)
    fake.set("a", UTILIZATION, 70.0)
    await watch.until(lambda w: w.value(1, "a") == 70.0)


@pytest.mark.parametrize(
    ("metric", "window", "statistic", "detail"),
    [
        ("tomorrows_metric", 15.0, "mean", "no metric 'tomorrows_metric'"),
        ("energy_joules_total", 15.0, "mean", "running total"),
        (UTILIZATION, 15.0, "median", "the statistic must be one of"),
        (UTILIZATION, 15.0, "sum", "the statistic must be one of"),
        (UTILIZATION, 15.0, "", "the statistic must be one of"),
        (UTILIZATION, 1e9, "mean", "a window must be 0 to 21600 s"),
        (UTILIZATION, -1.0, "mean", "a window must be"),
        (UTILIZATION, float("nan"), "mean", "a window must be"),
        ("x" * 5000, 15.0, "mean", "no metric 'xxxx"),
    ],
)
async def test_a_series_that_nobody_can_give_is_absent_on_every_device(
    start_agent, metric: str, window: float, statistic: str, detail: str
) -> None:
    agent = await start_agent(two_cards())
    watch = agent.watch()
    await watch.ask((3, metric, window, statistic), LAST)
    await watch.until(lambda w: w.value(1, "b") == 20.0)
    for device in ("a", "b"):
        absence = watch.absence(3, device)
        assert absence.reason == Reason.NOT_SUPPORTED
        assert detail in absence.detail
        assert not absence.permanent  # another agent may know it: nobody may leave this one out
        assert len(absence.detail) < 300
    assert watch.value(3, "a") is None


async def test_the_number_of_series_is_bounded(start_agent) -> None:
    agent = await start_agent(two_cards())
    watch = agent.watch()
    await watch.ask(*((n, UTILIZATION, 1.0 + n, "max") for n in range(MOST_SERIES + 2)))
    await watch.until(lambda w: w.value(MOST_SERIES - 1, "a") == 60.0)
    assert len(watch.values.series) == MOST_SERIES + 2
    assert "more than" in watch.absence(MOST_SERIES, "a").detail


async def test_what_cannot_be_read_is_absent_with_its_reason(start_agent) -> None:
    fake = two_cards()
    agent = await start_agent(fake)
    watch = agent.watch()
    await watch.ask(LAST, (2, "power_watts", 15.0, "mean"))
    await watch.until(lambda w: w.value(1, "a") == 60.0)
    unsupported = watch.absence(2, "a")
    assert (unsupported.reason, unsupported.permanent) == ("not_supported", True)
    fake.lose("a", detail="Xid 79")
    await watch.until(lambda w: w.absence(1, "a") is not None)
    absence = watch.absence(1, "a")
    assert (absence.reason, absence.detail, absence.permanent) == ("lost", "Xid 79", False)
    assert 0 < absence.sampled_at <= watch.values.sent_at
    assert watch.value(1, "b") == 20.0
    fake.restore("a")
    await watch.until(lambda w: w.value(1, "a") == 60.0)


async def test_a_changed_inventory_is_told_at_once(start_agent, kubelet_stand_in) -> None:
    kubelet_stand_in.start()
    agent = await start_agent(two_cards(), interval=60.0)
    assert await asyncio.to_thread(agent.monitor.wait, 10.0)
    watch = agent.watch()
    await watch.until(lambda w: len(w.inventory.devices) == 2)
    await watch.until(lambda w: w.inventory.allocations_problem == "")
    revision = watch.inventory.revision
    kubelet_stand_in.pods = (
        pod("a-0", (CARD, ["a"]), ("vendor.example/nic", ["0"]), namespace="n1"),
        pod("b-0", (CARD, ["b", "gone"]), claims=[claim("d.example", "node-a", "gpu-0")]),
    )
    await watch.until(held)
    assert watch.inventory.revision > revision
    assert watch.values.inventory == watch.inventory.revision
    assert held(watch) == [
        ("n1", "a-0", "a"),
        ("shop", "b-0", ""),
        ("shop", "b-0", "b"),
        ("shop", "b-0", ""),
    ]
    of_claim, known, unknown = list(watch.inventory.allocations)[1:]
    assert (of_claim.claim.driver, of_claim.claim.pool, of_claim.claim.device) == (
        "d.example",
        "node-a",
        "gpu-0",
    )
    assert not of_claim.resource
    assert not known.HasField("claim")
    assert (unknown.resource, unknown.allocated_id) == (CARD, "gone")


async def test_devices_that_appear_later_resolve_what_was_listed_before(
    start_agent, kubelet_stand_in, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet_stand_in.pods = (pod("web-0", (CARD, ["late"])), pod("web-1", (CARD, ["never"])))
    kubelet_stand_in.start()
    fake = two_cards()
    agent = await start_agent(fake)
    watch = agent.watch()
    await watch.until(lambda w: held(w) == [("shop", "web-0", ""), ("shop", "web-1", "")])
    fake.add("late", {UTILIZATION: 5.0})
    fake.lose("a")  # which makes the collector look again at once
    fake.fail("b", UTILIZATION, Reason.LOST)
    await watch.until(lambda w: held(w)[0] == ("shop", "web-0", "late"))
    for _ in range(5):
        await watch.next()
    unknown = [r.id for r in caplog.records if "no known device" in r.getMessage()]
    assert sorted(unknown) == ["late", "never"]  # each once


async def test_a_device_that_pods_share_is_marked(start_agent, kubelet_stand_in) -> None:
    class Sliced(FakeBackend):
        def device_of(self, allocated_id, devices):
            return super().device_of(allocated_id.partition("::")[0], devices)

    kubelet_stand_in.pods = (pod("web-0", (CARD, ["a::0"])), pod("web-1", (CARD, ["a::1"])))
    kubelet_stand_in.start()
    agent = await start_agent(Sliced({"a": {UTILIZATION: 60.0}, "b": {UTILIZATION: 20.0}}))
    watch = agent.watch()
    await watch.ask(LAST)
    await watch.until(lambda w: w.series(1) and list(w.series(1).flags) == [COVERED | SHARED, 1])
    kubelet_stand_in.pods = kubelet_stand_in.pods[:1]
    await watch.until(lambda w: list(w.series(1).flags) == [COVERED, COVERED])


async def test_unknown_allocations_are_a_problem_and_the_devices_are_told_all_the_same(
    start_agent, kubelet_stand_in
) -> None:
    agent = await start_agent(two_cards())
    watch = agent.watch()
    await watch.ask(LAST)
    await watch.until(lambda w: w.value(1, "a") == 60.0)
    await watch.until(lambda w: "no such socket" in w.inventory.allocations_problem)
    assert str(kubelet_stand_in.socket) in watch.inventory.allocations_problem
    assert not watch.inventory.allocations
    kubelet_stand_in.start()
    await watch.until(lambda w: w.inventory.allocations_problem == "")


async def test_a_claim_that_nobody_resolves_hides_no_device(start_agent, kubelet_stand_in) -> None:
    kubelet_stand_in.pods = (pod("web-0", claims=[claim("d.example", "node-a", "gpu-0")]),)
    kubelet_stand_in.start()
    agent = await start_agent(FakeBackend({f"card-{n}": {UTILIZATION: 1.0} for n in range(8)}))
    watch = agent.watch()
    await watch.ask(LAST)
    await watch.until(lambda w: held(w) and w.series(1) and len(w.series(1).device) == 8)
    assert held(watch) == [("shop", "web-0", "")]


async def test_a_driver_that_is_away_is_told_with_its_reason(start_agent) -> None:
    broken = FakeBackend(name="broken")
    broken.break_probe("no library libbroken.so")
    agent = await start_agent(two_cards(), broken)
    watch = agent.watch()
    await watch.until(lambda w: "broken" in w.inventory.problems)
    assert "no library" in watch.inventory.problems["broken"]


async def test_a_hanging_driver_leaves_values_that_grow_old(start_agent) -> None:
    fake = FakeBackend({"a": {UTILIZATION: 60.0}}, isolates_devices=False)
    agent = await start_agent(fake, deadline=60.0)
    watch = agent.watch()
    await watch.ask(LAST)
    await watch.until(lambda w: w.value(1, "a") == 60.0)
    fake.hang("a")
    await watch.until(lambda w: w.absence(1, "a") is not None)  # though no pass has ended
    assert watch.absence(1, "a").reason == "stale"
    (sampled_at,) = watch.series(1).sampled_at
    assert watch.values.sent_at - sampled_at > 5


async def test_a_value_that_still_counts_says_why_there_is_no_newer_one(start_agent) -> None:
    fake = two_cards()
    agent = await start_agent(fake)
    watch = agent.watch()
    await watch.ask(LAST)
    await watch.until(lambda w: w.value(1, "a") == 60.0)
    fake.fail("a", UTILIZATION, Reason.TIMEOUT, detail="slow")
    await watch.until(lambda w: w.absence(1, "a") is not None)
    assert (watch.value(1, "a"), watch.absence(1, "a").reason) == (60.0, "timeout")
    fake.fail("a", UTILIZATION, Reason.PERMISSION, detail="no")
    await watch.until(lambda w: w.value(1, "a") is None)
    assert watch.absence(1, "a").reason == "permission"


async def test_a_failing_backend_makes_no_traffic_of_its_own(start_agent) -> None:
    broken = FakeBackend(name="broken")
    broken.break_probe("no library")
    agent = await start_agent(two_cards(), broken, interval=60.0)
    assert await asyncio.to_thread(agent.monitor.wait, 10.0)
    watch = agent.watch()
    await watch.until(lambda w: w.inventory.problems)
    count = agent.monitor.sequence
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(watch.call.read(), 3)
    assert agent.monitor.sequence > count


async def test_a_slow_scaler_gets_the_newest_and_no_queue(start_agent) -> None:
    fake = FakeBackend({f"card-{n}": {UTILIZATION: 1.0} for n in range(50)})
    agent = await start_agent(fake)
    narrow = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536)]
    async with grpc.aio.insecure_channel(str(agent.server.address), options=narrow) as channel:
        watch = Watch(AgentStub(channel).Watch())
        asked = [(n, UTILIZATION, 10.0 + n, "max") for n in range(100)]  # 100 kB a message
        await watch.ask(*asked)
        await watch.until(lambda w: w.value(99, "card-49") == 1.0)
        passes = agent.monitor.states()[0].collections
        await collections(agent, passes + 20)  # which nobody reads
        fake.set("card-0", UTILIZATION, 50.0)
        await collections(agent, passes + 22)
        messages = 0
        while watch.value(0, "card-0") != 50.0:
            await watch.next()
            messages += 1
        assert messages < 10


async def collections(agent, number: int) -> None:
    async with asyncio.timeout(20):
        while agent.monitor.states()[0].collections < number:  # noqa: ASYNC110 - a counter
            await asyncio.sleep(0.01)


async def test_streams_are_bounded(start_agent) -> None:
    agent = await start_agent(two_cards(), max_streams=2)
    watches = [agent.watch() for _ in range(2)]
    for watch in watches:
        await watch.next()
    one_too_many = agent.watch()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await one_too_many.next()
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    watches[0].call.cancel()
    async with asyncio.timeout(10):
        while True:
            again = agent.watch()
            try:
                await again.next()
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.05)
            else:
                break


async def test_streams_end_with_ok_when_the_agent_stops(start_agent) -> None:
    agent = await start_agent(two_cards())
    watch = agent.watch()
    await watch.ask(LAST)
    await watch.until(lambda w: w.value(1, "a") == 60.0)
    await agent.server.stop(5.0)
    async with asyncio.timeout(10):
        while await watch.call.read() is not grpc.aio.EOF:
            pass
        assert await watch.call.code() is grpc.StatusCode.OK


async def test_a_scaler_that_leaves_leaves_nothing(
    start_agent, caplog: pytest.LogCaptureFixture
) -> None:
    agent = await start_agent(two_cards())
    for _ in range(20):
        watch = agent.watch()
        await watch.ask(LAST)
        await watch.next()
        watch.call.cancel()
    packing = agent.server._parts.services[0].servicer._packing
    async with asyncio.timeout(10):
        while packing._interest:  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.02)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_two_agents_on_one_node_can_be_told_apart(start_agent) -> None:
    watches = [(await start_agent(two_cards())).watch() for _ in range(2)]
    for watch in watches:
        await watch.next()
    first, second = watches
    assert first.inventory.node == second.inventory.node
    assert first.inventory.instance != second.inventory.instance


def test_the_message_of_a_pass_is_small() -> None:
    values = pb.SeriesValues(
        id=3,
        device=range(8),
        value=[50.0] * 8,
        sampled_at=[1e6] * 8,
        flags=[COVERED] * 8,
    )
    assert values.ByteSize() < 8 * 20


def test_options_come_from_the_environment_of_a_pod() -> None:
    environ = {"ACCELSCALE_NODE_NAME": "node-7", "ACCELSCALE_POD_RESOURCES_SOCKET": "/var/k.sock"}
    config = load(AgentConfig, {}, environ)
    assert (node_name(config), config.pod_resources_socket) == ("node-7", Path("/var/k.sock"))
    assert (config.listen.port, config.max_streams) == (6001, 64)
    assert node_name(AgentConfig()) == platform.node()
