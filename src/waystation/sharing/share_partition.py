"""The queue of one group over one partition, at the partition's leader (KIP-932).

Consumers acquire messages, each for as long as a lock lasts, and say what became of them.  The
queue's state is kept as ranges of offsets, cut only where they differ, so that acquiring and
acknowledging cost per range, not per message.  Promises, whatever consumers do:

1. a message is held by one consumer at a time;
2. it is delivered again only after it was released, after its lock was over, or by another
   leader; and never once it is settled;
3. each delivery counts one more than the last that this leader knows of;
4. only who holds a message settles it, and a request is followed as a whole or not at all;
5. ``start`` never goes back, and everything before it is settled.

Nothing here waits: the host reads the log, writes ``take_change`` to the share coordinator, and
answers an acknowledgement once ``stored`` has reached the ``version`` it led to.  Order by key
and priorities are in ``ordered_partition.py``.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import ClassVar

from waystation.model.offsets import Millis, Offset
from waystation.sharing.acknowledgements import check, not_held
from waystation.sharing.backlog import DONE, FRESH, PASSED_OVER, SETTLED, Backlog, Cell, aligned
from waystation.sharing.changes import Changes, StateChange
from waystation.sharing.fates import Fates
from waystation.sharing.locks import Lock, Locks
from waystation.sharing.settings import QueueSettings, ShareSettings
from waystation.sharing.states import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    AVAILABLE,
    DELIVERIES_MAX,
    DYING,
    GAP,
    REJECTED,
    RELEASE,
    RENEW,
    WAITING,
    Acknowledgement,
    Acquired,
    Counts,
    DeadLetter,
    Span,
    StateBatch,
)


class SharePartition:
    """One queue in one term of its leader; thrown away when another leads."""

    chooses: ClassVar[bool] = False
    """Whether messages are shown to the queue one by one, and asked for by ``choose``."""

    __slots__ = (
        "_backlog",
        "_begins_with",
        "_changes",
        "_fates",
        "_gone_before",
        "_locks",
        "_queue",
        "_share",
        "_waits",
    )

    def __init__(
        self,
        start: Offset,
        queue: Callable[[], QueueSettings],
        share: Callable[[], ShareSettings],
    ) -> None:
        self._queue, self._share = queue, share
        self._backlog = Backlog(start)
        self._locks, self._changes, self._fates = Locks(), Changes(), Fates(queue)
        self._gone_before = Offset(0)
        """What retention has taken: acknowledging it is neither right nor wrong."""
        self._waits: list[tuple[Millis, Offset, Offset]] = []
        self._begins_with = 0
        """The version that must be stored before anything is delivered."""

    # --- what is stored -----------------------------------------------------------------------

    def load(self, now: Millis, batches: Sequence[StateBatch]) -> None:
        """Take over what the last leader has stored; what nobody named was never settled.

        Whatever was out when it died is available again.  A message that had to wait waits once
        more, for nobody knows since when it did.
        """
        ranges = self._backlog.ranges
        for first, end, state, deliveries in sorted(batches):
            first = max(first, ranges.end)
            if end <= first:
                continue
            if first > ranges.end:
                self._backlog.enter(Offset(first), FRESH)
            if state == AVAILABLE:
                cell = self._fates.available(now, deliveries)
                self._backlog.enter(end, cell)
                if cell.state == WAITING:
                    heappush(self._waits, (cell.ready_at, Offset(first), end))
            elif state in DYING:
                self._backlog.enter(end, Cell(state, deliveries))
            else:
                self._backlog.enter(end, DONE if state == ACKNOWLEDGED else PASSED_OVER)
        self._advance()

    def begin(self) -> None:
        """Note that the leader has resolved where the queue begins, for nobody had before.

        That is stored before anything is delivered: another leader would resolve "latest"
        differently, and pass over what came in between.
        """
        self._changes.touch()
        self._begins_with = self._changes.version

    def touch(self) -> int:
        """Something is to be stored beside the messages' states; the version that has it."""
        self._changes.touch()
        return self._changes.version

    def take_change(self) -> StateChange | None:
        """What is to be written to the share coordinator now, if anything."""
        return self._changes.take(self.start, self._backlog.settled, self._backlog.stored_form)

    def change_written(self) -> None:
        """The change is stored."""
        self._changes.written()

    def change_lost(self) -> None:
        """It is not known whether the change is stored, and this leader is not fenced."""
        self._changes.lost()

    @property
    def version(self) -> int:
        """Counts what happened; an answer waits until ``stored`` has come this far."""
        return self._changes.version

    @property
    def stored(self) -> int:
        """The version up to which everything is stored."""
        return self._changes.stored

    # --- where the queue is -------------------------------------------------------------------

    @property
    def start(self) -> Offset:
        """Everything before is settled (Kafka: share-partition start offset)."""
        return self._backlog.ranges.start

    @property
    def end(self) -> Offset:
        """Nothing from here on was ever delivered (Kafka: share-partition end offset, plus 1)."""
        return self._backlog.ranges.end

    @property
    def in_flight(self) -> int:
        """How many messages consumers hold."""
        return self._backlog.acquired

    @property
    def dying(self) -> int:
        """How many messages wait to be moved to the dead-letter topic."""
        return self._backlog.archiving

    def counts(self) -> Counts:
        """How the queue stands, for statistics and lag."""
        return self._backlog.counts()

    def held_by(self, member_id: str) -> list[Acquired]:
        """What a consumer holds."""
        return [
            Acquired(first, end, cell.deliveries)
            for lock in self._locks.of(member_id)
            for first, end, cell in self._of_lock(lock)
        ]

    # --- acquiring ----------------------------------------------------------------------------

    def next_offset(self, now: Millis) -> Offset | None:
        """From where to read the log for the next consumer; ``None`` if nothing may go now.

        Messages that failed before come first, then what was never delivered.
        """
        self.tick(now)
        if not self.room(now):
            return None
        if self._backlog.available:
            return self._backlog.first_available()
        return self.end if self._may_grow() else None

    def room(self, now: Millis) -> int:
        """How many more messages may be out; whole batches make it a few more."""
        if self._changes.stored < self._begins_with:
            return 0
        room = self._share().group_share_partition_max_record_locks - self._backlog.acquired
        return self._fates.may_go(now, room, self._backlog.acquired)

    def acquire(
        self,
        now: Millis,
        member_id: str,
        limit: int,
        first: Offset,
        end: Offset,
        *,
        skipped: Sequence[Span] = (),
        batch_ends: Sequence[Offset] = (),
    ) -> list[Acquired]:
        """Give a consumer up to ``limit`` messages of ``[first, end)``, which the host has read.

        ``skipped`` are offsets that hold nothing to deliver, in order: control records, aborted
        ones where only committed ones count, what compaction took.  With ``batch_ends``, in
        order, messages never delivered before are given up to the end of a batch, although that
        may be more than ``limit``, and more than may be out: a batch that is split is sent twice.

        HOT: once per partition of a ShareFetch.
        """
        assert not self.chooses, "a queue that chooses was told what to give"
        self.tick(now)
        limit = min(limit, self.room(now))
        if limit <= 0:
            return []
        chosen = self._backlog.choose(limit, first, end)
        taken = sum(until - begin for begin, until, _ in chosen)
        if taken < limit and first <= self.end < end and self._may_grow():
            wanted = limit - taken
            if not self._fates.is_probing(now):
                wanted = aligned(self.end, wanted, batch_ends)
            chosen += self._choose_fresh(wanted, end, skipped)
        return self._lock(now, member_id, chosen)

    # --- acknowledging ------------------------------------------------------------------------

    def acknowledge(
        self, now: Millis, member_id: str, acknowledgements: Sequence[Acknowledgement]
    ) -> None:
        """Follow what a consumer says of what it holds, all of it or, with an error, nothing.

        HOT: once per partition of a ShareFetch or ShareAcknowledge.
        """
        self.tick(now)
        check(acknowledgements)
        meant = [
            (self._meant(member_id, first, end), kind, for_ms)
            for first, end, kind, for_ms in acknowledgements
        ]
        renewed: dict[int, list[tuple[Offset, Offset, Cell]]] = {}
        for spans, kind, for_ms in meant:
            if kind == RENEW:
                renewed.setdefault(for_ms, []).extend(spans)
                continue
            for first, end, cell in spans:
                self._let_go(now, first, end, cell, kind, for_ms)
        for for_ms, spans in renewed.items():
            if spans:
                self._renew(now, member_id, spans, for_ms)
        self._advance()

    def acknowledge_all(self, now: Millis, member_id: str) -> None:
        """Accept all that a consumer holds: what asking for more means to an implicit one."""
        self.tick(now)
        held = [
            Acknowledgement(first, end, ACCEPT) for first, end, _ in sorted(self.held_by(member_id))
        ]
        self.acknowledge(now, member_id, held)

    def leave(self, now: Millis, member_id: str) -> None:
        """Take back what a consumer holds: it has gone, or its session has ended."""
        self.tick(now)
        self._take_back(now, self._locks.of(member_id))

    # --- time and retention -------------------------------------------------------------------

    def next_deadline(self) -> Millis | None:
        """The earliest moment at which ``tick`` has something to do."""
        waits = self._waits[0][0] if self._waits else None
        moments = (self._locks.earliest(), waits, self._fates.wakes_at())
        return min((moment for moment in moments if moment is not None), default=None)

    def tick(self, now: Millis) -> bool:
        """Take back what was held for too long; true if there is more to deliver than before."""
        before = self._backlog.available
        is_awake = self._fates.wake(now)
        over = self._locks.due(now)
        if over:
            self._take_back(now, over)
        while self._waits and self._waits[0][0] <= now:
            _, first, end = heappop(self._waits)
            self._end_wait(now, first, end)
        return is_awake or self._backlog.available > before

    def log_begins_at(self, log_start: Offset) -> None:
        """Retention has deleted what lies before: it is settled, whoever held it."""
        if log_start <= self._gone_before:
            return
        self._gone_before = log_start
        if log_start <= self.start:
            return
        for first, end, cell in self._backlog.ranges.spans(self.start, log_start):
            self._backlog.count(cell, first - end)
            if cell.lock is not None:
                self._locks.let_go(cell.lock, end - first)
            if cell.state not in SETTLED:
                self._on_settled(first, end, cell)
        self._backlog.ranges.forget(log_start)
        self._changes.touch()
        self._advance()

    # --- dead letters -------------------------------------------------------------------------

    def dead_letters(self, limit: int) -> list[DeadLetter]:
        """What waits to be moved to the dead-letter topic, oldest first; at most ``limit``."""
        found: list[DeadLetter] = []
        if not self._backlog.archiving:
            return found
        for first, end, cell in self._backlog.ranges.runs_from(self.start):
            if cell.state in DYING:
                until = min(end, Offset(first + limit))
                found.append(DeadLetter(first, until, cell.deliveries, cell.state == REJECTED))
                limit -= until - first
            if limit <= 0:
                break
        return found

    def unmoved(self, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Which of these still wait to be moved."""
        return [
            DeadLetter(begin, until, cell.deliveries, cell.state == REJECTED)
            for first, end, *_ in letters
            for begin, until, cell in self._backlog.ranges.spans(first, end)
            if cell.state in DYING
        ]

    def moved(self, first: Offset, end: Offset) -> None:
        """These dead letters are in their topic; what is none of them stays as it is."""
        for begin, until, cell in self._backlog.ranges.spans(first, end):
            if cell.state in DYING:
                self._backlog.recolour(begin, until, cell, PASSED_OVER)
                self._changes.mark(begin, until)
        self._advance()

    def breaker_state(self, now: Millis) -> str:
        """Whether a flood of dead letters has stopped deliveries."""
        return self._fates.breaker_state(now)

    # --- parts: choosing ----------------------------------------------------------------------

    def _may_grow(self) -> bool:
        """Whether messages that were never delivered may be."""
        return len(self._backlog.ranges) < self._share().group_share_partition_max_ranges

    def _choose_fresh(
        self, limit: int, end: Offset, skipped: Sequence[Span]
    ) -> list[tuple[Offset, Offset, Cell]]:
        chosen, passed = self._backlog.choose_fresh(limit, end, skipped)
        for span in passed:
            self._changes.mark(*span)
        if passed:
            self._advance()
        return chosen

    def _lock(
        self, now: Millis, member_id: str, chosen: list[tuple[Offset, Offset, Cell]]
    ) -> list[Acquired]:
        """Make what was chosen the consumer's, under one lock."""
        if not chosen:
            return []
        self._fates.went(now)
        deadline = Millis(now + self._queue().share_record_lock_duration_ms)
        held = sum(end - first for first, end, _ in chosen)
        lock = Lock(member_id, deadline, chosen[0][0], chosen[-1][1], held)
        self._locks.add(lock)
        acquired = []
        for first, end, cell in chosen:
            deliveries = min(cell.deliveries + 1, DELIVERIES_MAX)
            self._backlog.recolour(first, end, cell, Cell(ACQUIRED, deliveries, lock))
            acquired.append(Acquired(first, end, deliveries))
        return acquired

    # --- parts: acknowledging -----------------------------------------------------------------

    def _meant(
        self, member_id: str, first: Offset, end: Offset
    ) -> list[tuple[Offset, Offset, Cell]]:
        """The ranges that a consumer speaks of; refuses what it does not hold."""
        if first < self._gone_before:
            first = self._gone_before
            if first >= end:
                return []
        ranges = self._backlog.ranges
        if first < ranges.start or end > ranges.end:
            raise not_held(member_id, first, end, "are settled, or were never delivered")
        spans = ranges.spans(first, end)
        for begin, until, cell in spans:
            if cell.lock is None or cell.lock.member_id != member_id:
                raise not_held(member_id, begin, until, "it does not hold (any more)")
        return spans

    def _let_go(
        self, now: Millis, first: Offset, end: Offset, cell: Cell, kind: int, for_ms: int = 0
    ) -> None:
        assert cell.lock is not None, f"[{first}, {end}) is let go, and nobody held it"
        self._locks.let_go(cell.lock, end - first)
        self._changes.mark(first, end)
        if kind == ACCEPT:
            self._backlog.recolour(first, end, cell, DONE)
            self._on_settled(first, end, cell)
            self._fates.accepted(now, end - first)
        elif kind == GAP:
            self._backlog.recolour(first, end, cell, PASSED_OVER)
            self._on_settled(first, end, cell)
        else:
            self._failed(now, first, end, cell, for_ms, is_final=kind != RELEASE)

    def _failed(
        self,
        now: Millis,
        first: Offset,
        end: Offset,
        cell: Cell,
        least_ms: int,
        *,
        is_final: bool,
    ) -> None:
        """A delivery came to nothing: once more, later, or never again."""
        after = self._fates.failed(now, end - first, cell, is_final=is_final, least_ms=least_ms)
        self._backlog.recolour(first, end, cell, after)
        if after.state == WAITING:
            heappush(self._waits, (after.ready_at, first, end))
        elif after.state == AVAILABLE:
            self._on_available(first, end)
        else:
            self._on_settled(first, end, cell)

    def _renew(
        self, now: Millis, member_id: str, renewed: list[tuple[Offset, Offset, Cell]], for_ms: int
    ) -> None:
        deadline = Millis(now + (for_ms or self._queue().share_record_lock_duration_ms))
        held = sum(end - first for first, end, _ in renewed)
        lock = Lock(member_id, deadline, renewed[0][0], renewed[-1][1], held)
        self._locks.add(lock)
        for first, end, cell in renewed:
            assert cell.lock is not None, f"[{first}, {end}) is renewed, and nobody held it"
            self._locks.let_go(cell.lock, end - first)
            self._backlog.ranges.paint(first, end, cell._replace(lock=lock))

    def _take_back(self, now: Millis, locks: Sequence[Lock]) -> None:
        for lock in locks:
            for first, end, cell in self._of_lock(lock):
                self._let_go(now, first, end, cell, RELEASE)
        self._advance()

    def _of_lock(self, lock: Lock) -> list[tuple[Offset, Offset, Cell]]:
        spans = self._backlog.ranges.spans(lock.first, lock.end)
        return [span for span in spans if span[2].lock is lock]

    def _end_wait(self, now: Millis, first: Offset, end: Offset) -> None:
        for begin, until, cell in self._backlog.ranges.spans(first, end):
            if cell.state == WAITING and cell.ready_at <= now:
                self._backlog.recolour(begin, until, cell, Cell(AVAILABLE, cell.deliveries))
                self._on_available(begin, until)

    def _advance(self) -> None:
        """Move the start past everything that is settled."""
        if self._backlog.advance():
            self._changes.touch()

    # --- for those who choose in another order ------------------------------------------------

    def _on_available(self, first: Offset, end: Offset) -> None:
        """These messages may be delivered again."""

    def _on_settled(self, first: Offset, end: Offset, before: Cell) -> None:
        """These messages will not be delivered again; ``before`` is what they were."""
