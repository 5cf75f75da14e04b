"""A bounded memory: what was used most recently stays, the rest is forgotten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most ``capacity`` entries. Not for use from several threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> Iterable[V]:
        """All entries, the most recent one last."""
        return self._entries.values()

    def find(self, key: K) -> V | None:
        """The entry, which thereby becomes the most recent one, or None."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def keep(self, key: K, value: V) -> V:
        """Add or replace an entry, and forget the oldest where there are too many."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)
        return value
