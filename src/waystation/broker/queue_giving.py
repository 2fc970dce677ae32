"""What a consumer of a queue is given: the queue chooses offsets, the log has their batches.

A queue in any order is told up to where the log reaches and takes what it wants of that.  One
that chooses is first shown keys and priorities, some at a time.  Either way nothing is copied:
what goes out are whole batches as they lie in the log, with ranges that say which of their
messages are the consumer's.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from waystation.broker.queue_reading import Wish, covering, gathered, look, readable_end
from waystation.broker.queue_showing import Showing
from waystation.model.offsets import Millis, Offset
from waystation.partition.partition import Partition
from waystation.runtime.regions import Part
from waystation.sharing.ordered_partition import OrderedPartition
from waystation.sharing.settings import READ_COMMITTED, QueueSettings
from waystation.sharing.share_partition import SharePartition
from waystation.sharing.states import Acquired

# How far a read reaches past what was released, to take along what follows.
_REACH: Final = 4
# How many messages a queue that chooses is shown at once, and before others get their turn.
_SHOWN_PER_STEP: Final = 200
_SHOWN_PER_TURN: Final = 1_000


class Given(NamedTuple):
    """What a consumer gets: ranges of offsets, and batches that hold at least those."""

    acquired: Sequence[Acquired] = ()
    records: Part = b""
    is_more: bool = False
    """Whether there may be more, although this was all for this turn of the loop."""


NOTHING: Final = Given()


class Giving:
    """Reads one partition for one queue."""

    __slots__ = ("_options", "_partition", "_showing")

    def __init__(self, partition: Partition, options: Callable[[], QueueSettings]) -> None:
        self._partition = partition
        self._options = options
        self._showing = Showing(partition, with_priorities=options().share_priority)

    def may_give(self, queue: SharePartition, now: Millis) -> bool:
        """Whether a consumer that asks now may get something."""
        first = queue.next_offset(now)
        if first is None:
            return False
        end = self._readable_end()
        if isinstance(queue, OrderedPartition):
            admits = queue.admits_from()
            return queue.candidates > 0 or (admits is not None and admits < end)
        return first < end

    def bytes_ahead(self, queue: SharePartition, now: Millis, max_bytes: int) -> int:
        """How much a consumer could be given, about; at most ``max_bytes`` and a batch."""
        if not self.may_give(queue, now):
            return 0
        if isinstance(queue, OrderedPartition) and queue.candidates:
            return int(queue.candidates * self._showing.record_bytes)
        first = queue.next_offset(now)
        if first is None or first >= self._readable_end():
            return 0
        region = self._partition.read(first, max_bytes, at_least_one=True).region
        return 0 if region is None else region.nbytes

    def give(self, queue: SharePartition, now: Millis, member_id: str, wish: Wish) -> Given:
        """Give a consumer what it wishes, as far as it is there.

        HOT: once per partition of a ShareFetch.
        """
        wish = wish._replace(committed_only=self._is_committed_only())
        if isinstance(queue, OrderedPartition):
            return self._give_chosen(queue, now, member_id, wish)
        return self._give_next(queue, now, member_id, wish)

    def _give_next(self, queue: SharePartition, now: Millis, member_id: str, wish: Wish) -> Given:
        first = queue.next_offset(now)
        if first is None or first >= self._readable_end():
            return NOTHING
        limit, again = min(wish.records, queue.room(now)), max(queue.end - first, 0)
        # What was given back comes with what follows it, unless that is far.
        reach = limit + (again if again <= _REACH * limit else 0)
        stretch = look(self._partition, first, wish._replace(records=reach))
        if stretch is None:
            return NOTHING
        ends = () if again or wish.strictly else stretch.batch_ends
        acquired = queue.acquire(
            now, member_id, limit, first, stretch.end, skipped=stretch.skipped, batch_ends=ends
        )
        if not acquired:
            return Given(is_more=True)  # all of it was passed over
        if acquired[-1].end < first + reach:
            return Given(acquired, covering(self._partition, stretch, acquired))
        return Given(acquired, stretch.region)

    def _give_chosen(
        self, queue: OrderedPartition, now: Millis, member_id: str, wish: Wish
    ) -> Given:
        limit = max(1, min(wish.records, int(wish.max_bytes / self._showing.record_bytes)))
        is_more = self._show(queue, limit, committed_only=wish.committed_only)
        acquired = queue.choose(now, member_id, limit)
        records = gathered(self._partition, acquired) if acquired else b""
        return Given(acquired, records, is_more)

    def _show(self, queue: OrderedPartition, wanted: int, *, committed_only: bool) -> bool:
        """Let the queue see what it may choose from; true if there is more for later turns."""
        end, left = self._readable_end(), _SHOWN_PER_TURN
        while queue.candidates < wanted and (at := queue.admits_from()) is not None and at < end:
            if left <= 0:
                return True
            seen = self._showing.next(at, _SHOWN_PER_STEP, committed_only=committed_only)
            if seen is None:
                break
            queue.admit(seen.end, seen.shown)
            left -= max(len(seen.shown), 1)
        return False

    def _readable_end(self) -> Offset:
        return readable_end(self._partition, committed_only=self._is_committed_only())

    def _is_committed_only(self) -> bool:
        return self._options().share_isolation_level == READ_COMMITTED
