"""The order in which one partition's batches reach its leader, each once.

A ``Lane`` is a pure machine: batches go in closed and in order, the sender asks which may
leave, and tells what became of each.  Promises, as long as the broker keeps its own:

1. batches are appended in the order they were queued, whatever is retried;
2. with an identity, no batch is appended twice: a batch whose fate is unknown is sent again
   under the number it had, until the broker shows that it is not in the log;
3. a batch that was given up leaves no gap that the broker would refuse the next one for;
4. a batch that was cut, being too large, is appended in its parts, in its place.

Under a new identity only one batch is under way until it is acknowledged: a broker that knows
nothing of a producer takes any number as its first, and so would not notice that the batch
before is missing.

The third needs care.  When a batch is given up, those under way behind it are answered with
OUT_OF_ORDER_SEQUENCE_NUMBER, or were accepted before the gap was noticed; either way the
broker tells.  Only when the last of them has been answered does the lane go on, under a
higher producer epoch, where numbers begin at zero again.  The epoch is raised for this
partition alone: brokers keep a producer's numbers per partition.
"""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from enum import Enum
from operator import attrgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

from waystation.model.ids import ProducerEpoch, ProducerId, TopicPartition

__all__ = ["Identity", "Lane", "Numbered", "Verdict"]

_SEQUENCES = 1 << 31
_LAST_EPOCH = (1 << 15) - 1


class Identity(NamedTuple):
    """Whom the broker takes a batch to be from."""

    producer: ProducerId
    epoch: ProducerEpoch

    def next(self) -> "Identity | None":
        """The same producer, one epoch on; none once epochs are used up."""
        if self.epoch >= _LAST_EPOCH:
            return None
        return Identity(self.producer, ProducerEpoch(self.epoch + 1))


class Numbered(Protocol):
    """What a lane needs of a batch; it sets the fields, the sender reads them."""

    @property
    def count(self) -> int:
        """How many records, and so how many sequence numbers."""
        ...

    order: tuple[int, ...]
    identity: Identity | None
    sequence: int
    retry_at: float
    waiting: bool
    led: bool


class Verdict(Enum):
    """What an answer of OUT_OF_ORDER_SEQUENCE_NUMBER means for a batch."""

    RETRY = "retry"
    LOST = "lost"


B = TypeVar("B", bound=Numbered)


