"""What waits in one partition of a companion topic, replayed from that partition's log.

``apply`` takes the log's committed batches in order, on leaders and followers alike: messages, the
markers of transactions, decisions.  On the leader ``due`` and ``decide`` choose what goes next;
``cancel`` and ``retime`` make decisions too.  What holds:

1. a message counts once it is committed: of a transaction, once its marker says so, and others
   do not wait for that;
2. nothing is decided before everything in the log up to the election was applied, and nothing is
   decided twice while a decision about it is on its way into the log;
3. nothing goes before its time, by the clock that ``due`` is asked with, which may step either
   way; of what is due the earliest goes first, and the lower offset where times are equal;
4. memory holds the next few thousand (``wheel.py``), what changed since the last checkpoint, and
   tables whose sizes are limited; all else is in files (``index.py``).

A recurring message that was missed comes once, late, and then at its next regular time.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from waystation.model.errors import CoordinatorLoadingError
from waystation.model.ids import NO_LEADER_EPOCH, LeaderEpoch, ProducerId, TopicPartition
from waystation.model.offsets import NO_OFFSET, Millis, Offset
from waystation.records.batch import rows_of
from waystation.records.control import read_marker
from waystation.records.header import BatchHeader, Buffer, peek
from waystation.records.record import Row
from waystation.scheduling.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    Held,
    Recurring,
    Retiming,
    decode,
    encode,
)
from waystation.scheduling.cron import Cron
from waystation.scheduling.errors import (
    DamagedIndexError,
    InvalidScheduleError,
    NotPendingError,
    TooManyError,
)
from waystation.scheduling.files import IndexFiles
from waystation.scheduling.headers import check_time, timing_of
from waystation.scheduling.index import FIRST, Index, Step
from waystation.scheduling.keeping import Keeping
from waystation.scheduling.mover import Mover
from waystation.scheduling.records import (
    Cancelled,
    Decided,
    Decision,
    Doubted,
    Retimed,
    Settled,
    Withdrawn,
    read_decision,
)
from waystation.scheduling.settings import ScheduleSettings
from waystation.scheduling.wheel import Due, TimingWheel

__all__ = ["Pending", "Schedule"]

_END: Final[Due] = (1 << 63, 0)
_LOW_SHARE: Final = 4
_SCANNED: Final = 2_000


class Pending(NamedTuple):
    """One message that waits."""

    offset: Offset
    due: Millis
    cron: Cron | None = None


class Schedule:
    """One partition's; the thread of the loop owns it."""

    def __init__(
        self,
        target: TopicPartition,
        files: IndexFiles,
        settings: ScheduleSettings,
        state: Checkpoint | None = None,
    ) -> None:
        """Begin with a checkpoint, or with nothing; ``opened`` finds out which."""
        self.target, self.settings = target, settings
        self.applied = Offset(0) if state is None else state.applied
        """Everything in the log before this is in the schedule."""
        self.saved = self.applied
        """What the last checkpoint had applied: a restart goes on from there."""
        self.strays = 0
        """Records that do not say when they are due, since the start of this process."""
        self._files = files
        self._leader_epoch = NO_LEADER_EPOCH if state is None else state.leader_epoch
        self._held: dict[ProducerId, Held] = {} if state is None else state.held
        self._recurring: dict[Offset, Recurring] = {} if state is None else state.recurring
        self._retimed: dict[Offset, Retiming] = {} if state is None else state.retimed
        self._marks: dict[TopicPartition, Offset] = {} if state is None else state.marks
        self.index = Index(files) if state is None else Index(files, state.runs, state.pending)
        self.mover = Mover(
            None if state is None else state.lanes, trust_ms=settings.schedule_trust_ms
        )
        self._wheel: TimingWheel | None = None
        self._leads_from = NO_OFFSET
        self._epoch = NO_LEADER_EPOCH
        self._keeping: Keeping | None = None
        self._spoken: dict[Offset, None] = {}
        """Records about which a decision of ours is on its way into the log."""

    @classmethod
    def opened(
        cls,
        target: TopicPartition,
        files: IndexFiles,
        settings: ScheduleSettings,
        log_has: Callable[[Offset, LeaderEpoch], bool],
    ) -> "Schedule":
        """As the last checkpoint left it, if there is one that fits the log, or empty.

        ``log_has`` says whether the log's batch before an offset is of a leader epoch: after an
        unclean election it may be another one, and what was built on it is void.
        """
        try:
            state = decode(files.read(CHECKPOINT))
            if log_has(state.applied, state.leader_epoch):
                return cls(target, files, settings, state)
        except (FileNotFoundError, DamagedIndexError):
            pass
        return cls(target, files, settings)

    # --- the log ------------------------------------------------------------------------

    def apply(self, batch: Buffer, at: int = 0) -> None:
        """Take over a committed batch; one that was taken over before is left alone.

        HOT: once per batch of a companion topic (benchmarks/scheduling/index.py).
        """
        header = peek(batch, at)
        if header.base_offset < self.applied:
            return
        if header.is_control:
            self._apply_control(batch, at, header)
        else:
            self._apply_messages(header, rows_of(batch, at))
        self.applied = header.next_offset
        self._leader_epoch = header.partition_leader_epoch

    def _apply_control(self, batch: Buffer, at: int, header: BatchHeader) -> None:
        marker = read_marker(batch, at)
        if marker is not None:
            held = self._held.pop(marker.producer_id, [])
            if marker.committed:
                self._admit(held)
            return
        decision = read_decision(batch, at)
        if decision is not None:
            self._apply_decision(decision, header.base_offset)

    def _apply_messages(self, header: BatchHeader, rows: list[Row]) -> None:
        found: Held = []
        for offset, timestamp, _, _, headers in rows:
            try:
                due, cron = timing_of(headers, Millis(timestamp))
            except InvalidScheduleError:
                self.strays += 1
                continue
            found.append(((due, offset), cron))
        if header.is_transactional:
            self._held.setdefault(header.producer_id, []).extend(found)
        else:
            self._admit(found)

    def _admit(self, found: Held) -> None:
        for (due, offset), cron in found:
            if cron is not None:
                self._recurring[Offset(offset)] = Recurring(cron, Millis(due), NO_OFFSET)
        self._add([due for due, _ in found])

    def _apply_decision(self, decision: Decision, at: Offset) -> None:
        match decision:
            case Decided():
                self._apply_moved(decision, at)
            case Settled():
                self._marks[decision.target] = at
                self._arrived(decision.target)
                self.mover.apply(decision)
            case Doubted() | Withdrawn():
                self._marks[decision.target] = at
                self._restore(self.mover.apply(decision))
            case Cancelled(due, offset):
                self._spoken.pop(offset, None)
                self._retimed.pop(offset, None)
                known = self._recurring.pop(offset, None)
                self._remove([(due if known is None else known.due, offset)])
            case Retimed(due, offset, to):
                self._spoken.pop(offset, None)
                self._apply_retimed(due, offset, to, at)

    def _apply_moved(self, decided: Decided, at: Offset) -> None:
        self._marks[decided.target] = at
        self._arrived(decided.target)
        self.mover.apply(decided)
        gone, added = [], []
        for due, offset in decided.items:
            self._spoken.pop(Offset(offset), None)
            known = self._recurring.get(Offset(offset))
            if known is None:
                gone.append((due, offset))
                continue
            gone.append((known.due, offset))
            following = _following(known.cron, due, decided.at)
            if following is None:
                del self._recurring[Offset(offset)]
            else:
                self._recurring[Offset(offset)] = Recurring(
                    known.cron, following, decision=at, before=known.decision
                )
                added.append((following, offset))
        self._remove(gone)
        self._add(added)

    def _arrived(self, target: TopicPartition) -> None:
        """The batch before is at its target: nothing of it will be pending again."""
        for _, offset in self.mover.last(target)[0]:
            self._retimed.pop(Offset(offset), None)

    def _restore(self, items: tuple[Due, ...]) -> None:
        """What was withdrawn is pending again; what recurs waits for the missed time instead."""
        passed = []
        for due, offset in items:
            known = self._recurring.get(Offset(offset))
            if known is not None:
                passed.append((known.due, offset))
                self._recurring[Offset(offset)] = Recurring(
                    known.cron, Millis(due), decision=known.before
                )
        self._remove(passed)
        self._add(items)

    def _apply_retimed(self, due: Millis, offset: Offset, to: Millis, at: Offset) -> None:
        recurring, retimed = self._recurring.get(offset), self._retimed.get(offset)
        if recurring is not None:
            self._recurring[offset] = Recurring(recurring.cron, to, decision=at)
            due = recurring.due
        else:
            self._retimed[offset] = Retiming(to, at)
            due = due if retimed is None else retimed.due
        self._remove([(due, offset)])
        self._add([(to, offset)])

    def _add(self, dues: Iterable[Due]) -> None:
        dues = list(dues)
        self.index.add(dues)
        if self._keeping is not None:
            self._keeping.keep(dues)
        wheel = self._wheel
        if wheel is not None:
            edge = wheel.edge
            for due in dues:
                if due < edge:
                    wheel.add(due)
            if wheel.count > 2 * self.settings.schedule_near_entries:
                wheel.shed(self.settings.schedule_near_entries)

    def _remove(self, dues: Iterable[Due]) -> None:
        dues = list(dues)
        self.index.remove(dues)
        if self._wheel is not None:
            for due in dues:
                self._wheel.discard(due)

    # --- leading ------------------------------------------------------------------------

    def lead(self, epoch: LeaderEpoch, log_end: Offset) -> None:
        """Lead the partition, whose log ended at ``log_end`` when it was elected."""
        self.resign()
        self._wheel = TimingWheel(FIRST)
        self._leads_from = log_end
        self._epoch = epoch
        self._begin()

    def resign(self) -> None:
        """Another leads: what was on its way into the log may not arrive."""
        self._wheel = None
        self._spoken.clear()
        self.mover.resign()

    def due(self, now: Millis, limit: int | None = None) -> list[Due]:
        """What may be decided upon now, in the order in which it is to be delivered."""
        most = self.settings.schedule_batch_records if limit is None else limit
        if not self._begin():
            return []
        room = self.mover.room(self.target, most)
        if not room or self._wheel is None:
            return []
        self._fill(self._wheel)
        found = self._wheel.due(now, room + len(self._spoken))
        return [one for one in found if one[1] not in self._spoken][:room]

    def decide(self, items: Iterable[Due], now: Millis) -> Decided:
        """Move these, a beginning of what ``due`` gave: the decision to append."""
        chosen = tuple(items)
        assert all(due <= now for due, _ in chosen), f"something of {chosen} goes before its time"
        self._spoken.update((Offset(offset), None) for _, offset in chosen)
        return self.mover.decide(self.target, chosen, now)

    def refused(self) -> Due | None:
        """A message that its target does not take even by itself, told once: put it off."""
        return self.mover.refused(self.target)

    def next_due(self) -> Millis | None:
        """When something is due next, if it is led from here."""
        if self._wheel is None:
            return None
        self._fill(self._wheel)
        first = self._wheel.first()
        return None if first is None else Millis(first[0])

    def _begin(self) -> bool:
        """Whether everything up to the election was applied; the mover begins when it was."""
        if self._wheel is None or self.applied < self._leads_from:
            return False
        if not self.mover.leads:
            self.mover.lead(self._epoch)
        return True

    def _fill(self, wheel: TimingWheel) -> None:
        """Take more from the index before the wheel runs empty."""
        near = self.settings.schedule_near_entries
        while wheel.count < near // _LOW_SHARE and wheel.edge != _END:
            found, rest = self.index.read(wheel.edge, near - wheel.count, go_on=True)
            wheel.extend(found, _END if rest is None else rest)

    # --- wishes -------------------------------------------------------------------------

    def look_up(self, offset: Offset, row: Row | None) -> Pending:
        """What waits at an offset, whose record the log still has, or not; raises if nothing."""
        name = f"{self.target.partition}-{offset}"
        if offset >= self.applied:
            raise NotPendingError(name, "there is no such message yet, or it is not committed")
        moved, has_arrived = self.mover.last(self.target)
        if any(offset == one for _, one in moved):
            if not has_arrived:
                raise NotPendingError(name, "it is being delivered")
            if offset not in self._recurring:
                raise NotPendingError(name, "it was delivered")
        recurring, retimed = self._recurring.get(offset), self._retimed.get(offset)
        if recurring is not None:
            return Pending(offset, recurring.due, recurring.cron)
        if retimed is not None:
            return Pending(offset, retimed.due)
        if row is None:
            raise NotPendingError(name, "it was delivered or cancelled, or never there")
        due = self._said(row, name)
        if any(one == (due, offset) for held in self._held.values() for one, _ in held):
            raise NotPendingError(name, "its transaction is open")
        if not self.index.holds((due, offset)):
            raise NotPendingError(name, "it was delivered or cancelled, or its transaction aborted")
        return Pending(offset, due)

    def cancel(self, offset: Offset, row: Row | None) -> Cancelled:
        """The decision to append so that a message is never delivered; raises if it was."""
        found = self._changeable(offset, row)
        self._spoken[offset] = None
        return Cancelled(found.due, offset)

    def retime(self, offset: Offset, row: Row | None, to: Millis, now: Millis) -> Retimed:
        """The decision to append so that a message is due at another time.

        Of a recurring one only the next time is another; from then on it goes by its rule.
        """
        found = self._changeable(offset, row)
        check_time(to, now, self.settings)
        limit = self.settings.schedule_retimed_max
        if found.cron is None and offset not in self._retimed and len(self._retimed) >= limit:
            raise TooManyError(
                "messages at another time than they came with",
                limit,
                "cancel it and schedule it anew, or raise schedule.retimed.max",
            )
        self._spoken[offset] = None
        return self._retiming(found, row, to)

    def put_off(self, item: Due, row: Row | None, to: Millis) -> Retimed:
        """The decision to append so that a message that its target refuses holds up no other."""
        self._spoken[Offset(item[1])] = None
        return self._retiming(Pending(Offset(item[1]), Millis(item[0])), row, to)

    def give_up(self, item: Due) -> Cancelled:
        """The decision to append when somebody deleted a record that was pending."""
        self._spoken[Offset(item[1])] = None
        return Cancelled(Millis(item[0]), Offset(item[1]))

    def check_recurring(self, more: int) -> None:
        """Refuse more recurring messages than there may be."""
        limit = self.settings.schedule_recurring_max
        if more and len(self._recurring) + more > limit:
            raise TooManyError(
                "recurring messages", limit, "cancel some, or raise schedule.recurring.max"
            )

    def pending(self, start: Due | None, limit: int) -> tuple[list[Pending], Due | None]:
        """About ``limit`` of what waits, by time, from ``start`` on, and where to go on."""
        found, rest = self.index.read(FIRST if start is None else start, limit)
        if len(found) > limit:
            rest = found[limit]
            del found[limit:]
        return [self._shown(due, Offset(offset)) for due, offset in found], rest

    def _shown(self, due: int, offset: Offset) -> Pending:
        known = self._recurring.get(offset)
        return Pending(offset, Millis(due), None if known is None else known.cron)

    def _changeable(self, offset: Offset, row: Row | None) -> Pending:
        if not self._begin():
            raise CoordinatorLoadingError(
                f"the schedule of {self.target} is not loaded yet; ask again in a moment"
            )
        found = self.look_up(offset, row)
        if offset in self._spoken:
            name = f"{self.target.partition}-{offset}"
            raise NotPendingError(name, "it is being delivered or changed; look again")
        return found

    def _retiming(self, found: Pending, row: Row | None, to: Millis) -> Retimed:
        said = found.due
        if found.offset in self._retimed and row is not None:
            said = self._said(row, str(found.offset))
        return Retimed(said, found.offset, to)

    def _said(self, row: Row, name: str) -> Millis:
        """When a record is due by its own headers."""
        try:
            return timing_of(row[4], Millis(row[1])).due
        except InvalidScheduleError as error:
            raise NotPendingError(name, error.problem) from None

    # --- cleaning -----------------------------------------------------------------------

    def keeping(self, start: Offset, end: Offset, everyone_has: Offset) -> Iterator[Keeping]:
        """Find out, some entries at a time, which records cleaning must leave in the log.

        The last answer counts.  ``everyone_has`` is where the shortest log of all replicas ends,
        in sync or not: a decision that one of them lacks must stay, and one that a restart from
        the last checkpoint would replay.  Cleaning goes through the log from its start, so that
        a record goes before the decisions about it do.
        """
        needed_from = min(everyone_has, self.saved)
        keeping = self._keeping = Keeping(start, min(end, self.applied), needed_from)
        try:
            keeping.note(self._recurring, self._retimed, self._marks)
            for held in self._held.values():
                keeping.keep(due for due, _ in held)
            for target in self.mover.lanes():
                keeping.keep(self.mover.last(target)[0])
            position: Due | None = FIRST
            while position is not None:
                found, position = self.index.read(position, _SCANNED)
                keeping.keep(found)
                yield keeping
        finally:
            self._keeping = None

    # --- files --------------------------------------------------------------------------

    def wants_upkeep(self) -> bool:
        """Whether enough has changed for a checkpoint."""
        return self.index.gathered >= self.settings.schedule_buffer_entries

    def upkeep(self) -> Iterator[Step]:
        """Write a checkpoint, remove what it no longer needs, and merge files.

        Each step works on files and may be taken by a thread; what happens between them is
        done here.  One upkeep at a time; one that fails or is dropped leaves all as it was.
        """
        self.index.freeze()
        state = self._state()
        yield from self.index.write()
        yield from self.index.raise_starts()
        yield self._saving(state._replace(runs=self.index.named()))
        self.saved = state.applied
        yield from self.index.sweep()
        yield from self.index.merge()

    def _saving(self, state: Checkpoint) -> Step:
        def save() -> None:
            self._files.sync()
            self._files.replace(CHECKPOINT, encode(state))

        return save

    def _state(self) -> Checkpoint:
        return Checkpoint(
            self.applied,
            self._leader_epoch,
            self.index.pending,
            [],
            {producer: list(held) for producer, held in self._held.items()},
            dict(self._recurring),
            dict(self._retimed),
            self.mover.lanes(),
            dict(self._marks),
        )


def _following(cron: Cron, due: int, at: Millis) -> Millis | None:
    """When it comes next: times that were missed meanwhile are not made up for."""
    return cron.next_after(Millis(max(due, at)))
