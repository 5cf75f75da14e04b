"""The readings that come from a look through all processes, taken at most once in a pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from attrs import define, field

from accelscale.model import Reason
from accelscale_intel.busy import ClientShares, used_bytes
from accelscale_intel.cards import Card
from accelscale_intel.clients import Look, Usage, look_at
from accelscale_intel.files import UnreadableError


@define
class ProcessUsage:
    """What is kept of the cards from pass to pass."""

    root: Path
    shares: dict[str, ClientShares] = field(factory=dict)
    has_shown_memory: set[str] = field(factory=set)

    def begin(self, cards: Collection[Card]) -> UsagePass:
        """Begin a pass over these cards, all of them awake: to be looked at wakes a card."""
        self.forget(except_for={card.address for card in cards})
        return UsagePass(self, tuple(cards))

    def forget(self, *, except_for: Collection[str] = ()) -> None:
        """Start anew with the next pass, for all but these cards."""
        for address, shares in list(self.shares.items()):
            if address not in except_for:
                shares.forget()


@define
class UsagePass:
    """One pass: one look at most, and that only if a reading needs it.

    Every reader raises UnreadableError: with reason ``permission`` whenever a process is hidden.
    """

    kept: ProcessUsage
    cards: tuple[Card, ...]
    _look: Look | UnreadableError | None = None
    readers: Mapping[str, Callable[[Card], float]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.readers = {
            "utilization_percent": self.utilization_percent,
            "memory_used_bytes": self.memory_used_bytes,
            "process_count": self.process_count,
        }

    def utilization_percent(self, card: Card) -> float:
        """Share of the time since the pass before that the clients of the card had it working."""
        shares = self.kept.shares.setdefault(card.address, ClientShares())
        try:
            look, usage = self._usage(card)
        except UnreadableError:
            shares.forget()
            raise
        return shares.percent(look, usage, card.driver)

    def memory_used_bytes(self, card: Card) -> float:
        """Memory of the card that its clients hold."""
        if card.is_integrated:
            text = "the card is part of the processor and has no memory of its own"
            raise UnreadableError(Reason.NOT_SUPPORTED, text, permanent=True)
        if card.virtual_functions:
            text = "virtual functions hold memory of the card too, and no process here shows it"
            raise UnreadableError(Reason.NOT_SUPPORTED, text)
        _, usage = self._usage(card)
        if any(client.resident for client in usage.clients.values()):
            self.kept.has_shown_memory.add(card.address)
        return used_bytes(usage, has_shown_memory=card.address in self.kept.has_shown_memory)

    def process_count(self, card: Card) -> float:
        """Processes that hold a device file of the card, this one apart."""
        return float(len(self._usage(card)[1].processes - {os.getpid()}))

    def _usage(self, card: Card) -> tuple[Look, Usage]:
        if self._look is None:
            nodes = {node: card.address for card in self.cards for node in card.nodes}
            try:
                self._look = look_at(self.kept.root, nodes)
            except UnreadableError as error:
                self._look = error
        if isinstance(self._look, UnreadableError):
            raise self._look
        return self._look, self._look.of(card.address)
