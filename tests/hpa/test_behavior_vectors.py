"""Every row of hpa_behavior_vectors.csv: limits, stabilisation and event memory, as numbers."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from accelscale.hpa import (
    Behavior,
    Controller,
    HpaSpec,
    HpaState,
    Policy,
    PolicyType,
    Scale,
    ScalingRules,
    SelectPolicy,
    sync,
)
from accelscale.hpa.limits import (
    ScaleEvent,
    ScaleEvents,
    change_within,
    limit_by_behavior,
    limit_by_doubling,
    record_change,
    scale_down_limit,
    scale_up_limit,
)
from accelscale.hpa.stabilization import (
    Recommendation,
    Recommendations,
    stabilize,
    stabilize_downscale,
)

Row = dict[str, str]

with (Path(__file__).parent / "hpa_behavior_vectors.csv").open(newline="") as file:
    ROWS = list(csv.DictReader(file))

CONTROLLER = Controller()
NOW = 10_000.0

KINDS = (
    "rate_limit",
    "up_limit",
    "down_limit",
    "legacy_rate_limit (behavior=nil)",
    "legacy_stabilise (behavior=nil)",
    "behavior_stabilise",
    "event_store (60 s sum, then add change)",
)


def of_kind(*kinds: str) -> list[object]:
    return [pytest.param(row, id=row["case"]) for row in ROWS if kind_of(row) in kinds]


def kind_of(row: Row) -> str:
    """The function that a row is about, without the remark behind it."""
    return row["function"].split(" ")[0]


def is_controller_row(row: Row) -> bool:
    return "(controller)" in row["case"]


def test_every_row_is_claimed_by_a_test() -> None:
    assert {row["function"] for row in ROWS} == set(KINDS)


def rules(text: str) -> ScalingRules:
    """``Pods:20/60s|Percent:1/60s|select=Max|window=30``, or ``default``."""
    policies: list[Policy] = []
    select: SelectPolicy | None = None
    window: int | None = None
    for part in [] if text in ("", "default") else text.split("|"):
        key, _, value = part.partition("=")
        if key == "select":
            select = SelectPolicy(value)
        elif key == "window":
            window = int(value)
        else:
            match = re.fullmatch(r"(Pods|Percent):(\d+)/(\d+)s", part)
            assert match, part
            policies.append(Policy(PolicyType(match[1]), int(match[2]), int(match[3])))
    return ScalingRules(tuple(policies), select, window)


def behavior(row: Row) -> Behavior:
    return Behavior(rules(row["scale_up_rules"]), rules(row["scale_down_rules"]))


def past(text: str) -> list[tuple[int, float]]:
    """``1@-100s;5@-60s`` as numbers and times."""
    pairs = [entry.split("@-") for entry in text.split(";") if entry]
    return [(int(amount), NOW - float(age.removesuffix("s"))) for amount, age in pairs]


def events(text: str) -> tuple[ScaleEvent, ...]:
    return tuple(ScaleEvent(change, time) for change, time in past(text))


def recommendations(row: Row) -> Recommendations:
    return tuple(Recommendation(replicas, time) for replicas, time in past(row["recommendations"]))


@pytest.mark.parametrize("row", of_kind("rate_limit"))
def test_limit_with_a_behavior(row: Row) -> None:
    limited = limit_by_behavior(
        int(row["current_replicas"]),
        int(row["prenormalized_desired"]),
        minimum=int(row["min"]),
        maximum=int(row["max"]),
        behavior=behavior(row).resolved(CONTROLLER),
        events=ScaleEvents(events(row["scale_up_events"]), events(row["scale_down_events"])),
        now=NOW,
    )
    assert limited.replicas == int(row["expected_replicas"])
    assert limited.reason == row["expected_condition"]


@pytest.mark.parametrize("row", of_kind("up_limit", "down_limit"))
def test_limit_of_one_direction(row: Row) -> None:
    resolved, current = behavior(row).resolved(CONTROLLER), int(row["current_replicas"])
    if kind_of(row) == "up_limit":
        limit = scale_up_limit(current, ScaleEvents(), resolved.scale_up, NOW)
    else:
        limit = scale_down_limit(current, ScaleEvents(), resolved.scale_down, NOW)
    assert limit == int(row["expected_replicas"])


@pytest.mark.parametrize("row", of_kind("legacy_rate_limit"))
def test_limit_without_a_behavior(row: Row) -> None:
    limited = limit_by_doubling(
        int(row["current_replicas"]),
        int(row["prenormalized_desired"]),
        minimum=int(row["min"]),
        maximum=int(row["max"]),
    )
    assert limited.replicas == int(row["expected_replicas"])
    assert limited.reason == row["expected_condition"]


@pytest.mark.parametrize("row", of_kind("legacy_stabilise"))
def test_stabilization_without_a_behavior(row: Row) -> None:
    if is_controller_row(row):
        check_sync(row, HpaState(), None)
        return
    proposal = int(row["prenormalized_desired"])
    window = float(row["down_window_s"])
    got = stabilize_downscale(recommendations(row), proposal, window=window, now=NOW)
    assert got.replicas == int(row["expected_replicas"])
    length = re.search(r"history length after = (\d+)", row["note"])
    assert length is not None
    assert len(got.recommendations) == int(length[1])
    assert Recommendation(proposal, NOW) in got.recommendations


@pytest.mark.parametrize("row", of_kind("behavior_stabilise"))
def test_stabilization_with_a_behavior(row: Row) -> None:
    if is_controller_row(row):
        assert row["recommendations"] == "(empty list)"
        check_sync(row, HpaState(recommendations=()), behavior(row))
        return
    windows = Behavior(
        ScalingRules(stabilization_window_seconds=int(row["up_window_s"])),
        ScalingRules(stabilization_window_seconds=int(row["down_window_s"])),
    )
    got = stabilize(
        recommendations(row),
        int(row["prenormalized_desired"]),
        current=int(row["current_replicas"]),
        behavior=windows.resolved(CONTROLLER),
        now=NOW,
    )
    assert got.replicas == int(row["expected_replicas"])
    stored = row["note"].removeprefix("stored ")
    assert [str(entry.replicas) for entry in got.recommendations] == stored.split(";")


def check_sync(row: Row, state: HpaState, wanted: Behavior | None) -> None:
    """A row of the whole controller, whose cpu metric proposes what the row says."""
    proposal = int(row["prenormalized_desired"].split(" ")[0])
    current = int(row["current_replicas"])
    spec = HpaSpec(int(row["min"]), int(row["max"]), behavior=wanted)
    outcome = sync(spec, state, Scale.settled(current), [], now=NOW, others=[proposal])
    assert outcome.replicas == int(row["expected_replicas"])
    if row["expected_condition"]:
        assert outcome.able_to_scale == row["expected_condition"]


@pytest.mark.parametrize("row", of_kind("event_store"))
def test_event_memory(row: Row) -> None:
    before = ScaleEvents(up=events(row["scale_up_events"]))
    assert change_within(before.up, 60, NOW) == int(row["expected_replicas"])
    sixty = ScalingRules((Policy(PolicyType.PODS, 100, 60),))
    wanted = None if "no behaviour" in row["case"] else Behavior(sixty).resolved(CONTROLLER)
    after = record_change(before, 10, 15, behavior=wanted, now=NOW)
    stored = [f"{event.change}{'(outdated)' * event.outdated}" for event in after.up]
    assert ";".join(stored) == row["note"].partition("stored after adding 5: ")[2].strip()
    assert after.down == ()
