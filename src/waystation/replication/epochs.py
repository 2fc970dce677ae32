"""Which leader epoch wrote which stretch of a log.

Every batch carries the epoch of the leader that appended it.  A log therefore falls into
stretches, one per epoch, and this file remembers where each begins.  Three promises:

1. epochs and start offsets both rise strictly from entry to entry, so an epoch that wrote
   nothing leaves no trace;
2. two logs that agree on the end of an epoch agree on everything before it, which is how a
   follower finds the point to cut back to, and a client learns that its log was cut;
3. cutting the log at either end leaves exactly the stretches that it still holds.

The entries are also the lines of ``leader-epoch-checkpoint``; storage writes that file
whenever a change here reports true.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from waystation.model.ids import NO_LEADER_EPOCH, LeaderEpoch
from waystation.model.offsets import NO_OFFSET, Offset

_BY_EPOCH = attrgetter("epoch")
_BY_START = attrgetter("start")


class EpochStart(NamedTuple):
    """The first offset that the leader of ``epoch`` appended."""

    epoch: LeaderEpoch
    start: Offset


class EpochEnd(NamedTuple):
    """The offset after the last one of ``epoch``; minus ones mean the epoch is unknown."""

    epoch: LeaderEpoch
    end: Offset


UNKNOWN_EPOCH = EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)


class LeaderEpochs:
    """The epochs of one log, oldest first; owns neither the log nor the file."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        """Entries that contradict a later one are dropped, as if they had been assigned."""
        self._entries: list[EpochStart] = []
        for epoch, start in entries:
            self.assign(epoch, start)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        """All that is known, in the order of the checkpoint's lines."""
        return tuple(self._entries)

    @property
    def latest(self) -> LeaderEpoch:
        """The epoch of the log's newest stretch, or -1 if nothing was ever appended."""
        return self._entries[-1].epoch if self._entries else NO_LEADER_EPOCH

    def assign(self, epoch: LeaderEpoch, start: Offset) -> bool:
        """Note that ``epoch`` appends at ``start``; true if that is news to be written down.

        HOT: once per append, nearly always with the epoch of the last one, which the first
        line answers (benchmarks/replication/leader.py).  An entry that the new one contradicts
        belonged to a tail that is gone, or to an epoch that never wrote, and is dropped.
        """
        if self._entries and epoch == self._entries[-1].epoch and start >= self._entries[-1].start:
            return False
        assert epoch >= 0, f"epoch {epoch} assigned"
        assert start >= 0, f"epoch {epoch} assigned at {start}"
        while self._entries and _contradict(self._entries[-1], epoch, start):
            self._entries.pop()
        self._entries.append(EpochStart(epoch, start))
        return True

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch that wrote ``offset``, or -1 if it lies before all that is known."""
        after = bisect_right(self._entries, offset, key=_BY_START)
        return self._entries[after - 1].epoch if after else NO_LEADER_EPOCH

    def end_of(self, epoch: LeaderEpoch, log_end: Offset) -> EpochEnd:
        """Where ``epoch`` ends in this log: the newest epoch not after it, and its end.

        An epoch older than all known ends where the oldest known begins; one newer than all
        is unknown here, and so is every epoch of an empty history.
        """
        if epoch < 0:
            return UNKNOWN_EPOCH
        if epoch == self.latest:
            return EpochEnd(epoch, log_end)
        after = bisect_right(self._entries, epoch, key=_BY_EPOCH)
        if after == len(self._entries):
            return UNKNOWN_EPOCH
        known = self._entries[after - 1].epoch if after else epoch
        return EpochEnd(known, self._entries[after].start)

    def truncate_to(self, log_end: Offset) -> bool:
        """Forget what lay at or after ``log_end``; true if an epoch went with it."""
        keep = bisect_left(self._entries, log_end, key=_BY_START)
        changed = keep < len(self._entries)
        del self._entries[keep:]
        return changed

    def advance_start(self, log_start: Offset) -> bool:
        """Forget what lay before ``log_start``; true if an entry moved or went.

        The epoch that covers ``log_start`` now begins there.  The newest epoch is never
        forgotten, even by an empty log: the next leader must come after it.
        """
        after = bisect_right(self._entries, log_start, key=_BY_START)
        if after == 0 or (after == 1 and self._entries[0].start == log_start):
            return False
        self._entries[:after] = [EpochStart(self._entries[after - 1].epoch, log_start)]
        return True

    def clear(self) -> None:
        """Forget everything: the log starts anew at an offset of another's choosing."""
        self._entries.clear()


def _contradict(known: EpochStart, epoch: LeaderEpoch, start: Offset) -> bool:
    return known.epoch >= epoch or known.start >= start
