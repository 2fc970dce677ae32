"""Records of a partition by their offsets, wherever in its log they lie.

What is due together may have come years apart.  Offsets are looked for in the log's order, so that
neighbours are read together, and whoever else uses the loop gets a turn every few milliseconds.
"""

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from waystation.model.offsets import Offset
from waystation.partition.partition import Partition
from waystation.records.batch import payload_of, rows_of
from waystation.records.codec import PLACE_FIELDS, decode_records, locate_records
from waystation.records.header import BatchHeader, TimestampType, batches, check
from waystation.records.record import Row
from waystation.runtime.clock import Clock

__all__ = ["rows_at"]

_SLICE_S: Final = 0.001
_NEIGHBOUR_BYTES: Final = 64 << 10
_NEIGHBOUR_OFFSETS: Final = 500
_FEW: Final = 8
_OFFSET: Final = 4


async def rows_at(partition: Partition, offsets: Sequence[int], clock: Clock) -> dict[int, Row]:
    """The committed records at ``offsets``; those that are gone, or no messages, are left out.

    Raises ``CorruptBatchError`` rather than pass on what does not match its checksum.
    """
    wanted = sorted(set(offsets))
    found: dict[int, Row] = {}
    at = bisect_left(wanted, partition.log_start)
    until_s = clock.monotonic() + _SLICE_S
    while at < len(wanted):
        offset = Offset(wanted[at])
        if offset < partition.log_start:  # deleted meanwhile
            at += 1
            continue
        if offset >= partition.high_watermark:
            break
        # One batch, unless the next is likely to be in those that follow it.
        is_near = at + 1 < len(wanted) and wanted[at + 1] - offset <= _NEIGHBOUR_OFFSETS
        region, behind = partition.read(
            offset, _NEIGHBOUR_BYTES if is_near else 1, at_least_one=True
        )
        if region is None:
            break
        upto = max(bisect_left(wanted, behind, at), at + 1)
        _pick(region.read(), wanted[at:upto], found)
        at = upto
        if clock.monotonic() >= until_s:
            await asyncio.sleep(0)
            until_s = clock.monotonic() + _SLICE_S
    return found


def _pick(chunk: bytes, wanted: Sequence[int], found: dict[int, Row]) -> None:
    """Take the wanted rows out of batches that lie one behind the other."""
    for at, header in batches(chunk):
        first = bisect_left(wanted, header.base_offset)
        last = bisect_left(wanted, header.next_offset)
        if first == last or header.is_control or not header.records_count:
            continue
        check(chunk, at)
        if (last - first) * _FEW >= header.records_count:
            names = set(wanted[first:last])
            found.update((row[0], row) for row in rows_of(chunk, at) if row[0] in names)
        else:
            _pick_few(chunk, at, header, wanted[first:last], found)


def _pick_few(
    chunk: bytes, at: int, header: BatchHeader, wanted: Sequence[int], found: dict[int, Row]
) -> None:
    """Decode only these: to find where a record lies costs a tenth of what decoding it does."""
    payload = memoryview(payload_of(chunk, at, header))
    count, base = header.records_count, header.base_offset
    delta, began = header.last_offset_delta, header.base_timestamp
    places = array("q", [0]) * (count * PLACE_FIELDS)
    locate_records(payload, count, base, delta, began, places)
    offsets = places[_OFFSET::PLACE_FIELDS]
    appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    stamp = header.max_timestamp if appended else None
    for offset in wanted:
        number = bisect_left(offsets, offset)
        if number < count and offsets[number] == offset:
            start, stop = places[number * PLACE_FIELDS : number * PLACE_FIELDS + 2]
            found[offset] = decode_records(payload[start:stop], 1, base, delta, began, stamp)[0]
