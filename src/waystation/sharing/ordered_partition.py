"""A queue that chooses: order per key, and priorities, within a window of messages.

The host shows the queue each message once, with its key and its priority (``admit``).  Of the
messages of one key only the oldest is a candidate; with order by key, only while none of them is
out or has to wait.  Among candidates the highest priority goes first, and the oldest among
equals.  Promises, besides those of ``share_partition.py``:

1. with order by key at most one message per key is out, and those of a key are settled in the
   order of their offsets;
2. priorities never reorder the messages of one key: none is delivered for the first time before
   an older one of its key was delivered;
3. the oldest candidate is passed by at most ``share.priority.patience`` messages in a row;
4. a key that is blocked costs the others nothing as long as the window has room.

A message without a key has no order to keep.  Whether keys and priorities count is settled when
the queue is made: a group that changes its mind gets a new queue, as if its leader had changed.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from waystation.model.offsets import Millis, Offset
from waystation.sharing.backlog import FRESH, PASSED_OVER, Cell
from waystation.sharing.settings import BY_KEY, QueueSettings, ShareSettings
from waystation.sharing.share_partition import SharePartition
from waystation.sharing.states import AVAILABLE, WAITING, Acquired

PRIORITY_HEADER: Final = "priority"
LOWEST, HIGHEST = 0, 9


class Shown(NamedTuple):
    """What the queue must know of a message to choose."""

    offset: Offset
    key: bytes | None
    priority: int = LOWEST


def priority_of(value: bytes | None) -> int:
    """The priority that a header's value says: one digit; anything else is the lowest."""
    return int(value) if value is not None and len(value) == 1 and value.isdigit() else LOWEST


class _Line:
    """The unsettled messages of one key."""

    __slots__ = ("blocked", "candidate", "key", "waiting")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.waiting: list[Offset] = []
        """A heap of those that may be delivered once it is their turn."""
        self.candidate: Offset | None = None
        self.blocked = 0
        """How many are out, or wait for their back-off to end."""


