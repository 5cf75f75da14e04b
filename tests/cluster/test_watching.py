from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from accelscale.errors import ForbiddenError, NoDataError
from accelscale.selectors import parse_selector
from accelscale_server.api_server import ApiServer
from accelscale_server.pods import Pod, PodStore, PodWire, pod_record, pods_of
from accelscale_server.watching import Pace, Watch, need
from cluster.waiting import until
from kubernetes.api_server import ApiServerStandIn
from kubernetes.objects import NAMESPACE, pod
from kubernetes.semantics import Asked, Reply

QUICK = Pace(lifetime=30.0, silence=30.0, first_pause=0.02, longest_pause=0.1, refused_pause=0.05)
PodWatch = Watch[PodWire, Pod, PodStore]
StartWatch = Callable[..., Awaitable[PodWatch]]


@pytest.fixture
async def start_watch(api_server: ApiServerStandIn) -> AsyncIterator[StartWatch]:
    """Starts a watch of the pods of one namespace, and waits for its first list."""
    async with AsyncExitStack() as stack:

        async def start(
            pace: Pace = QUICK, *, synced: bool = True, answer_seconds: float = 10.0
        ) -> PodWatch:
            api = ApiServer(api_server.kubeconfig(), answer_seconds=answer_seconds)
            stack.push_async_callback(api.close)
            watch = Watch(
                api, pods_of(NAMESPACE), PodWire, pod_record, PodStore(), lambda: None, pace
            )
            task = asyncio.create_task(watch.run())

            async def end() -> None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

            stack.push_async_callback(end)
            if synced:
                await until(lambda: watch.synced and api_server.watching == ["pods"])
            return watch

        yield start


def names(watch: PodWatch) -> list[str]:
    return sorted(pod.name for pod in watch.store.objects.values())


def truth(api_server: ApiServerStandIn) -> dict[tuple[str, str], tuple[dict[str, str], str]]:
    """Labels and node of the pods of the namespace that have not finished."""
    return {
        key: (each["metadata"]["labels"], each["spec"]["nodeName"])
        for key, each in api_server.objects("pods").items()
        if key[0] == NAMESPACE and each["status"]["phase"] not in ("Succeeded", "Failed")
    }


def picture(watch: PodWatch) -> dict[tuple[str, str], tuple[dict[str, str], str | None]]:
    return {key: (each.labels, each.node) for key, each in watch.store.objects.items()}


