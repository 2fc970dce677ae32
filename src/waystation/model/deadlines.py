"""Moments by which something must have happened, most of which are put off again and again.

Putting off is what heartbeats do, so it costs a dictionary write: the queue keeps the earlier
moment and finds the later one when its turn comes.
"""

from heapq import heapify, heappop, heappush

from waystation.model.offsets import Millis


class Deadlines:
    """A deadline per key; keys of one moment fall due in the order in which they were set."""

    __slots__ = ("_at", "_count", "_queue")

    def __init__(self) -> None:
        self._at: dict[str, Millis] = {}
        self._queue: list[tuple[Millis, int, str]] = []
        self._count = 0

    def __contains__(self, key: str) -> bool:
        return key in self._at

    def set(self, key: str, at: Millis | None) -> None:
        """Expect ``key`` by ``at``, or no more, whatever was expected before."""
        if at is None:
            self.cancel(key)
            return
        known = self._at.get(key)
        self._at[key] = at
        if known is None or at < known:
            self._push(at, key)

    def cancel(self, key: str) -> None:
        """Expect nothing of ``key``."""
        self._at.pop(key, None)
        if len(self._queue) > 64 and len(self._queue) > 4 * len(self._at):
            self._rebuild()

    def earliest(self) -> Millis | None:
        """The earliest moment at which something falls due."""
        while self._queue:
            at, _, key = self._queue[0]
            meant = self._at.get(key)
            if meant == at:
                return at
            heappop(self._queue)
            if meant is not None and meant > at:
                self._push(meant, key)
        return None

    def due(self, now: Millis, at_most: int | None = None) -> list[str]:
        """The keys whose moment has come, soonest first; nothing more is expected of them."""
        keys: list[str] = []
        while len(keys) != at_most and (at := self.earliest()) is not None and at <= now:
            _, _, key = heappop(self._queue)
            del self._at[key]
            keys.append(key)
        return keys

    def _push(self, at: Millis, key: str) -> None:
        self._count += 1
        heappush(self._queue, (at, self._count, key))

    def _rebuild(self) -> None:
        self._queue = [(at, order, key) for order, (key, at) in enumerate(self._at.items())]
        heapify(self._queue)
        self._count = len(self._queue)
