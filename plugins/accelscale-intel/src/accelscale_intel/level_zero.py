"""Level Zero as the backend uses it: tried out first, then started, or a reason why not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from accelscale.model import Reason
from accelscale_intel.cards import Card
from accelscale_intel.files import UnreadableError
from accelscale_intel.rights import privileges
from accelscale_intel.rows import LEVEL_ZERO

if TYPE_CHECKING:
    from accelscale_intel.sysman import LevelZero
    from accelscale_intel.sysman_card import SysmanCard

QUICK_SECONDS = 2.0
"""A trial that was over sooner is repeated while cards are being read."""

logger = logging.getLogger("accelscale.intel")


class Sysman:
    """The devices of Level Zero, by PCI address; none of them while it does not work.

    The modules that it needs are imported only here, once there is an Intel GPU.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._zero: LevelZero | None = None
        self._cards: dict[str, SysmanCard] = {}
        self._outlived: set[str] = set()
        self._fault = UnreadableError(Reason.ERROR, "it was not started")
        self._is_tried_again = False

    def start(self) -> None:
        """Start Level Zero if it works here. Never raises; once started, it runs on."""
        if self._zero is None:
            from accelscale_intel.trial import verdict

            found = verdict(self._root)
            # Not one that hung: to find out once more would hold up the readings of all cards.
            self._is_tried_again = not found.is_final and found.seconds < QUICK_SECONDS
            if not found.works:
                self._fault = UnreadableError(
                    Reason.NOT_SUPPORTED, found.reason, permanent=found.is_final
                )
                return
            from accelscale_intel.sysman import LevelZero

            try:
                self._zero = LevelZero()
            except UnreadableError as error:
                self._fault = error
                return
        self.refresh()

    def refresh(self) -> None:
        """Look which devices there are now. Those that are still the same keep what they know.

        Where Level Zero did not work, look whether it does by now.
        """
        if self._zero is None:
            if self._is_tried_again:
                self.start()
            return
        from accelscale_intel.sysman_card import SysmanCard

        try:
            handles = self._zero.devices()
        except UnreadableError as error:
            logger.warning("Level Zero does not list its devices: %s", error)
            return
        rights = privileges(self._root)
        for address in self._cards.keys() - handles.keys():
            del self._cards[address]
        for address, handle in handles.items():
            known = self._cards.get(address)
            if address in self._outlived:
                continue
            if known is None or known.handle.value != handle.value:
                self._cards[address] = SysmanCard(self._zero, handle, rights)

    def forget(self) -> None:
        """Let go of the devices; Level Zero itself has no way to be stopped."""
        self._cards.clear()

    def outlive(self, address: str) -> None:
        """A card came back. Level Zero lists its devices once, and knows only the one that went."""
        if self._zero is not None:
            self._outlived.add(address)
            self._cards.pop(address, None)

    def card(self, address: str) -> SysmanCard | None:
        """The device at that address."""
        return self._cards.get(address)

    def reader(self, card: Card, metric: str) -> Callable[[], float] | None:
        """How to read a metric; None for one that Level Zero never gives.

        Raises:
            UnreadableError: Level Zero does not work here, or does not list the card.
        """
        if metric not in LEVEL_ZERO:
            return None
        if self._zero is None:
            raise self._fault
        if card.address in self._outlived:
            text = (
                "the card went and came back since it was started: restart this process to use it"
            )
            raise UnreadableError(Reason.NOT_SUPPORTED, text)
        device = self._cards.get(card.address)
        if device is None:
            text = "it does not list the card: its device files may be missing or not permitted"
            raise UnreadableError(Reason.NOT_SUPPORTED, text)
        return device.readers[metric]
