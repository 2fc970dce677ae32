"""Finding batches in the segments of a log, by offset and by time, and aborted transactions.

1. A read gives whole batches, from the one that holds the offset asked for.
2. A consumer that reads on, and one that waits at the end, are found without a search.
3. Damaged bytes are passed on: the reader's own checksum refuses them.
4. Where compaction left gaps, the next batch there is stands for an offset that is gone.

HOT: ``read`` runs once per partition of a fetch (benchmarks/storage/read.py).
"""

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

from waystation.model.offsets import Millis, Offset
from waystation.records.batch import records_of
from waystation.records.header import HEADER_BYTES, BatchHeader, peek
from waystation.runtime.regions import FileRegion
from waystation.storage.segment import Segment
from waystation.storage.txn_index import AbortedTxn
from waystation.storage.walk import BrokenBatchError, walk

_PLACES_MAX = 16
_ENDS_MAX = 16
_End = tuple[Offset, Segment, int]
"""An offset, and where in a segment the batches before it end."""


class LogSlice(NamedTuple):
    """What a read gave: bytes in a file, and the offset to read next."""

    region: FileRegion | None
    next_offset: Offset


class Reader:
    """Reads the segments it was given, which their log changes."""

    __slots__ = ("_aborting", "_bases", "_places", "_safe", "_segments", "ends")

    def __init__(self, segments: list[Segment], bases: list[Offset]) -> None:
        self._segments = segments
        self._bases = bases
        self._places: dict[int, tuple[Segment, int]] = {}
        self._safe: _End | None = None
        self._aborting: list[Segment] | None = None
        self.ends: deque[_End] = deque(maxlen=_ENDS_MAX)
        """The latest ends of the log, which appends leave here."""

    def remember_safe(self, safe_end: Offset) -> None:
        """Most reads stop at this offset: what follows it is not safe yet.

        HOT: once per group commit and partition.
        """
        for end in reversed(self.ends):
            if end[0] == safe_end:
                self._safe = end
                return

    def remember(self, offset: Offset, segment: Segment, position: int) -> None:
        """The batch that begins with ``offset`` begins, or will begin, at ``position``."""
        places = self._places
        if offset not in places and len(places) >= _PLACES_MAX:
            del places[next(iter(places))]
        places[offset] = (segment, position)

    def forget(self) -> None:
        """Segments were cut or dropped."""
        self._places.clear()
        self._safe = self._aborting = None
        self.ends.clear()

    def forget_segments(self, gone: list[Segment]) -> None:
        """Others stand in the place of these."""
        self._places = {at: place for at, place in self._places.items() if place[0] not in gone}
        self.ends = deque((end for end in self.ends if end[1] not in gone), _ENDS_MAX)
        self._aborting = None

    def forget_aborting(self) -> None:
        """A segment that had no aborted transaction is about to have one."""
        self._aborting = None

    def read(self, offset: Offset, max_bytes: int, upto: Offset, at_least_one: bool) -> LogSlice:
        """Whole batches from the one that holds ``offset``, all of them before ``upto``."""
        found = self._places.get(offset)
        if found is None or found[1] >= found[0].size_bytes:
            found = self._find(offset)
            if found is None:
                return LogSlice(None, offset)
        segment, start = found
        if upto >= segment.next_offset:
            end, behind = segment.size_bytes, segment.next_offset
        else:
            end, behind = self._boundary(segment, upto)
        if end - start > max_bytes:
            end, behind = self._fit(segment, start, end, max_bytes, at_least_one)
        if end <= start:
            return LogSlice(None, offset)
        self.remember(behind, segment, end)
        return LogSlice(FileRegion(segment.file(), start, end - start), behind)

    def shorten(self, found: LogSlice, last: Offset) -> LogSlice:
        """``found`` up to the end of the batch that holds ``last``, which is one of its offsets."""
        assert found.region is not None, f"nothing was found that could end with {last}"
        segment = self._segments[max(bisect_right(self._bases, last) - 1, 0)]
        try:
            step = segment.find(last)
        except BrokenBatchError:
            return found
        if step is None:
            return found
        start, end = found.region.position, step.position + step.header.size_bytes
        if not start < end <= start + found.region.nbytes:
            return found
        behind = step.header.next_offset
        self.remember(behind, segment, end)
        return LogSlice(FileRegion(found.region.file, start, end - start), behind)

    def find_by_time(self, timestamp: Millis, log_start: Offset) -> tuple[Offset, Millis] | None:
        """The first record at or after ``timestamp``, in the order of offsets."""
        for segment in self._segments:
            if segment.max_timestamp < timestamp:
                continue
            before = segment.time_index.before(timestamp)
            near = segment.offset_index.before(before.offset)
            for position, header in walk(segment.file(), near, segment.size_bytes):
                if header.max_timestamp >= timestamp and header.next_offset > log_start:
                    for offset, at, *_ in self._records(segment, position, header):
                        if at >= timestamp and offset >= log_start:
                            return offset, at
        return None

    def max_timestamp(self) -> tuple[Offset, Millis] | None:
        """The record with the greatest timestamp; the first of several."""
        segment = max(self._segments, key=lambda one: one.max_timestamp)
        newest = segment.max_timestamp
        found = segment.find(segment.max_timestamp_offset) if newest >= 0 else None
        if found is None:
            return None
        records = self._records(segment, *found)
        return next(((one[0], one[1]) for one in records if one[1] == newest), None)

    def aborted(self, start: Offset, end: Offset) -> list[AbortedTxn]:
        """The aborted transactions that reach into ``[start, end)``, by their markers."""
        if self._aborting is None:
            self._aborting = [one for one in self._segments if one.txn_index is not None]
        found: list[AbortedTxn] = []
        for segment in self._aborting:
            if segment.next_offset <= start or segment.txn_index is None:
                continue
            for one in segment.txn_index.since(start):
                if one.first_offset < end:
                    found.append(one)
                if one.last_stable >= end:
                    return found
        return found

    def _find(self, offset: Offset) -> tuple[Segment, int] | None:
        """Where the batch lies that holds ``offset``, or the next one."""
        number = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self._segments[number:]:
            try:
                step = segment.find(offset)
            except BrokenBatchError as broken:
                return segment, broken.position
            if step is not None:
                return segment, step.position
        return None

    def _boundary(self, segment: Segment, upto: Offset) -> tuple[int, Offset]:
        """The end of the batches of ``segment`` that end at or before ``upto``."""
        if upto <= segment.base_offset:
            return 0, segment.base_offset
        safe = self._safe
        if safe is not None and safe[0] == upto and safe[1] is segment:
            return safe[2], upto
        known = self._places.get(upto)
        if known is not None and known[0] is segment:
            return known[1], upto
        step = segment.find(upto)
        assert step is not None, f"{upto} is not in {segment.log.name}"
        base = Offset(min(max(step.header.base_offset, segment.base_offset), upto))
        self.remember(base, segment, step.position)
        return step.position, base

    def _fit(
        self, segment: Segment, start: int, end: int, max_bytes: int, at_least_one: bool
    ) -> tuple[int, Offset]:
        """The last known boundary within ``max_bytes`` of ``start``, or the end of one batch."""
        near = segment.offset_index.up_to(start + max_bytes)
        if near > start:
            return near, self._header(segment, near).base_offset
        position, behind = start, Offset(0)
        for step in walk(segment.file(), start, end):
            behind = step.header.base_offset
            step_end = step.position + step.header.size_bytes
            if step_end - start > max_bytes and not (at_least_one and position == start):
                break
            position, behind = step_end, step.header.next_offset
        return position, behind

    def _header(self, segment: Segment, position: int) -> BatchHeader:
        return peek(segment.file().pread(HEADER_BYTES, position))

    def _records(
        self, segment: Segment, position: int, header: BatchHeader
    ) -> list[tuple[Offset, Millis]]:
        batch = segment.file().pread(header.size_bytes, position)
        return [(record.offset, record.timestamp) for record in records_of(batch)]
