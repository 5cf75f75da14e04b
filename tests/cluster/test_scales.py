from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from accelscale.errors import (
    AccelscaleError,
    ForbiddenError,
    NoDataError,
    NotFoundError,
    UnsupportedError,
)
from accelscale_server.api_server import ApiServer
from accelscale_server.scales import ScalePace, Scales
from accelscale_server.targets import Target
from cluster.waiting import until
from kubernetes.api_server import ApiServerStandIn
from kubernetes.objects import scalable
from kubernetes.semantics import Asked, Reply, Resource

QUICK = ScalePace(refresh=0.1, refused=0.05, failed=0.02, longest=0.05, spacing=0.0)
SLOW = ScalePace(refresh=600.0, refused=600.0, failed=0.02, longest=0.05, spacing=0.0)
WEB = Target("shop", "apps", "v1", "Deployment", "web")
ROLLOUT = Target("shop", "argoproj.io", "v1alpha1", "Rollout", "web")
StartScales = Callable[..., Awaitable[Scales]]


@pytest.fixture
async def start_scales(api_server: ApiServerStandIn) -> AsyncIterator[StartScales]:
    """Starts a reader of scales."""
    async with AsyncExitStack() as stack:

        async def start(pace: ScalePace = QUICK, *, limit: float = 600.0) -> Scales:
            api = ApiServer(api_server.kubeconfig(), answer_seconds=5.0)
            stack.push_async_callback(api.close)
            scales = Scales(api, lambda: None, limit=limit, pace=pace)
            task = asyncio.create_task(scales.run())

            async def end() -> None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

            stack.push_async_callback(end)
            return scales

        yield start


def answer(scales: Scales, target: Target) -> Any:
    try:
        return scales.of(target)
    except AccelscaleError as error:
        return error


async def settled(scales: Scales, target: Target) -> Any:
    """The first answer that says more than that there is none yet."""
    await until(lambda: not isinstance(answer(scales, target), NoDataError))
    return answer(scales, target)


async def test_nothing_is_read_until_somebody_asks(
    api_server: ApiServerStandIn, start_scales: StartScales
) -> None:
    api_server.put("deployments", scalable("web", replicas=3))
    scales = await start_scales()
    await asyncio.sleep(0.1)
    assert api_server.requests == []
    with pytest.raises(NoDataError, match="scale of Deployment shop/web has not been read yet"):
        scales.of(WEB)
    scale = await settled(scales, WEB)
    assert (scale.wanted, scale.counted, str(scale.selector)) == (3, 3, "app=web")


async def test_it_is_read_again_and_again_but_not_for_every_question(
    api_server: ApiServerStandIn, start_scales: StartScales
) -> None:
    api_server.put("deployments", scalable("web", replicas=1))
    scales = await start_scales()
    await settled(scales, WEB)
    before = api_server.count("get")
    for _ in range(1000):
        scales.of(WEB)
    assert api_server.count("get") == before
    api_server.put("deployments", scalable("web", replicas=5))
    await until(lambda: scales.of(WEB).wanted == 5)


async def test_it_is_read_soon_where_something_says_that_it_changed(
    api_server: ApiServerStandIn, start_scales: StartScales
) -> None:
    api_server.put("deployments", scalable("web", replicas=0))
    scales = await start_scales(SLOW)
    await settled(scales, WEB)
    api_server.put("deployments", scalable("web", replicas=2))
    for _ in range(100):
        scales.read_soon(WEB)
    await until(lambda: scales.of(WEB).wanted == 2)
    assert api_server.count("get") == 2


