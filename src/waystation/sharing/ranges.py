"""A stretch of offsets cut into ranges, each of one colour.

Whatever is said of a million neighbouring offsets costs as much as of one: ranges are cut only
where colours differ, and grow together where they do not.  Two promises:

1. ranges have no gaps and no overlaps: each offset of ``[start, end)`` has exactly one colour;
2. no two neighbours are equal, so there are as few ranges as there can be.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

from waystation.model.offsets import Offset

C = TypeVar("C")


class Ranges(Generic[C]):
    """Two parallel lists, of where ranges begin and of what colour they are.

    HOT: a few calls per request.  Plain lists with ``bisect`` beat a tree of objects up to tens
    of thousands of ranges, for moving a list's tail is one ``memmove``
    (benchmarks/sharing/acknowledge.py).
    """

    __slots__ = ("_colours", "_firsts", "end")

    def __init__(self, start: Offset) -> None:
        self._firsts: list[Offset] = []
        self._colours: list[C] = []
        self.end = start

    def __len__(self) -> int:
        return len(self._firsts)

    @property
    def start(self) -> Offset:
        """The first offset that has a colour; ``end`` if there is none."""
        return self._firsts[0] if self._firsts else self.end

    @property
    def first_colour(self) -> C:
        """The colour at ``start``; there must be one."""
        return self._colours[0]

    def at(self, offset: Offset) -> C:
        """The colour of an offset."""
        assert self.start <= offset < self.end, f"{offset} is not in [{self.start}, {self.end})"
        return self._colours[bisect_right(self._firsts, offset) - 1]

    def extend(self, end: Offset, colour: C) -> None:
        """Give everything from the present end up to ``end`` a colour."""
        assert end > self.end, f"an end of {end} after {self.end}"
        if not self._colours or self._colours[-1] != colour:
            self._firsts.append(self.end)
            self._colours.append(colour)
        self.end = end

    def spans(self, first: Offset, end: Offset) -> list[tuple[Offset, Offset, C]]:
        """The ranges between two offsets, cut off at them."""
        firsts, colours = self._firsts, self._colours
        if not firsts:
            return []
        if first < firsts[0]:
            first = firsts[0]
        if end > self.end:
            end = self.end
        if first >= end:
            return []
        low = bisect_right(firsts, first) - 1
        if low + 1 == len(firsts) or firsts[low + 1] >= end:
            return [(first, end, colours[low])]  # most acknowledgements are of one range
        high = bisect_left(firsts, end, low)
        begins = firsts[low:high]
        begins[0] = first
        return list(zip(begins, [*begins[1:], end], colours[low:high], strict=True))

    def runs_from(self, first: Offset) -> Iterator[tuple[Offset, Offset, C]]:
        """Each range from ``first`` on, found as it is asked for; nothing may change meanwhile."""
        firsts, colours = self._firsts, self._colours
        at = max(bisect_right(firsts, first) - 1, 0)
        for index in range(at, len(firsts)):
            end = firsts[index + 1] if index + 1 < len(firsts) else self.end
            yield max(firsts[index], first), end, colours[index]

    def paint(self, first: Offset, end: Offset, colour: C) -> None:
        """Give ``[first, end)`` one colour."""
        assert self.start <= first < end <= self.end, (
            f"[{first}, {end}) is not in [{self.start}, {self.end})"
        )
        firsts, colours = self._firsts, self._colours
        low, high = self._cut(first), self._cut(end)
        if high - low > 1:
            del firsts[low + 1 : high], colours[low + 1 : high]
        colours[low] = colour
        if low + 1 < len(colours) and colours[low + 1] == colour:
            del firsts[low + 1], colours[low + 1]
        if low and colours[low - 1] == colour:
            del firsts[low], colours[low]

    def forget(self, before: Offset) -> None:
        """Let the stretch begin at ``before``, or end there if it ends earlier."""
        if before >= self.end:
            self._firsts.clear()
            self._colours.clear()
            self.end = before
        elif before > self.start:
            low = self._cut(before)
            del self._firsts[:low], self._colours[:low]

    def _cut(self, offset: Offset) -> int:
        """The index of the range that begins at ``offset``, cut there if need be."""
        firsts = self._firsts
        index = bisect_left(firsts, offset)
        if offset == self.end or (index < len(firsts) and firsts[index] == offset):
            return index
        firsts.insert(index, offset)
        self._colours.insert(index, self._colours[index - 1])
        return index
