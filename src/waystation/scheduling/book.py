"""What one partition of a companion topic says, replayed from its log: what waits, and until when.

``apply`` takes the log's committed batches in order, on leaders and followers alike: messages, the
markers of transactions, decisions.  What holds:

1. a message counts once it is committed: of a transaction, once its marker says so, and others
   do not wait for that;
2. a checkpoint and the log behind it give the same book as the whole log, and so does a log that
   was cleaned (``keeping.py``);
3. memory holds what changed since the last checkpoint, the records of open transactions, and
   tables whose sizes are limited; all else is in files (``index.py``).

A recurring message that was missed comes once, late, and then at its next regular time.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final, Self

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
from waystation.scheduling.errors import DamagedIndexError, InvalidScheduleError
from waystation.scheduling.files import IndexFiles
from waystation.scheduling.headers import plain_due, timing_of
from waystation.scheduling.index import FIRST, Index, Step, Steps
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
from waystation.scheduling.wheel import Due

__all__ = ["Book"]

_SCANNED: Final = 2_000
_AT_ONCE: Final = 250
"""How many records are taken over without a pause: a millisecond or two of work."""


class Book:
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
        """Everything in the log before this is in the book."""
        self.saved = self.applied
        """What the last checkpoint had applied: a restart goes on from there."""
        self.strays = 0
        """Records that do not say when they are due, since the start of this process."""
        self._files = files
        self.leader_epoch = NO_LEADER_EPOCH if state is None else state.leader_epoch
        """Under which the last batch in the book was written."""
        self.is_miscounted = state is not None and state.pending < 0
        """Whether decisions may have been applied about records that were cleaned away."""
        self.is_between = False
        """Whether some records of a batch are in the book and others are not yet."""
        self._held: dict[ProducerId, Held] = {} if state is None else state.held
        self._recurring: dict[Offset, Recurring] = {} if state is None else state.recurring
        self._retimed: dict[Offset, Retiming] = {} if state is None else state.retimed
        self._marks: dict[TopicPartition, tuple[Offset, ...]] = {} if state is None else state.marks
        self.index = Index(files) if state is None else Index(files, state.runs, state.pending)
        self.mover = Mover(
            None if state is None else state.lanes, trust_ms=settings.schedule_trust_ms
        )
        self._keeping: Keeping | None = None

    @classmethod
    def opened(
        cls,
        target: TopicPartition,
        files: IndexFiles,
        settings: ScheduleSettings,
        log_has: Callable[[Offset, LeaderEpoch], bool],
    ) -> Self:
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
        """Take over a committed batch; one that was taken over before is left alone."""
        for _ in self.applying(batch, at):
            pass

    def applying(self, batch: Buffer, at: int = 0) -> Iterator[None]:
        """As ``apply``, some hundred records at a time; to be gone through to the end.

        HOT: once per batch of a companion topic (benchmarks/scheduling/index.py).
        """
        header = peek(batch, at)
        if header.base_offset < self.applied:
            return
        if header.is_control:
            self._apply_control(batch, at, header)
        else:
            rows = rows_of(batch, at)
            self.is_miscounted = self.is_miscounted or len(rows) <= header.last_offset_delta
            for first in range(0, len(rows), _AT_ONCE):
                self.is_between = True
                self._apply_messages(header, rows[first : first + _AT_ONCE])
                if first + _AT_ONCE < len(rows):
                    yield
        self._applied_all(header)

    def skip(self, batch: Buffer, at: int = 0) -> None:
        """Go past a batch that cannot be read."""
        self._applied_all(peek(batch, at))

    def _applied_all(self, header: BatchHeader) -> None:
        self.is_between = False
        self.applied = header.next_offset
        self.leader_epoch = header.partition_leader_epoch

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
        """HOT: most messages name a time and recur not; they become nothing but that time."""
        plain: list[Due] = []
        other: Held = []
        for offset, timestamp, _, _, headers in rows:
            due = plain_due(headers)
            if due is not None:
                plain.append((due, offset))
                continue
            try:
                timing = timing_of(headers, Millis(timestamp))
            except InvalidScheduleError:
                self.strays += 1
            else:
                other.append(((timing.due, offset), timing.cron))
        if header.is_transactional:
            held = self._held.setdefault(header.producer_id, [])
            held += [(one, None) for one in plain]
            held += other
        else:
            self._add(plain)
            self._admit(other)

    def _admit(self, found: Held) -> None:
        if not found:
            return
        for (due, offset), cron in found:
            if cron is not None:
                self._recurring[Offset(offset)] = Recurring(cron, Millis(due), NO_OFFSET)
        self._add([due for due, _ in found])

    def _apply_decision(self, decision: Decision, at: Offset) -> None:
        match decision:
            case Decided():
                self._apply_moved(decision, at)
            case Settled():
                self._marks[decision.target] = (at,)
                self._arrived(decision.target)
                self.mover.apply(decision)
            case Doubted():
                self._marks[decision.target] = (*self._marks.get(decision.target, ()), at)
                self.mover.apply(decision)
            case Withdrawn():
                self._marks[decision.target] = (at,)
                self._restore(self.mover.apply(decision))
            case Cancelled(due, offset):
                self._retimed.pop(offset, None)
                known = self._recurring.pop(offset, None)
                self._remove([(due if known is None else known.due, offset)])
            case Retimed(due, offset, to):
                self._apply_retimed(due, offset, to, at)

    def _apply_moved(self, decided: Decided, at: Offset) -> None:
        self._marks[decided.target] = (at,)
        self._arrived(decided.target)
        self.mover.apply(decided)
        gone: list[Due] = []
        added: list[Due] = []
        for due, offset in decided.items:
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
        passed: list[Due] = []
        for due, offset in items:
            known = self._recurring.get(Offset(offset))
            if known is not None:
                passed.append((known.due, offset))
                self._recurring[Offset(offset)] = Recurring(
                    known.cron, Millis(due), decision=known.before
                )
        self._remove(passed)
        self._add(list(items))

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

    def _add(self, dues: list[Due]) -> None:
        """Records wait for these times; a leader keeps its wheel as well."""
        self.index.add(dues)
        if self._keeping is not None:
            self._keeping.keep(dues)

    def _remove(self, dues: list[Due]) -> None:
        """Records wait for these times no more."""
        self.index.remove(dues)

    # --- cleaning -----------------------------------------------------------------------

    def keeping(
        self, start: Offset, end: Offset, everyone_has: Offset
    ) -> Generator[Keeping, None, None]:
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
        return not self.is_between and self.index.gathered >= self.settings.schedule_buffer_entries

    def upkeep(self) -> Steps:
        """Write a checkpoint, remove what it no longer needs, and merge files.

        Each step works on files and may be taken by a thread; what happens between them is
        done here.  One upkeep at a time; one that fails or is dropped leaves all as it was.
        """
        assert not self.is_between, "a checkpoint cannot say how much of a batch is in it"
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
            self.leader_epoch,
            -1 if self.is_miscounted else self.index.pending,
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
