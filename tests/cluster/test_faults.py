"""Faults of whole nodes, with real processes: a fault never looks like an idle fleet.

One town serves all tests: each leaves it as it was, which is to say recovered.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from attrs import frozen

from cluster.town import Keda, Town
from drivers.build import compile_library
from kubernetes.api_server import ApiServerStandIn

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODES = ("node-a", "node-b", "node-c")
PODS = 6
STARTING = {"ready": False, "ready_since": "2026-01-31T12:00:00Z"}


@frozen
class Scene:
    """A town of three nodes that a Deployment of six pods keeps busy, and its two scalers."""

    town: Town
    addresses: tuple[str, ...]
    clock_step: Path
    environ: dict[str, str]

    @property
    def api(self) -> ApiServerStandIn:
        """The API server."""
        return self.town.api

    def load(self, value: float) -> None:
        """Make all devices this busy."""
        for machine in self.town.machines.values():
            machine.load(value)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """The town, from the first test to the last."""
    folder = tmp_path_factory.mktemp("town")
    sockets = Path(tempfile.mkdtemp(prefix="accelscale-"))
    shim = compile_library(Path(__file__).parent / "clock", folder / "clock", "clock.so")
    step = folder / "step"
    step.write_text("0")
    environ = {"LD_PRELOAD": str(shim), "CLOCK_STEP_FILE": str(step)}
    api = ApiServerStandIn(folder)
    api.start()
    town = Town(api, folder, sockets, environ)
    try:
        await town.build(*NODES, load=90.0)
        town.deploy("web", *NODES, pods=PODS)
        addresses = await asyncio.gather(*(town.scale(f"scaler-{n}") for n in range(2)))
        yield Scene(town, tuple(addresses), step, environ)
    finally:
        await town.close()
        api.stop()
        shutil.rmtree(sockets)


def never_scaled_in(keda: Keda, since: float, least: int = PODS) -> None:
    """Nothing that was said asks for fewer replicas, or calls the workload idle."""
    said = keda.since(since)
    assert said
    for each in said:
        asked = each.asked(PODS)
        assert asked is None or asked >= least, each
        assert each.active is not False, each
        assert not each.error or each.error.startswith("UNAVAILABLE"), each


@pytest.mark.parametrize("load", [90.0, 60.0])
async def test_killed_agents_are_held_and_come_back(scene: Scene, load: float) -> None:
    scene.load(load)
    machines = scene.town.machines
    async with Keda("web", scene.addresses) as keda:
        await keda.until_value(load * PODS)
        begun = time.monotonic()
        machines["node-b"].agent.end(signal.SIGKILL)
        await keda.until_held()
        await asyncio.sleep(1.0)
        expected = 70.0 * PODS if load > 70 else load * 4 + 70.0 * 2
        assert {each.value for each in keda.seen[-4:]} == {expected}
        # A second one: most of the pods are silent, and there is no number any more.
        machines["node-c"].agent.end(signal.SIGKILL)
        await keda.until_held()
        await asyncio.sleep(0.5)
        assert "no word from the agent of node-" in keda.seen[-1].error
        await asyncio.gather(*(machines[name].start() for name in ("node-b", "node-c")))
        await keda.until_value(load * PODS)
        never_scaled_in(keda, begun)


async def test_a_node_that_is_cut_off_is_held_and_comes_back(scene: Scene) -> None:
    scene.load(90.0)
    proxy = scene.town.machines["node-b"].proxy
    async with Keda("web", scene.addresses) as keda:
        await keda.until_value(540.0)
        begun = time.monotonic()
        for seconds in (0.5, 8.0):  # before and after the stream counts as dead
            proxy.cut()
            await keda.until_held()
            await asyncio.sleep(seconds)
            assert {each.value for each in keda.seen[-4:]} == {420.0}
            proxy.heal()
            await keda.until_value(540.0)
        never_scaled_in(keda, begun)
    assert "nothing was heard for 8 s" in scene.town.scalers["scaler-0"].log.read_text()


async def test_what_a_cut_off_node_sent_before_is_not_taken_for_news(scene: Scene) -> None:
    scene.load(90.0)
    machine = scene.town.machines["node-b"]
    async with Keda("web", scene.addresses) as keda:
        await keda.until_value(540.0)
        machine.proxy.cut()
        await keda.until_held()
        machine.load(100.0)
        await asyncio.sleep(2.0)
        healed = time.monotonic()
        machine.proxy.heal()  # what lay in buffers comes first
        await keda.until_value(560.0)
        values = [each.value for each in keda.since(healed)]
        assert all(value is not None and (value == 420.0 or value > 540.0) for value in values)


async def test_the_api_server_may_be_away(scene: Scene) -> None:
    scene.load(90.0)
    async with Keda("web", scene.addresses) as keda:
        await keda.until_value(540.0)
        begun = time.monotonic()
        scene.api.go_away()
        await asyncio.sleep(3.0)
        scene.town.machines["node-a"].load(100.0)  # the numbers go on
        await keda.until_value(560.0)
        scene.town.place("web-6", "node-c")
        scene.api.come_back()
        await keda.until_value(650.0)
        never_scaled_in(keda, begun)
        assert not any(each.error for each in keda.since(begun))
        scene.town.remove("web-6", "node-c")
        await keda.until_value(560.0)


async def test_a_kubelet_may_start_anew(scene: Scene) -> None:
    scene.load(90.0)
    async with Keda("web", scene.addresses) as keda:
        await keda.until_value(540.0)
        begun = time.monotonic()
        kubelet = scene.town.machines["node-b"].kubelet
        kubelet.stop()
        await asyncio.sleep(1.0)
        kubelet.start()
        scene.town.place("web-6", "node-b")
        await keda.until_value(630.0)
        never_scaled_in(keda, begun)
        assert not any(each.error for each in keda.since(begun))
        scene.town.remove("web-6", "node-b")
        await keda.until_value(540.0)


async def test_wall_clocks_may_be_stepped(scene: Scene) -> None:
    scene.load(90.0)
    async with Keda("web", scene.addresses) as keda:
        await keda.until_value(540.0)
        begun = time.monotonic()
        for seconds in (86400, -86400, 3600 * 24 * 365):
            scene.clock_step.write_text(str(seconds))
            await asyncio.sleep(0.6)
        code = [sys.executable, "-c", "import time; print(time.time())"]
        environ = {**os.environ, **scene.environ}
        stepped = await asyncio.to_thread(
            subprocess.run, code, env=environ, capture_output=True, text=True
        )
        assert float(stepped.stdout) - time.time() > 3600 * 24 * 364  # it did step
        scene.town.machines["node-a"].load(100.0)
        await keda.until_value(560.0)
        never_scaled_in(keda, begun)
        assert not any(each.error for each in keda.since(begun))


async def test_a_scaler_that_starts_anew_is_right_at_once(scene: Scene) -> None:
    scene.load(90.0)
    first, second = scene.addresses
    async with Keda("web", scene.addresses) as keda:
        await keda.until_value(540.0)
        begun = time.monotonic()
        scene.town.scalers["scaler-0"].end(signal.SIGKILL)
        await scene.town.scale("scaler-0", int(first.rpartition(":")[2]))
        await keda.until_value(540.0)
        # The first number that it gives is the right one.
        said = next(e for e in keda.since(begun) if e.address == first and e.value is not None)
        assert said.value == 540.0
        never_scaled_in(keda, begun)
        assert {each.value for each in keda.since(begun) if each.address == second} == {540.0}


async def test_pods_may_come_and_go(scene: Scene) -> None:
    scene.load(90.0)
    async with Keda("web", scene.addresses) as keda:
        await keda.until_value(540.0)
        begun = time.monotonic()
        for number in range(12):
            old, new, node = f"web-{number}", f"web-{number + PODS}", NODES[number % 3]
            scene.town.remove(old, node)
            scene.town.place(new, node, **STARTING)
            await asyncio.sleep(0.2)
            scene.town.become(new, node)
            await asyncio.sleep(0.1)
        await keda.until_value(540.0)
        never_scaled_in(keda, begun)
        # As it was.
        for number in range(PODS):
            scene.town.remove(f"web-{number + 12}", NODES[number % 3])
            scene.town.place(f"web-{number}", NODES[number % 3])
        await keda.until_value(540.0)
