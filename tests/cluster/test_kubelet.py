"""The kubelet over a real unix socket: asked seldom, believed for a while, survived always."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from accelscale_server import kubelet as kubelet_module
from accelscale_server.kubelet import Kubelet, why_unreachable
from cluster.kubelet_stand_in import KubeletStandIn, pod

GPU = "nvidia.com/gpu"
PERIOD = 0.05


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)


@asynccontextmanager
async def asking(stand_in: KubeletStandIn, *, period: float = PERIOD, max_age: float = 300.0):
    """A kubelet client that runs; ``changes`` counts its calls of ``changed``."""
    changes: list[int] = []
    kubelet = Kubelet(
        stand_in.socket,
        "node-a",
        lambda resource: resource.startswith("nvidia.com/"),
        lambda: changes.append(kubelet.revision),
        period=period,
        max_age=max_age,
    )
    kubelet.changes = changes  # type: ignore[attr-defined]
    running = asyncio.create_task(kubelet.run())
    try:
        yield kubelet
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def held(kubelet: Kubelet) -> list[tuple[str, str]]:
    return [(each.pod, each.allocated_id) for each in kubelet.allocations]


async def more_calls(stand_in: KubeletStandIn, number: int) -> None:
    seen = len(stand_in.calls)
    await until(lambda: len(stand_in.calls) >= seen + number)


async def test_allocations_follow_the_kubelet(kubelet_stand_in: KubeletStandIn) -> None:
    kubelet_stand_in.pods = (pod("a", (GPU, ["GPU-1"])), pod("n", ("vendor.example/nic", ["0"])))
    kubelet_stand_in.start()
    async with asking(kubelet_stand_in) as kubelet:
        await until(lambda: kubelet.problem is None)
        assert held(kubelet) == [("a", "GPU-1")]
        kubelet_stand_in.pods = (pod("a", (GPU, ["GPU-1"])), pod("b", (GPU, ["GPU-2"])))
        await until(lambda: held(kubelet) == [("a", "GPU-1"), ("b", "GPU-2")])
        kubelet_stand_in.pods = ()
        await until(lambda: not kubelet.allocations)
        assert kubelet.problem is None  # nothing is held: that is known


async def test_only_changes_are_told(kubelet_stand_in: KubeletStandIn) -> None:
    pods = [pod(f"p-{n}", (GPU, [f"GPU-{n}", f"GPU-{n}0"])) for n in range(4)]
    kubelet_stand_in.pods = tuple(pods)
    kubelet_stand_in.start()
    async with asking(kubelet_stand_in) as kubelet:
        await until(lambda: kubelet.problem is None)
        kubelet_stand_in.pods = tuple(reversed(pods))  # as Go's maps have it
        await more_calls(kubelet_stand_in, 4)
        assert kubelet.changes == [1]
        kubelet_stand_in.pods = tuple(pods[1:])
        await until(lambda: len(kubelet.allocations) == 6)
        assert kubelet.changes == [1, 2]


async def test_a_refusing_kubelet_is_asked_less_and_less_and_its_last_word_counts(
    kubelet_stand_in: KubeletStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet_stand_in.pods = (pod("a", (GPU, ["GPU-1"])),)
    kubelet_stand_in.start()
    async with asking(kubelet_stand_in) as kubelet:
        await until(lambda: kubelet.problem is None)
        kubelet_stand_in.refuse()
        await more_calls(kubelet_stand_in, 5)
        assert held(kubelet) == [("a", "GPU-1")]
        assert kubelet.problem is None
        assert "rate limit" in str(kubelet.trouble)
        before, last = kubelet_stand_in.calls[-2:]
        assert last - before > 0.9 * PERIOD * 2**3  # at least three refusals came before
        warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert len(warnings) == 1  # not one for each refusal
        kubelet_stand_in.behave()
        await until(lambda: kubelet.trouble is None)
        assert kubelet.changes == [1]
        assert kubelet.lists["RESOURCE_EXHAUSTED"] >= 5


async def test_what_is_too_old_is_unknown_and_not_nothing(kubelet_stand_in: KubeletStandIn) -> None:
    kubelet_stand_in.pods = (pod("a", (GPU, ["GPU-1"])),)
    kubelet_stand_in.start()
    async with asking(kubelet_stand_in, max_age=0.5) as kubelet:
        await until(lambda: kubelet.problem is None)
        kubelet_stand_in.refuse()
        await until(lambda: kubelet.trouble)
        assert held(kubelet) == [("a", "GPU-1")]
        await until(lambda: kubelet.problem)
        assert kubelet.allocations == ()
        assert "rate limit" in str(kubelet.problem)
        kubelet_stand_in.behave()
        await until(lambda: kubelet.problem is None)
        assert held(kubelet) == [("a", "GPU-1")]
        assert kubelet.changes == [1, 2, 3]


async def test_pauses_are_bounded_and_end_when_the_last_word_does() -> None:
    kubelet = Kubelet(Path("/none"), "n", lambda _: True, lambda: None, period=10.0, max_age=300.0)
    assert kubelet._pause() == 10.0
    kubelet._refusals = 40
    assert kubelet._pause() == kubelet_module.MOST_PAUSE
    kubelet._took(())
    kubelet._refusals = 40
    kubelet.answered -= 270.0
    assert 25.0 < kubelet._pause() <= 30.0  # asked once more before it becomes unknown
    kubelet.answered -= 25.0
    assert kubelet._pause() == 10.0  # but never more often than the period


async def test_a_reply_larger_than_grpc_takes_by_itself(kubelet_stand_in: KubeletStandIn) -> None:
    nics = [f"{n:032}" for n in range(170_000)]
    kubelet_stand_in.pods = (pod("a", ("vendor.example/nic", nics), (GPU, ["GPU-1"])),)
    kubelet_stand_in.start()
    async with asking(kubelet_stand_in) as kubelet:
        await until(lambda: kubelet.problem is None)
        assert held(kubelet) == [("a", "GPU-1")]
    assert kubelet_stand_in.pods[0].ByteSize() > 5_300_000


async def test_a_reply_beyond_the_limit_says_so(
    kubelet_stand_in: KubeletStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet_module, "LARGEST_REPLY", 1000)
    kubelet_stand_in.pods = (pod("a", (GPU, ["G" * 2000])),)
    kubelet_stand_in.start()
    async with asking(kubelet_stand_in) as kubelet:
        await until(lambda: "larger than 1000 bytes" in str(kubelet.problem))


async def test_a_hanging_kubelet_is_given_up_and_asked_again(
    kubelet_stand_in: KubeletStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet_module, "PATIENCE", 0.3)
    kubelet_stand_in.pods = (pod("a", (GPU, ["GPU-1"])),)
    kubelet_stand_in.hang()
    kubelet_stand_in.start()
    async with asking(kubelet_stand_in) as kubelet:
        await until(lambda: "no answer within 0.3 s" in str(kubelet.problem))
        kubelet_stand_in.behave()
        await until(lambda: kubelet.problem is None)
        assert held(kubelet) == [("a", "GPU-1")]


async def test_a_socket_that_is_not_there_yet(kubelet_stand_in: KubeletStandIn) -> None:
    async with asking(kubelet_stand_in) as kubelet:
        assert kubelet.problem == "the kubelet has not answered yet"
        await until(lambda: "no such socket" in str(kubelet.problem))
        assert str(kubelet_stand_in.socket) in str(kubelet.problem)
        kubelet_stand_in.pods = (pod("a", (GPU, ["GPU-1"])),)
        kubelet_stand_in.start()
        await until(lambda: kubelet.problem is None)


@pytest.mark.parametrize("gracefully", [True, False])
async def test_a_socket_that_was_made_anew(
    kubelet_stand_in: KubeletStandIn, gracefully: bool
) -> None:
    kubelet_stand_in.pods = (pod("a", (GPU, ["GPU-1"])),)
    kubelet_stand_in.start()
    async with asking(kubelet_stand_in) as kubelet:
        await until(lambda: kubelet.problem is None)
        if gracefully:
            kubelet_stand_in.stop()
            await until(lambda: kubelet.trouble)
            assert held(kubelet) == [("a", "GPU-1")]
        successor = KubeletStandIn(kubelet_stand_in.socket)
        successor.pods = (pod("b", (GPU, ["GPU-2"])),)
        successor.start()  # the old one may still answer on the socket that has lost its path
        try:
            await until(lambda: held(kubelet) == [("b", "GPU-2")])
            assert kubelet.trouble is None
        finally:
            successor.stop()


async def test_a_proxy_of_the_environment_is_left_alone(
    kubelet_stand_in: KubeletStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    kubelet_stand_in.start()
    async with asking(kubelet_stand_in) as kubelet:
        await until(lambda: kubelet.problem is None)


async def test_an_old_kubelet_says_that_it_has_no_such_service(
    kubelet_stand_in: KubeletStandIn,
) -> None:
    kubelet_stand_in.refuse(grpc.StatusCode.UNIMPLEMENTED)
    kubelet_stand_in.start()
    async with asking(kubelet_stand_in) as kubelet:
        await until(lambda: "no PodResources v1" in str(kubelet.problem))
        kubelet_stand_in.refuse(grpc.StatusCode.PERMISSION_DENIED)
        await until(lambda: "PERMISSION_DENIED" in str(kubelet.problem))


async def test_a_reply_that_breaks_us_is_no_end(
    kubelet_stand_in: KubeletStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    kubelet_stand_in.pods = (pod("a", (GPU, ["GPU-1"])),)
    kubelet_stand_in.start()
    broken = [True]

    def owned(resource: str) -> bool:
        if broken:
            raise RuntimeError("a plugin")
        return True

    kubelet = Kubelet(kubelet_stand_in.socket, "n", owned, lambda: None, period=PERIOD)
    running = asyncio.create_task(kubelet.run())
    await until(lambda: "RuntimeError" in str(kubelet.problem))
    broken.clear()
    await until(lambda: kubelet.problem is None)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert any(record.exc_info for record in caplog.records)


def test_why_nobody_can_be_reached(socket_folder: Path) -> None:
    path = socket_folder / "kubelet.sock"
    assert "no such socket" in str(why_unreachable(path))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        assert "connection refused" in str(why_unreachable(path))
        listening.listen(0)
        assert why_unreachable(path) is None
        with ExitStack() as waiting:
            refused = 0
            while refused != errno.EAGAIN:  # fill the queue
                client = waiting.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                refused = client.connect_ex(str(path))
            assert why_unreachable(path) is None  # busy, but somebody listens
    assert "no such socket" in str(why_unreachable(path / "below"))
    assert "too long" in str(why_unreachable(socket_folder / ("x" * 120)))


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may open every socket")
def test_a_socket_that_we_may_not_open(kubelet_stand_in: KubeletStandIn) -> None:
    kubelet_stand_in.start()
    kubelet_stand_in.socket.chmod(0)
    assert "permission denied" in str(why_unreachable(kubelet_stand_in.socket))
