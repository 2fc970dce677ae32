"""How far each group has read, in little memory.

A group's positions lie in one array of numbers, three for each partition; what most commits lack,
a note and a time to expire, lies beside it.  Topics and their ids are kept once for all groups.
With 100 partitions in a group, each takes 76 to 111 bytes (benchmarks/groups/offsets.py).

Nothing here decides: who may commit is asked in ``machine.py``, what has expired in ``expiry.py``.
"""

from array import array
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from waystation.groups.records import NEVER, OffsetCommitted
from waystation.model.ids import NO_TOPIC_ID, TopicId

T = TypeVar("T")

_COLUMNS = 3  # offset, time of the commit, topic id's number and leader epoch
_HALF = 32
_TO_NEAREST = 1 << (_HALF - 1)
_LONG_AFTER = 1 << 62


class Position(NamedTuple):
    """One offset as it was committed."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    committed_at: int
    expires_at: int
    topic_id: TopicId


class _Topic:
    """A topic's number, shifted to make room for a partition, and the ids it was seen under."""

    __slots__ = ("base", "id", "id_base", "ids")

    def __init__(self, number: int) -> None:
        self.base = number << _HALF
        self.id, self.id_base = NO_TOPIC_ID, 0  # the id of the newest commit
        self.ids: dict[TopicId, int] = {}


class _GroupOffsets:
    """One group's rows, by topic and partition; rows of forgotten offsets are used again."""

    __slots__ = ("expiries", "free", "notes", "rows", "values")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.values = array("q")
        self.free: list[int] = []
        self.notes: dict[int, str] = {}
        self.expiries: dict[int, int] = {}


class Offsets:
    """The newest committed offset of each group, topic and partition."""

    __slots__ = ("_groups", "_ids", "_names", "_topics")

    def __init__(self) -> None:
        self._groups: dict[str, _GroupOffsets] = {}
        self._topics: dict[str, _Topic] = {}
        self._names: list[str] = []
        self._ids: list[TopicId] = [NO_TOPIC_ID]

    def keep(self, record: OffsetCommitted) -> None:
        """Take the offset in place of what was known.

        HOT: once per committed offset, and for each of a million when a coordinator loads
        (benchmarks/groups/offsets.py).
        """
        group_id, topic, partition, offset, epoch, note, committed_at, expires_at, topic_id = record
        seen = self._topics.get(topic)
        if seen is None:
            seen = self._new_topic(topic)
        if topic_id is not seen.id:
            self._identify(seen, topic_id)
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = _GroupOffsets()
        key, packed = seen.base + partition, seen.id_base + epoch
        row, values = group.rows.get(key), group.values
        if row is None and group.free:
            row = group.rows[key] = group.free.pop()
        if row is None:
            group.rows[key] = len(group.rows)
            values.extend((offset, committed_at, packed))
        else:
            at = row * _COLUMNS
            values[at] = offset
            values[at + 1] = committed_at
            values[at + 2] = packed
        if note or group.notes:
            _put(group.notes, key, note, "")
        if expires_at != NEVER or group.expiries:
            _put(group.expiries, key, expires_at, NEVER)

    def forget(self, group_id: str, topic: str, partition: int) -> None:
        """Know nothing of the partition any more, and of the group if that was all."""
        group, seen = self._groups.get(group_id), self._topics.get(topic)
        if group is None or seen is None:
            return
        key = seen.base + partition
        row = group.rows.pop(key, None)
        if row is None:
            return
        group.free.append(row)
        group.values[row * _COLUMNS + 1] = _LONG_AFTER
        group.notes.pop(key, None)
        group.expiries.pop(key, None)
        if not group.rows:
            del self._groups[group_id]

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def group_ids(self) -> Iterator[str]:
        """The groups that have committed something."""
        return iter(self._groups)

    def count(self, group_id: str) -> int:
        """How many offsets the group has."""
        group = self._groups.get(group_id)
        return 0 if group is None else len(group.rows)

    def find(self, group_id: str, topic: str, partition: int) -> Position | None:
        """The group's position in one partition."""
        group, seen = self._groups.get(group_id), self._topics.get(topic)
        if group is None or seen is None:
            return None
        key = seen.base + partition
        row = group.rows.get(key)
        return None if row is None else self._position(group, key, row)

    def of_group(self, group_id: str) -> Iterator[Position]:
        """All positions of a group, in the order of their first commit."""
        group = self._groups.get(group_id)
        if group is not None:
            for key, row in group.rows.items():
                yield self._position(group, key, row)

    def oldest_commit(self, group_id: str) -> int:
        """No offset of the group was committed before; far quicker than to look at each."""
        group = self._groups[group_id]
        return min(group.values[1::_COLUMNS])

    def has_expiries(self, group_id: str) -> bool:
        """Whether some offset of the group has a time of its own to expire."""
        return bool(self._groups[group_id].expiries)

    def topics(self) -> Iterator[tuple[str, tuple[TopicId, ...]]]:
        """Every topic that was ever committed for, and the ids it had then."""
        for name, seen in self._topics.items():
            yield name, tuple(seen.ids)

    def in_topic(self, topic: str) -> Iterator[tuple[str, Position]]:
        """All groups' positions in a topic."""
        seen = self._topics.get(topic)
        if seen is None:
            return
        for group_id, group in self._groups.items():
            for key, row in group.rows.items():
                if -_TO_NEAREST <= key - seen.base < _TO_NEAREST:
                    yield group_id, self._position(group, key, row)

    def drop_id(self, topic: str, topic_id: TopicId) -> None:
        """No offset is kept under that id of the topic any more."""
        seen = self._topics.get(topic)
        if seen is None:
            return
        seen.ids.pop(topic_id, None)
        if seen.id == topic_id:
            self._identify(seen, NO_TOPIC_ID)

    def _position(self, group: _GroupOffsets, key: int, row: int) -> Position:
        number, partition = _split(key)
        offset, committed_at, packed = group.values[row * _COLUMNS : (row + 1) * _COLUMNS]
        id_number, leader_epoch = _split(packed)
        return Position(
            self._names[number],
            partition,
            offset,
            leader_epoch,
            group.notes.get(key, ""),
            committed_at,
            group.expiries.get(key, NEVER),
            self._ids[id_number],
        )

    def _new_topic(self, topic: str) -> _Topic:
        seen = self._topics[topic] = _Topic(len(self._names))
        self._names.append(topic)
        return seen

    def _identify(self, seen: _Topic, topic_id: TopicId) -> None:
        """Let the topic's newest id be ``topic_id``: equal ones need not be one object."""
        if topic_id == NO_TOPIC_ID:
            seen.id, seen.id_base = NO_TOPIC_ID, 0
            return
        number = seen.ids.get(topic_id)
        if number is None:
            number = seen.ids[topic_id] = len(self._ids)
            self._ids.append(topic_id)
        seen.id, seen.id_base = topic_id, number << _HALF


def _split(packed: int) -> tuple[int, int]:
    """The two numbers of which the lower, of 32 bits, may be negative."""
    upper = (packed + _TO_NEAREST) >> _HALF
    return upper, packed - (upper << _HALF)


def _put(beside: dict[int, T], key: int, value: T, usual: T) -> None:
    """Keep beside the rows only what is unusual."""
    if value != usual:
        beside[key] = value
    else:
        beside.pop(key, None)
