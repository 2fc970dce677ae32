"""What the share coordinator knows of one queue, and how what a leader says joins it.

Under one state epoch messages go one way only: deliveries grow, what is settled stays settled,
and the start never goes back.  So joining is a matter of taking what is further on, and the
result does not depend on the order in which a leader's writes arrive, nor on how often: a write
that was given up and arrives late, behind the one that repeated it, takes nothing back.  Only
``cut`` does, when the messages themselves were lost.
"""

from collections.abc import Iterable
from typing import Final

from waystation.model.ids import LeaderEpoch
from waystation.model.offsets import NO_OFFSET, Offset
from waystation.sharing.lineage import Lineage
from waystation.sharing.ranges import Ranges
from waystation.sharing.state_records import NO_NOTES, Notes, UpdateStored
from waystation.sharing.states import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    REJECTED,
    StateBatch,
)

Known = tuple[int, int]
"""State and deliveries."""

_UNKNOWN: Final[Known] = (AVAILABLE, 0)
_RANK: Final = {AVAILABLE: 0, ARCHIVING: 1, REJECTED: 1, ARCHIVED: 2, ACKNOWLEDGED: 2}


class QueueState:
    """One queue; ``start`` is -1 until a leader has decided where it begins."""

    __slots__ = (
        "_ranges",
        "is_new",
        "leader_epoch",
        "notes",
        "slots",
        "snapshot_epoch",
        "state_epoch",
    )

    def __init__(
        self,
        snapshot_epoch: int,
        state_epoch: int,
        leader_epoch: LeaderEpoch,
        start: Offset,
        batches: Iterable[StateBatch],
        notes: Notes = NO_NOTES,
        is_new: bool = False,
    ) -> None:
        self.is_new = is_new
        self.notes = notes
        """What the leader leaves for the next one; only leaders know what it means."""
        self.snapshot_epoch = snapshot_epoch
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.slots = 0
        """How many updates were stored since the snapshot."""
        self._ranges: Ranges[Known] = Ranges(start)
        self._join(start, batches)

    @property
    def start(self) -> Offset:
        """Everything before is settled."""
        return self._ranges.start

    @property
    def settled(self) -> int:
        """How many messages at or past the start are settled."""
        return sum(
            end - first
            for first, end, (state, _) in self._ranges.runs_from(self.start)
            if _RANK[state] == _RANK[ARCHIVED]
        )

    def __len__(self) -> int:
        return len(self._ranges)

    def batches(self) -> tuple[StateBatch, ...]:
        """All that is not as if it had never been delivered."""
        return tuple(
            StateBatch(first, end, *known)
            for first, end, known in self._ranges.runs_from(self.start)
            if known != _UNKNOWN
        )

    def join(self, update: UpdateStored) -> None:
        """Take over what has changed, unless it belongs to a snapshot that was replaced."""
        if update.snapshot_epoch != self.snapshot_epoch:
            return
        self.slots = max(self.slots, update.slot + 1)
        self.leader_epoch = LeaderEpoch(max(self.leader_epoch, update.leader_epoch))
        self.notes = max(self.notes, update.notes)
        self._join(update.start, update.batches)

    def joined(
        self, start: Offset, batches: Iterable[StateBatch], notes: Notes = NO_NOTES
    ) -> "QueueState":
        """What it would be with that."""
        after = QueueState(
            self.snapshot_epoch,
            self.state_epoch,
            self.leader_epoch,
            self.start,
            self.batches(),
            max(self.notes, notes),
        )
        after._join(start, batches)
        return after

    def lost_from(self, log: Lineage) -> Offset | None:
        """From where on it speaks of messages that a new leader's log has lost, if it does."""
        if not log.is_known or self.start == NO_OFFSET:
            return None
        parts = log.log_end if self.is_new else log.parts_from(self.leader_epoch)
        return parts if self._ranges.end > parts else None

    def cut(self, at: Offset) -> "QueueState":
        """What it would be if it knew nothing of offsets from ``at`` on."""
        batches = [one._replace(end=min(one.end, at)) for one in self.batches() if one.first < at]
        return QueueState(
            self.snapshot_epoch,
            self.state_epoch,
            self.leader_epoch,
            min(self.start, at),
            batches,
            self.notes,
        )

    def _join(self, start: Offset, batches: Iterable[StateBatch]) -> None:
        ranges = self._ranges
        if start != NO_OFFSET:
            ranges.forget(start)
        for first, end, state, deliveries in batches:
            first = max(first, ranges.start)
            if first >= end:
                continue
            if first > ranges.end:
                ranges.extend(first, _UNKNOWN)
            for begin, until, known in ranges.spans(first, end):
                ranges.paint(begin, until, further(known, (state, deliveries)))
            if end > ranges.end:
                ranges.extend(end, (state, deliveries))


def further(one: Known, other: Known) -> Known:
    """Which of two says more of the same message; of equal ones the first."""
    return other if (_RANK[other[0]], other[1]) > (_RANK[one[0]], one[1]) else one
