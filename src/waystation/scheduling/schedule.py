"""What the leader of a companion's partition does with what waits there.

``due`` and ``decide`` choose what goes next; ``cancel`` and ``retime`` make decisions too.  All of
them are appended to the log by whoever hosts the schedule, and count once they are committed and
applied (``book.py``), which is also how followers and the next leader learn of them.  What holds:

1. nothing is decided before everything in the log up to the election was applied, and nothing is
   decided twice while a decision about it is on its way into the log;
2. nothing goes before its time, by the clock that ``due`` is asked with, which may step either
   way; of what is due the earliest goes first, and the lower offset where times are equal;
3. memory holds the next few thousand of what waits (``wheel.py``), and the rest is in files.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from waystation.model.errors import CoordinatorLoadingError
from waystation.model.ids import NO_LEADER_EPOCH, LeaderEpoch, TopicPartition
from waystation.model.offsets import NO_OFFSET, Millis, Offset
from waystation.records.record import Row
from waystation.scheduling.book import Book
from waystation.scheduling.checkpoint import Checkpoint
from waystation.scheduling.cron import Cron
from waystation.scheduling.errors import InvalidScheduleError, NotPendingError, TooManyError
from waystation.scheduling.files import IndexFiles
from waystation.scheduling.headers import check_time, timing_of
from waystation.scheduling.index import FIRST
from waystation.scheduling.records import Cancelled, Decided, Decision, Retimed
from waystation.scheduling.settings import ScheduleSettings
from waystation.scheduling.wheel import Due, TimingWheel

__all__ = ["Pending", "Schedule"]

_END: Final[Due] = (1 << 63, 0)
_LOW_SHARE: Final = 4
_BITE: Final = 1_000
"""How many entries are fetched at once: a few milliseconds of work."""


class Pending(NamedTuple):
    """One message that waits."""

    offset: Offset
    due: Millis
    cron: Cron | None = None


class Schedule(Book):
    """A book whose owner may lead."""

    def __init__(
        self,
        target: TopicPartition,
        files: IndexFiles,
        settings: ScheduleSettings,
        state: Checkpoint | None = None,
    ) -> None:
        super().__init__(target, files, settings, state)
        self._wheel: TimingWheel | None = None
        self._leads_from = NO_OFFSET
        self._epoch = NO_LEADER_EPOCH
        self._spoken: dict[Offset, None] = {}
        """Records about which a decision of ours is on its way into the log."""

    def _apply_decision(self, decision: Decision, at: Offset) -> None:
        match decision:
            case Decided():
                for _, moved in decision.items:
                    self._spoken.pop(Offset(moved), None)
            case Cancelled(_, offset) | Retimed(_, offset):
                self._spoken.pop(offset, None)
        super()._apply_decision(decision, at)

    def _add(self, dues: list[Due]) -> None:
        super()._add(dues)
        wheel = self._wheel
        if wheel is None:
            return
        edge = wheel.edge
        for due in dues:
            if due < edge:
                wheel.add(due)
        wheel.shed(self.settings.schedule_near_entries, max(2 * len(dues), _BITE))

    def _remove(self, dues: list[Due]) -> None:
        super()._remove(dues)
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

    def ahead(self, until: Millis, limit: int) -> list[Due]:
        """What is due by a moment to come, as far as it is at hand: to be read beforehand."""
        return [] if self._wheel is None else self._wheel.due(until, limit)

    def decide(self, items: Iterable[Due], now: Millis) -> Decided:
        """Move these, a beginning of what ``due`` gave: the decision to append.

        Whoever cannot append it, or any other decision of ours, lets the schedule resign.
        """
        chosen = tuple(items)
        assert all(due <= now for due, _ in chosen), f"something of {chosen} goes before its time"
        self._spoken.update((Offset(offset), None) for _, offset in chosen)
        return self.mover.decide(self.target, chosen, now)

    def refused(self) -> Due | None:
        """A message that its target does not take even by itself, told once: put it off."""
        return self.mover.refused(self.target)

    def next_due(self) -> Millis | None:
        """When something is due next, if it is led from here.

        A clock may step: who waits for it looks again every second or so.
        """
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
        """Take more from the index before the wheel runs empty: one bite, and more if it is."""
        near = self.settings.schedule_near_entries
        is_low = wheel.count < near // _LOW_SHARE
        while is_low and wheel.edge != _END:
            found, rest = self.index.read(wheel.edge, min(near, _BITE), go_on=True)
            wheel.extend(found, _END if rest is None else rest)
            is_low = not wheel.count

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
