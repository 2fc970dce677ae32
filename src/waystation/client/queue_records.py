"""Messages out of the answer to a ShareFetch.

An answer holds whole batches, and says which offsets of them were acquired; the rest is somebody
else's and passed over.  Offsets that were acquired and hold no message, because compaction took it
or it is a broker's own record, are to be told as gaps, so that the queue gets past them.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from waystation.client.queue_lease import Lease
from waystation.client.queue_message import QueueMessage
from waystation.messages.share_fetch import AcquiredRecords
from waystation.model.errors import CorruptBatchError
from waystation.model.offsets import Offset
from waystation.records.batch import rows_of
from waystation.records.header import batches, check
from waystation.records.record import Row

__all__ = ["Acquired", "acquired_in", "messages_in"]


class Acquired(NamedTuple):
    """What came for one partition."""

    rows: list[tuple[Row, int]]
    """Each message with how often it was delivered."""
    gaps: list[int]
    """Acquired offsets without a message."""
    corrupt: list[int]
    """Acquired offsets of batches that are damaged."""
    damage: CorruptBatchError | None = None


def acquired_in(
    records: memoryview, acquired: Sequence[AcquiredRecords], limit_bytes: int
) -> Acquired:
    """Decode what was acquired, in the order of offsets.

    HOT: once per partition of an answer; a batch that was acquired as a whole, the usual case,
    is taken without a look at each offset.
    """
    ranges = sorted((one.first_offset, one.last_offset, one.delivery_count) for one in acquired)
    found = Acquired([], [], [])
    damaged: list[tuple[int, int]] = []
    damage: CorruptBatchError | None = None
    for at, header in batches(records):
        wanted = [one for one in ranges if _meet(one, header.base_offset, header.last_offset)]
        if not wanted or header.is_control:
            continue
        try:
            check(records, at)
            rows = rows_of(records, at, limit_bytes=limit_bytes)
        except CorruptBatchError as error:
            damage = damage or error
            damaged.append((header.base_offset, header.last_offset))
            continue
        for first, last, deliveries in wanted:
            if first <= header.base_offset and header.last_offset <= last:
                found.rows.extend((row, deliveries) for row in rows)
            else:
                found.rows.extend((row, deliveries) for row in rows if first <= row[0] <= last)
    _find_gaps(found, ranges, damaged)
    return found._replace(damage=damage)


def messages_in(
    found: Acquired, topic: str, partition: int, lease: Lease
) -> Iterable[QueueMessage]:
    """What was acquired, as messages under one lease."""
    return (
        QueueMessage._make(
            (key, value, topic, partition, Offset(offset), at, headers, deliveries, lease)
        )
        for (offset, at, key, value, headers), deliveries in found.rows
    )


def _meet(one: tuple[int, int, int], first: int, last: int) -> bool:
    return one[0] <= last and first <= one[1]


def _find_gaps(
    found: Acquired, ranges: list[tuple[int, int, int]], damaged: list[tuple[int, int]]
) -> None:
    if len(found.rows) == sum(last - first + 1 for first, last, _ in ranges):
        return
    there = {row[0] for row, _ in found.rows}
    for first, last, _ in ranges:
        for offset in range(first, last + 1):
            if offset in there:
                continue
            is_damaged = any(begin <= offset <= end for begin, end in damaged)
            (found.corrupt if is_damaged else found.gaps).append(offset)