class Lane(Generic[B]):
    """One partition's batches: queued ones, then those under way in the order of their numbers.

    ``queued`` holds closed batches that have no number yet.  ``under_way`` holds those that
    have one, answered or not, until their fate is certain; the ones with ``waiting`` set are
    to be sent again.
    """

    __slots__ = (
        "_broken",
        "_identity",
        "_next",
        "_proven",
        "limit",
        "partition",
        "queued",
        "under_way",
    )

    def __init__(self, partition: TopicPartition, limit: int) -> None:
        self.partition = partition
        self.limit = limit
        self.queued: deque[B] = deque()
        self.under_way: list[B] = []
        self._identity: Identity | None = None
        self._next = 0
        self._broken = False
        self._proven = False

    # --- deciding ---------------------------------------------------------------------------

    def ready(self, now: float) -> B | None:
        """The batch that may leave now, if any.

        One that is to be sent again leaves only as the first of all that are under way, and
        nothing new leaves before it: that is what keeps the order.
        """
        for batch in self.under_way:
            if batch.waiting:
                first = self.under_way[0]
                return first if first.waiting and first.retry_at <= now else None
        if not self.queued or not self.has_room():
            return None
        first = self.queued[0]
        return first if first.retry_at <= now else None

    def has_room(self) -> bool:
        """Whether a batch that was never sent could leave, as far as the others go."""
        if self._broken:
            return not self.under_way
        limit = self.limit if self._proven or self._identity is None else 1
        return len(self.under_way) < limit and not any(b.waiting for b in self.under_way)

    def needs_identity(self) -> bool:
        """Whether the next new batch would be the first under an identity yet to be asked for."""
        if self._broken:
            return self._identity is not None and self._identity.next() is None
        return self._identity is None

    @property
    def has_gap(self) -> bool:
        """Whether a number was given up, so that the broker may miss it."""
        return self._broken

    def accepts(self, identity: Identity) -> bool:
        """Whether ``identity`` is not the one whose epochs this lane has used up."""
        return self._identity is None or identity.producer != self._identity.producer

    # --- what happened ----------------------------------------------------------------------

    def identify(self, identity: Identity) -> None:
        """Number batches under ``identity`` from zero; nothing may be under way."""
        assert not self.under_way, f"{len(self.under_way)} batches are under way"
        self._identity, self._next = identity, 0
        self._broken = self._proven = False

    def renew(self, identity: Identity) -> None:
        """Number from zero under what a transaction's coordinator has given; nothing is under way.

        A broker that knows the producer takes nothing but zero first under a higher epoch, so
        that a lane that was proven before stays proven.
        """
        was, proven = self._identity, self._proven
        self.identify(identity)
        self._proven = proven and was is not None and was.producer == identity.producer

    def sent(self, batch: B) -> None:
        """``batch``, which ``ready`` returned, is on its way."""
        if batch.waiting:
            batch.waiting = False
        else:
            assert self.queued[0] is batch, "a batch left out of turn"
            self.queued.popleft()
            self._number(batch)
            self.under_way.append(batch)
        batch.led = self.under_way[0] is batch

    def acknowledged(self, batch: B) -> None:
        """The broker has it."""
        self.under_way.remove(batch)
        self._proven = True

    def failed(self, batch: B, retry_at: float) -> None:
        """Its fate is unknown, or the broker could not take it now: send it again."""
        batch.waiting, batch.retry_at = True, retry_at

    def out_of_order(self, batch: B, retry_at: float) -> Verdict:
        """The broker did not take ``batch`` because one before it is missing.

        Behind a batch that was given up this was to come, and it proves that ``batch`` is
        not in the log: it is queued again for another number.  Behind one that is still to
        be repeated, it is repeated after it.  For one that was the first when it left, the
        broker must have lost what it acknowledged: then ``batch`` is given up.
        """
        if self._broken:
            self.under_way.remove(batch)
            batch.retry_at = retry_at
            self._unnumber([batch])
            return Verdict.RETRY
        if not batch.led:
            self.failed(batch, retry_at)
            return Verdict.RETRY
        self.gave_up(batch)
        return Verdict.LOST

    def gave_up(self, batch: B) -> None:
        """``batch`` was refused for good, or its time is over; its number is not used again."""
        if batch in self.queued:
            self.queued.remove(batch)
            return
        self.under_way.remove(batch)
        self._broken = self._broken or self._identity is not None

    def start_over(self, batch: B) -> None:
        """The broker has forgotten the producer: ``batch`` gets another number."""
        self.gave_up(batch)
        self._unnumber([batch])

    def cut(self, batch: B, parts: Sequence[B]) -> None:
        """``batch`` was refused for its size: ``parts``, its records, take its place and numbers.

        Those under way behind it cannot have been taken, and follow the parts.  Behind a batch
        that was given up there are no numbers to keep.
        """
        if self._broken:
            self.under_way.remove(batch)
            self._unnumber(parts)
            return
        at, sequence = self.under_way.index(batch), batch.sequence
        for part in parts:
            part.identity, part.sequence = batch.identity, sequence
            part.waiting, part.retry_at = True, batch.retry_at
            if sequence >= 0:
                sequence = (sequence + part.count) % _SEQUENCES
        self.under_way[at : at + 1] = parts

    # --- behind the scenes ------------------------------------------------------------------

    def _number(self, batch: B) -> None:
        if self._broken:
            assert self._identity is not None, "broken without an identity"
            higher = self._identity.next()
            assert higher is not None, "an identity should have been asked for"
            self.identify(higher)
        if self._identity is not None:
            batch.identity, batch.sequence = self._identity, self._next
            self._next = (self._next + batch.count) % _SEQUENCES

    def _unnumber(self, batches: Sequence[B]) -> None:
        """Back among the queued, where they were before they left, for other numbers."""
        in_order = list(self.queued)
        for batch in batches:
            batch.sequence, batch.identity = -1, None
            insort(in_order, batch, key=attrgetter("order"))
        self.queued = deque(in_order)