@pytest.mark.parametrize(
    ("plural", "target"),
    [
        ("statefulsets", Target("shop", "apps", "v1", "StatefulSet", "web")),
        ("replicasets", Target("shop", "apps", "v1", "ReplicaSet", "web")),
        ("rollouts", ROLLOUT),
        (
            "leaderworkersets",
            Target("shop", "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "web"),
        ),
    ],
)
async def test_every_kind_with_a_scale(
    api_server: ApiServerStandIn, start_scales: StartScales, plural: str, target: Target
) -> None:
    api_server.put(plural, scalable("web", replicas=2))
    scale = await settled(await start_scales(), target)
    assert scale.wanted == 2


async def test_the_plural_of_a_kind_is_what_the_server_says(
    api_server: ApiServerStandIn, start_scales: StartScales
) -> None:
    api_server.serve(Resource("example.com", "v2", "foxen", "Fox", scalable=True))
    api_server.put("foxen", scalable("web", status={"selector": "fox in (red,grey)"}))
    scales = await start_scales()
    scale = await settled(scales, Target("shop", "example.com", "v2", "Fox", "web"))
    assert scale.selector.matches({"fox": "grey"})
    api_server.put("foxen", scalable("den"))
    await settled(scales, Target("shop", "example.com", "v2", "Fox", "den"))
    assert api_server.count("discover") == 1


@pytest.mark.parametrize(
    ("target", "kind", "text"),
    [
        (WEB, NotFoundError, "scale target Deployment shop/web does not exist"),
        (
            Target("shop", "apps", "v1", "DaemonSet", "web"),
            UnsupportedError,
            "DaemonSet shop/web cannot be scaled: apps/v1 DaemonSet has no scale subresource",
        ),
        (
            Target("shop", "apps", "v1", "Deplyoment", "web"),
            NotFoundError,
            "the API server knows no kind Deplyoment in apps/v1",
        ),
        (
            Target("shop", "example.com", "v1", "Fox", "web"),
            NotFoundError,
            "the API server knows no kind Fox in example.com/v1",
        ),
    ],
)
async def test_what_cannot_be_found_or_scaled_is_said(
    start_scales: StartScales, target: Target, kind: type[Exception], text: str
) -> None:
    found = await settled(await start_scales(), target)
    assert isinstance(found, kind)
    assert text in str(found)


async def test_a_target_that_comes_later_is_found(
    api_server: ApiServerStandIn, start_scales: StartScales
) -> None:
    scales = await start_scales()
    assert isinstance(await settled(scales, ROLLOUT), NotFoundError)
    api_server.put("rollouts", scalable("web"))
    await until(lambda: not isinstance(answer(scales, ROLLOUT), NotFoundError))
    assert scales.of(ROLLOUT).wanted == 1
    api_server.delete("rollouts", "shop", "web")
    await until(lambda: isinstance(answer(scales, ROLLOUT), NotFoundError))


async def test_a_missing_right_is_named(
    api_server: ApiServerStandIn, start_scales: StartScales
) -> None:
    api_server.put("rollouts", scalable("web"))
    api_server.forbidden = {("get", "rollouts/scale")}
    scales = await start_scales()
    found = await settled(scales, ROLLOUT)
    assert isinstance(found, ForbiddenError)
    assert "needs the right to get rollouts/scale of API group argoproj.io" in str(found)
    api_server.forbidden = set()
    await until(lambda: not isinstance(answer(scales, ROLLOUT), AccelscaleError))


async def test_while_the_server_is_away_the_last_answer_counts_to_its_limit(
    api_server: ApiServerStandIn, start_scales: StartScales
) -> None:
    api_server.put("deployments", scalable("web", replicas=3))
    scales = await start_scales(limit=0.5)
    await settled(scales, WEB)
    api_server.go_away()
    assert scales.of(WEB).wanted == 3
    await until(lambda: isinstance(answer(scales, WEB), NoDataError))
    assert "the scale of Deployment shop/web cannot be read" in str(answer(scales, WEB))
    api_server.come_back()
    await until(lambda: not isinstance(answer(scales, WEB), AccelscaleError))


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"spec": {}}', b'{"spec": {"replicas": "3"}, "status": {}}']
)
async def test_an_answer_that_is_no_scale_is_none(
    api_server: ApiServerStandIn, start_scales: StartScales, body: bytes
) -> None:
    api_server.put("deployments", scalable("web"))
    api_server.instead = lambda asked: Reply(200, body=body)
    scales = await start_scales()
    await until(lambda: "not understood" in str(answer(scales, WEB)))
    assert isinstance(answer(scales, WEB), NoDataError)


async def test_a_selector_that_is_none_is_said(
    api_server: ApiServerStandIn, start_scales: StartScales
) -> None:
    api_server.put("rollouts", scalable("web", status={"selector": "app in web"}))
    found = await settled(await start_scales(), ROLLOUT)
    assert isinstance(found, UnsupportedError)
    assert "Rollout shop/web: the selector in its scale: 'app in web' is no label" in str(found)


async def test_many_are_read_a_few_at_a_time(
    api_server: ApiServerStandIn, start_scales: StartScales
) -> None:
    api_server.put("deployments", *(scalable(f"d{number}") for number in range(100)))
    api_server.delay = 0.01
    scales = await start_scales(SLOW)
    targets = [Target("shop", "apps", "v1", "Deployment", f"d{number}") for number in range(100)]
    most = 0

    def note(asked: Asked) -> Reply | None:
        nonlocal most
        most = max(most, api_server.connections)
        return None

    api_server.instead = note
    for target in targets:
        answer(scales, target)
    await until(lambda: not any(isinstance(answer(scales, t), NoDataError) for t in targets))
    assert 1 < most <= 8
    assert len(scales) == 100
