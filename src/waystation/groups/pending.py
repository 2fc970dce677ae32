"""Offsets that hang on transactions, kept aside until a marker says what becomes of them.

1. A pending offset counts once its producer's transaction is committed, and never if that is
   aborted.
2. What was appended later wins, whenever the marker comes: an offset that a plain commit, or a
   transaction that is committed, has overtaken stays without effect.  That is what compaction
   keeps, so that a replay of a compacted log finds the same.
3. A partition is unstable while any transaction that touched it is open, also if what that
   would change was overtaken.
4. To forget an offset is to forget what is pending there.

Only the order of calls counts here: they follow the log.
"""

from collections.abc import Iterator

from waystation.groups.records import OffsetCommitted
from waystation.model.ids import ProducerId

Place = tuple[str, int]
"""Topic and partition."""

_Waiting = dict[ProducerId, OffsetCommitted | None]
"""What each transaction has for one place, oldest first; ``None`` for what was overtaken."""


class Pending:
    """The offsets of all open transactions."""

    __slots__ = ("_transactions", "groups")

    def __init__(self) -> None:
        self.groups: dict[str, dict[Place, _Waiting]] = {}
        """By group; empty as long as there is no transaction, which is quick to see."""
        self._transactions: dict[ProducerId, dict[tuple[str, Place], None]] = {}

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change the offset."""
        group = self.groups.get(group_id)
        return group is not None and (topic, partition) in group

    def of_group(self, group_id: str) -> list[Place]:
        """Where the group has pending offsets."""
        return list(self.groups.get(group_id, ()))

    def all(self) -> Iterator[OffsetCommitted]:
        """Every offset that may still come to count."""
        for group in self.groups.values():
            for waiting in group.values():
                for record in waiting.values():
                    if record is not None:
                        yield record

    # --- what records do ----------------------------------------------------------------------

    def add(self, producer_id: ProducerId, record: OffsetCommitted) -> None:
        """Keep an offset aside; it takes the place of the transaction's former one."""
        group_id, place = record.group_id, (record.topic, record.partition)
        waiting = self.groups.setdefault(group_id, {}).setdefault(place, {})
        waiting.pop(producer_id, None)
        waiting[producer_id] = record
        self._transactions.setdefault(producer_id, {})[group_id, place] = None

    def overtake(self, group_id: str, topic: str, partition: int) -> None:
        """A plain commit was appended: it is later than everything that is pending there."""
        group = self.groups.get(group_id)
        if group is not None:
            _overtake(group.get((topic, partition), {}))

    def end(self, producer_id: ProducerId, *, committed: bool) -> list[OffsetCommitted]:
        """Let a transaction's offsets go; those that count from now on."""
        counting = []
        for group_id, place in self._transactions.pop(producer_id, ()):
            waiting = self.groups[group_id][place]
            if committed:
                _overtake(waiting, producer_id)
            record = waiting.pop(producer_id)
            self._tidy(group_id, place)
            if committed and record is not None:
                counting.append(record)
        return counting

    def forget(self, group_id: str, topic: str, partition: int) -> None:
        """The offset was forgotten, and what would have changed it too."""
        place = (topic, partition)
        for producer_id in self.groups.get(group_id, {}).pop(place, ()):
            places = self._transactions[producer_id]
            del places[group_id, place]
            if not places:
                del self._transactions[producer_id]
        if group_id in self.groups and not self.groups[group_id]:
            del self.groups[group_id]

    def _tidy(self, group_id: str, place: Place) -> None:
        group = self.groups[group_id]
        if not group[place]:
            del group[place]
        if not group:
            del self.groups[group_id]


def _overtake(waiting: _Waiting, by: ProducerId | None = None) -> None:
    """Let all that is older than what ``by`` has there stay without effect."""
    for producer_id in waiting:
        if producer_id == by:
            return
        waiting[producer_id] = None
