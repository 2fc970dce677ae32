"""Looks through a partition for the dead letters that an order means, some of it at a time.

Only what is committed, and of no open or aborted transaction.  A thread reads and filters.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from waystation.broker.queue_reading import is_aborted
from waystation.filters.selecting import Filter
from waystation.model.errors import OffsetNotAvailableError
from waystation.model.offsets import Millis, Offset
from waystation.partition.partition import Partition
from waystation.records.batch import rows_of
from waystation.records.header import batches
from waystation.records.record import Row
from waystation.runtime.regions import FileRegion
from waystation.storage.txn_index import AbortedTxn

__all__ = ["Scan", "scanned"]

_SLICE_BYTES: Final = 256 << 10


class Scan(NamedTuple):
    """What is looked for: offsets, times and a filter, or none."""

    first: Offset
    end: Offset
    since: Millis
    until: Millis
    filter: Filter | None


async def scanned(
    partition: Partition, scan: Scan, is_settled: Callable[[Offset], bool], most: int
) -> tuple[list[Row], Offset]:
    """Up to ``most`` messages that are meant and not settled, and up to where was looked."""
    first = max(scan.first, partition.log.log_start)
    if first >= scan.end:
        return [], scan.end
    if first >= partition.last_stable:
        raise OffsetNotAvailableError(f"{first} of {partition.name} is not committed yet")
    found = partition.read(first, _SLICE_BYTES, at_least_one=True, stable_only=True)
    if found.region is None:
        return [], scan.end
    aborted = partition.log.aborted(first, found.next_offset)
    scan = scan._replace(first=first)
    rows = await asyncio.to_thread(_meant, found.region, scan, partition.name.partition, aborted)
    left: list[Row] = []
    for row in rows:
        if is_settled(Offset(row[0])):
            continue
        if len(left) == most:
            return left, Offset(row[0])
        left.append(row)
    return left, min(found.next_offset, scan.end)


def _meant(
    region: FileRegion, scan: Scan, partition: int, aborted: Sequence[AbortedTxn]
) -> list[Row]:
    data = region.read()
    meant: list[Row] = []
    for at, header in batches(data):
        if header.is_control or not header.records_count or is_aborted(header, aborted):
            continue
        rows = rows_of(data, at)
        if scan.filter is not None:
            rows = [rows[one] for one in scan.filter.matching(data, partition, at)]
        meant += [
            row
            for row in rows
            if scan.first <= row[0] < scan.end and scan.since <= row[1] < scan.until
        ]
    return meant
