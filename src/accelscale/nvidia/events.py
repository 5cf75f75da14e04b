"""What the driver reports of its own accord: XIDs and memory errors, heard by a thread.

NVML keeps the events of each registered card until somebody takes them, so the thread asks for them
now and then without waiting inside NVML. A wait in there would hold up every shutdown, and keep the
device files open when the driver is to be unloaded. What happened before a card was registered is
never told.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from accelscale.model import Reason
from accelscale.nvidia.call_error import CallError
from accelscale.nvidia.card import Card
from accelscale.nvidia.driver import Driver, address, text
from accelscale.nvidia.health import NOT_LISTENING
from accelscale.nvidia.outcome import Absent

logger = logging.getLogger("accelscale.nvidia")

POLL_SECONDS = 0.5

_PATIENCE_SECONDS = 0.1
"""How long others wait for the thread, which is in NVML for microseconds unless a call hangs."""

_MOST_EVENTS = 256
"""Events that are taken at a time; a card in agony may report without end."""

XID = "nvmlEventTypeXidCriticalError"
MEMORY_ERROR = "nvmlEventTypeDoubleBitEccError"


class Listener:
    """Hears the events of cards, and tells each card's `Card.health`.

    `attend` and `stop` are called by whoever looks for cards and shuts NVML down; `stop` must come
    before the shutdown.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lock = threading.Lock()  # for the set of events, and all calls about it
        self._set: Any = None
        self._generation = 0
        self._heard: dict[tuple[int, int], Card] = {}
        self._refused: set[tuple[int, int]] = set()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def attend(self, cards: Iterable[Card]) -> None:
        """Register the cards that are within reach and not registered yet.

        Raises:
            CallError: the driver as a whole does not answer.
        """
        with self._mine() as is_mine:
            if not is_mine:
                return
            is_old = self._generation != self._driver.generation
            if is_old or any(card.life != life for life, card in self._heard.items()):
                self._free_set()  # it holds a former life of a card, and may fail for that
            cards = tuple(cards)
            self._register_all(cards)
            if self._set is None:
                self._register_all(cards)  # without the one that spoilt the set

    def listen(self) -> None:
        """Start the thread, if a card is registered and it does not run."""
        if self._heard and (self._thread is None or not self._thread.is_alive()):
            self._ended = threading.Event()
            self._thread = threading.Thread(
                target=self._run,
                args=(self._ended,),
                name="accelscale-nvidia-events",
                daemon=True,
            )
            self._thread.start()

    def stop(self) -> None:
        """End the thread and free the set, without waiting for a call that hangs."""
        self._ended.set()
        with self._mine() as is_mine:
            if is_mine:
                self._free_set()
        thread, self._thread = self._thread, None
        if is_mine and thread is not None:
            thread.join(1.0)

    def poll(self) -> None:
        """Take all events that there are."""
        with self._lock:
            for _ in range(_MOST_EVENTS):
                if self._set is None:
                    return
                try:
                    self._hear(self._driver.call("nvmlEventSetWait", self._set, 0))
                except CallError as error:
                    if error.name != "TIMEOUT":  # that is: no event
                        self._interrupted(error)
                    return

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(POLL_SECONDS):
            try:
                self.poll()
            except Exception:
                logger.exception("hearing events of NVML failed")

    def _hear(self, event: Any) -> None:
        card = self._card_of(event.device)
        if card is None:
            logger.warning("an event of a card that NVML does not name: %s", event.eventData)
        elif event.eventType == self._driver.constant(XID):
            card.health.hear_xid(int(event.eventData))
        elif event.eventType == self._driver.constant(MEMORY_ERROR):
            card.health.hear_memory_error()

    def _card_of(self, handle: Any) -> Card | None:
        """The card of a handle, which may have been given out before it was lost."""
        card = self._heard.get((self._generation, address(handle)))
        if card is not None:
            return card
        try:
            uuid = text(self._driver.call("nvmlDeviceGetUUID", handle))
        except CallError:
            return None
        return next((card for card in self._heard.values() if card.id == uuid), None)

    def _register_all(self, cards: Iterable[Card]) -> None:
        for card in cards:
            if card.life in self._heard or card.life in self._refused or not card.is_within_reach:
                continue
            try:
                self._register(card)
            except CallError as error:
                if error.is_driver_wide:
                    raise
                self._refuse(card, error)

    def _register(self, card: Card) -> None:
        """Have the driver keep the events of a card, of those kinds that it knows."""
        assert card.life is not None
        kinds = self._driver.call("nvmlDeviceGetSupportedEventTypes", card.handle)
        wanted = kinds & self._mask(XID, MEMORY_ERROR)
        if not wanted & self._mask(XID):
            detail = f"the driver reports no XIDs of {card.name}{card.surroundings}"
            card.health.deaf = Absent(Reason.NOT_SUPPORTED, detail, permanent=True)
            self._refused.add(card.life)
            return
        if self._set is None:
            self._set = self._driver.call("nvmlEventSetCreate")
            self._generation = self._driver.generation
        self._driver.call("nvmlDeviceRegisterEvents", card.handle, wanted, self._set)
        self._heard[card.life] = card
        card.health.deaf = None

    def _refuse(self, card: Card, error: CallError) -> None:
        assert card.life is not None
        is_lacking = error.reason is Reason.NOT_SUPPORTED
        detail = f"events of this card cannot be heard: {error}"
        card.health.deaf = Absent(error.reason, detail, error.code, permanent=is_lacking)
        if error.reason is not Reason.TIMEOUT:
            self._refused.add(card.life)
        if error.name == "UNKNOWN":  # the set is in an undefined state then
            self._interrupted(error)

    def _mask(self, *kinds: str) -> int:
        return sum(self._driver.constant(kind) or 0 for kind in kinds)

    def _interrupted(self, error: CallError) -> None:
        """Begin anew at the next `attend`: a set that holds a lost card tells nothing of others."""
        logger.debug("events of NVML: %s", error)
        if error.is_driver_wide:
            self._forget_set()
        else:
            self._free_set()

    def _free_set(self) -> None:
        if self._set is not None and self._generation == self._driver.generation:
            try:
                self._driver.call("nvmlEventSetFree", self._set)
            except CallError as error:
                logger.debug("events of NVML: %s", error)
        self._forget_set()

    def _forget_set(self) -> None:
        self._set = None
        for card in self._heard.values():
            card.health.deaf = NOT_LISTENING
        self._heard = {}
        self._refused = {life for life in self._refused if life[0] == self._driver.generation}

    @contextmanager
    def _mine(self) -> Iterator[bool]:
        """Whether the set is ours to change, which it is not while a call of the thread hangs."""
        if not self._lock.acquire(timeout=_PATIENCE_SECONDS):
            yield False
            return
        try:
            yield True
        finally:
            self._lock.release()
