"""Cards that the kernel has put to sleep: reading one would wake it up, so nothing is read."""

from __future__ import annotations

from attrs import define, field

from accelscale.model import Reason
from accelscale_intel.cards import Card
from accelscale_intel.files import UnreadableError


@define
class Sleep:
    """What can be said of a sleeping card: that it has not worked since it was last looked at.

    A card sleeps only while it has no work. So if it sleeps, and by the kernel's clock has not been
    awake since it was seen asleep before, it was idle all the time between.
    """

    _awake_for: dict[str, int] = field(factory=dict)

    def forget(self, card: Card) -> None:
        """The card is awake."""
        self._awake_for.pop(card.address, None)

    def value(self, card: Card, metric: str) -> float:
        """0 for the utilisation of a card that slept on; there is no other value.

        Raises:
            UnreadableError: for all the rest.
        """
        if metric != "utilization_percent":
            text = "the card sleeps (runtime_status is suspended) and is not woken to be read"
            raise UnreadableError(Reason.STALE, text)
        now = card.active_milliseconds
        before = self._awake_for.get(card.address)
        self._awake_for[card.address] = now
        if before != now:
            text = "the card sleeps, and has been awake since it was last looked at"
            raise UnreadableError(Reason.NO_PROGRESS, text)
        return 0.0
