"""Who holds what until when.

A lock is made by one acquisition and never lasts longer than it was made for: who renews gets a
new lock for what it renews.  So deadlines never change, and a queue of them is enough.
"""

from heapq import heapify, heappop, heappush

from waystation.model.offsets import Millis, Offset


class Lock:
    """One acquisition: ``held`` of the messages in ``[first, end)`` are still its member's."""

    __slots__ = ("deadline", "end", "first", "held", "member_id")

    def __init__(
        self, member_id: str, deadline: Millis, first: Offset, end: Offset, held: int
    ) -> None:
        self.member_id, self.deadline = member_id, deadline
        self.first, self.end = first, end
        self.held = held


class Locks:
    """All locks of one queue, by deadline and by member; those that hold nothing are forgotten."""

    __slots__ = ("_by_member", "_count", "_live", "_queue")

    def __init__(self) -> None:
        self._by_member: dict[str, dict[Lock, None]] = {}
        self._queue: list[tuple[Millis, int, Lock]] = []
        self._count = self._live = 0

    def add(self, lock: Lock) -> None:
        """Begin a lock."""
        self._count += 1
        self._live += 1
        heappush(self._queue, (lock.deadline, self._count, lock))
        self._by_member.setdefault(lock.member_id, {})[lock] = None

    def let_go(self, lock: Lock, records: int) -> None:
        """So many of its messages are no longer its member's."""
        assert 0 < records <= lock.held, f"{records} of {lock.held} messages are let go"
        lock.held -= records
        if lock.held:
            return
        self._live -= 1
        of_member = self._by_member[lock.member_id]
        del of_member[lock]
        if not of_member:
            del self._by_member[lock.member_id]
        if len(self._queue) > 64 and len(self._queue) > 4 * self._live:
            self._queue = [entry for entry in self._queue if entry[2].held]
            heapify(self._queue)

    def of(self, member_id: str) -> list[Lock]:
        """What a member holds, oldest first."""
        return list(self._by_member.get(member_id, ()))

    def members(self) -> list[str]:
        """Everyone who holds something."""
        return list(self._by_member)

    def earliest(self) -> Millis | None:
        """When the next lock is over."""
        queue = self._queue
        while queue and not queue[0][2].held:
            heappop(queue)
        return queue[0][0] if queue else None

    def due(self, now: Millis) -> list[Lock]:
        """The locks that are over, soonest first; they still hold what they held."""
        over = []
        while (deadline := self.earliest()) is not None and deadline <= now:
            over.append(heappop(self._queue)[2])
        return over
