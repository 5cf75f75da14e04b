"""Utilisation and memory from two looks at the clients of a card."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelscale.model import Reason
from accelscale_intel.busy import ClientShares, used_bytes
from accelscale_intel.clients import Client, Look, Usage
from accelscale_intel.files import UnreadableError

SECOND = 1_000_000_000
CLOCK = 19_200_000  # cycles a second
Engines = Mapping[str, Mapping[str, float]]  # client, engine class -> seconds of work


class Card:
    """A card of which a test says how much work its clients have done."""

    def __init__(self, driver: str, capacity: Mapping[str, int] | None = None) -> None:
        self.driver = driver
        self.capacity = capacity or {}
        self.shares = ClientShares()

    def look(self, time: float, clients: Engines, uncounted: str | None = None) -> float:
        usage = Usage({name: self._client(name, time, done) for name, done in clients.items()})
        if uncounted is not None:
            usage = Usage(usage.clients, uncounted=uncounted)
        return self.shares.percent(Look(time, {}), usage, self.driver)

    def absent(self, time: float, clients: Engines, uncounted: str | None = None) -> Reason:
        with pytest.raises(UnreadableError) as caught:
            self.look(time, clients, uncounted)
        assert caught.value.detail
        return caught.value.reason

    def _client(self, name: str, time: float, done: Mapping[str, float]) -> Client:
        per_second = SECOND if self.driver == "i915" else CLOCK
        busy = {engine: round(seconds * per_second) for engine, seconds in done.items()}
        clock = {} if self.driver == "i915" else dict.fromkeys(done, round(time * CLOCK))
        return Client(name, time, busy, clock, self.capacity)


@pytest.fixture(params=["i915", "xe"])
def card(request: pytest.FixtureRequest) -> Card:
    return Card(request.param)


def test_one_look_is_no_share(card: Card) -> None:
    assert card.absent(100.0, {"1": {"ccs": 50.0}}) is Reason.NO_PROGRESS


def test_the_work_of_all_clients_counts(card: Card) -> None:
    card.absent(100.0, {"1": {"ccs": 50.0}, "2": {"ccs": 3.0}})
    percent = card.look(102.0, {"1": {"ccs": 50.5}, "2": {"ccs": 3.2}})
    assert percent == pytest.approx(35.0)


def test_the_busiest_class_counts_and_not_the_sum(card: Card) -> None:
    card.absent(100.0, {"1": {"ccs": 0.0, "bcs": 0.0, "vcs": 0.0}})
    assert card.look(101.0, {"1": {"ccs": 0.6, "bcs": 0.7, "vcs": 0.1}}) == pytest.approx(70.0)


def test_a_card_whose_clients_rest_is_idle(card: Card) -> None:
    card.absent(100.0, {"1": {"ccs": 50.0}})
    assert card.look(101.0, {"1": {"ccs": 50.0}}) == 0.0


def test_one_engine_of_four_that_always_works_means_a_working_card() -> None:
    card = Card("xe", {"ccs": 4})
    card.absent(100.0, {"1": {"ccs": 0.0}})
    assert card.look(101.0, {"1": {"ccs": 1.0}}) == pytest.approx(100.0)
    assert card.look(102.0, {"1": {"ccs": 4.5}}) == 100.0


def test_more_work_than_engines_is_out_of_range(card: Card) -> None:
    card.absent(100.0, {"1": {"ccs": 0.0}})
    assert card.absent(101.0, {"1": {"ccs": 1.5}}) is Reason.OUT_OF_RANGE


def test_a_little_more_than_all_of_the_time_is_all_of_it(card: Card) -> None:
    card.absent(100.0, {"1": {"ccs": 0.0}})
    assert card.look(101.0, {"1": {"ccs": 1.02}}) == 100.0


def test_a_client_that_is_new_counts_from_its_beginning(card: Card) -> None:
    card.absent(100.0, {"1": {"ccs": 50.0}})
    assert card.look(101.0, {"1": {"ccs": 50.0}, "2": {"ccs": 0.4}}) == pytest.approx(40.0)


def test_the_first_client_of_an_xe_card_has_no_clock_to_go_by() -> None:
    card = Card("xe")
    card.absent(100.0, {})
    assert card.absent(101.0, {"1": {"ccs": 0.4}}) is Reason.NO_PROGRESS
    assert card.look(102.0, {"1": {"ccs": 0.9}}) == pytest.approx(50.0)
    card.absent(103.0, {})
    assert card.look(104.0, {"2": {"ccs": 0.25}}) == pytest.approx(25.0)  # the clock is known now


def test_a_client_that_ended_leaves_one_reading_without_a_value(card: Card) -> None:
    """Its last work is not known: what the others did would be too low a figure."""
    card.absent(100.0, {"1": {"ccs": 50.0}, "2": {"ccs": 9.0}})
    assert card.absent(101.0, {"1": {"ccs": 50.1}}) is Reason.NO_PROGRESS
    assert card.look(102.0, {"1": {"ccs": 50.2}}) == pytest.approx(10.0)


def test_a_card_that_was_used_and_has_no_client_now_is_idle(card: Card) -> None:
    card.absent(100.0, {"1": {"ccs": 50.0}})
    card.absent(101.0, {})
    assert card.look(102.0, {}) == 0.0


def test_zeros_are_believed_only_of_a_card_that_has_counted(card: Card) -> None:
    """A kernel that does not count writes nothing, or zeros, however busy the card is."""
    card.absent(100.0, {})
    assert card.absent(101.0, {}) is Reason.NO_PROGRESS
    card.absent(102.0, {"1": {"ccs": 0.0}})
    assert card.absent(103.0, {"1": {"ccs": 0.0}}) is Reason.NO_PROGRESS
    assert card.look(104.0, {"1": {"ccs": 0.5}}) == pytest.approx(50.0)
    assert card.look(105.0, {"1": {"ccs": 0.5}}) == 0.0


def test_a_client_that_is_not_counted_makes_the_card_unreadable(card: Card) -> None:
    card.absent(100.0, {"1": {"ccs": 50.0}})
    assert card.absent(101.0, {"1": {"ccs": 50.5}}, uncounted="process 9") is Reason.NOT_SUPPORTED
    assert card.absent(102.0, {"1": {"ccs": 50.6}}) is Reason.NO_PROGRESS  # starts anew
    assert card.look(103.0, {"1": {"ccs": 50.7}}) == pytest.approx(10.0)


def test_a_step_back_adds_nothing_until_it_is_caught_up(card: Card) -> None:
    card.absent(100.0, {"1": {"ccs": 50.0}})
    assert card.look(101.0, {"1": {"ccs": 50.5}}) == pytest.approx(50.0)
    assert card.look(102.0, {"1": {"ccs": 50.3}}) == 0.0
    assert card.look(103.0, {"1": {"ccs": 50.7}}) == pytest.approx(20.0)


def test_a_clock_that_went_back_gives_no_value() -> None:
    shares = ClientShares()
    readings = [(100.0, 0, 1000), (101.0, 10, 900), (102.0, 60, 1000)]
    reasons: list[Reason | float] = []
    for time, cycles, clock in readings:
        usage = Usage({"1": Client("1", time, {"ccs": cycles}, {"ccs": clock})})
        try:
            reasons.append(shares.percent(Look(time, {}), usage, "xe"))
        except UnreadableError as error:
            reasons.append(error.reason)
    assert reasons == [Reason.NO_PROGRESS, Reason.COUNTER_RESET, 50.0]


def test_two_looks_at_one_time_give_no_value(card: Card) -> None:
    card.absent(100.0, {"1": {"ccs": 50.0}})
    assert card.absent(100.0, {"1": {"ccs": 50.5}}) is Reason.NO_PROGRESS


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("123"),
            st.dictionaries(st.sampled_from(["rcs", "ccs"]), st.floats(0, 1e6), min_size=1),
        ),
        min_size=2,
        max_size=8,
    ),
    st.sampled_from(["i915", "xe"]),
)
def test_whatever_the_kernel_says_it_is_a_percentage_or_a_reason(
    looks: list[dict[str, dict[str, float]]], driver: str
) -> None:
    card = Card(driver)
    for number, clients in enumerate(looks):
        with suppress(UnreadableError):
            assert 0.0 <= card.look(100.0 + number, clients) <= 100.0


def held(*clients: Client) -> Usage:
    return Usage({client.id: client for client in clients})


def test_memory_is_the_sum_over_the_clients() -> None:
    first = Client("1", 0.0, resident={"vram0": 100, "vram1": 20}, shared={"vram0": 0})
    second = Client("2", 0.0, resident={"vram0": 3})
    assert used_bytes(held(first, second), has_shown_memory=True) == 123.0


def test_nobody_holding_memory_is_believed_of_a_card_that_has_shown_it() -> None:
    assert used_bytes(held(), has_shown_memory=True) == 0.0
    with pytest.raises(UnreadableError) as caught:
        used_bytes(held(), has_shown_memory=False)
    assert caught.value.reason is Reason.NO_PROGRESS


@pytest.mark.parametrize(
    "usage",
    [
        held(Client("1", 0.0)),
        held(Client("1", 0.0, resident={"vram0": 100}, shared={"vram0": 50})),
        Usage({}, uncounted="process 9"),
    ],
    ids=["not told", "shared", "not counted"],
)
def test_memory_that_cannot_be_added_up_is_absent(usage: Usage) -> None:
    with pytest.raises(UnreadableError) as caught:
        used_bytes(usage, has_shown_memory=True)
    assert caught.value.reason is Reason.NOT_SUPPORTED
