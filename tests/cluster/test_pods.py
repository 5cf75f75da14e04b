from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale.selectors import parse_selector
from accelscale_server.pods import Pod, PodStore, PodWire, pod_record
from kubernetes.objects import Object, pod

LATER = "2026-01-31T12:00:40Z"
RUNNING_LATER = {"running": {"startedAt": "2026-01-31T12:05:00Z"}}


def record(value: Object) -> Pod:
    return pod_record(msgspec.json.decode(msgspec.json.encode(value), type=PodWire))


def test_what_decides_is_kept() -> None:
    labels = {"app": "web", "tier": "gold"}
    made = record(pod("web-0", labels=labels, node="node-a", containers=("server", "proxy")))
    assert made == Pod(
        namespace="shop",
        name="web-0",
        uid="",
        labels=labels,
        node="node-a",
        containers=("server", "proxy"),
        running=True,
        ready=True,
        was_ready=True,
        terminating=False,
    )
    assert record(pod("web-0", deleted=True)).terminating


def test_a_pod_that_was_just_made_is_neither_placed_nor_ready() -> None:
    new = {"metadata": {"name": "new", "namespace": "shop"}, "spec": {}, "status": {}}
    made = record(new)
    assert (made.node, made.labels, made.containers) == (None, {}, ())
    assert (made.running, made.ready, made.was_ready) == (False, False, False)
    nulls: dict[str, Any] = {"conditions": None, "containerStatuses": None, "phase": "Running"}
    assert not record({**new, "status": nulls}).was_ready


@pytest.mark.parametrize(
    ("changes", "ready", "was_ready"),
    [
        ({}, True, True),
        # The model is still loading: not Ready since the pod started.
        ({"ready": False, "ready_since": "2026-01-31T12:00:00Z"}, False, False),
        ({"ready": False, "ready_since": "2026-01-31T12:00:09Z"}, False, False),
        # It has served, and does not answer its probe now.
        ({"ready": False, "ready_since": LATER}, False, True),
        # Its container crashed after that, and loads the model anew, or waits to.
        ({"ready": False, "ready_since": LATER, "states": {"server": RUNNING_LATER}}, False, False),
        (
            {"ready": False, "ready_since": LATER, "states": {"server": {"waiting": {}}}},
            False,
            False,
        ),
        (
            {
                "ready": False,
                "ready_since": LATER,
                "states": {"server": {"terminated": {"exitCode": 137}}},
            },
            False,
            False,
        ),
        # A helper container has done its work.
        (
            {
                "ready": False,
                "ready_since": LATER,
                "containers": ("server", "helper"),
                "states": {"helper": {"terminated": {"exitCode": 0}}},
            },
            False,
            True,
        ),
        # The node is not heard of; the control plane says so in the condition.
        ({"ready": "Unknown", "ready_since": LATER}, False, True),
        ({"phase": "Pending"}, False, False),
        ({"phase": "Unknown"}, False, False),
    ],
)
def test_who_is_and_who_was_ready(changes: dict[str, Any], ready: bool, was_ready: bool) -> None:
    made = record(pod("web-0", **changes))
    assert (made.ready, made.was_ready) == (ready, was_ready)


def test_a_pod_runs_once_each_of_its_containers_has_started() -> None:
    states = {"proxy": {"waiting": {"reason": "ImagePullBackOff"}}}
    both = ("server", "proxy")
    assert record(pod("a", containers=both)).running
    assert not record(pod("a", containers=both, ready=False, states=states)).running
    assert not record(pod("a", phase="Pending")).running


def test_equal_labels_are_kept_once() -> None:
    labels = {"app.kubernetes.io/name": "a-rather-long-name"}
    one, other = record(pod("a", labels=labels)), record(pod("b", labels=labels))
    key = "app.kubernetes.io/name"
    assert one.labels[key] is other.labels[key]


changes = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "d"]),
        st.one_of(
            st.none(),
            st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y", "z"])),
        ),
    ),
    max_size=20,
)
SELECTORS = [
    parse_selector(text)
    for text in ("app=x", "tier in (x,y),app!=z", "app", "!tier", "tier notin (x)", "app=x,tier=x")
]


@given(changes, changes)
def test_pods_are_found_by_labels_as_if_all_were_looked_at(
    before: list[tuple[str, dict[str, str] | None]], after: list[tuple[str, dict[str, str] | None]]
) -> None:
    store = PodStore()

    def check() -> None:
        for selector in SELECTORS:
            everyone = sorted(store.objects.values(), key=lambda each: each.name)
            expected = [each for each in everyone if selector.matches(each.labels)]
            assert store.selected(selector) == expected

    for name, labels in before:
        apply(store, name, labels)
    check()
    for name, labels in after:
        apply(store, name, labels)
    check()
    store.replace({("shop", "a"): record(pod("a", labels={"app": "x"}))})
    check()
    assert [each.name for each in store.selected(SELECTORS[0])] == ["a"]


def apply(store: PodStore, name: str, labels: dict[str, str] | None) -> None:
    if labels is None:
        store.drop(("shop", name))
    else:
        store.put(("shop", name), record(pod(name, labels=labels)))
