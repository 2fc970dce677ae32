"""What of a queue's state is not stored yet, and how it gets stored.

One change is under way at a time and takes along all that has happened since the last one, so
that a thousand acknowledgements cost one write.  A change is absolute: it says what the state of
some offsets *is*, so that repeating one whose answer was lost does no harm.

1. What a change says was true when it was taken, and everything that happened before it was
   taken is in it or in an earlier one that is stored.
2. ``stored`` never exceeds what has been written: who waits for its number knows.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from waystation.model.offsets import Offset
from waystation.sharing.states import Span, StateBatch


class StateChange(NamedTuple):
    """What a leader writes: all before ``start`` is settled, and so are ``settled`` at or past it.

    Offsets that no batch names are as they were stored before.
    """

    start: Offset
    settled: int
    batches: tuple[StateBatch, ...]


class Changes:
    """Which offsets differ from what is stored; ``version`` counts what happened to them."""

    __slots__ = ("_dirty", "_taken", "_taken_version", "stored", "version")

    def __init__(self) -> None:
        self._dirty: list[Span] = []
        self._taken: list[Span] | None = None
        self._taken_version = 0
        self.version = 0
        self.stored = 0

    @property
    def is_under_way(self) -> bool:
        """Whether a change was taken whose fate is not known yet."""
        return self._taken is not None

    def mark(self, first: Offset, end: Offset) -> None:
        """Something happened to these offsets."""
        self.version += 1
        self._dirty.append(Span(first, end))

    def touch(self) -> None:
        """Something happened to the start only."""
        self.version += 1

    def take(
        self,
        start: Offset,
        settled: int,
        look: Callable[[Offset, Offset], Iterable[StateBatch]],
    ) -> StateChange | None:
        """All that is to be written now; ``None`` if there is nothing, or a write is under way."""
        if self._taken is not None or self.version == self.stored:
            return None
        spans = merged(self._dirty, start)
        self._dirty, self._taken, self._taken_version = [], spans, self.version
        batches = [batch for span in spans for batch in look(*span)]
        return StateChange(start, settled, tuple(joined(batches)))

    def written(self) -> None:
        """The change that was taken is stored."""
        assert self._taken is not None, "a change was written that nobody had taken"
        self._taken, self.stored = None, self._taken_version

    def lost(self) -> None:
        """Nobody knows whether the change is stored: it is to be written again."""
        assert self._taken is not None, "a change was lost that nobody had taken"
        self._dirty.extend(self._taken)
        self._taken = None


def merged(spans: Iterable[Span], start: Offset) -> list[Span]:
    """The same offsets from ``start`` on, in order, each once."""
    found: list[Span] = []
    for first, end in sorted(spans):
        if end <= start:
            continue
        if found and first <= found[-1].end:
            found[-1] = Span(found[-1].first, max(end, found[-1].end))
        else:
            found.append(Span(max(first, start), end))
    return found


def joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Neighbours of equal state as one."""
    found: list[StateBatch] = []
    for batch in batches:
        last = found[-1] if found else None
        if last is not None and last.end == batch.first and last[2:] == batch[2:]:
            found[-1] = last._replace(end=batch.end)
        else:
            found.append(batch)
    return found
