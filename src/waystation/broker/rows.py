"""Single records out of a partition's log, by their offsets.

Batches are found on the loop and read by a thread.  A record that is not there any more was taken
by retention or compaction; one that is not committed yet, as a new leader sees it, is waited for.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from waystation.model.errors import OffsetNotAvailableError
from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.records.batch import rows_of
from waystation.records.header import batches
from waystation.records.record import Row
from waystation.runtime.regions import FileRegion

__all__ = ["rows_at"]

_MUCH_BYTES: Final = 4 << 20


async def rows_at(
    partition: Partition, offsets: Sequence[Offset], max_bytes: int = _MUCH_BYTES
) -> tuple[dict[Offset, Row], Offset]:
    """The records at ``offsets``, which rise, and up to where was looked: all, or what fits.

    One batch is looked at in any case, however large.
    """
    regions, end = _regions(partition, offsets, max_bytes)
    wanted = frozenset(offsets)
    rows = await asyncio.to_thread(_rows, regions, wanted) if regions else []
    return {Offset(row[0]): row for row in rows}, end


def _regions(
    partition: Partition, offsets: Sequence[Offset], max_bytes: int
) -> tuple[list[FileRegion], Offset]:
    regions: list[FileRegion] = []
    behind, size_bytes = Offset(0), 0
    for offset in offsets:
        if offset < behind or offset < partition.log.log_start:
            continue
        if offset >= partition.high_watermark:
            raise OffsetNotAvailableError(f"{offset} of {partition.name} is not committed yet")
        if size_bytes >= max_bytes:
            return regions, offset
        found = partition.read(offset, 1, at_least_one=True)
        if found.region is not None:
            regions.append(found.region)
            size_bytes += found.region.nbytes
        behind = max(found.next_offset, Offset(offset + 1))
    return regions, Offset(max((behind, *(offset + 1 for offset in offsets[-1:]))))


def _rows(regions: Sequence[FileRegion], wanted: frozenset[Offset]) -> list[Row]:
    return [
        row
        for region in regions
        for data in (region.read(),)
        for at, header in batches(data)
        if not header.is_control and header.records_count
        for row in rows_of(data, at)
        if row[0] in wanted
    ]