class OrderedPartition(SharePartition):
    """A queue in which each message has a place of its own.

    HOT: everything here costs per message (benchmarks/sharing/acknowledge.py).
    """

    chooses = True

    __slots__ = (
        "_by_age",
        "_by_key",
        "_by_priority",
        "_candidates",
        "_has_priorities",
        "_lines",
        "_passed",
        "_places",
        "_shown_end",
    )

    def __init__(
        self,
        start: Offset,
        queue: Callable[[], QueueSettings],
        share: Callable[[], ShareSettings],
    ) -> None:
        super().__init__(start, queue, share)
        self._by_key = queue().share_order == BY_KEY
        self._has_priorities = queue().share_priority
        self._places: dict[Offset, tuple[_Line | None, int]] = {}
        """The line and the priority of every unsettled message that was shown."""
        self._lines: dict[bytes, _Line] = {}
        self._candidates: dict[Offset, int] = {}
        """Those that may go now; the heaps may name others too, which do not count."""
        self._by_priority: list[tuple[int, Offset]] = []
        self._by_age: list[Offset] = []
        self._passed = 0
        self._shown_end = start

    # --- the window ---------------------------------------------------------------------------

    def admits_from(self) -> Offset | None:
        """From where on messages are to be shown; ``None`` while the window is full.

        After a load that is the queue's start, for keys are not stored.
        """
        if len(self._places) >= self._queue().share_priority_window:
            return None
        position = max(self._shown_end, self.start)
        return position if position < self.end or self._may_grow() else None

    def admit(self, end: Offset, shown: Sequence[Shown]) -> None:
        """Show the messages of ``[admits_from(), end)``, in order; where none is shown none is."""
        position = max(self._shown_end, self.start)
        assert end > position, f"messages up to {end} are shown, known are those before {position}"
        for message in shown:
            offset = message.offset
            assert position <= offset < end, f"{offset} is not in [{position}, {end})"
            self._pass_over(position, offset)
            position = Offset(offset + 1)
            if offset >= self.end:
                self._backlog.enter(position, FRESH)
                self._place(message, AVAILABLE)
            else:
                self._place(message, self._backlog.ranges.at(offset).state)
        self._pass_over(position, end)
        self._shown_end = end
        self._advance()

    def choose(self, now: Millis, member_id: str, limit: int) -> list[Acquired]:
        """Give a consumer up to ``limit`` messages, in the order of offsets."""
        self.tick(now)
        limit = min(limit, self.room(now))
        chosen: list[Offset] = []
        while len(chosen) < limit and (offset := self._next()) is not None:
            self._depart(offset)
            chosen.append(offset)
        chosen.sort()
        return self._lock(now, member_id, list(self._runs(chosen)))

    @property
    def candidates(self) -> int:
        """How many messages could go now."""
        return len(self._candidates)

    # --- parts: entering ----------------------------------------------------------------------

    def _pass_over(self, first: Offset, end: Offset) -> None:
        """Nothing is to be delivered of these offsets."""
        if first >= end:
            return
        for begin, until, cell in self._backlog.ranges.spans(first, min(end, self.end)):
            if cell.state in (AVAILABLE, WAITING):
                self._backlog.recolour(begin, until, cell, PASSED_OVER)
                self._changes.mark(begin, until)
        if end > self.end:
            begin = max(self.end, first)
            self._backlog.enter(end, PASSED_OVER)
            self._changes.mark(begin, end)

    def _place(self, message: Shown, state: int) -> None:
        """Give a message its place, unless it is settled."""
        offset, key, priority = message
        if state not in (AVAILABLE, WAITING):
            return
        if not self._has_priorities:
            priority = LOWEST
        if key is None:
            self._places[offset] = (None, priority)
            if state == AVAILABLE:
                self._stand(offset, priority)
            return
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(key)
        self._places[offset] = (line, priority)
        if state == AVAILABLE:
            heappush(line.waiting, offset)
            self._promote(line)
        else:
            line.blocked += 1
            self._promote(line)

    # --- parts: choosing ----------------------------------------------------------------------

    def _next(self) -> Offset | None:
        """The candidate whose turn it is."""
        heap, candidates = self._by_priority, self._candidates
        while heap and heap[0][1] not in candidates:
            heappop(heap)
        if not heap:
            return None
        first = heap[0][1]
        if not self._has_priorities:
            return first
        oldest = self._oldest()
        if first != oldest and self._passed < self._queue().share_priority_patience:
            self._passed += 1
            return first
        self._passed = 0
        return oldest

    def _oldest(self) -> Offset:
        heap, candidates = self._by_age, self._candidates
        while heap[0] not in candidates:
            heappop(heap)
        return heap[0]

    def _stand(self, offset: Offset, priority: int) -> None:
        """Let a message be a candidate."""
        self._candidates[offset] = priority
        heappush(self._by_priority, (-priority, offset))
        if self._has_priorities:
            heappush(self._by_age, offset)
            if len(self._by_age) > 4 * len(self._candidates) + 64:
                self._rebuild()

    def _rebuild(self) -> None:
        """Drop what the heaps name in vain: messages that went by the other one."""
        self._by_age = list(self._candidates)
        self._by_priority = [(-level, offset) for offset, level in self._candidates.items()]
        heapify(self._by_age)
        heapify(self._by_priority)

    def _depart(self, offset: Offset) -> None:
        """The candidate goes to a consumer."""
        line = self._places[offset][0]
        if line is None:
            del self._candidates[offset]
            return
        assert line.candidate == line.waiting[0] == offset, f"{offset} goes before its turn"
        del self._candidates[offset]
        line.candidate = None
        heappop(line.waiting)
        line.blocked += 1
        self._promote(line)

    def _promote(self, line: _Line) -> None:
        """Let the oldest of the line be a candidate, if one may go."""
        may_go = line.waiting and not (self._by_key and line.blocked)
        head = line.waiting[0] if may_go else None
        if head == line.candidate:
            return
        if line.candidate is not None:
            del self._candidates[line.candidate]
        line.candidate = head
        if head is not None:
            self._stand(head, self._places[head][1])

    def _runs(self, offsets: Sequence[Offset]) -> Iterator[tuple[Offset, Offset, Cell]]:
        """Neighbours of equal state as one."""
        first = end = Offset(-1)
        colour = FRESH
        for offset in offsets:
            cell = self._backlog.ranges.at(offset)
            if offset == end and cell == colour:
                end = Offset(end + 1)
                continue
            if end > first:
                yield first, end, colour
            first, end, colour = offset, Offset(offset + 1), cell
        if end > first:
            yield first, end, colour

    # --- what happens to messages -------------------------------------------------------------

    def _on_available(self, first: Offset, end: Offset) -> None:
        for number in range(first, end):
            offset = Offset(number)
            place = self._places.get(offset)
            if place is None:
                continue  # loaded, and not shown yet
            line, priority = place
            if line is None:
                self._stand(offset, priority)
                continue
            line.blocked -= 1
            heappush(line.waiting, offset)
            self._promote(line)

    def _on_settled(self, first: Offset, end: Offset, before: Cell) -> None:
        for number in range(first, end):
            offset = Offset(number)
            line, _ = self._places.pop(offset, (None, LOWEST))
            if line is None:
                self._candidates.pop(offset, None)
                continue
            if before.state == AVAILABLE:  # retention takes what nobody holds
                line.waiting.remove(offset)
                heapify(line.waiting)
                self._withdraw(line, offset)
            else:
                line.blocked -= 1
            self._promote(line)
            if not line.waiting and not line.blocked:
                del self._lines[line.key]

    def _withdraw(self, line: _Line, offset: Offset) -> None:
        if line.candidate == offset:
            del self._candidates[offset]
            line.candidate = None