async def test_a_list_and_then_every_change(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    api_server.put("pods", pod("a"), pod("b"), pod("x", "elsewhere"), pod("z", phase="Failed"))
    watch = await start_watch()
    assert names(watch) == ["a", "b"]
    api_server.put("pods", pod("c"), pod("y", "elsewhere"), pod("a", labels={"app": "web"}))
    api_server.delete("pods", NAMESPACE, "b")
    await until(lambda: names(watch) == ["a", "c"])
    assert watch.store.objects[NAMESPACE, "a"].labels == {"app": "web"}
    api_server.put("pods", pod("c", phase="Succeeded"))
    await until(lambda: names(watch) == ["a"])
    assert (watch.lists, watch.problem) == (1, None)


async def test_a_change_in_nothing_that_is_kept_is_none(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    api_server.put("pods", pod("a"))
    watch = await start_watch()
    revision = watch.store.revision
    heartbeat = pod("a")
    heartbeat["metadata"]["annotations"] = {"beat": "1"}
    api_server.put("pods", heartbeat, pod("b"))
    await until(lambda: names(watch) == ["a", "b"])
    assert watch.store.revision == revision + 1


async def test_a_long_list_comes_in_pages(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    everything = [pod(f"p{number:04d}", labels={"n": str(number)}) for number in range(1201)]
    api_server.put("pods", *everything)
    watch = await start_watch()
    assert picture(watch) == truth(api_server)
    assert (watch.lists, api_server.count("list", "pods")) == (1, 5)


async def test_nothing_counts_of_a_list_that_expired_between_two_pages(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    api_server.storage.page_size = 1
    api_server.put("pods", pod("a"), pod("b"), pod("c"))
    seen: list[list[str]] = []

    def expire_once(asked: Asked) -> Reply | None:
        if asked.parameters.get("continue") and not seen:
            seen.append(names(watch))
            api_server.storage.compact()
        return None

    api_server.instead = expire_once
    watch = await start_watch(synced=False)
    await until(lambda: watch.synced)
    assert seen == [[]]
    assert names(watch) == ["a", "b", "c"]


async def test_a_dropped_connection_goes_on_where_it_was(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    api_server.put("pods", pod("a"), pod("b"))
    watch = await start_watch()
    api_server.go_away()
    await until(lambda: watch.problem is not None)
    api_server.put("pods", pod("c"))
    api_server.delete("pods", NAMESPACE, "a")
    assert names(watch) == ["a", "b"]  # what was known stays
    api_server.come_back()
    await until(lambda: names(watch) == ["b", "c"])
    assert (watch.lists, watch.problem) == (1, None)


@pytest.mark.parametrize("in_stream", [False, True])
async def test_after_a_version_that_is_too_old_everything_is_listed_anew(
    api_server: ApiServerStandIn, start_watch: StartWatch, in_stream: bool
) -> None:
    api_server.expired_in_stream = in_stream
    api_server.put("pods", pod("a"), pod("b"))
    watch = await start_watch()
    api_server.go_away()
    api_server.delete("pods", NAMESPACE, "a")
    api_server.put("pods", pod("c"))
    api_server.storage.compact()
    api_server.come_back()
    await until(lambda: names(watch) == ["b", "c"])
    assert watch.lists == 2
    api_server.put("pods", pod("d"))
    await until(lambda: names(watch) == ["b", "c", "d"])


async def test_bookmarks_keep_the_version_young(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    api_server.bookmark_seconds = 0.05
    api_server.put("pods", pod("a"))
    watch = await start_watch()
    api_server.put("pods", *(pod(f"x{n}", "elsewhere") for n in range(5)))
    await until(lambda: watch.version == str(api_server.storage.version))
    api_server.drop_connections()
    api_server.storage.compact()  # of what was before the bookmark
    api_server.put("pods", pod("b"))
    await until(lambda: names(watch) == ["a", "b"])
    assert watch.lists == 1


async def test_a_server_that_was_put_back_to_a_backup_is_listed_anew(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    api_server.put("pods", pod("a"), pod("b"))
    watch = await start_watch()
    api_server.bookmark_seconds = 0.05
    api_server.drop_connections()
    api_server.storage.restore(500)
    api_server.put("pods", pod("c"))
    await until(lambda: names(watch) == ["a", "b", "c"])
    assert watch.lists == 2


async def test_a_connection_that_fell_silent_is_given_up(
    api_server: ApiServerStandIn, start_watch: StartWatch, caplog: pytest.LogCaptureFixture
) -> None:
    api_server.put("pods", pod("a"))
    watch = await start_watch(Pace(silence=0.3, first_pause=0.02))
    api_server.silence_watches()
    api_server.put("pods", pod("b"))
    await until(lambda: names(watch) == ["a", "b"])
    assert watch.lists == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_watch_that_the_server_ends_is_opened_again(
    api_server: ApiServerStandIn, start_watch: StartWatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch = await start_watch(Pace(lifetime=1.0, first_pause=0.02))
    await until(lambda: api_server.count("watch", "pods") >= 2)
    api_server.put("pods", pod("a"))
    await until(lambda: names(watch) == ["a"])
    assert watch.lists == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_hanging_server_is_asked_again(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    api_server.hanging = True
    watch = await start_watch(synced=False, answer_seconds=0.3)
    await until(lambda: watch.problem is not None)
    assert "no answer within 0.3 s" in str(watch.problem)
    with pytest.raises(NoDataError, match="have not been read yet: no answer"):
        need(watch, 600.0)
    api_server.put("pods", pod("a"))
    api_server.hanging = False
    await until(lambda: names(watch) == ["a"])
    assert need(watch, 600.0) is watch.store


async def test_a_rotated_token_is_read_anew(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    watch = await start_watch()
    api_server.write_token("second")
    api_server.tokens = {"second"}
    api_server.drop_connections()
    api_server.put("pods", pod("a"))
    await until(lambda: names(watch) == ["a"])
    assert watch.lists == 1


async def test_a_token_that_comes_late_is_waited_for(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    watch = await start_watch()
    api_server.tokens = {"second"}
    api_server.drop_connections()
    await until(lambda: watch.problem is not None and watch.problem.status == 401)
    api_server.token_file.unlink()
    await until(lambda: "no credentials" in str(watch.problem))
    api_server.write_token("second")
    await until(lambda: watch.problem is None)
    assert watch.lists == 1


async def test_a_missing_right_is_named_and_waited_for(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    api_server.put("pods", pod("a"))
    api_server.forbidden = {("list", "pods")}
    watch = await start_watch(synced=False)
    await until(lambda: watch.refused)
    with pytest.raises(ForbiddenError, match=r"may not see pods in namespace shop: .* to list"):
        need(watch, 600.0)
    api_server.forbidden = set()
    await until(lambda: names(watch) == ["a"])


async def test_a_right_that_is_taken_away_leaves_what_was_known_to_its_age_limit(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    api_server.put("pods", pod("a"))
    watch = await start_watch()
    api_server.forbidden = {("watch", "pods"), ("list", "pods")}
    api_server.drop_connections()
    await until(lambda: watch.refused)
    assert len(need(watch, 600.0).objects) == 1
    with pytest.raises(ForbiddenError, match="may not see pods"):
        need(watch, 0.0)


async def test_a_resource_that_comes_later_is_waited_for(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    pods = api_server.storage.resource("pods")
    api_server.withdraw("pods")
    watch = await start_watch(synced=False)
    await until(lambda: watch.refused)
    api_server.serve(pods)
    await until(lambda: watch.synced)


async def test_what_was_known_counts_for_a_while(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    api_server.put("pods", pod("a"))
    watch = await start_watch()
    api_server.go_away()
    await until(lambda: watch.problem is not None)
    assert len(need(watch, 600.0).objects) == 1
    await until(lambda: watch.age > 0.2)
    with pytest.raises(NoDataError, match=r"no news of pods in namespace shop .* for 0 s: "):
        need(watch, 0.2)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>welcome</html>", "not understood"),
        (b'{"kind": "Status", "metadata": {}}', "asked for a list, got Status"),
        (b'{"kind": "PodList", "metadata": {}, "items": []}', "asked for a list, got PodList"),
        (b'{"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": [{', "not underst"),
        (b'{"kind": "PodList", "metadata": {"resourceVersion": "9"}, "items": 5}', "not underst"),
        (b"\xff\xfe", "not understood"),
        (b"", "not understood"),
    ],
)
async def test_an_answer_that_is_no_list_is_never_an_empty_one(
    api_server: ApiServerStandIn, start_watch: StartWatch, body: bytes, why: str
) -> None:
    api_server.put("pods", pod("a"), pod("b"))
    watch = await start_watch()
    api_server.instead = lambda asked: Reply(200, body=body) if asked.verb == "list" else None
    api_server.go_away()
    api_server.put("pods", pod("c"))
    api_server.storage.compact()
    api_server.come_back()
    await until(lambda: why in str(watch.problem))
    assert names(watch) == ["a", "b"]
    api_server.instead = lambda asked: None
    await until(lambda: names(watch) == ["a", "b", "c"])
    assert watch.lists == 2


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b'{"type": "ADDED", "object": {"metadata": 5}}',
        b'{"type": "CONQUERED", "object": {"metadata": {}, "spec": {}, "status": {}}}',
        b'{"type": "ERROR", "object": {"message": "etcd is ill", "code": 500}}',
    ],
)
async def test_an_event_that_is_none_ends_the_watch_and_not_the_picture(
    api_server: ApiServerStandIn, start_watch: StartWatch, line: bytes
) -> None:
    api_server.put("pods", pod("a"))
    watch = await start_watch()

    def garbled(asked: Asked) -> Reply | None:
        return Reply(200, body=line + b"\n") if asked.verb == "watch" else None

    api_server.instead = garbled
    api_server.drop_connections()
    await until(lambda: watch.problem is not None and watch.problem.status in (None, 500))
    await until(lambda: api_server.count("watch") >= 3)
    assert names(watch) == ["a"]
    api_server.instead = lambda asked: None
    api_server.put("pods", pod("b"))
    await until(lambda: names(watch) == ["a", "b"])
    assert watch.lists == 1


async def test_characters_that_end_lines_elsewhere_do_not_end_an_event(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    watch = await start_watch()
    strange = pod("a")
    strange["metadata"]["annotations"] = {"note": "one\u0085two\u2028three\x0bfour"}
    api_server.put("pods", strange, pod("b"))
    await until(lambda: names(watch) == ["a", "b"])
    assert watch.problem is None


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_server_that_fails_at_once_is_not_asked_in_a_hurry(
    api_server: ApiServerStandIn, start_watch: StartWatch, verb: str
) -> None:
    instead = Reply(503, "etcd is away") if verb == "list" else Reply(200, body=b"")
    api_server.instead = lambda asked: instead if asked.verb == verb else None
    began = time.monotonic()
    await start_watch(Pace(first_pause=0.1, longest_pause=0.2), synced=False)
    await until(lambda: api_server.count(verb) >= 5)
    assert api_server.count(verb) <= 1 + (time.monotonic() - began) / 0.05


async def test_a_server_that_asks_for_time_gets_it(
    api_server: ApiServerStandIn, start_watch: StartWatch
) -> None:
    busy = Reply(429, "too many requests", {"Retry-After": "1"})
    api_server.instead = lambda asked: busy if len(api_server.requests) == 1 else None
    began = time.monotonic()
    watch = await start_watch(synced=False)
    await until(lambda: watch.synced)
    assert time.monotonic() - began >= 0.5  # the jitter halves it at most


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_the_picture_is_the_truth_in_the_end(
    api_server: ApiServerStandIn, start_watch: StartWatch, seed: int
) -> None:
    chance = random.Random(seed)
    api_server.bookmark_seconds = 0.02
    api_server.storage.page_size = 7
    api_server.expired_in_stream = bool(seed % 2)

    def churn() -> None:
        for _ in range(150):
            name = f"p{chance.randrange(40)}"
            if chance.random() < 0.35 and (NAMESPACE, name) in api_server.objects("pods"):
                api_server.delete("pods", NAMESPACE, name)
            else:
                labels = {"n": str(97 * chance.randrange(11))}
                phase = chance.choice(["Running", "Running", "Running", "Succeeded"])
                node = f"node-{chance.randrange(3)}"
                api_server.put("pods", pod(name, labels=labels, phase=phase, node=node))
            time.sleep(chance.random() * 0.008)

    def break_it() -> None:
        for _ in range(12):
            fault = chance.choice(
                [
                    api_server.drop_connections,
                    api_server.silence_watches,
                    api_server.storage.compact,
                    lambda: (api_server.go_away(), time.sleep(0.03), api_server.come_back()),
                ]
            )
            fault()
            time.sleep(chance.random() * 0.06)

    watch = await start_watch(
        Pace(lifetime=1.0, silence=0.15, first_pause=0.01, longest_pause=0.05)
    )
    both = [threading.Thread(target=churn), threading.Thread(target=break_it)]
    for thread in both:
        thread.start()
    for thread in both:
        await asyncio.to_thread(thread.join)
    await until(lambda: picture(watch) == truth(api_server))
    for number in range(0, 1000, 97):
        selected = watch.store.selected(parse_selector(f"n={number}"))
        assert [each.name for each in selected] == sorted(
            key[1] for key, (labels, _) in truth(api_server).items() if labels["n"] == str(number)
        )
