"""What a queue knows of its messages, as ranges, and how many of them are in which state.

Counts are kept up with every change, so that asking costs nothing; ranges are searched for
available messages only from the lowest offset that can have one.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from waystation.model.offsets import Millis, Offset
from waystation.sharing.locks import Lock
from waystation.sharing.ranges import Ranges
from waystation.sharing.states import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    DYING,
    WAITING,
    Counts,
    Span,
    StateBatch,
)


class Cell(NamedTuple):
    """What is known of a range: deliveries so far, who holds it, or when it may go again."""

    state: int
    deliveries: int = 0
    lock: Lock | None = None
    ready_at: Millis = Millis(0)


FRESH = Cell(AVAILABLE)
DONE = Cell(ACKNOWLEDGED)
PASSED_OVER = Cell(ARCHIVED)
SETTLED = (ACKNOWLEDGED, ARCHIVED)


class Backlog:
    """The messages from the first unsettled one to the last that was ever delivered."""

    __slots__ = ("_low", "acquired", "archiving", "available", "ranges", "settled", "waiting")

    def __init__(self, start: Offset) -> None:
        self.ranges: Ranges[Cell] = Ranges(start)
        self._low = start
        """No available message lies before this offset."""
        self.available = self.waiting = self.acquired = self.archiving = self.settled = 0

    def counts(self) -> Counts:
        """All counts at once."""
        return Counts(
            self.ranges.start,
            self.ranges.end,
            self.available,
            self.waiting,
            self.acquired,
            self.archiving,
            self.settled,
        )

    # --- changing -----------------------------------------------------------------------------

    def enter(self, end: Offset, cell: Cell) -> None:
        """Let everything up to ``end`` in."""
        first = self.ranges.end
        self.ranges.extend(end, cell)
        self.count(cell, end - first)
        if cell.state == AVAILABLE:
            self._low = min(self._low, first)

    def recolour(self, first: Offset, end: Offset, before: Cell, after: Cell) -> None:
        """What was ``before`` is ``after`` now."""
        records = end - first
        self.count(before, -records)
        self.count(after, records)
        self.ranges.paint(first, end, after)
        if after.state == AVAILABLE:
            self._low = min(self._low, first)
        elif not self.available:
            self._low = self.ranges.end
        elif first == self._low:
            self._low = end

    def count(self, cell: Cell, records: int) -> None:
        """So many more are in the cell's state, or less."""
        state = cell.state
        if state == AVAILABLE:
            self.available += records
        elif state == ACQUIRED:
            self.acquired += records
        elif state == WAITING:
            self.waiting += records
        elif state in DYING:
            self.archiving += records
        else:
            self.settled += records

    def advance(self) -> bool:
        """Forget everything settled at the start; true if there was something."""
        ranges = self.ranges
        if not len(ranges) or ranges.first_colour.state not in SETTLED:
            return False
        after = ranges.start
        for first, end, cell in ranges.runs_from(after):
            if cell.state not in SETTLED:
                break
            after = end
            self.settled -= end - first
        ranges.forget(after)
        self._low = max(self._low, after)
        return True

    # --- looking ------------------------------------------------------------------------------

    def first_available(self) -> Offset:
        """The oldest message that may go; there must be one."""
        for first, _, cell in self.ranges.runs_from(self._low):
            if cell.state == AVAILABLE:
                self._low = first
                return first
        raise AssertionError(f"{self.available} messages are available, and none was found")

    def choose(self, limit: int, first: Offset, end: Offset) -> list[tuple[Offset, Offset, Cell]]:
        """The oldest available messages of ``[first, end)``, at most ``limit``."""
        chosen: list[tuple[Offset, Offset, Cell]] = []
        if not self.available:
            return chosen
        for begin, until, cell in self.ranges.runs_from(max(self._low, first)):
            if begin >= end or limit <= 0:
                break
            if cell.state == AVAILABLE:
                stop = min(until, end, Offset(begin + limit))
                limit -= stop - begin
                chosen.append((begin, stop, cell))
        return chosen

    def choose_fresh(
        self, limit: int, end: Offset, skipped: Sequence[Span]
    ) -> tuple[list[tuple[Offset, Offset, Cell]], list[Span]]:
        """Let up to ``limit`` messages before ``end`` in; what is skipped is passed over."""
        ranges, chosen, passed = self.ranges, list[tuple[Offset, Offset, Cell]](), list[Span]()
        for skip in [*skipped, Span(end, end)]:
            if skip.end <= ranges.end:
                continue
            begin, until = ranges.end, min(skip.first, end, Offset(ranges.end + limit))
            if until > begin:
                self.enter(until, FRESH)
                chosen.append((begin, until, FRESH))
                limit -= until - begin
            if until < skip.first or limit <= 0 or skip.first >= end:
                break
            passed.append(Span(ranges.end, min(skip.end, end)))
            self.enter(passed[-1].end, PASSED_OVER)
        return chosen, passed

    def stored_form(self, first: Offset, end: Offset) -> Iterator[StateBatch]:
        """What is stored of some offsets: a delivery that is not over does not count yet."""
        for begin, until, cell in self.ranges.spans(first, end):
            if cell.state == ACQUIRED:
                yield StateBatch(begin, until, AVAILABLE, cell.deliveries - 1)
            elif cell.state == WAITING:
                yield StateBatch(begin, until, AVAILABLE, cell.deliveries)
            else:
                yield StateBatch(begin, until, cell.state, cell.deliveries)


def aligned(start: Offset, limit: int, batch_ends: Sequence[Offset]) -> int:
    """How many messages to give, so that the batch of the last one is given whole."""
    at = bisect_left(batch_ends, start + limit)
    return batch_ends[at] - start if at < len(batch_ends) else limit
