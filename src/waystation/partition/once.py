"""Messages with idempotency keys, at the leader of their partition: stored, or stored before.

1. Of all messages with one key only the first is stored, for as long as the window says, whoever
   sends them, at the same moment too: nothing happens between looking and appending.
2. The others are told where that one is.  One with another content is refused.
3. No key is forgotten before its time; when there is no room for another, in the partition or the
   broker, it is refused.

What is told counts only once everything before ``Stored.end`` is committed.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from waystation.model.errors import ErrorCode, InvalidRecordError, WaystationError
from waystation.model.ids import TopicPartition
from waystation.model.offsets import Millis, Offset
from waystation.partition.partition import Partition
from waystation.records.once import (
    HEADER_NAME,
    OnceEntry,
    check_key,
    fingerprint_of,
    hash_of,
    once_batch,
)
from waystation.records.record import Row
from waystation.storage.once_window import OnceWindow

__all__ = ["BrokerKeysFullError", "Fate", "KeysFullError", "Room", "Stored", "store"]

RECORDS_MAX: Final = 1_000


class Fate(IntEnum):
    """What became of a message."""

    STORED = 0
    REPLAYED = 1
    CONFLICT = 2


class KeysFullError(WaystationError):
    """A partition remembers as many idempotency keys as its topic lets it."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED

    def __init__(self, partition: TopicPartition, known: int, window_ms: int) -> None:
        self.partition, self.known, self.window_ms = partition, known, window_ms
        super().__init__(
            f"{partition} remembers {known} idempotency keys of the last {window_ms} ms and has "
            "no room for others: wait, or raise idempotency.keys.max of the topic, or lower its "
            "idempotency.window.ms"
        )


class BrokerKeysFullError(WaystationError):
    """A broker remembers as many idempotency keys as it may, of all its partitions."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED

    def __init__(self, partition: TopicPartition, most: int) -> None:
        self.partition, self.most = partition, most
        super().__init__(
            f"the broker that leads {partition} remembers {most} idempotency keys of all its "
            "partitions and has no room for others: wait, or raise its "
            "idempotency.broker.keys.max, or lower idempotency.window.ms of topics"
        )


class Stored(NamedTuple):
    """What became of the messages of one request, in their order."""

    fates: list[Fate]
    places: list[OnceEntry]
    end: Offset

    @property
    def fresh(self) -> int:
        """How many were not known before."""
        return self.fates.count(Fate.STORED)


class Asked(NamedTuple):
    """One message of a request, and by what it is known."""

    row: Row
    hashed: bytes
    fingerprint: bytes


class Room(NamedTuple):
    """How many keys all partitions of a broker know, and how many they may."""

    known: int
    most: int


def store(partition: Partition, rows: Sequence[Row], now: Millis, room: Room) -> Stored:
    """Append those of the messages that are new."""
    partition.check_epoch(-1)
    asked = [_asked(row) for row in rows]
    window, settings = partition.log.once, partition.settings
    fates = decide(window, asked, Millis(now - settings.idempotency_window_ms))
    fresh = [one.row for one, fate in zip(asked, fates, strict=True) if fate is Fate.STORED]
    if fresh:
        if len(window) + len(fresh) > settings.idempotency_keys_max:
            partition.log.forget_keys(now)
        if len(window) + len(fresh) > settings.idempotency_keys_max:
            raise KeysFullError(partition.name, len(window), settings.idempotency_window_ms)
        if room.known + len(fresh) > room.most:
            raise BrokerKeysFullError(partition.name, room.most)
        partition.append_once(memoryview(once_batch(fresh, now)), now)
    places = [_known(window, one.hashed) for one in asked]
    return Stored(fates, places, Offset(max(one.offset for one in places) + 1))


def decide(window: OnceWindow, asked: Sequence[Asked], since: Millis) -> list[Fate]:
    """What is to become of each; what was stored before ``since`` counts no more."""
    fates: list[Fate] = []
    before: dict[bytes, bytes] = {}
    for one in asked:
        known = before.get(one.hashed)
        if known is None:
            found = window.find(one.hashed)
            known = found.fingerprint if found is not None and found.at >= since else None
        if known is None:
            before[one.hashed] = one.fingerprint
            fates.append(Fate.STORED)
        else:
            fates.append(Fate.REPLAYED if known == one.fingerprint else Fate.CONFLICT)
    return fates


def _asked(row: Row) -> Asked:
    _, _, key, value, headers = row
    named = [content for name, content in headers if name == HEADER_NAME]
    if len(named) != 1 or named[0] is None:
        raise InvalidRecordError(f"every record has one header {HEADER_NAME}, not {len(named)}")
    check_key(named[0])
    return Asked(row, hash_of(named[0]), fingerprint_of(key, value, headers))


def _known(window: OnceWindow, hashed: bytes) -> OnceEntry:
    found = window.find(hashed)
    assert found is not None, "a key that was just stored is not known"
    return found
