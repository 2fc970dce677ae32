"""Watches inside one process: whoever changes the store tells everyone who watches it.

1. A watch yields, in order, every last state under its prefix after the revision it was opened
   at, from the history if that reaches back far enough.
2. A watcher that falls behind costs memory per key, not per change: what waits for it is
   coalesced, and past a bound it is told to list again.

Everything here runs in the loop's thread; publishing never waits for a watcher.
"""

import asyncio
from collections import deque
from typing import Protocol

from waystation.coordination.store import Change, Versioned, under
from waystation.model.errors import CompactedError

HISTORY_MAX = 1_000
PENDING_KEYS_MAX = 100_000


class Registry(Protocol):
    """Whoever tells a watch of changes."""

    def forget(self, watch: "LocalWatch") -> None:
        """Tell ``watch`` nothing more."""
        ...


class LocalWatch:
    """One watcher's view: what it has not been told yet, at most one state per key."""

    __slots__ = ("_closed", "_lost", "_pending", "_ready", "_registry", "_revision", "prefix")

    def __init__(self, registry: Registry, prefix: str, from_revision: int) -> None:
        self.prefix = prefix
        self._registry = registry
        self._revision = from_revision
        self._pending: dict[str, Versioned | None] = {}
        self._ready = asyncio.Event()
        self._closed = self._lost = False

    def __aiter__(self) -> "LocalWatch":
        return self

    async def __anext__(self) -> Change:
        await self._ready.wait()
        if self._lost:
            self._lost = False
            self.close()
            raise CompactedError(self._revision)
        if self._closed:
            raise StopAsyncIteration
        pending, self._pending = self._pending, {}
        self._ready.clear()
        puts = {key: item for key, item in pending.items() if item is not None}
        return Change(self._revision, puts, tuple(k for k, item in pending.items() if item is None))

    def close(self) -> None:
        """Stop, and be told nothing more."""
        self._registry.forget(self)
        self._closed = True
        self._ready.set()

    def tell(self, change: Change) -> None:
        """Add a change to what waits; a later state of a key takes the earlier one's place."""
        if change.revision <= self._revision or self._lost:
            return
        relevant: dict[str, Versioned | None] = {
            key: item for key, item in change.puts.items() if under(self.prefix, key)
        }
        relevant.update((key, None) for key in change.deletes if under(self.prefix, key))
        if relevant or not (change.puts or change.deletes):
            self._pending.update(relevant)
            self._revision = change.revision
            self._ready.set()
        if len(self._pending) > PENDING_KEYS_MAX:
            self.lose()

    def lose(self) -> None:
        """Some of what this watcher is owed is gone."""
        self._pending.clear()
        self._lost = True
        self._ready.set()


class Watches:
    """All watchers of one store, and the changes that a new one may still ask for."""

    __slots__ = ("_history", "_history_max", "_known_from", "_watchers")

    def __init__(self, revision: int, history_max: int = HISTORY_MAX) -> None:
        """``revision`` is the store's now; what led to it is not in the history."""
        self._known_from = revision
        self._history: deque[Change] = deque()
        self._history_max = history_max
        self._watchers: dict[LocalWatch, None] = {}

    def watch(self, prefix: str, from_revision: int) -> LocalWatch:
        """A watch told of everything after ``from_revision``, or that it cannot be."""
        watch = LocalWatch(self, prefix, from_revision)
        self._watchers[watch] = None
        if from_revision < self._known_from:
            watch.lose()
        for change in self._history:
            watch.tell(change)
        return watch

    def publish(self, change: Change) -> None:
        """Tell all watchers, and remember for those to come."""
        self._history.append(change)
        if len(self._history) > self._history_max:
            self._known_from = self._history.popleft().revision
        for watch in tuple(self._watchers):
            watch.tell(change)

    def lose(self) -> None:
        """A change may have happened that nobody can be told of: all list again."""
        for watch in tuple(self._watchers):
            watch.lose()

    def forget(self, watch: LocalWatch) -> None:
        """Tell ``watch`` nothing more."""
        self._watchers.pop(watch, None)

    def close(self) -> None:
        """End every watch."""
        for watch in tuple(self._watchers):
            watch.close()
