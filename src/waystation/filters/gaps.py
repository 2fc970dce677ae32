"""Where nothing matches, remembered within bounds, so that it is not looked through again.

A view of one message in a million reads its source once and then knows; the next reader, or the
same one after a restart of its own, is taken across.  What holds:

1. an offset is only ever skipped if somebody looked at it and found no match;
2. stretches never overlap or touch, and rise;
3. there are never more than ``limit``: of too many the shortest is forgotten, which costs another
   look and nothing else.

A log that is cut at its end, or begins later, is told so (``cut``, ``forget_before``): offsets that
are written anew may match.
"""

from bisect import bisect_left, bisect_right

from waystation.filters.narrowing import Stretch
from waystation.model.offsets import Offset

__all__ = ["Gaps"]

_LIMIT = 1_024


class Gaps:
    """Stretches without a match of one partition of one view."""

    __slots__ = ("_ends", "_limit", "_starts")

    def __init__(self, limit: int = _LIMIT) -> None:
        assert limit > 0, f"room for {limit} stretches"
        self._limit = limit
        self._starts: list[Offset] = []
        self._ends: list[Offset] = []

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def stretches(self) -> list[Stretch]:
        """All that is known, in order."""
        return [Stretch(start, end) for start, end in zip(self._starts, self._ends, strict=True)]

    def behind(self, offset: Offset) -> Offset:
        """The first offset at or past ``offset`` that may match."""
        at = bisect_right(self._starts, offset) - 1
        return max(self._ends[at], offset) if at >= 0 else offset

    def ahead(self, offset: Offset) -> Offset | None:
        """Where the next stretch begins that does so behind ``offset``."""
        at = bisect_right(self._starts, offset)
        return self._starts[at] if at < len(self._starts) else None

    def note(self, stretch: Stretch) -> None:
        """Remember that nothing in ``stretch`` matches."""
        start, end = stretch
        if start >= end:
            return
        # All that overlap or touch it become one with it.
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        if len(self._starts) > self._limit:
            self._forget_shortest()

    def cut(self, end: Offset) -> None:
        """Forget what is at or past ``end``: the log was cut there."""
        kept = bisect_left(self._starts, end)
        del self._starts[kept:], self._ends[kept:]
        if self._ends and self._ends[-1] > end:
            self._ends[-1] = end

    def forget_before(self, start: Offset) -> None:
        """Forget what is before ``start``: the log begins there now."""
        gone = bisect_right(self._ends, start)
        del self._starts[:gone], self._ends[:gone]
        if self._starts and self._starts[0] < start:
            self._starts[0] = start

    def _forget_shortest(self) -> None:
        lengths = [end - start for start, end in zip(self._starts, self._ends, strict=True)]
        at = lengths.index(min(lengths))
        del self._starts[at], self._ends[at]
